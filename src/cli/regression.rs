//! Flags of `matrix compare`, `noise`, `baseline`, `nightly`, `history` and `bisect`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::cache::CacheArgs;
use super::matrix_path::matrix_path;
use super::sim::parse_share;
use super::{JobArgs, RunArgs};
use crate::base::units::HumanDuration;
use crate::config::select::{self, Selector};

/// `matrix compare`.
///
/// Example: `matrix compare results/qwen3-20260901T020000Z results/qwen3-20260902T020000Z`
#[derive(Args, Debug)]
#[command(after_long_help = "\
Verdicts. Each start of an engine is one sample, and all gating metrics of all cells are tested together. `worse`, `better`: the change exceeds the bound \
(`--floor`) and is significant (p at most 5 %, adjusted by Holm). `same`: the 90 % confidence interval of the change is within the bound. `unclear`: neither; the \
reason names the smallest loss that these starts could have shown. Not judged: a side has fewer than five starts (three if `matrix noise` measured this host), or the \
sides are not comparable (different GPU, driver, power limit, precision or load). Noise never widens the bound.\n\n\
Error rates in simulations (tests/montecarlo.sh, 24 metrics, 5 starts per side): equal builds get a false `better` or `worse` in at most 5.6 % of comparisons, and a \
loss of 5 % is called `same` in at most 0.2 %. With a noise of 1 %, a loss of 5 % is found in at least 94 %; equal builds are `same` in at least 65 % if the noise was measured.\n\n\
Exit codes: 0 nothing got worse; 1 a metric or the reliability got worse; 3 a cell is missing, failed or invalid; 5 nothing could be judged.")]
pub(crate) struct CompareArgs {
    /// The baseline: a run's folder or name, the name of a matrix (its newest run), or a baseline file.
    pub(crate) baseline: String,
    /// The candidate, which is judged; give it in the same way as the baseline.
    #[arg(required_unless_present = "arms", conflicts_with = "arms")]
    pub(crate) candidate: Option<String>,
    /// Compare two arms of one run instead of two runs, such as `version=v0.5.1,v0.5.2` or `engine=sglang,vllm`: the
    /// first value is the baseline. Arms whose starts alternated are compared round by round.
    #[arg(long, value_name = "AXIS=A,B")]
    pub(crate) arms: Option<Arms>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// How verdicts are computed.
    #[command(flatten)]
    pub(crate) judging: JudgeArgs,
    /// Compare although the environment differs (driver, power limit, GPU or CPU model). The verdicts then do not show whether the engine or
    /// the environment caused a change.
    #[arg(long)]
    pub(crate) across_environments: bool,
    /// The format of the output.
    #[arg(long, default_value = "terminal")]
    pub(crate) format: String,
    /// The cache folders; the noise of this host is read from there.
    #[command(flatten)]
    pub(crate) places: CacheArgs,
}

/// Two values of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arms {
    /// The axis of the matrix in which the two arms differ.
    pub(crate) axis: String,
    /// Values of the baseline and the candidate.
    pub(crate) values: [String; 2],
}

impl std::str::FromStr for Arms {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` does not name two different values of an axis to compare; write `AXIS=A,B`, such as `version=v1,v2` or `engine=a,b`"
            )
        };
        let (axis, values) = text.split_once('=').ok_or_else(wrong)?;
        let values: Vec<&str> = values.split(',').map(str::trim).collect();
        match (select::AXES.contains(&axis.trim()), values.as_slice()) {
            (false, _) => Err(format!(
                "`{}` is not an axis of the matrix; the axes are {}",
                axis.trim(),
                select::AXES.join(", ")
            )),
            (true, [one, two]) if one != two && !one.is_empty() && !two.is_empty() => Ok(Self {
                axis: axis.trim().to_owned(),
                values: [(*one).to_owned(), (*two).to_owned()],
            }),
            (true, _) => Err(wrong()),
        }
    }
}

/// How verdicts are computed.
#[derive(Args, Clone, Debug)]
pub(crate) struct JudgeArgs {
    /// The bound: the smallest change that counts. A change is `same` if its 90 % confidence interval is within the bound. Noise never widens
    /// the bound.
    #[arg(long, default_value = "2%", value_parser = parse_share, value_name = "SHARE")]
    pub(crate) floor: f64,
    /// A gating metric for every cell, such as `p99_ttft_ms`; may be repeated. The default depends on the load. For a
    /// search: its result. At a fixed rate: the median E2E, and the goodput if there is an SLO; if the model decides the
    /// length of its answers, the median TPOT instead of the median E2E. For other loads: the output throughput; if the
    /// model decides the length of its answers, requests per second and the median TPOT instead.
    #[arg(long, value_name = "FIGURE")]
    pub(crate) gate: Vec<String>,
}

/// `matrix noise`.
///
/// Measures the same engine in two arms that alternate, A B B A. The differences between its starts show the smallest change that can be
/// detected; the result is saved in the cache folder. These flags set the number of starts; `repeats` of the matrix is ignored, except for
/// `per_start`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
The saved value is the upper bound of the noise (80 % confidence) with its degrees of freedom. Comparisons use it as an estimate of the variance: three starts per side \
are then enough. It never widens the bound of the verdict `same`. It is used only on the host that measured it, recognised by GPU UUIDs, DMI UUID or machine \
id. The best match is used: the same cell with any version of the engine, else the same model and scenario, else the whole host.\n\n\
In simulations (2000 runs, seed 20261122) with a noise of 1 %, five starts per side show a change of 2.4 %. In these simulations, `--target 2%` is reported as \
reached in at most 15 % of runs. After such a stop, the saved bound is above the true noise in about 75 % of cases. With `--target`, each of the two arms has at least five starts.")]
pub(crate) struct NoiseArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Number of starts of each arm; `--target` may add more.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=50))]
    pub(crate) starts: u32,
    /// Add starts until the noise is known well enough. Then a comparison with five starts per side can detect a change
    /// of this size in every metric, even if the noise is at its upper bound (80 % confidence).
    #[arg(long, value_parser = parse_share, value_name = "SHARE")]
    pub(crate) target: Option<f64>,
    /// With `--target`: the largest number of starts of each launch, as the sum over both arms.
    #[arg(long, default_value_t = 20, value_name = "N", requires = "target", value_parser = clap::value_parser!(u32).range(4..=100))]
    pub(crate) most: u32,
    /// A gating metric for every cell, like `--gate` of `matrix compare`; may be repeated.
    #[arg(long, value_name = "FIGURE")]
    pub(crate) gate: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct BaselineArgs {
    /// What to do with the baseline.
    #[command(subcommand)]
    pub(crate) action: BaselineAction,
}

/// An operation on a baseline.
#[derive(Debug, Subcommand)]
pub(crate) enum BaselineAction {
    /// Create the baseline of a matrix from a run.
    Set(BaselineMoveArgs),
    /// Show the baseline: its run, the values of its cells, and every move with its reason.
    Show {
        /// The matrix file whose baseline is shown.
        #[arg(value_parser = matrix_path())]
        matrix: PathBuf,
        /// The baseline file; `<matrix>.baseline.json` in the folder of the matrix by default.
        #[arg(long, value_name = "FILE")]
        baseline: Option<PathBuf>,
    },
    /// Move the baseline to another run. This accepts all changes since the earlier baseline. The move is recorded
    /// with its reason.
    Accept(BaselineMoveArgs),
}

/// A move of a baseline.
#[derive(Args, Debug)]
pub(crate) struct BaselineMoveArgs {
    /// The matrix file whose baseline is set or moved.
    #[arg(value_parser = matrix_path())]
    pub(crate) matrix: PathBuf,
    /// The run that becomes the baseline: its folder or name; the newest run of the matrix by default.
    pub(crate) run: Option<String>,
    /// Why the baseline is set or moved; shown in its history.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// The baseline file; `<matrix>.baseline.json` in the folder of the matrix by default.
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// A gating metric for every cell, like `--gate` of `matrix compare`; may be repeated.
    #[arg(long, value_name = "FIGURE")]
    pub(crate) gate: Vec<String>,
    /// The cache folders; the noise of this host is read from there.
    #[command(flatten)]
    pub(crate) places: CacheArgs,
}

/// `matrix nightly`.
///
/// Example: `matrix nightly matrices/nightly.yaml --junit junit.xml --keep 720h`
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Verdicts are those of `matrix compare`. The standard error includes the differences between nightly runs, which are estimated from the history. To confirm a suspected \
loss, the same nightly run starts baseline and candidate in turn, and only these starts decide. Losses for which `--budget` allows no fresh starts stay `undecided`.\n\n\
In simulations (tests/montecarlo.sh, 24 metrics, history of 20 nightly runs) with differences of up to 1 % between nightly runs, 0.1 % of nightly runs raise a false alarm, a \
loss of 5 % is found in 92 to 100 %, and at most 4.7 % of unchanged cells need fresh starts.\n\n\
Exit codes: 0 nothing got worse, or there is no baseline yet; 1 a metric, answers or the reliability got worse; 3 a cell failed, is missing or invalid; 5 there is a baseline, but answers could not be compared with it, or nothing \
could be judged or a suspected loss stayed undecided.")]
pub(crate) struct NightlyArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// How verdicts are computed.
    #[command(flatten)]
    pub(crate) judging: JudgeArgs,
    /// The baseline file; `<matrix>.baseline.json` in the folder of the matrix by default. Only `matrix baseline accept` changes it.
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// The largest number of fresh starts per side to confirm one suspected loss; baseline and candidate are started in
    /// turn. If the noise requires more starts, the loss may stay undecided; a limit never causes a false loss.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100))]
    pub(crate) confirm: u32,
    /// Time limit for all confirmations together; unlimited by default. Their duration is estimated from the durations
    /// of this nightly run's launches and cells. The largest losses are confirmed first. Losses for which too little
    /// time is left stay undecided, and the report lists them.
    #[arg(long, value_name = "TIME")]
    pub(crate) budget: Option<HumanDuration>,
    /// URL that gets a message when a finding is new or has ended: an incoming webhook of Slack, or a service that reads the same JSON. Each
    /// change is sent once. With `--cluster`, use the environment variable MATRIX_WEBHOOK instead of this flag, because
    /// others may read the script of a job.
    #[arg(long, env = "MATRIX_WEBHOOK", hide_env_values = true, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// Write the findings as JUnit XML into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Remove the requests, samples and logs of old runs of this matrix: of runs that began longer ago than this time,
    /// such as `720h`. Those of the baseline's run are kept, and so are all figures, all reports and the history.
    #[arg(long, value_name = "TIME")]
    pub(crate) keep: Option<HumanDuration>,
}

/// `matrix history`.
///
/// Example: `matrix history nightly --only model=~8B --format html --out history.html`
#[derive(Args, Debug)]
pub(crate) struct HistoryArgs {
    /// The matrix: the path of its file, or the `name` that is set in its file.
    pub(crate) matrix: String,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Select cells, such as `engine=sglang,model=~8B`; the syntax is that of `matrix run --only`.
    #[arg(long, value_name = "EXPR")]
    pub(crate) only: Option<Selector>,
    /// The smallest change that counts as a level change.
    #[arg(long, default_value = "2%", value_parser = parse_share, value_name = "SHARE")]
    pub(crate) floor: f64,
    /// The format of the output.
    #[arg(long, default_value = "terminal")]
    pub(crate) format: String,
    /// Write the history into this file instead of printing it.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// `matrix bisect`.
///
/// The matrix lists the versions (or image tags) in order, such as `sglang: { version: [v0.5.0, v0.5.1, v0.5.2] }`: the first is good, the last is
/// bad. `--starts` sets the number of starts; `repeats` of the matrix is ignored, except for `per_start`.
///
/// Example: `matrix bisect matrices/bisect.yaml --only model=~8B,scenario=sharegpt`
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
The first and the last version are measured first, in turn. The search then follows the largest loss between them, in one metric and cell. If no metric got worse, it follows crashed \
starts and failed requests. With `--criterion upgrade`, it follows the first loss that `matrix upgrade` names as a reason against the upgrade. After `worse` the search continues among earlier versions, after `same` or `better` among later ones. The first version is started again in turn with each \
version. If a version is `unclear`, the search ends with exit code 5 and prints the two versions between which the first bad one is. Verdicts are those of `matrix compare`. Each \
pair of versions is a separate run; `--resume` continues the newest search that measured the first and the last version.\n\n\
Exit codes: 0 the last version is not worse than the first; 1 the first bad version was found; 5 undecided.")]
pub(crate) struct BisectArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// How verdicts are computed.
    #[command(flatten)]
    pub(crate) judging: JudgeArgs,
    /// What makes a version bad.
    #[arg(long, value_enum, default_value = "metrics", value_name = "WHAT")]
    pub(crate) criterion: BisectCriterion,
    /// Number of starts of each version. A verdict needs five, or three if `matrix noise` measured this host; a smaller
    /// number is raised to this minimum.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) starts: u32,
}

/// What makes a version bad in a search.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BisectCriterion {
    /// A version is bad if a gating metric got worse, or if more requests or starts failed.
    Metrics,
    /// A version is bad if `matrix upgrade` would answer no: because of `metrics`, worse answers, a longer time to ready,
    /// more memory or more energy. Each pair of versions gets the page that `matrix upgrade` writes.
    Upgrade,
}
