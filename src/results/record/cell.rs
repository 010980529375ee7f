//! One measurement of a cell: how it ended, its phases, its metrics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use super::answer_stats::AnswerStats;
pub(crate) use super::engine_facts::EngineFacts;
pub use super::measurement_status::{FailureClass, MeasurementStatus, Phase, PhaseTime};
pub(crate) use super::metric_values::MetricValues;
pub use super::metric_values::{Definitions, Origin};

use crate::base::ids::{CellKey, ContentHash, LaunchId};
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::plan::Measurement;
use crate::results::record::FORMAT;
use crate::results::record::client::ClientFacts;
use crate::results::record::connections::ConnectionCounts;
use crate::results::record::engine_change::EngineChange;
use crate::results::record::graded::GradedAnswers;
use crate::results::record::machine::Machine;
use crate::results::record::post_mortem::Retry;
use crate::results::record::provenance::Provenance;
use crate::results::record::request::RequestFailureClass;
use crate::results::record::search::SearchRecord;
use crate::results::record::telemetry::Telemetry;
use crate::results::record::validity::{ReasonCode, Validity, Verdict};

/// Everything known about one measurement of a cell except its requests: `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasurementSummary {
    /// The version of the files on disk.
    pub format: u32,
    /// The cell that was measured.
    pub cell: CellKey,
    /// Digest of launch, scenario and seed.
    pub(crate) content: ContentHash,
    /// The launch on which the cell was measured.
    pub launch: LaunchId,
    /// Index of the start of the launch, from 1.
    pub(crate) start: u32,
    /// Index of the repeat on that start, from 1.
    pub repeat: u32,
    /// How the measurement ended.
    #[serde(rename = "status", alias = "ending")]
    pub status: MeasurementStatus,
    /// How its metrics came about: measured, imported or simulated.
    pub(crate) origin: Origin,
    /// When it began, RFC 3339.
    pub began: String,
    /// When it ended, RFC 3339.
    pub ended: String,
    /// Its phases with their durations.
    pub phases: Vec<PhaseTime>,
    /// What is known of the engine that answered.
    pub engine: EngineFacts,
    /// Digest of all prompts and their lengths.
    pub prompts_hash: Option<ContentHash>,
    /// Share of prompt tokens that repeat the beginning of an earlier prompt: the legitimate upper bound for
    /// prefix-cache hits. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompts_repeated: Option<f64>,
    /// Digest of all due times.
    pub schedule_hash: Option<ContentHash>,
    /// Number of prompts that the data set returned; may be less than requested.
    pub prompts: Option<u32>,
    /// Source of the timestamps of arrivals: `user` or `kernel`.
    #[serde(rename = "timestamp_source", alias = "stamps")]
    pub(crate) timestamp_source: Option<String>,
    /// Load and errors of the client during the measurement; absent in older runs and if nothing was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientFacts>,
    /// How the requests used connections and addresses; absent if every setting of connections is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<ConnectionCounts>,
    /// Result of the cache reset.
    #[serde(rename = "cache_reset", alias = "reset")]
    pub cache_reset: Option<CacheResetRecord>,
    /// Failed requests by class.
    pub failures: BTreeMap<RequestFailureClass, u32>,
    /// The metrics, by definition set.
    pub figures: BTreeMap<Definitions, MetricValues>,
    /// 95 % confidence interval of each percentile, in milliseconds, by metric name. Absent if there are too
    /// few requests, and in older runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) intervals: BTreeMap<String, [f64; 2]>,
    /// Statistics of the answers; absent in older runs and if no text was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answers: Option<AnswerStats>,
    /// Scores of graded answers; absent if none were graded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) graded: Option<GradedAnswers>,
    /// Points and result of a search. Requests, metrics and schedule of the summary are those of the point
    /// that the search found, or of the first point if none met the SLO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchRecord>,
    /// Earlier attempts that failed because of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<Retry>,
    /// Results of the same measurement that this one replaced though the engine was at fault, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) replaced: Vec<ReplacedResult>,
    /// Other launches that ran on this host at the same time, on other GPUs.
    #[serde(
        rename = "concurrent_launches",
        alias = "beside",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub concurrent_launches: Vec<LaunchId>,
    /// Whether an image was pulled during the measurement.
    #[serde(
        rename = "pull_during",
        alias = "pulled_beside",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub pull_during: bool,
    /// Why the check failed that the socket which answered belongs to the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener_unverified: Option<String>,
    /// Engine facts that differ from an earlier measurement of the same launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) engine_changes: Vec<EngineChange>,
    /// Telemetry of host and engine; absent in older runs and if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
    /// Validity of the metrics; absent in older runs and if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
    /// The host that measured it, in a run that several hosts may have measured. Absent if that is the host of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<Box<Machine>>,
    /// Where the measurement was imported from, if another tool made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) imported: Option<Provenance>,
    /// Warnings to show beside the metrics.
    pub warnings: Vec<String>,
}

impl MeasurementSummary {
    /// Returns the summary of a completed first measurement of a cell, with all optional facts absent.
    pub(crate) fn new(cell: CellKey, content: ContentHash, launch: LaunchId, origin: Origin) -> Self {
        Self {
            format: FORMAT,
            cell,
            content,
            launch,
            start: 1,
            repeat: 1,
            status: MeasurementStatus::Done,
            origin,
            began: String::new(),
            ended: String::new(),
            phases: Vec::new(),
            engine: EngineFacts::default(),
            prompts_hash: None,
            prompts_repeated: None,
            schedule_hash: None,
            prompts: None,
            timestamp_source: None,
            client: None,
            connections: None,
            cache_reset: None,
            failures: BTreeMap::new(),
            figures: BTreeMap::new(),
            intervals: BTreeMap::new(),
            answers: None,
            graded: None,
            search: None,
            retries: Vec::new(),
            replaced: Vec::new(),
            concurrent_launches: Vec::new(),
            pull_during: false,
            listener_unverified: None,
            engine_changes: Vec::new(),
            telemetry: None,
            validity: None,
            machine: None,
            imported: None,
            warnings: Vec::new(),
        }
    }
}

/// Suffixes of metrics that are never negative.
const NON_NEGATIVE_SUFFIXES: [&str; 8] = [
    "_req_s",
    "_tok_s",
    "_tokens",
    "_requests",
    "duration_s",
    "_ttft_ms",
    "_tpot_ms",
    "_e2e_ms",
];

/// Throughput metrics, each with the count that is divided by the duration.
const RATE_METRICS: [[&str; 2]; 3] = [
    ["request_throughput_req_s", "completed_requests"],
    ["output_throughput_tok_s", "output_tokens"],
    ["input_throughput_tok_s", "input_tokens"],
];

/// A result that another measurement of the same cell, start and repeat replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplacedResult {
    /// Hash of what it measured. A crash counts wherever the cell has this hash.
    pub(crate) content: ContentHash,
    /// Whether the engine crashed, hung or could not start. Otherwise the result was invalid.
    pub(crate) has_crashed: bool,
    /// How it failed, or the codes that made it invalid.
    pub(crate) reason: String,
}

/// Allowed relative difference between a stored rate and the rate computed from its count; metrics are
/// written with all digits.
const RATE_TOLERANCE: f64 = 1e-6;

/// Reasons for which the answers of the engine are wrong.
const WRONG_ANSWERS: [ReasonCode; 4] = [
    ReasonCode::AnswersDegenerate,
    ReasonCode::AnswersWrongUnderLoad,
    ReasonCode::AnswersBelowMinimum,
    ReasonCode::AnswersWorseThanReference,
];

impl MeasurementSummary {
    /// All of each cell.
    pub(crate) fn by_cell(summaries: &[Self]) -> BTreeMap<&CellKey, Vec<&Self>> {
        let mut cells: BTreeMap<&CellKey, Vec<&Self>> = BTreeMap::new();
        for summary in summaries {
            cells.entry(&summary.cell).or_default().push(summary);
        }
        cells
    }

    /// What a measurement that replaces this one keeps of it: the results that count against the engine.
    pub(crate) fn replaced_by_another(&self) -> Vec<ReplacedResult> {
        let result = |has_crashed, reason| ReplacedResult {
            content: self.content.clone(),
            has_crashed,
            reason,
        };
        let own = match &self.status {
            MeasurementStatus::Failed {
                class, phase, reason, ..
            } if class.is_of_engine() => Some(result(true, format!("failed in {}: {reason}", phase.name()))),
            MeasurementStatus::Done => self
                .invalid_codes()
                .map(|codes| result(false, format!("invalid: {codes}"))),
            _ => None,
        };
        self.replaced.iter().cloned().chain(own).collect()
    }

    /// Number of crashes on what this measurement measures that were replaced.
    pub(crate) fn replaced_crashes(&self) -> usize {
        let counts = |result: &&ReplacedResult| result.has_crashed && result.content == self.content;
        self.replaced.iter().filter(counts).count()
    }

    /// The replaced results in words, with what else has to be known.
    pub(crate) fn replaced_in_words(&self) -> impl Iterator<Item = String> + '_ {
        self.replaced.iter().map(|result| {
            let when = if result.content == self.content {
                ""
            } else {
                " (measured with an earlier version of the matrix)"
            };
            format!("{}{when}", result.reason)
        })
    }

    /// The codes that make the measurement invalid; `None` if it is valid.
    fn invalid_codes(&self) -> Option<String> {
        let reasons = self.validity.iter().flat_map(|validity| &validity.reasons);
        let mut codes: Vec<&str> = reasons
            .filter(|reason| reason.weight == Verdict::Invalid)
            .map(|reason| reason.code.name())
            .collect();
        codes.dedup();
        (!codes.is_empty()).then(|| codes.join(", "))
    }

    /// Whether the measurement is invalid for reasons other than wrong answers. An engine that answers wrongly would get another chance.
    pub(crate) fn is_repeatable(&self) -> bool {
        let mut reasons = self.validity.iter().flat_map(|validity| &validity.reasons);
        let is_wrong =
            reasons.any(|reason| reason.weight == Verdict::Invalid && WRONG_ANSWERS.contains(&reason.code));
        self.is_invalid() && !is_wrong
    }

    /// Whether the measurement is invalid.
    pub(crate) fn is_invalid(&self) -> bool {
        let mut reasons = self.validity.iter().flat_map(|validity| &validity.reasons);
        reasons.any(|reason| reason.weight == Verdict::Invalid)
    }

    /// Describes a contradiction between metrics of our own, which shows that they were changed by hand.
    /// Imported metrics are not checked here; the import warns about them.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let figures = self.figures.get(&Definitions::Matrix)?;
        if self.origin == Origin::Imported {
            return None;
        }
        let negative = figures.iter().find(|(name, value)| {
            let may_not = NON_NEGATIVE_SUFFIXES.iter().any(|end| name.ends_with(end));
            may_not && value.is_some_and(|value| value < 0.0)
        });
        if let Some((name, Some(value))) = negative {
            return Some(format!("`{name}` is {value}, but cannot be negative"));
        }
        let value = |name: &str| figures.get(name).copied().flatten();
        let duration = value("duration_s")?;
        RATE_METRICS.iter().find_map(|[rate, count]| {
            let (rate_value, counted) = (value(rate)?, value(count)?);
            let come = rate_value * duration;
            let is_same = (come - counted).abs() <= RATE_TOLERANCE * (counted + 1.0);
            (!is_same).then(|| {
                format!(
                    "`{rate}` is {rate_value:.2} over {duration:.2} s, which gives {come:.0} in total, but \
                    `{count}` is {counted:.0}"
                )
            })
        })
    }

    /// The identity of the measurement.
    pub(crate) fn measurement(&self) -> Measurement {
        Measurement {
            cell: self.cell.clone(),
            start: self.start,
            repeat: self.repeat,
        }
    }

    /// The arrival that requests and metrics belong to: the scenario's, or that of the point that a search
    /// chose.
    pub(crate) fn arrival(&self, scenario: &Scenario) -> Arrival {
        let chosen = self.search.as_ref().and_then(|record| {
            let first = record.points.first().map(|point| point.value);
            record.found.or(first)
        });
        match scenario.search.as_ref().zip(chosen) {
            Some((search, value)) => search.arrival_at(&scenario.arrival, value),
            None => scenario.arrival.clone(),
        }
    }
}

/// A prefix of prompts that no earlier measurement on the same start used. `prompts_hash` does not include
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UniquePrefix {
    /// The letters; short prompts get only the first of them.
    pub letters: String,
    /// Length in tokens; the prefix replaces the same number of tokens of each prompt.
    pub(crate) tokens: u32,
    /// Prompts without the prefix, because no replacement of the same length was possible.
    pub kept: u32,
}

/// What emptying the caches came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheResetRecord {
    /// Whether this was the first measurement on the start, so that the caches were empty.
    #[serde(default)]
    pub is_fresh_start: bool,
    /// Whether the recipe describes a way to reset.
    pub(crate) possible: bool,
    /// HTTP status of the reset request.
    pub(crate) status: Option<u16>,
    /// Whether the engine reports success.
    pub success: Option<bool>,
    /// The engine's answer, shortened.
    pub(crate) answer: Option<String>,
    /// The unique prefix of the prompts, if the recipe asks for unique prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_prefix: Option<UniquePrefix>,
    /// Prefix-cache hits during the measured window, in tokens or queries as the engine counts them.
    pub hits_in_window: Option<f64>,
    /// Prefix-cache queries during the window, in the same unit.
    pub queries_in_window: Option<f64>,
}
