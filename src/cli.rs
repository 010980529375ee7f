//! The command line: the only place that declares flags, defaults and environment variables.

pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod command_line;
pub(crate) mod environment;
mod matrix_path;
mod named;
pub(crate) mod orientation;
pub(crate) mod regression;
pub(crate) mod report;
pub(crate) mod sim;
pub(crate) mod tune;
pub(crate) mod upgrade;

use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use self::environment::env_variable;
use crate::cli::cache::CacheArgs;
use crate::cli::matrix_path::matrix_path;
use crate::cli::named::described_values;
use crate::cli::orientation::{CompletionsArgs, DoctorArgs, ListArgs, ManArgs, NewArgs};
use crate::config::dataset::DatasetName;
use crate::config::gpus::GpuList;
use crate::config::select::Selector;

/// The version, with the git revision of the build.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("MATRIX_REVISION"), ")");

/// Benchmarks LLM serving engines: reads a YAML matrix of engines, models and scenarios, and writes comparable tables.
///
/// Exit codes: 0 done, 1 regression, 2 wrong flags or files (nothing was started), 3 a cell failed or stayed invalid, 4 preflight
/// failed (nothing was started), 5 nothing could be judged, 6 the command started but could not continue (finished measurements are
/// saved), 130 interrupted (finished measurements are saved).
#[derive(Debug, Parser)]
#[command(name = "matrix", version = VERSION, max_term_width = 110)]
pub(crate) struct Cli {
    /// The command to execute.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// When to use colours. With `auto`, the variable `NO_COLOR` turns them off.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
    /// Filter of the log on stderr: a level, or a level per module, such as `matrix=debug`.
    #[arg(
        long,
        global = true,
        env = "MATRIX_LOG",
        default_value = "warn",
        value_name = "FILTER"
    )]
    pub(crate) log: String,
}

/// When the output has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// In terminals, but not in pipes and files.
    Auto,
    /// Always, also in pipes.
    Always,
    /// Never, also in terminals.
    Never,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a matrix and its recipes, and report every error; with `--ask-engines`, also report flags that an engine does
    /// not know.
    Check(CheckArgs),
    /// Print every cell in the order of the run, with the command that starts each launch.
    Plan(PlanArgs),
    /// Start all engines, measure all cells, and write the report.
    Run(RunCommand),
    /// Benchmark a running server, with the flags and the output of `sglang.bench_serving`.
    Bench(Box<bench::BenchArgs>),
    #[command(name = bench::like::VLLM_COMMAND, hide = true)]
    BenchLikeVllm(Box<bench::VllmArgs>),
    /// Measure the error of the client's own timestamps on this host, against the simulated engine.
    Calibrate(CalibrateArgs),
    /// Print or write the report of finished runs.
    Report(report::ReportArgs),
    /// Write a static site of many runs: a table of all cells with search, comparison, versions and history.
    Site(report::SiteArgs),
    /// Import results of other tools as a run: bench_serving, vLLM, AIPerf, GuideLLM, InferenceX, llm-d and others.
    Import(ImportArgs),
    /// Explain why measurements are valid, suspect or invalid, with the evidence.
    Explain(report::ExplainArgs),
    /// Compare two runs cell by cell: better, same, worse or unclear.
    Compare(regression::CompareArgs),
    /// Measure how much the metrics vary on this host when nothing is changed. Later comparisons use the result.
    Noise(Box<regression::NoiseArgs>),
    /// Set, show or move the baseline that nightly runs are compared with.
    Baseline(regression::BaselineArgs),
    /// Run a matrix and compare it with its baseline. A suspected loss is measured again with fresh starts before it is reported.
    Nightly(Box<regression::NightlyArgs>),
    /// Show the nightly runs of a matrix, metric by metric, and where the level of a metric changed.
    History(regression::HistoryArgs),
    /// From a list of versions, find the earliest one that is worse than the first version of the list.
    Bisect(Box<regression::BisectArgs>),
    /// Start two versions of an engine in turn, and say whether to upgrade. The report shows what
    /// changed, speed, answers, time to ready, memory and energy.
    Upgrade(Box<upgrade::UpgradeArgs>),
    /// Search for the flags of an engine that are best for a load, and confirm them against the default with fresh starts.
    Tune(Box<tune::TuneArgs>),
    /// Download the missing data sets and tokenizers of a matrix from the model hub. Other commands only read them from the cache.
    Fetch(FetchArgs),
    /// Remove orphans: processes, containers and files of runs that have ended.
    Clean(CleanArgs),
    /// Print the JSON Schema of matrix files, engine recipes or reports.
    Schema(SchemaArgs),
    /// Write an example matrix, with its recipes, data and schemas, into a folder.
    Init(InitArgs),
    /// List the runs of the results folder, the engines with a recipe, or the data sets and where their files are.
    List(ListArgs),
    /// Report what this host lacks, in general or for a given matrix, with the command that fixes each problem.
    /// Nothing is started.
    Doctor(DoctorArgs),
    /// Write the recipe of a new engine, with a matrix that measures it.
    New(NewArgs),
    /// Print the completions of a shell. The wheel and the Debian package install them.
    Completions(CompletionsArgs),
    /// Write the man pages, one for each command, into a folder.
    Man(ManArgs),
    /// Serve a simulated engine, without a model or GPU.
    Sim(Box<sim::SimArgs>),
    /// Run a program, and end all processes of the program when the parent of this process ends.
    #[command(name = "__shim", hide = true)]
    Shim(ExecArgs),
    /// Replace this process by a program that ends when the parent of this process ends.
    #[command(name = "__exec", hide = true)]
    Exec(ExecArgs),
    /// Run a process of an engine on another node of a job.
    #[command(name = "__remote", hide = true)]
    Remote,
    /// Read the telemetry of this node of a job, for a run on another node of the job.
    #[command(name = "__sample", hide = true)]
    Sample,
}

impl Cli {
    /// The declaration of the command line. `formats` are the values of `--format`, with their help texts, of the commands
    /// with these names.
    pub(crate) fn declaration<const N: usize>(
        formats: [(&str, Vec<(&'static str, &'static str)>); N],
    ) -> clap::Command {
        let mut command = Self::command();
        for (name, values) in formats {
            command = command.mut_subcommand(name, |command| {
                command.mut_arg("format", |format| format.value_parser(described_values(&values)))
            });
        }
        command
    }

    /// Parses the arguments of this process. On an error it prints the message and exits.
    pub(crate) fn read(declaration: clap::Command) -> Self {
        let args = bench::like::expand_like(std::env::args_os().collect());
        let matches = declaration.try_get_matches_from(&args);
        matches
            .and_then(|mut matches| Self::from_arg_matches_mut(&mut matches))
            .unwrap_or_else(|error| bench::foreign::with_tips(error, &args).exit())
    }
}

impl Command {
    /// Whether `matrix` handles signals for this command. A server or a replaced process handles them itself.
    pub(crate) const fn catches_signals(&self) -> bool {
        !matches!(
            self,
            Self::Sim(_) | Self::Shim(_) | Self::Exec(_) | Self::Remote | Self::Sample
        )
    }
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The matrix file to read, or the name of one, such as `demo` for `matrices/demo.yaml`.
    #[arg(value_parser = matrix_path())]
    pub(crate) matrix: PathBuf,
    /// Print the errors as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Run the `help:` command of each recipe, and report engine flags that the output of this command does not list.
    /// This executes programs that the recipes name.
    #[arg(long)]
    pub(crate) ask_engines: bool,
    /// Also ask this cluster whether it has what the job of `matrix run --cluster` would request. Nothing is submitted.
    #[arg(long, conflicts_with = "json", value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    #[command(flatten)]
    pub(crate) places: CacheArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CleanArgs {
    /// Also cancel all jobs of this user that `matrix` has submitted to Slurm, including those that run.
    #[arg(long)]
    pub(crate) jobs: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// The matrix file to read, or the name of one, such as `demo` for `matrices/demo.yaml`.
    #[arg(value_parser = matrix_path())]
    pub(crate) matrix: PathBuf,
    /// Select cells, such as `engine=sglang,model=~8B`; the syntax is that of `matrix run --only`.
    #[arg(long, value_name = "EXPR")]
    pub(crate) only: Option<Selector>,
    /// The folder of earlier runs. The plan uses the durations of their cells as estimates.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Also print the script of the job that `matrix run --cluster` would submit.
    #[arg(long, conflicts_with = "json", value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// Print the plan as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) places: CacheArgs,
}

/// `matrix run`.
#[derive(Args, Debug)]
pub(crate) struct RunCommand {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

// A comment for the documentation would become the help of the commands.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobArgs {
    /// Run as a job of this cluster. Give the path of a cluster profile, or its name: `lab` stands for `lab.yaml` in
    /// the folder `clusters` beside the matrix, or in `~/.config/matrix/clusters`. This host then only submits
    /// the job and shows it.
    #[arg(long, conflicts_with = "gpus", value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// The folder of the job that executes this command on a node of the cluster.
    #[arg(long, hide = true, requires = "cluster", value_name = "DIR")]
    pub(crate) job_folder: Option<PathBuf>,
}

/// What `matrix run` and the commands that run a matrix have in common.
///
/// Example: `matrix run matrices/qwen3.yaml --only engine=sglang,model=~8B`
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// The matrix file to read, or the name of one, such as `demo` for `matrices/demo.yaml`.
    #[arg(value_parser = matrix_path())]
    pub(crate) matrix: PathBuf,
    /// The folder in which the folder of the run is created.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Select cells by conditions separated by commas, all of which must match: `axis=value` (`*` matches any text), `axis=~text`
    /// (contains), `axis!=value` (not); alternatives are separated by `|`. Example: `engine=sglang|vllm,model=~8B`.
    #[arg(long, value_name = "EXPR")]
    pub(crate) only: Option<Selector>,
    /// Continue a stopped run: the named one, or the newest run of this matrix. Finished cells are not measured again.
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "latest")]
    pub(crate) resume: Option<String>,
    /// With `--resume`: measure failed and invalid cells again, except for those whose answers are wrong.
    #[arg(long, requires = "resume")]
    pub(crate) failed: bool,
    /// Measure an invalid cell again, at most this many times. The report lists each attempt.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) retry_invalid: u32,
    /// With `--resume`: if the matrix has changed for finished cells, measure these cells again without asking.
    #[arg(long, requires = "resume")]
    pub(crate) yes: bool,
    /// When container images are pulled. An image name is resolved once, at the beginning, for the whole run.
    #[arg(long, value_enum, default_value_t = PullArg::Missing, value_name = "WHEN")]
    pub(crate) pull: PullArg,
    /// Do not calibrate the client before the first cell. The report then does not show the measurement error of the
    /// client.
    #[arg(long)]
    pub(crate) no_calibration: bool,
    /// Use only these GPUs of this host, such as `4-7` or `0,2`; idle ones are used first. The default is `gpus:` of the
    /// matrix, otherwise `CUDA_VISIBLE_DEVICES`, otherwise `NVIDIA_VISIBLE_DEVICES`.
    #[arg(long, value_name = "LIST")]
    pub(crate) gpus: Option<GpuList>,
    /// Print each event as a line of JSON on stdout, instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Answer with Prometheus metrics of the run at this address, such as `127.0.0.1:9464`, until the run ends.
    #[arg(long, value_name = "ADDRESS", value_parser = socket_address)]
    pub(crate) metrics_listen: Option<std::net::SocketAddr>,
    /// Prepare all prompts again: neither read nor write prepared prompts in the cache.
    #[arg(long)]
    pub(crate) fresh_prompts: bool,
    #[command(flatten)]
    pub(crate) places: CacheArgs,
}

/// When images are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PullArg {
    /// Never pull an image. A missing image is an error of the preflight.
    Never,
    /// Pull the image only if it is missing on this host.
    Missing,
    /// Always pull images, so that a tag refers to the image that the registry has now.
    Always,
}

/// `matrix calibrate`.
///
/// The result is saved in the cache folder, and later runs on this host use it. Every run also calibrates briefly at its own
/// concurrency before its first cell.
#[derive(Args, Debug)]
pub(crate) struct CalibrateArgs {
    /// Numbers of concurrent streams; each is one point of the calibration.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256,1024", value_name = "LIST",
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) streams: Vec<u32>,
    /// Times between two tokens of a stream, in ms. The longest time is measured with every number of streams, the
    /// other times with the largest number that the simulated engine can serve. To calibrate the client at the ITL of
    /// your engine, add this ITL to the list.
    #[arg(long, value_delimiter = ',', default_value = "20,5,1", value_name = "LIST",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) gaps: Vec<u32>,
    /// Number of tokens of each stream.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub(crate) tokens: u32,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) places: CacheArgs,
}

/// `matrix fetch`.
///
/// A token for private and gated files is read from `HF_TOKEN`.
#[derive(Args, Debug)]
pub(crate) struct FetchArgs {
    /// The matrix file, whose missing data sets and tokenizers are downloaded.
    #[arg(required_unless_present_any = ["tokenizer", "dataset"], value_parser = matrix_path())]
    pub(crate) matrix: Option<PathBuf>,
    /// Download the tokenizer and the chat template of this model; may be repeated.
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) tokenizer: Vec<String>,
    /// Download the file of this data set; may be repeated.
    #[arg(long, value_parser = named::fetched_dataset(), value_name = "NAME")]
    pub(crate) dataset: Vec<DatasetName>,
    /// Also download all files of the models of the matrix.
    #[arg(long, requires = "matrix")]
    pub(crate) models: bool,
    /// The URL of the model hub.
    #[arg(
        long,
        env = "HF_ENDPOINT",
        default_value = "https://huggingface.co",
        value_name = "URL"
    )]
    pub(crate) endpoint: String,
    #[command(flatten)]
    pub(crate) places: CacheArgs,
}

/// `matrix import`.
///
/// Of bench_serving, `vllm bench serve`, AIPerf, GuideLLM, genai-bench, InferenceX, llm-d and inference-perf. The format is recognised by the content. A fact that a file lacks stays unknown; a contradiction is a warning with file and
/// line. Example: `matrix import sglang.md vllm.md --name published`
#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// Console logs, Markdown reports, JSON lines, JSON, YAML or CSV. All files become one run.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The folder in which the folder of the run is created.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// The name of the run; `imported-<date>` by default.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Import only figures, names and sizes: no commands and no paths.
    #[arg(long)]
    pub(crate) figures_only: bool,
    /// Facts that the files lack. The facts of one file may also be in `FILE.import.yaml` beside it, with the same keys.
    #[command(flatten)]
    pub(crate) declared: DeclaredArgs,
}

/// Facts about imported measurements that their files lack.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DeclaredArgs {
    /// The engine of the measurements, such as `vllm`, for files that do not name it.
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// The version of the engine, for files that do not name it.
    #[arg(long, value_name = "VERSION")]
    pub(crate) version: Option<String>,
    /// The number of GPUs that the engine used, for files that do not name it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) gpus: Option<u32>,
    /// The GPU model, such as `H100`, for files that do not name it.
    #[arg(long, value_name = "KIND")]
    pub(crate) gpu: Option<String>,
    /// The precision of the weights, such as `bf16`, for files that do not name it.
    #[arg(long, value_name = "PRECISION")]
    pub(crate) precision: Option<String>,
    /// The model, for files that do not name it.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct SchemaArgs {
    /// The kind of file that the schema describes.
    #[arg(value_enum)]
    pub(crate) kind: SchemaKind,
}

/// Kinds of files with a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaKind {
    /// The file of a matrix.
    Matrix,
    /// The recipe of an engine.
    Engine,
    /// The profile of a cluster.
    Cluster,
    /// The list of prices.
    Prices,
    /// The output of `matrix report --format json`.
    Report,
}

#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// The folder in which `matrices/`, `engines/` and `schemas/` are written. Existing files are not overwritten.
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
}

/// `matrix __shim` and `matrix __exec`.
#[derive(Args, Debug)]
pub(crate) struct ExecArgs {
    /// The id of the parent process. When this process ends, the program is stopped.
    pub(crate) parent: i32,
    /// The cgroup folder of the program.
    #[arg(long)]
    pub(crate) cgroup: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[cfg(test)]
mod tests;

/// An address to listen on.
fn socket_address(text: &str) -> Result<std::net::SocketAddr, String> {
    let example = "write an address and a port, such as `127.0.0.1:9464` or `[::1]:9464`";
    text.parse().map_err(|_| example.to_owned())
}
