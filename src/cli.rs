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

/// Benchmarks LLM serving engines: reads a YAML matrix of engines, models and scenarios, and writes comparable tables.
///
/// Exit codes: 0 done, 1 regression, 2 wrong flags or files (nothing was started), 3 a cell failed or stayed invalid, 4 preflight
/// failed (nothing was started), 5 nothing could be judged, 6 the command started but could not continue (finished measurements are
/// saved), 130 interrupted (finished measurements are saved).
#[derive(Debug, Parser)]
#[command(name = "matrix", version = VERSION, max_term_width = 110)]
pub struct Cli {
    /// The command to execute.
    #[command(subcommand)]
    pub command: Command,
    /// When to use colours. With `auto`, the variable `NO_COLOR` turns them off.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// Filter of the log on stderr: a level, or a level per module, such as `matrix=debug`.
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
    /// If the output is a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a matrix and its recipes, and report every error; with `--ask-engines` also flags that an engine does not know.
    Check(CheckArgs),
    /// Print every cell in the order of the run, with the command that starts each launch.
    Plan(PlanArgs),
    /// Start all engines, measure all cells, and write the report.
    Run(RunArgs),
    /// Benchmark a running server, with the flags and the output of `sglang.bench_serving`.
    Bench(Box<bench::BenchArgs>),
    /// Measure the error of the client's own timestamps on this host, against the simulated engine.
    Calibrate(CalibrateArgs),
    /// Print or write the report of finished runs.
    Report(ReportArgs),
    /// Import results of other tools as a run: logs, reports, JSON and CSV of bench_serving, JSON of `vllm bench serve`.
    Import(ImportArgs),
    /// Explain why measurements are valid, suspect or invalid, with the evidence.
    Explain(ExplainArgs),
    /// Compare two runs cell by cell: better, same, worse or unclear.
    Compare(regression::CompareArgs),
    /// Measure how much the metrics of this host vary without a change. Later comparisons use the result.
    Noise(Box<regression::NoiseArgs>),
    /// Set, show or move the baseline that nightly runs are compared with.
    Baseline(regression::BaselineArgs),
    /// Run a matrix and compare it with its baseline. A suspected loss is measured again with fresh starts before it is reported.
    Nightly(Box<regression::NightlyArgs>),
    /// Show the nightly runs of a matrix, metric by metric, with level changes.
    History(regression::HistoryArgs),
    /// Find the first of several versions that is worse than the first one.
    Bisect(Box<regression::BisectArgs>),
    /// Download the missing data sets and tokenizers of a matrix from the model hub. Other commands only read them from the cache.
    Fetch(FetchArgs),
    /// Remove orphans: processes, containers and files of runs that have ended.
    Clean,
    /// Print the JSON Schema of matrix files, engine recipes or reports.
    Schema(SchemaArgs),
    /// Write an example matrix, with its recipes, data and schemas, into a folder.
    Init(InitArgs),
    /// Serve a simulated engine, without a model or GPU.
    Sim(Box<sim::SimArgs>),
    /// Run a program, and end all its processes when the parent ends.
    #[command(name = "__shim", hide = true)]
    Shim(ExecArgs),
    /// Replace this process by a program that ends with its parent.
    #[command(name = "__exec", hide = true)]
    Exec(ExecArgs),
}

/// The cache folders.
#[derive(Args, Clone, Debug)]
pub struct CacheArgs {
    /// Hugging Face's cache folder; `~/.cache/huggingface` by default.
    #[arg(long, env = "HF_HOME", value_name = "DIR")]
    pub hf_home: Option<PathBuf>,
    /// The cache folder of `matrix`: Python environments, prepared prompts, calibration, noise and records of starts;
    /// `~/.cache/matrix` by default.
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
    /// Print the errors as JSON.
    #[arg(long)]
    pub json: bool,
    /// Run the `help:` command of each recipe and report flags that its output does not list. This executes programs that the
    /// recipes name.
    #[arg(long)]
    pub ask_engines: bool,
    /// The cache folders.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// `matrix plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// The matrix file.
    pub matrix: PathBuf,
    /// Select cells, such as `engine=sglang,model=~8B`; the syntax is that of `matrix run --only`.
    #[arg(long, value_name = "EXPR")]
    pub only: Option<Selector>,
    /// The folder of earlier runs; the durations of their cells are the estimates of the plan.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// Print the plan as JSON.
    #[arg(long)]
    pub json: bool,
    /// The cache folders.
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
    /// The folder in which the folder of the run is created.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// Select cells by conditions separated by commas, all of which must match: `axis=value` (`*` matches any text), `axis=~text`
    /// (contains), `axis!=value` (not); alternatives are separated by `|`. Example: `engine=sglang|vllm,model=~8B`.
    #[arg(long, value_name = "EXPR")]
    pub only: Option<Selector>,
    /// Continue a stopped run: the named one, or the newest run of this matrix. Finished cells are not measured again.
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "latest")]
    pub resume: Option<String>,
    /// With `--resume`: measure failed and invalid cells again.
    #[arg(long, requires = "resume")]
    pub failed: bool,
    /// Measure an invalid cell again, at most this many times. The report lists each attempt.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub retry_invalid: u32,
    /// With `--resume`: measure finished cells again without asking, if the matrix has changed for them.
    #[arg(long, requires = "resume")]
    pub yes: bool,
    /// When container images are pulled. An image name is resolved once, at the beginning, for the whole run.
    #[arg(long, value_enum, default_value_t = PullArg::Missing, value_name = "WHEN")]
    pub pull: PullArg,
    /// Do not calibrate the client before the first cell. The report then has no client error.
    #[arg(long)]
    pub no_calibration: bool,
    /// Use only these GPUs of this host, such as `4-7` or `0,2`; idle ones are used first. By default `gpus:` of the matrix, or
    /// `CUDA_VISIBLE_DEVICES` or `NVIDIA_VISIBLE_DEVICES`.
    #[arg(long, value_name = "LIST")]
    pub gpus: Option<GpuList>,
    /// Print each event as a line of JSON on stdout, instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Prepare all prompts again: neither read nor write prepared prompts in the cache.
    #[arg(long)]
    pub fresh_prompts: bool,
    /// The cache folders.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// When images are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PullArg {
    /// Never. A missing image is an error of the preflight.
    Never,
    /// If the image is missing on this host.
    Missing,
    /// Always, so that a tag is what the registry has now.
    Always,
}

/// `matrix calibrate`.
///
/// The result is saved in the cache folder, and later runs on this host use it. Every run also calibrates briefly at its own
/// concurrency before its first cell.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// Numbers of concurrent streams; each is one point of the calibration.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256,1024", value_name = "LIST",
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub streams: Vec<u32>,
    /// Times between two tokens of a stream, in ms. The longest is measured with every number of streams, the others with the largest
    /// number that the simulated engine can serve. Add the ITL of your engine to calibrate the client at it.
    #[arg(long, value_delimiter = ',', default_value = "20,5,1", value_name = "LIST",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub gaps: Vec<u32>,
    /// Number of tokens of each stream.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub tokens: u32,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// The cache folders.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// `matrix fetch`.
///
/// A token for private and gated files is read from `HF_TOKEN`.
#[derive(Args, Debug)]
pub struct FetchArgs {
    /// The matrix file, whose missing data sets and tokenizers are downloaded.
    #[arg(required_unless_present_any = ["tokenizer", "dataset"])]
    pub matrix: Option<PathBuf>,
    /// Download the tokenizer and the chat template of this model; may be repeated.
    #[arg(long, value_name = "OWNER/NAME")]
    pub tokenizer: Vec<String>,
    /// Download the file of this data set; may be repeated.
    #[arg(long, value_parser = named::fetched_dataset(), value_name = "NAME")]
    pub dataset: Vec<DatasetName>,
    /// Also download all files of the models of the matrix.
    #[arg(long, requires = "matrix")]
    pub models: bool,
    /// The URL of the model hub.
    #[arg(
        long,
        env = "HF_ENDPOINT",
        default_value = "https://huggingface.co",
        value_name = "URL"
    )]
    pub endpoint: String,
    /// The cache folders.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// `matrix report`.
#[derive(Args, Debug)]
#[command(after_help = "Example: matrix report results/2026-11-21-qwen3 --out published")]
pub struct ReportArgs {
    /// The runs: a run's folder or name, or a matrix, for its newest run. Several runs are shown in one report.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// The format. By default `terminal`, or with `--out` all other formats.
    #[arg(long, value_parser = described_parser::<Format>(&REPORT_FORMATS))]
    pub format: Option<Format>,
    /// Write files into this folder instead of printing.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The engine that ratios refer to, by its name in the matrix. By default that of the matrix, else the first engine of each table.
    #[arg(long, value_name = "ENGINE")]
    pub reference: Option<String>,
    /// The smallest change that counts as a win, a loss or `[best]`, as in `matrix compare`.
    #[arg(long, default_value = "2%", value_parser = sim::parse_share, value_name = "SHARE")]
    pub floor: f64,
    /// The cache folders; the noise of this host is read from there.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// `matrix explain`.
///
/// Examples: `matrix explain engine=sglang,scenario=sharegpt`, `matrix explain host-busy`
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The cells: a part of their names, or a selector as for `matrix run --only`. By default all cells of the run; more than four
    /// measurements are printed in one line each. Without `--run` also a reason code such as `host-busy`: prints its meaning, its bound
    /// and the fix, and needs no run.
    pub cell: Option<String>,
    /// The run: its folder or name, or a matrix, for its newest run. By default the newest run of all.
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// Print the table of all reason codes instead, with meaning, bound and fix.
    #[arg(long)]
    pub codes: bool,
    /// Print the validity and its evidence as JSON.
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
    /// CSV for a spreadsheet.
    Csv,
    /// JSON with everything, for programs.
    Json,
}

/// Help for the formats of a report.
const REPORT_FORMATS: [(&str, &str); 5] = [
    ("terminal", "Tables for a terminal"),
    ("markdown", "Markdown; with `--out` also one report per engine"),
    ("html", "One HTML file with charts; it needs no network"),
    ("csv", "CSV with one row for each metric of each cell"),
    (
        "json",
        "Everything that a report shows; `matrix schema report` prints the schema",
    ),
];

/// `matrix import`.
///
/// The format is recognised by the content. A fact that a file lacks stays unknown; a contradiction is a warning with file and
/// line. Example: `matrix import sglang.md vllm.md --name published`
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// Console logs, Markdown reports, JSON lines, JSON or CSV. All files become one run.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The folder in which the folder of the run is created.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// The name of the run; `imported-<date>` by default.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Import only figures, names and sizes: no commands and no paths.
    #[arg(long)]
    pub figures_only: bool,
    /// Facts that the files lack. The facts of one file may also be in `FILE.import.yaml` beside it, with the same keys.
    #[command(flatten)]
    pub declared: DeclaredArgs,
}

/// Facts about imported measurements that their files lack.
#[derive(Args, Clone, Debug, Default)]
pub struct DeclaredArgs {
    /// The engine of the measurements, such as `vllm`, if a file lacks it.
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// The version of the engine, if a file lacks it.
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// The number of GPUs that the engine used, if a file lacks it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub gpus: Option<u32>,
    /// The GPU model, such as `H100`, if a file lacks it.
    #[arg(long, value_name = "KIND")]
    pub gpu: Option<String>,
    /// The precision of the weights, such as `bf16`, if a file lacks it.
    #[arg(long, value_name = "PRECISION")]
    pub precision: Option<String>,
    /// The model, if a file lacks it.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
}

/// `matrix schema`.
#[derive(Args, Debug)]
pub struct SchemaArgs {
    /// The kind of file that the schema describes.
    #[arg(value_enum)]
    pub kind: SchemaKind,
}

/// Kinds of files with a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaKind {
    /// A matrix file.
    Matrix,
    /// An engine recipe.
    Engine,
    /// The output of `matrix report --format json`.
    Report,
}

/// `matrix init`.
#[derive(Args, Debug)]
pub struct InitArgs {
    /// The folder in which `matrices/`, `engines/` and `schemas/` are written. Existing files are not overwritten.
    #[arg(default_value = ".")]
    pub dir: PathBuf,
}

/// `matrix __shim` and `matrix __exec`.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// The process whose end stops the program.
    pub parent: i32,
    /// The cgroup folder of the program.
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
            "MATRIX_PRETEND_GPUS is `{text}`; set a number from 1 to 64, or unset it"
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
