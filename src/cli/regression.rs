//! Flags of `matrix compare`, `noise`, `baseline`, `nightly`, `history` and `bisect`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::sim::parse_share;
use super::{CacheArgs, Format, RunArgs};
use crate::base::units::HumanDuration;
use crate::cli::named::described_parser;
use crate::config::select::{self, Selector};

/// `matrix compare`.
///
/// Example: `matrix compare results/qwen3-20260901T020000Z results/qwen3-20260902T020000Z`
#[derive(Args, Debug)]
#[command(after_long_help = "\
Verdicts. The unit is the start of an engine, and all gating metrics of all cells are judged together. `worse`, `better`: the change lies beyond the bound \
(`--floor`) and beyond chance (p at most 5 %, adjusted by Holm). `same`: the 90 % interval of the change lies within the bound. `unclear`: neither; it says the \
smallest loss that these starts could have shown. Not judged: fewer than five starts on a side (three where `matrix noise` measured this host), or sides that are \
not comparable (another GPU, driver, power limit, precision or load). Noise never widens the bound.\n\n\
Simulated (tests/montecarlo.sh, 24 metrics, 5 starts a side): a false `better` or `worse` in at most 5.6 % of runs of equal builds, a loss of 5 % called `same` in \
at most 0.2 %; at a noise of 1 % a loss of 5 % is found in at least 94 %, and equal builds are `same` in at least 65 % where the noise is known.\n\n\
Exit codes: 0 nothing got worse, 1 a metric or the reliability got worse, 3 a cell is missing, failed or invalid, 5 nothing could be judged.")]
pub struct CompareArgs {
    /// What it is held against: the folder of a run, its name, a matrix's name for its newest run, or a baseline's file.
    pub baseline: String,
    /// What is judged: named in the same ways.
    #[arg(required_unless_present = "arms", conflicts_with = "arms")]
    pub candidate: Option<String>,
    /// Two arms of one run instead, such as `version=v0.5.1,v0.5.2` or `engine=sglang,vllm`: the first is the baseline, and they are compared
    /// round by round where they alternated.
    #[arg(long, value_name = "AXIS=A,B")]
    pub arms: Option<Arms>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// How verdicts are reached.
    #[command(flatten)]
    pub judging: JudgeArgs,
    /// Give verdicts though the environment changed (driver, power limit, GPU or CPU model): what did it, the engine or the machine, is then yours to say.
    #[arg(long)]
    pub across_environments: bool,
    /// The format.
    #[arg(long, value_parser = described_parser::<Format>(&COMPARE_FORMATS), default_value = "terminal")]
    pub format: Format,
    /// Where caches are; the noise of this machine lies there.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// Two values of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arms {
    /// The axis of the arms.
    pub axis: String,
    /// Values of the baseline and the candidate.
    pub values: [String; 2],
}

impl std::str::FromStr for Arms {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` names no two arms; write it like `version=v1,v2` or `engine=a,b`");
        let (axis, values) = text.split_once('=').ok_or_else(wrong)?;
        let values: Vec<&str> = values.split(',').map(str::trim).collect();
        match (select::AXES.contains(&axis.trim()), values.as_slice()) {
            (false, _) => Err(format!(
                "`{}` is not an axis; known: {}",
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

/// How verdicts are reached.
#[derive(Args, Clone, Debug)]
pub struct JudgeArgs {
    /// The practical bound: a smaller change does not count, and is `same` where its 90 % interval lies within. Noise never widens it.
    #[arg(long, default_value = "2%", value_parser = parse_share, value_name = "SHARE")]
    pub floor: f64,
    /// The figure that gates every cell, such as `p99_ttft_ms`; may be given again. By default the one that fits the load: what a
    /// search found; at a fixed rate the median E2E, and goodput where there is an SLO; else output throughput, or requests per second and TPOT where the
    /// model ends its answers.
    #[arg(long, value_name = "FIGURE")]
    pub gate: Vec<String>,
}

/// Help for the formats of a comparison.
const COMPARE_FORMATS: [(&str, &str); 3] = [
    ("terminal", "Tables for a terminal"),
    ("markdown", "Tables as GitHub reads them"),
    ("json", "Everything, for machines"),
];

/// `matrix noise`.
///
/// The same engine is measured in two arms that take turns, A B B A. How much its starts differ though nothing does gives the smallest change that can
/// be seen; it is kept in the cache folder. How often to start is said by these flags; `repeats` of the matrix is not looked at, except for `per_start`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
What is kept is the upper bound of the noise (80 % confidence) with its degrees of freedom. Comparisons use it as knowledge about the variance: three starts on each side \
are then enough, and it never widens what counts as `same`. It is used on its own host only (known by GPU UUIDs, DMI UUID or machine id), for every version of an engine, \
else for the same model and scenario, else for the whole host.\n\n\
Simulated (2000 runs, seed 20261122): with a noise of 1 %, five starts a side show 2.4 %; `--target 2%` is then said to be reached in at most 15 % of tries, and the \
bound that is kept after such a stop lies above the true noise in about 75 %. With `--target` each arm has five starts at least.")]
pub struct NoiseArgs {
    /// What is run.
    #[command(flatten)]
    pub run: RunArgs,
    /// Starts of each arm to begin with.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=50))]
    pub starts: u32,
    /// Start again, until so small a change can be seen in every figure with five starts a side, though noise may be as large as its upper bound (80 %
    /// confidence).
    #[arg(long, value_parser = parse_share, value_name = "SHARE")]
    pub target: Option<f64>,
    /// The most starts of each launch, both arms together, where `--target` asks for more.
    #[arg(long, default_value_t = 20, value_name = "N", requires = "target", value_parser = clap::value_parser!(u32).range(4..=100))]
    pub most: u32,
    /// The figures that gate every cell, as in `compare`; may be given again.
    #[arg(long, value_name = "FIGURE")]
    pub gate: Vec<String>,
}

/// `matrix baseline`.
#[derive(Args, Debug)]
pub struct BaselineArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub action: BaselineAction,
}

/// What is done with a baseline.
#[derive(Debug, Subcommand)]
pub enum BaselineAction {
    /// Set the first one, from a run.
    Set(BaselineMoveArgs),
    /// Show what it holds, and every time it was moved.
    Show {
        /// The matrix file, beside which the baseline lies.
        matrix: PathBuf,
        /// The baseline's file; `<matrix>.baseline.json` beside the matrix unless set.
        #[arg(long, value_name = "FILE")]
        baseline: Option<PathBuf>,
    },
    /// Move it to a run: what changed since is accepted, and stays on record with the reason.
    Accept(BaselineMoveArgs),
}

/// A move of a baseline.
#[derive(Args, Debug)]
pub struct BaselineMoveArgs {
    /// The matrix file, beside which the baseline lies.
    pub matrix: PathBuf,
    /// The run it is moved to: its folder or name; the newest run of the matrix unless given.
    pub run: Option<String>,
    /// Why.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// The baseline's file; `<matrix>.baseline.json` beside the matrix unless set.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// The figures that gate every cell, as in `compare`; may be given again.
    #[arg(long, value_name = "FIGURE")]
    pub gate: Vec<String>,
    /// Where the noise of this host is kept.
    #[command(flatten)]
    pub places: CacheArgs,
}

/// `matrix nightly`.
///
/// Example: `matrix nightly matrices/nightly.yaml --junit junit.xml --keep 720h`
#[derive(Args, Debug)]
#[command(after_long_help = "\
Verdicts are those of `matrix compare`. What nights differ by, told by the history, is part of the error; a suspected loss is confirmed by starting baseline and candidate \
alternately on the same night, and only these rounds decide. What `--budget` leaves no room for stays `undecided`.\n\n\
Simulated (tests/montecarlo.sh, 24 metrics, 20 nights of history): nights that differ by up to 1 % give a false alarm in 0.1 % of nights, a loss of 5 % is found in 92 to \
99 %, and at most 4.5 % of unchanged cells are started afresh.\n\n\
Exit codes: 0 nothing got worse, or no baseline yet; 1 a metric or the reliability got worse; 3 a cell failed, is missing or invalid; 5 there is a baseline and nothing was \
judged, or a suspicion stayed undecided.")]
pub struct NightlyArgs {
    /// What is run.
    #[command(flatten)]
    pub run: RunArgs,
    /// How verdicts are reached.
    #[command(flatten)]
    pub judging: JudgeArgs,
    /// The baseline's file; `<matrix>.baseline.json` beside the matrix unless set. Only `matrix baseline accept` moves it.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// The most fresh starts per side that confirm one suspect, baseline and candidate in turn; fewer than noise asks for may leave it undecided,
    /// never invent a loss.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100))]
    pub confirm: u32,
    /// How long all confirmations together may take, by what each launch and cell took this night. The largest losses come first; what finds no room
    /// stays undecided, and the night says so.
    #[arg(long, value_name = "TIME")]
    pub budget: Option<HumanDuration>,
    /// Where a message goes when something changed: an incoming webhook of Slack, or whatever reads such JSON. It is told once per change.
    #[arg(long, env = "MATRIX_WEBHOOK", hide_env_values = true, value_name = "URL")]
    pub webhook: Option<String>,
    /// Write JUnit XML into this file.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Remove requests, samples and logs of runs of this matrix that began longer ago, except those of the baseline's run; figures, reports and history
    /// stay.
    #[arg(long, value_name = "TIME")]
    pub keep: Option<HumanDuration>,
}

/// Help for the formats of a history.
const HISTORY_FORMATS: [(&str, &str); 5] = [
    ("terminal", "A table for a terminal"),
    ("markdown", "A table as GitHub reads it"),
    (
        "html",
        "One file for a browser, with a chart of every figure; it needs no network",
    ),
    ("csv", "A row for every night of every figure"),
    ("json", "Everything, for machines"),
];

/// `matrix history`.
///
/// Example: `matrix history nightly --only model=~8B --format html --out history.html`
#[derive(Args, Debug)]
pub struct HistoryArgs {
    /// The matrix: its file, or its name as the file gives it.
    pub matrix: String,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// Only these cells, in the language of `matrix run --only`: `engine=sglang,model=~8B`.
    #[arg(long, value_name = "EXPR")]
    pub only: Option<Selector>,
    /// The smallest change that counts.
    #[arg(long, default_value = "2%", value_parser = parse_share, value_name = "SHARE")]
    pub floor: f64,
    /// The format.
    #[arg(long, value_parser = described_parser::<Format>(&HISTORY_FORMATS), default_value = "terminal")]
    pub format: Format,
    /// Write it into this file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `matrix bisect`.
///
/// The matrix lists the versions (or image tags) in order, as in `sglang: { version: [v0.5.0, v0.5.1, v0.5.2] }`: the first is good, the last is bad.
/// How often to start is said by `--starts`; `repeats` of the matrix is not looked at, except for `per_start`.
///
/// Example: `matrix bisect matrices/bisect.yaml --only model=~8B,scenario=sharegpt`
#[derive(Args, Debug)]
#[command(after_long_help = "\
Both ends are measured first, in turn. The search then moves only on the metric of the cell that got worse most, or on crashed starts and failed requests where only \
these did: `worse` goes on before a version, `same` and `better` after it, each time with the good version started anew in turn with it. Where a version is `unclear` it ends with 5 and says between which two the first bad one lies. \
Verdicts are those of `matrix compare`. Each pair of versions is a run of its own, and `--resume` goes on with the newest search that measured both ends.\n\n\
Exit codes: 0 the last version is not worse than the first, 1 the first bad version was found, 5 undecided.")]
pub struct BisectArgs {
    /// What is run.
    #[command(flatten)]
    pub run: RunArgs,
    /// How verdicts are reached.
    #[command(flatten)]
    pub judging: JudgeArgs,
    /// Starts of each version that is looked at: five at least, or three where the noise of this host is known (`matrix noise`). Fewer are raised to
    /// that, as they would decide nothing.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    pub starts: u32,
}
