//! Flags of the commands that help to begin: `list`, `doctor`, `new`, `completions` and `man`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::cache::CacheArgs;
use crate::cli::matrix_path::matrix_path;

/// `matrix list`.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// What to list.
    #[arg(value_enum, default_value_t = Listed::Runs)]
    pub(crate) what: Listed,
    /// The folder of the runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Print the list as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) places: CacheArgs,
}

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listed {
    /// Runs, the newest first, with the names that `report`, `compare` and `--resume` accept.
    Runs,
    /// Engines with a recipe: those of `engines/` in this folder, and the shipped ones.
    Engines,
    /// Data sets, and whether their files are on this host.
    Datasets,
}

/// `matrix doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// The matrix file whose needs are checked. Without it the host alone is described.
    #[arg(value_parser = matrix_path())]
    pub(crate) matrix: Option<PathBuf>,
    /// The folder in which results would be written.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    #[command(flatten)]
    pub(crate) places: CacheArgs,
}

/// `matrix new`.
#[derive(Args, Debug)]
pub(crate) struct NewArgs {
    #[command(subcommand)]
    pub(crate) what: NewFile,
}

/// What can be written anew.
#[derive(Debug, Subcommand)]
pub(crate) enum NewFile {
    /// Write `engines/NAME.yaml` and `matrices/NAME.yaml`, which measures the engine. Existing files are not overwritten.
    Engine(NewEngineArgs),
}

/// `matrix new engine`.
#[derive(Args, Debug)]
pub(crate) struct NewEngineArgs {
    /// The name of the engine: lower-case letters, digits, `.` and `-`.
    pub(crate) name: String,
    /// The command that starts the server, such as `myserver --model {model} --port {port}`.
    #[arg(long, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// The container image of the server. If it is set, the words of `--command` are the arguments of the container.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// The model of the matrix: a name of the model hub, or a folder.
    #[arg(long, default_value = "Qwen/Qwen3-8B", value_name = "MODEL")]
    pub(crate) model: String,
    /// The folder that holds `engines/` and `matrices/`.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// `matrix completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// `matrix man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// The folder in which the pages are written.
    pub(crate) dir: PathBuf,
}

/// The completions of a shell.
pub(crate) fn completions(shell: clap_complete::Shell, mut declaration: clap::Command) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut declaration, "matrix", &mut text);
    text
}

/// Writes a page for each command into a folder that exists.
pub(crate) fn write_man_pages(declaration: clap::Command, dir: &std::path::Path) -> std::io::Result<()> {
    clap_mangen::generate_to(declaration, dir)
}
