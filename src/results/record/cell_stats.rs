//! Input of a comparison: every cell's metrics by start, and the conditions of the measurement. Pure; small
//! enough to keep a baseline in git.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::{CellKey, ContentHash, LaunchId, RunId};
use crate::config::select::{self, AxisValues};
use crate::plan::Launch;
use crate::results::record::cell::Origin;
use crate::results::record::prompt::MeanPromptTokens;
use crate::results::record::validity::MetricFamily;

/// Facts by name, such as `driver`, as they are shown to users.
pub(crate) type Facts = BTreeMap<String, String>;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunStats {
    /// The run that measured it.
    pub(crate) run: RunId,
    /// Name of the run's matrix.
    pub(crate) matrix: String,
    /// When the run began, RFC 3339.
    pub(crate) began: String,
    /// Version of `matrix` that measured.
    pub(crate) tool: String,
    /// The host that measured.
    pub(crate) machine: Facts,
    /// The cells by key.
    pub(crate) cells: BTreeMap<CellKey, CellStats>,
}

impl RunStats {
    /// Returns the facts of each host that measured this cell of the run.
    pub(crate) fn hosts<'a>(&'a self, cell: &'a CellStats) -> &'a [Facts] {
        match cell.hosts.as_slice() {
            [] => std::slice::from_ref(&self.machine),
            hosts => hosts,
        }
    }

    /// Finds the key of the same cell, or of the only cell that differs from it just in the version.
    pub(crate) fn matching_key(&self, key: &CellKey) -> Option<&CellKey> {
        if let Some((known, _)) = self.cells.get_key_value(key) {
            return Some(known);
        }
        let loose = |key: &CellKey| {
            let mut axes = select::parse_key(key.as_str());
            axes.remove("version");
            axes
        };
        let wanted = loose(key);
        let mut alike = self.cells.keys().filter(|known| loose(known) == wanted);
        let first = alike.next()?;
        alike.next().is_none().then_some(first)
    }
}

/// One cell of a side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CellStats {
    /// The values of the cell's axes.
    pub(crate) axes: AxisValues,
    /// Digest of launch, scenario and seed.
    pub(crate) content: ContentHash,
    /// Everything requested except prompts: model, precision, arrivals. Cells that differ here are not
    /// comparable.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) asked: Facts,
    /// SLO and timeouts. Goodput depends on the SLO, failures on the timeouts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) limits: Facts,
    /// The engine that answered: version, image, tokenizer. Comparisons are made to judge differences here.
    pub(crate) engine: Facts,
    /// The hosts that measured, in a run of several hosts; empty if that is the host of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<Facts>,
    /// Arguments, environment variables, image and checkpoint of the engine, by name; empty if unknown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) settings: Facts,
    /// The data set, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<String>,
    /// Digest of the prompts; absent if unknown, or if measurements differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompts: Option<ContentHash>,
    /// Mean GPU clock while busy, in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clock_mhz: Option<f64>,
    /// Share of samples in which the GPUs were at their power limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capped_share: Option<f64>,
    /// Share of answers that repeat one token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) one_token_share: Option<f64>,
    /// Share of answers that are a loop of a few tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) loop_share: Option<f64>,
    /// Share of answers that equal the answer to another prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) canned_share: Option<f64>,
    /// Ratio of output tokens: the server's count over our own count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tokens_per_counted: Option<f64>,
    /// Output tokens per stream event, by the server's count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tokens_per_event: Option<f64>,
    /// Tokens per prompt that stand for images, by the server's count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) vision_tokens: Option<f64>,
    /// Tokens of a prompt by our count and by the server's; absent if the server did not count every prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_tokens: Option<MeanPromptTokens>,
    /// GPUs of the engine; 0 if it uses none, or for an attached server whose GPUs are unknown.
    pub(crate) devices: u32,
    /// Whether the server is attached. Its "starts" are then repeats on one server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) attached: bool,
    /// Number of completed requests of the measurement that has the fewest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u32>,
    /// Where the metrics come from.
    pub(crate) origin: Origin,
    /// Names of the gating metrics.
    pub(crate) gates: Vec<String>,
    /// Values by metric name: one list of repeats for each start that counts.
    pub(crate) figures: BTreeMap<String, Vec<Vec<f64>>>,
    /// 95 % confidence interval of each percentile, from the requests alone: by metric name, for each
    /// measurement that counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) intervals: BTreeMap<String, Vec<[f64; 2]>>,
    /// Measurements that do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) excluded: Vec<ExcludedMeasurement>,
    /// Results that the engine was at fault for and that others replaced, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) replaced: Vec<String>,
    /// The launch within its run. Cells of one launch share its starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) launch: Option<LaunchId>,
    /// Number of starts that were planned before a stopping rule decided; absent without a stopping rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_stage: Option<u32>,
    /// Half-width of the rounding of coarse metrics, as a share: half the bracket of a search, or half the
    /// last digit that another tool printed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) resolutions: BTreeMap<String, f64>,
    /// Metrics without a ratio, and the reason: a search without a bracket.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) no_ratio: Facts,
    /// Metrics with a ratio but without a verdict, and the reason: throughput of a run that its drain
    /// dominates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) no_verdict: Facts,
    /// Mean output tokens per answer, if the model decides when an answer ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer_tokens: Option<f64>,
    /// Measurements that count but are suspect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) suspect: Vec<SuspectMeasurement>,
    /// Counts of starts and requests, including failed ones; absent in older files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tried: Option<ReliabilityCounts>,
}

/// A measurement that counts but is suspect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SuspectMeasurement {
    /// Number of the engine start on which it was measured, from 1.
    pub(crate) start: u32,
    /// Index of the repeat on it, from 1.
    pub(crate) repeat: u32,
    /// The affected metric families; empty if all are affected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) only: Vec<MetricFamily>,
    /// The reason in words.
    pub(crate) reason: String,
}

/// How often a cell was attempted, and how often it failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReliabilityCounts {
    /// Starts of the engine that were made to measure it.
    pub(crate) starts: u32,
    /// Starts on which the engine failed before the measurement ended.
    pub(crate) crashed: u32,
    /// Requests that fell due in completed measurements.
    pub(crate) requests: u64,
    /// Those of `requests` that failed.
    pub(crate) failed: u64,
    /// For each completed start: failed requests, all requests. Absent in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) by_start: Vec<[u64; 2]>,
}

/// A measurement that does not count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExcludedMeasurement {
    /// Number of the engine start on which it was measured, from 1.
    pub(crate) start: u32,
    /// Index of the repeat on it, from 1.
    pub(crate) repeat: u32,
    /// Why it does not count.
    pub(crate) cause: ExclusionCause,
    /// The reason in words.
    pub(crate) reason: String,
}

/// Why a measurement does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ExclusionCause {
    /// It was left out, or the run was stopped before or while it was measured.
    NotMeasured,
    /// It failed or was skipped.
    Failed,
    /// It was judged invalid.
    Invalid,
}

impl ExclusionCause {
    /// The name on disk.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NotMeasured => "not measured",
            Self::Failed => "failed",
            Self::Invalid => "invalid",
        }
    }
}

impl CellStats {
    /// The value of one metric for each start that counts: geometric mean of the repeats, or arithmetic mean
    /// if one is not above zero.
    pub(crate) fn start_values(&self, figure: &str) -> Vec<f64> {
        let mean = |repeats: &Vec<f64>| {
            let n = repeats.len() as f64;
            match repeats.as_slice() {
                [only] => *only,
                several if several.iter().all(|value| *value > 0.0) => {
                    (several.iter().map(|value| value.ln()).sum::<f64>() / n).exp()
                }
                several => several.iter().sum::<f64>() / n,
            }
        };
        let starts = self.figures.get(figure).into_iter().flatten();
        starts.filter(|repeats| !repeats.is_empty()).map(mean).collect()
    }

    /// Returns the worst cause with its reason if no measurement of the cell counts.
    pub(crate) fn exclusion(&self) -> Option<(ExclusionCause, String)> {
        if self.figures.values().any(|starts| !starts.is_empty()) {
            return None;
        }
        let worst = self.excluded.iter().max_by_key(|excluded| excluded.cause);
        Some(worst.map_or_else(
            || {
                (
                    ExclusionCause::NotMeasured,
                    "the cell was left out, or the run was interrupted".to_owned(),
                )
            },
            |excluded| (excluded.cause, excluded.reason.clone()),
        ))
    }

    /// Whether no measurement counts because the cell was not measured.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.exclusion(), Some((ExclusionCause::NotMeasured, _)))
    }
}

/// The side that candidates are compared with, until a user accepts another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Baseline {
    /// The version of the files on disk.
    pub(crate) format: u32,
    /// Every acceptance, latest first.
    pub(crate) accepted: Vec<BaselineMove>,
    /// The figures and facts of the baseline.
    pub(crate) side: RunStats,
    /// The launches of its cells, so that the baseline can be started again beside a candidate; empty in
    /// older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) launches: Vec<Launch>,
}

/// One acceptance of a baseline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BaselineMove {
    /// When, as RFC 3339 text.
    pub(crate) at: String,
    /// The run that became the baseline.
    pub(crate) run: RunId,
    /// Why, as the user wrote.
    pub(crate) reason: String,
}

/// Variation of metrics on one host without any change, measured by `matrix noise`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Noise {
    /// The host that was measured.
    pub(crate) machine: Facts,
    /// By cell and metric.
    pub(crate) cells: BTreeMap<CellKey, BTreeMap<String, NoiseEstimate>>,
}

/// Variation of one metric of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NoiseEstimate {
    /// When it was measured, RFC 3339.
    pub(crate) at: String,
    pub(crate) starts: u32,
    /// Repeats on each start.
    pub(crate) per_start: u32,
    /// Standard deviation of the start means, as a share.
    pub(crate) start_share: f64,
    /// Upper 80 % confidence bound of `start_share`; absent in older files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bound_share: Option<f64>,
    /// Degrees of freedom of the estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) df: Option<f64>,
    /// Standard deviation between starts without the part that repeats explain, as a share.
    pub(crate) between_share: f64,
    /// Standard deviation between repeats on one start, as a share; absent with one repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) within_share: Option<f64>,
    /// Difference between the two arms, as a share.
    pub(crate) difference_share: f64,
}
