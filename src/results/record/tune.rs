//! A search for the best configuration, and what it found: `tune.json`. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::RunId;

/// A search with its trials, and with its result once it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TuneRecord {
    /// Version of the files on disk.
    pub(crate) format: u32,
    pub(crate) matrix: String,
    pub(crate) engine: String,
    pub(crate) model: String,
    pub(crate) scenario: String,
    pub(crate) objective: String,
    /// The metric that is maximised, in words, with its unit.
    pub(crate) metric: String,
    pub(crate) unit: String,
    pub(crate) budget: String,
    pub(crate) seed: u64,
    /// Starts of each side that the confirmation needs.
    pub(crate) confirm_starts: u32,
    pub(crate) space: Vec<SpaceRow>,
    /// What was left out of the space, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    /// In the order in which they were proposed.
    pub(crate) trials: Vec<TrialRecord>,
    /// Every confirmation that ended, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) confirmations: Vec<ConfirmationRun>,
    pub(crate) spent: Spent,
    /// Whether the engine is simulated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_simulated: bool,
    /// Price of a GPU for an hour, if the objective is the cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gpu_hour_price: Option<f64>,
    /// Absent until the search has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<TuneResult>,
}

/// A setting that was varied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SpaceRow {
    pub(crate) setting: String,
    pub(crate) values: Vec<String>,
    pub(crate) default: String,
}

/// One start of one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrialRecord {
    /// The name of the configuration: `default`, `t01`, `t02` …
    pub(crate) set: String,
    /// For each setting of the space the position of its value.
    pub(crate) point: Vec<usize>,
    /// Whether it was measured with fewer prompts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_short: bool,
    /// The settings that differ from the default configuration, with their values.
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) outcome: TrialResult,
    /// The figure to maximise, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) figure: Option<f64>,
    /// Why the configuration cannot win, or why nothing is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Output tokens per second and GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) throughput_per_gpu: Option<f64>,
    /// Output tokens per second for one user while an answer streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interactivity: Option<f64>,
    /// Median time to the first token in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttft_ms: Option<f64>,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TrialResult {
    /// It has not ended.
    Open,
    Measured,
    /// The configuration crashed, was refused, answered wrongly or held no load within the SLO.
    Infeasible,
    /// Nothing is known of the configuration.
    Unknown,
}

/// A configuration that was started in turn with the default one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConfirmationRun {
    /// The name of the configuration.
    pub(crate) set: String,
    pub(crate) run: RunId,
    /// What it showed, in words.
    pub(crate) finding: String,
    /// Whether the configuration cannot win whatever its figure: it fails, or answers worse.
    pub(crate) is_rejected: bool,
    /// Whether it did not decide.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_undecided: bool,
    /// Starts of both sides.
    pub(crate) starts: u32,
    /// Starts besides these that were interrupted, or measured again.
    #[serde(default)]
    pub(crate) repeated_starts: u32,
    pub(crate) gpu_minutes: f64,
}

/// What a search has used of its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spent {
    pub(crate) trial_starts: u32,
    pub(crate) confirm_starts: u32,
    /// Starts besides these that were interrupted, or measured again. A budget of starts does not count them.
    #[serde(default)]
    pub(crate) repeated_starts: u32,
    /// Minutes from the start commands to the engines' ends, times their GPUs; an engine without GPUs counts as one.
    pub(crate) gpu_minutes: f64,
}

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TuneResult {
    pub(crate) kind: TuneResultKind,
    /// Why, in words.
    pub(crate) reason: String,
    /// The name of the best configuration of the trials; absent if none was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) winner: Option<String>,
    /// The winner as an entry of a matrix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) entry: Option<String>,
    /// The settings in which the winner differs, the largest contribution first.
    pub(crate) contributions: Vec<ContributionRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) confirmation: Option<Confirmation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TuneResultKind {
    /// The winner was better than the default in fresh starts.
    Confirmed,
    /// In fresh starts the winner was not better than the default.
    NoBetter,
    /// No configuration was better than the default in the trials.
    DefaultIsBest,
    NotDecided,
}

/// What one setting contributes to the winner, by the estimate of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContributionRecord {
    pub(crate) setting: String,
    pub(crate) value: String,
    pub(crate) default: String,
    /// The change of the winner's figure by this value, as a share; absent if the winner without it is not known to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<f64>,
}

/// The winner against the default, in fresh starts that alternated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Confirmation {
    pub(crate) run: RunId,
    /// The metric that was judged, in words.
    pub(crate) metric: String,
    pub(crate) verdict: String,
    /// Starts of the default and of the winner.
    pub(crate) starts: [usize; 2],
    /// Figures of the default and of the winner.
    pub(crate) values: [Option<f64>; 2],
    /// The change as a share, with its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interval: Option<[f64; 2]>,
    /// Starts of the default and of the winner that failed, were invalid by their own fault or missed the SLO.
    #[serde(default)]
    pub(crate) failed_starts: [usize; 2],
    /// Findings and failed requests of the default's and of the winner's starts, in words.
    #[serde(default)]
    pub(crate) doubts: [Option<String>; 2],
    /// Starts of each side that would decide if the true change is this one; absent if it is decided, or if 100 would not decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) starts_to_decide: Option<usize>,
}
