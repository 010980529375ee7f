//! The command line: the only place that declares flags, defaults and environment variables.

pub(crate) mod bench;
mod named;
pub(crate) mod regression;
pub(crate) mod sim;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rustix::process::geteuid;
use serde::Deserialize;

use crate::base::ids::RunId;
use crate::base::private_files;
use crate::cli::named::described_parser;
use crate::config::dataset::DatasetName;
use crate::config::gpus::GpuList;
use crate::config::select::Selector;

/// The version, with the git revision of the build.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("MATRIX_REVISION"), ")");

/// Benchmarks LLM serving engines: a YAML matrix of engines, models and scenarios in, comparable tables out.
///
/// Exit codes: 0 done, 1 something got worse, 2 wrong flags or files (nothing was started), 3 a cell failed or stayed invalid,
/// 4 preflight failed (nothing was started), 5 nothing could be judged, 6 it was started and cannot go on (what was measured is
/// saved), 130 interrupted (what was measured is saved).
#[derive(Debug, Parser)]
#[command(name = "matrix", version = VERSION, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// When to colour what is printed; `NO_COLOR` is honoured.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// How much of the log goes to stderr, as in `matrix=debug`.
    #[arg(
        long,
        global = true,
        env = "MATRIX_LOG",
        default_value = "warn",
        value_name = "FILTER"
    )]
    pub log: String,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read a matrix and its recipes, and name every mistake, also flags that an engine at hand does not know.
    Check(CheckArgs),
    /// Print every cell in order, with the command that each launch stands for.
    Plan(PlanArgs),
    /// Start every engine, measure every cell, write every table.
    Run(RunArgs),
    /// Send a load to a server that is running, and print the figures, as `sglang.bench_serving` does.
    Bench(Box<bench::BenchArgs>),
    /// Measure how far the client's own figures lie from the truth on this machine, with the simulated engine.
    Calibrate(CalibrateArgs),
    /// Draw the tables of finished runs again.
    Report(ReportArgs),
    /// Read what other tools wrote into a run: logs, reports, JSON and CSV of bench_serving, JSON of `vllm bench serve`.
    Import(ImportArgs),
    /// Say why measurements are judged valid, suspect or invalid, with the evidence.
    Explain(ExplainArgs),
    /// Hold one run against another: better, same, worse or unclear, cell by cell.
    Compare(regression::CompareArgs),
    /// Measure how much the figures of this machine vary though nothing changes; comparisons use it from then on.
    Noise(Box<regression::NoiseArgs>),
    /// Set, show or move what nights are held against.
    Baseline(regression::BaselineArgs),
    /// Run a matrix and hold it against its baseline; what seems worse is started afresh before anyone is told.
    Nightly(Box<regression::NightlyArgs>),
    /// Show the nights of a matrix, and where they changed.
    History(regression::HistoryArgs),
    /// Find the first of several versions that is worse.
    Bisect(Box<regression::BisectArgs>),
    /// Get the data sets and tokenizers that a matrix lacks from the model hub; everything else works offline.
    Fetch(FetchArgs),
    /// Remove the processes and containers that dead runs left behind.
    Clean,
    /// Print the JSON Schema of matrix files, engine recipes or reports.
    Schema(SchemaArgs),
    /// Write a first matrix, with the data it needs, into a folder.
    Init(InitArgs),
    /// Serve as a simulated engine.
    Sim(Box<sim::SimArgs>),
    /// Run another program and end everything that it starts when the parent ends.
    #[command(name = "__shim", hide = true)]
    Shim(ExecArgs),
    /// Become another program that ends when its parent does.
    #[command(name = "__exec", hide = true)]
    Exec(ExecArgs),
}

/// Where matrices, caches and secrets are found.
#[derive(Args, Clone, Debug)]
pub struct CacheArgs {
    /// The folder that holds Hugging Face's cache; `~/.cache/huggingface` unless set.
    #[arg(long, env = "HF_HOME", value_name = "DIR")]
    pub hf_home: Option<PathBuf>,
    /// The folder for Python environments, prepared data and records of starts; `~/.cache/matrix` unless set.
    #[arg(long, env = "MATRIX_CACHE", value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

impl Cli {
    /// Parses the arguments of this process. On an error it prints the message and exits.
    pub fn read() -> Self {
        let args: Vec<_> = std::env::args_os().collect();
        Self::try_parse_from(&args).unwrap_or_else(|error| bench::foreign::with_tips(error, &args).exit())
    }
}

impl Command {
    /// Whether `matrix` handles signals for this command. A server or a replaced process handles them itself.
    pub const fn catches_signals(&self) -> bool {
        !matches!(self, Self::Sim(_) | Self::Shim(_) | Self::Exec(_))
    }
}

/// `matrix check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The matrix file.
    pub matrix: PathBuf,
    /// Print the mistakes as JSON.
    #[arg(long)]
    pub json: bool,
    /// Run the `help:` command of each recipe and check its flags against what it prints. This runs programs that the recipes name.
    #[arg(long)]
    pub ask_engines: bool,
    /// Where caches are.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// `matrix plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// The matrix file.
    pub matrix: PathBuf,
    /// Only these cells, as in `engine=sglang,model=~8B`.
    #[arg(long, value_name = "EXPR")]
    pub only: Option<Selector>,
    /// The folder of earlier runs, which tell how long each cell took.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// Print the plan as JSON.
    #[arg(long)]
    pub json: bool,
    /// Where caches are.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// `matrix run`.
///
/// Example: `matrix run matrices/qwen3.yaml --only engine=sglang,model=~8B`
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The matrix file.
    pub matrix: PathBuf,
    /// The folder that gets `<run>/`.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// Only these cells: comparisons joined by commas, `=` with `*` for anything, `=~` for "holds", `!=`, values joined by `|`.
    #[arg(long, value_name = "EXPR")]
    pub only: Option<Selector>,
    /// Take up a run where it stopped: the newest one of this matrix, or the one named. Finished cells are not repeated.
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "latest")]
    pub resume: Option<String>,
    /// With `--resume`: measure the cells again that failed or are invalid.
    #[arg(long, requires = "resume")]
    pub failed: bool,
    /// Measure what is judged invalid again, this often at most; each try is told beside the figures.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub retry_invalid: u32,
    /// With `--resume`: measure finished cells again that the matrix asks otherwise for by now, without a question.
    #[arg(long, requires = "resume")]
    pub yes: bool,
    /// When images are pulled. Whatever a name means when the run begins it means for the whole run.
    #[arg(long, value_enum, default_value_t = PullArg::Missing, value_name = "WHEN")]
    pub pull: PullArg,
    /// Do not measure the client before the first cell: rows then carry no client error.
    #[arg(long)]
    pub no_calibration: bool,
    /// Use only these GPUs of this host, such as `4-7` or `0,2`; idle ones first. Unless named here or by `gpus:` in the matrix,
    /// `CUDA_VISIBLE_DEVICES` and `NVIDIA_VISIBLE_DEVICES` are honoured.
    #[arg(long, value_name = "LIST")]
    pub gpus: Option<GpuList>,
    /// Print every event as a line of JSON on stdout, instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Prepare prompts anew, and keep none.
    #[arg(long)]
    pub fresh_prompts: bool,
    /// Where caches are.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// When images are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PullArg {
    /// Never: an image that is not here is a finding.
    Never,
    /// Where they are not here.
    Missing,
    /// Always: the registry is asked what their names mean now.
    Always,
}

/// `matrix calibrate`.
///
/// The result is kept in the cache folder, and runs on this machine refer to it. Every run also measures briefly at its own
/// concurrency before its first cell.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// How many streams at once, a point for each.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256,1024", value_name = "LIST",
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub streams: Vec<u32>,
    /// The times between the tokens of a stream, ms: the longest for every number of streams, each other one for the most streams that the
    /// simulated engine keeps up with. Give that of your engine to measure the client at it.
    #[arg(long, value_delimiter = ',', default_value = "20,5,1", value_name = "LIST",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub gaps: Vec<u32>,
    /// Tokens of each stream.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub tokens: u32,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Where caches are.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// `matrix fetch`.
///
/// A token for private and gated files is read from `HF_TOKEN`.
#[derive(Args, Debug)]
pub struct FetchArgs {
    /// The matrix file, whose data sets and tokenizers are fetched.
    #[arg(required_unless_present_any = ["tokenizer", "dataset"])]
    pub matrix: Option<PathBuf>,
    /// A model whose tokenizer and chat template are fetched; may be given again.
    #[arg(long, value_name = "OWNER/NAME")]
    pub tokenizer: Vec<String>,
    /// A data set whose file is fetched; may be given again.
    #[arg(long, value_parser = named::fetched_dataset(), value_name = "NAME")]
    pub dataset: Vec<DatasetName>,
    /// Also get every file of the models.
    #[arg(long, requires = "matrix")]
    pub models: bool,
    /// The hub's address.
    #[arg(
        long,
        env = "HF_ENDPOINT",
        default_value = "https://huggingface.co",
        value_name = "URL"
    )]
    pub endpoint: String,
    /// Where caches are.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// `matrix report`.
#[derive(Args, Debug)]
#[command(after_help = "Example: matrix report results/2026-11-21-qwen3 --out published")]
pub struct ReportArgs {
    /// The runs: folders, names of runs, or matrices, for their newest run. Several come into one report.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// The format. Without it a terminal gets its tables, and a folder gets every other format.
    #[arg(long, value_parser = described_parser::<Format>(&REPORT_FORMATS))]
    pub format: Option<Format>,
    /// Write files into this folder instead of printing.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The engine that ratios refer to, by its name in the matrix; unless the matrix says so the first one of each table.
    #[arg(long, value_name = "ENGINE")]
    pub reference: Option<String>,
    /// The smallest change that counts for wins, losses and `[best]`, as in `matrix compare`.
    #[arg(long, default_value = "2%", value_parser = sim::parse_share, value_name = "SHARE")]
    pub floor: f64,
    /// Where caches are; the noise of this machine lies there.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// `matrix explain`.
///
/// Examples: `matrix explain engine=sglang,scenario=sharegpt`, `matrix explain host-busy`
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The cells: a part of their names, or an expression as of `--only`. Without it, all cells of the run; more than four measurements in a line
    /// each. Without `--run` also a code such as `host-busy`: what it means, its bound, and what to do; this needs no run.
    pub cell: Option<String>,
    /// The run: a folder, the name of a run, or a matrix, for its newest run; the newest run of all unless given.
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// Print the table of codes instead: what each means, its bound, and what to do.
    #[arg(long)]
    pub codes: bool,
    /// Print judgement and evidence as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The format of a report, a comparison or a history. Each command supports some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Tables for a terminal.
    Terminal,
    /// Markdown as GitHub renders it.
    Markdown,
    /// One HTML file.
    Html,
    /// Rows for a spreadsheet.
    Csv,
    /// Everything, for programs.
    Json,
}

/// Help for the formats of a report.
const REPORT_FORMATS: [(&str, &str); 5] = [
    ("terminal", "Tables for a terminal"),
    (
        "markdown",
        "Markdown: the comparison, and with `--out` one report per engine",
    ),
    ("html", "One file for a browser, with charts; it needs no network"),
    ("csv", "A row for every figure of every cell"),
    (
        "json",
        "Everything that a report shows, as `matrix schema report` describes it",
    ),
];

/// `matrix import`.
///
/// The format is found by the content. What a file does not tell stays unknown; what contradicts itself is a warning with file and
/// line. Example: `matrix import sglang.md vllm.md --name published`
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// Console logs, Markdown reports, JSON lines, JSON or CSV; they become one run.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The folder that gets `<run>/`.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// The name of the run; `imported-<date>` unless given.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Leave out commands: only figures, names and sizes are kept.
    #[arg(long)]
    pub figures_only: bool,
    /// What the files do not tell. What one of them lacks may also stand beside it, in `FILE.import.yaml` with the same keys.
    #[command(flatten)]
    pub declared: DeclaredArgs,
}

/// What people know of measurements whose files do not tell it.
#[derive(Args, Clone, Debug, Default)]
pub struct DeclaredArgs {
    /// The engine, such as `vllm`.
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// Its version.
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// How many GPUs it computed on.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub gpus: Option<u32>,
    /// Which kind of GPU, such as `H100`.
    #[arg(long, value_name = "KIND")]
    pub gpu: Option<String>,
    /// The precision of the weights, such as `bf16`.
    #[arg(long, value_name = "PRECISION")]
    pub precision: Option<String>,
    /// The model.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
}

/// `matrix schema`.
#[derive(Args, Debug)]
pub struct SchemaArgs {
    /// Which kind of file.
    #[arg(value_enum)]
    pub kind: SchemaKind,
}

/// Kinds of files with a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaKind {
    /// A matrix.
    Matrix,
    /// An engine recipe.
    Engine,
    /// What `matrix report --format json` writes.
    Report,
}

/// `matrix init`.
#[derive(Args, Debug)]
pub struct InitArgs {
    /// The folder; it gets `matrices/`, `engines/` and `schemas/`. Nothing that exists is overwritten.
    #[arg(default_value = ".")]
    pub dir: PathBuf,
}

/// `matrix __shim` and `matrix __exec`.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// The process that must live on.
    pub parent: i32,
    /// The folder of the cgroup that the program enters.
    #[arg(long)]
    pub cgroup: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<std::ffi::OsString>,
}

/// Number of GPUs to simulate, from `MATRIX_PRETEND_GPUS`: for trying out matrices on a host without GPUs,
/// and for tests. Rows measured on them are marked. Fails with a message if the value is no number.
pub(crate) fn pretended_gpus() -> Result<Option<u32>, String> {
    let Some(text) = env_variable("MATRIX_PRETEND_GPUS") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(count) if (1..=64).contains(&count) => Ok(Some(count)),
        _ => Err(format!(
            "MATRIX_PRETEND_GPUS is `{text}`; give a number from 1 to 64, or unset it"
        )),
    }
}

/// The visible GPUs of the environment, and the variable that sets them: `CUDA_VISIBLE_DEVICES`, otherwise
/// `NVIDIA_VISIBLE_DEVICES`. `all` and `void` are no list; an empty value or `none` means no GPU.
pub(crate) fn visible_gpus() -> Option<(&'static str, Option<GpuList>)> {
    ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"]
        .into_iter()
        .find_map(|name| match env_variable(name)?.trim() {
            "all" | "void" => None,
            "" | "none" | "-1" | "NoDevFiles" => Some((name, None)),
            text => Some((name, Some(text.parse().ok()?))),
        })
}

/// Path of NVIDIA's management library from `MATRIX_NVML_LIBRARY`, if it is not the one that the loader
/// finds: for drivers in an unusual place, and for tests.
pub(crate) fn nvml_library() -> Option<PathBuf> {
    env_variable("MATRIX_NVML_LIBRARY").map(PathBuf::from)
}

/// The folder of GPU locks from `MATRIX_LOCKS`, if it is not the one that all users of a host share: for runs
/// in containers that see the same GPUs, and for tests. Runs with different folders do not see each other's
/// locks.
pub(crate) fn lock_folder() -> Option<PathBuf> {
    env_variable("MATRIX_LOCKS").map(PathBuf::from)
}

/// Reads an environment variable; `None` if it is unset or empty. Secrets are read with it.
pub fn env_variable(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the place that reads the environment"
    )]
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(crate) fn env_variable_names() -> Vec<String> {
    std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect()
}

/// The command line of this process with `--resume <run>`, for the user to enter again.
pub(crate) fn resume_command(run: &str) -> String {
    let args: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    with_resume(&args, run)
}

/// The command that prints the report of a run's folder.
pub(crate) fn report_command(run: &Path) -> String {
    format!("matrix report {}", shell_quote(&run.to_string_lossy()))
}

/// The command that runs a matrix file.
pub(crate) fn run_command(matrix: &Path) -> String {
    format!("matrix run {}", shell_quote(&matrix.to_string_lossy()))
}

/// The command that resumes a run of a matrix file.
pub(crate) fn resume_matrix_command(matrix: &Path, run: &RunId) -> String {
    format!("{} --resume {}", run_command(matrix), shell_quote(run.as_str()))
}

fn with_resume(args: &[String], run: &str) -> String {
    let mut command = vec!["matrix".to_owned()];
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            // The value of `--resume` is optional. The path of the matrix file may follow and must not be
            // taken for it.
            "--resume" => {
                let is_value = |next: &&String| {
                    !next.starts_with('-') && !next.ends_with(".yaml") && !next.ends_with(".yml")
                };
                args.next_if(is_value);
            }
            // Outdated measurements were already moved aside.
            "--yes" => {}
            arg if arg.starts_with("--resume=") => {}
            arg => command.push(shell_quote(arg)),
        }
    }
    command.extend(["--resume".to_owned(), shell_quote(run)]);
    command.join(" ")
}

/// Quotes a word for a shell.
pub(crate) fn shell_quote(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:@%+~".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

impl CacheArgs {
    /// The places that the environment names, for commands without flags for them.
    pub(crate) fn from_environment() -> Self {
        Self {
            hf_home: env_variable("HF_HOME").map(PathBuf::from),
            cache: env_variable("MATRIX_CACHE").map(PathBuf::from),
        }
    }

    /// Hugging Face's cache folder.
    pub fn hf_home(&self) -> Option<PathBuf> {
        self.hf_home
            .clone()
            .or_else(|| Some(PathBuf::from(env_variable("HOME")?).join(".cache/huggingface")))
    }

    /// The folder for environments and prepared data.
    pub fn cache(&self) -> PathBuf {
        self.cache.clone().unwrap_or_else(|| {
            let home = env_variable("XDG_CACHE_HOME").map(PathBuf::from);
            let home = home.or_else(|| Some(PathBuf::from(env_variable("HOME")?).join(".cache")));
            home.map_or_else(fallback_cache, |home| home.join("matrix"))
        })
    }

    /// The folder for prepared prompts.
    pub fn prompts_folder(&self) -> PathBuf {
        self.cache().join("prompts")
    }
}

/// The cache folder of a process without a home, as with `env -i` and in system services. A folder of another
/// user is never used, because its owner could change the content.
fn fallback_cache() -> PathBuf {
    static CHOSEN: OnceLock<PathBuf> = OnceLock::new();
    let choose = || {
        let folder = PathBuf::from(format!("/tmp/matrix-{}", geteuid().as_raw()));
        match private_files::create_folder(&folder) {
            Ok(()) => folder,
            // A random name that other users cannot predict.
            Err(_) => folder.with_extension(format!("{:016x}", RandomState::new().build_hasher().finish())),
        }
    };
    CHOSEN.get_or_init(choose).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_goes_on_has_all_arguments_and_the_run() {
        let resumed = |text: &str| {
            let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
            with_resume(&args, "r-1")
        };
        assert_eq!(
            resumed("run m.yaml --results /tmp/out --only engine=~a|b"),
            "matrix run m.yaml --results /tmp/out --only 'engine=~a|b' --resume r-1"
        );
        for old in [
            "run --resume m.yaml",
            "run m.yaml --resume r-0",
            "run m.yaml --resume=r-0",
            "run --resume r-0 m.yaml",
        ] {
            assert_eq!(resumed(old), "matrix run m.yaml --resume r-1");
        }
    }
}
