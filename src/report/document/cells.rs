//! Facts of each cell: what it is, its figures, and how each of its measurements ended.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::time_series::{self, Distribution, MeasurementTimeSeries, Series};
use crate::analysis::compare::precision::CellPrecision;
use crate::analysis::metrics::Metric;
use crate::plan::Measurement;
use crate::report::engine_report::command::command_of;
use crate::report::tables::{
    AnswerScore, CellCost, ProbeAgreement, ReportCell, TierCapacity, answer_scores, cell_cost, is_unknown,
    mean_of_starts, probe_agreement, status_in_words, summary_validity, tier_capacities,
};
use crate::results::record::cell::{Definitions, MeasurementStatus, MeasurementSummary, Origin};
use crate::results::record::provenance::UnknownFact;
use crate::results::record::validity::{Reason, Verdict};

/// A cell with its facts, measurements and figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CellFacts {
    /// Name of the run.
    pub(crate) run: String,
    /// Key of the cell: its axis values as text, unique within the run.
    pub(crate) cell: String,
    /// Name of the launch that the cell was measured on.
    pub(crate) launch: String,
    /// Engine with its version, such as `vllm@0.10.1`.
    pub(crate) engine: String,
    /// Name of the engine in the matrix.
    pub(crate) engine_name: String,
    /// The requested version, otherwise the version that the engine reports; absent if both are unknown.
    pub(crate) version: Option<String>,
    /// The model as the matrix names it.
    pub(crate) model: String,
    /// Weights that the engine loaded: a path or a model id.
    pub(crate) checkpoint: String,
    /// Number format of the weights, such as `bf16`; absent if unknown.
    pub(crate) precision: Option<String>,
    /// Tensor-parallel size; absent if an imported cell does not have it.
    pub(crate) tp: Option<u32>,
    /// Pipeline-parallel size of the launch.
    pub(crate) pp: u32,
    /// Data-parallel size of the launch.
    pub(crate) dp: u32,
    /// Expert-parallel size of the launch.
    pub(crate) ep: u32,
    /// Number of GPUs of the engine; 0 for an engine without GPUs, absent if unknown.
    pub(crate) gpus: Option<u32>,
    /// `container`, `process`, `attach` or `imported`.
    pub(crate) executor: String,
    /// Name of the scenario.
    pub(crate) scenario: String,
    /// Name of the scenario with its rate, search and concurrency, if set.
    pub(crate) scenario_in_full: String,
    /// Request rate in requests per second; absent if all requests are sent at once or the rate changes.
    pub(crate) rate_req_s: Option<f64>,
    /// Maximum number of requests in flight; absent if unlimited.
    pub(crate) concurrency: Option<u32>,
    /// Number of prompts that were sent, otherwise the requested number.
    pub(crate) prompts: u32,
    /// Digest of all prompts with their lengths; absent if unknown or if measurements sent different prompts.
    pub(crate) prompts_hash: Option<String>,
    /// Digest of the container image; absent without a container or if unknown.
    pub(crate) image_digest: Option<String>,
    /// Command line that started the engine, or a comment if there is none.
    pub(crate) command: String,
    /// How the measurements ended, such as `done, n=3` or `failed in launch`.
    pub(crate) status: String,
    /// Whether the figures were measured, simulated or imported.
    pub(crate) origin: Origin,
    /// Worst validity verdict of the measurements that count.
    pub(crate) validity: Verdict,
    /// Precision that the starts reached; absent unless the matrix sets `repeats: target_ci`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certainty: Option<PrecisionFacts>,
    /// All measurements of the cell.
    pub(crate) measurements: Vec<MeasurementFacts>,
    /// Figures by definition set and name, over the completed measurements that are not invalid, or over all
    /// completed ones if all are invalid. A name ends in its unit, if it has one.
    pub(crate) figures: BTreeMap<Definitions, BTreeMap<String, Figure>>,
    /// The capacity for each tier of the SLO, with its interval; empty if the scenario does not search.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) capacities: Vec<TierCapacity>,
    /// What tokens cost; absent without GPUs, without their price, or for results of other tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<CellCost>,
    /// Scores of graded answers, one for each task; empty if none were graded.
    pub(crate) answers: Vec<AnswerScore>,
    /// How far answers to greedy probes agree; absent if none were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) probes: Option<ProbeAgreement>,
    /// Latency distributions over the same measurements; empty if no histograms were recorded.
    pub(crate) distributions: Vec<Distribution>,
    /// Quantities over time in the measurement with the median output throughput; empty if nothing was recorded.
    pub(crate) series: Vec<Series>,
    /// Length of the measured window of that measurement in seconds. The window starts at 0.
    pub(crate) window_s: Option<f64>,
}

impl CellFacts {
    /// A figure under the definitions `matrix`. An imported cell that lacks them gives it under the
    /// definitions that it follows.
    pub(crate) fn figure(&self, metric: Metric) -> Option<&Figure> {
        let sets: &[Definitions] = match self.origin {
            Origin::Imported => &[Definitions::Matrix, Definitions::Classic, Definitions::Current],
            Origin::Measured | Origin::Simulated => &[Definitions::Matrix],
        };
        let name = metric.name();
        sets.iter().find_map(|set| self.figures.get(set)?.get(&name))
    }
}

/// A figure over the measurements of a cell that count.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Figure {
    /// Mean over starts, as in comparisons: geometric, or arithmetic if a value is not above zero.
    pub(crate) value: f64,
    /// Smallest value of a measurement.
    pub(crate) least: f64,
    /// Largest value of a measurement.
    pub(crate) most: f64,
    /// Value of each measurement that has the figure, in the order of starts and repeats.
    pub(crate) values: Vec<f64>,
}

/// Precision of a cell's figures, computed from its starts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PrecisionFacts {
    /// Target half-width of the 95 % confidence interval, as a share (`repeats: target_ci`).
    pub(crate) wanted_share: f64,
    /// Half-width of the 95 % confidence interval of the least precise gating figure, as a share; absent if it
    /// cannot be computed.
    pub(crate) half_width_share: Option<f64>,
    /// Label of that figure.
    pub(crate) figure: Option<String>,
    /// Number of starts that count.
    pub(crate) starts: Option<usize>,
    /// `enough` if the target is reached, otherwise why no further starts were made: `most-starts`,
    /// `budget-spent` or `hopeless`; `wants-more` if the run was stopped before.
    pub(crate) outlook: String,
}

/// One measurement of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MeasurementFacts {
    /// Index of the start of the launch, from 1.
    pub(crate) start: u32,
    /// Index of the repeat on that start, from 1.
    pub(crate) repeat: u32,
    /// How it ended: `done`, `failed`, `skipped` or `interrupted`.
    pub(crate) ending: String,
    /// Why it failed or was skipped; absent otherwise.
    pub(crate) reason: Option<String>,
    /// Start time, RFC 3339.
    pub(crate) began: String,
    /// End time, RFC 3339.
    pub(crate) ended: String,
    /// Validity verdict of the measurement.
    pub(crate) validity: Verdict,
    /// Reasons and notes about its validity, each with advice.
    pub(crate) reasons: Vec<Reason>,
    /// Warnings that apply to its figures.
    pub(crate) warnings: Vec<String>,
    /// Number of failed requests by failure class.
    pub(crate) failures: BTreeMap<String, u32>,
    /// 95 % confidence intervals of percentiles within this measurement, by order statistics: lower and upper
    /// bound in milliseconds, by the name of the figure.
    pub(crate) intervals: BTreeMap<String, [f64; 2]>,
}

/// The unit of a figure, from its name on disk; empty for a share.
pub(crate) fn unit(name: &str) -> &'static str {
    Metric::from_name(name).map_or("", |metric| metric.unit().symbol())
}

/// The printed name of a figure, from its name on disk.
pub(crate) fn label(name: &str) -> String {
    Metric::from_name(name).map_or_else(|| name.to_owned(), Metric::label)
}

pub(super) fn cell(
    report_cell: &ReportCell<'_>,
    run: &str,
    traces: &BTreeMap<Measurement, MeasurementTimeSeries>,
) -> CellFacts {
    let (launch, scenario) = (report_cell.launch, &report_cell.cell.scenario);
    let reported = |fact: &dyn Fn(&MeasurementSummary) -> Option<String>| {
        report_cell.summaries.iter().find_map(|one| fact(one))
    };
    let middle = report_cell.median_summary();
    let arrival = middle.map_or_else(|| scenario.arrival.clone(), |summary| summary.arrival(scenario));
    let is_steady = arrival.pace.is_none() && !arrival.rate.is_infinite();
    let trace = middle.and_then(|summary| traces.get(&measurement(summary)));
    CellFacts {
        run: run.to_owned(),
        cell: report_cell.cell.key.to_string(),
        launch: launch.id.to_string(),
        engine: report_cell.engine(),
        engine_name: launch.engine.name.clone(),
        version: launch
            .engine
            .version
            .clone()
            .or_else(|| reported(&|one| one.engine.version.clone())),
        model: launch.model.clone(),
        checkpoint: launch.checkpoint.clone(),
        precision: launch.precision.clone(),
        tp: (!is_unknown(report_cell, UnknownFact::Tp)).then_some(launch.parallel.tp),
        pp: launch.parallel.pp,
        dp: launch.parallel.dp,
        ep: launch.parallel.ep,
        gpus: launch
            .gpus()
            .filter(|_| !is_unknown(report_cell, UnknownFact::Gpus)),
        executor: launch.place.settings().name().to_owned(),
        scenario: scenario.name.clone(),
        scenario_in_full: report_cell.scenario(),
        rate_req_s: is_steady.then(|| arrival.rate.per_second()),
        concurrency: arrival.concurrency.map(Into::into),
        prompts: report_cell
            .summaries
            .iter()
            .find_map(|summary| summary.prompts)
            .unwrap_or(scenario.workload.prompts),
        prompts_hash: report_cell.prompts_hash().map(|hash| hash.as_str().to_owned()),
        image_digest: reported(&|one| one.engine.image_digest.clone()),
        command: command_of(&[report_cell]),
        status: status_in_words(report_cell),
        origin: report_cell.origin(),
        validity: report_cell.validity(),
        certainty: report_cell.precision.map(precision_facts),
        measurements: report_cell
            .summaries
            .iter()
            .map(|summary| measurement_facts(summary))
            .collect(),
        figures: figure_facts(report_cell),
        cost: cell_cost(report_cell),
        capacities: tier_capacities(report_cell),
        answers: answer_scores(report_cell),
        probes: probe_agreement(report_cell),
        distributions: time_series::distributions(report_cell, traces),
        series: trace.map(time_series::all_series).unwrap_or_default(),
        window_s: middle.and_then(time_series::window_s),
    }
}

fn precision_facts(precision: &CellPrecision) -> PrecisionFacts {
    let figure = precision.figure.as_ref();
    PrecisionFacts {
        wanted_share: precision.stop_rule.half_width.share(),
        half_width_share: figure.map(|figure| figure.half_width),
        figure: figure.map(|figure| figure.figure.clone()),
        starts: figure.map(|figure| figure.starts),
        outlook: precision.next_step.name().to_owned(),
    }
}

/// Identifies the measurement that a summary belongs to.
pub(super) fn measurement(summary: &MeasurementSummary) -> Measurement {
    Measurement {
        cell: summary.cell.clone(),
        start: summary.start,
        repeat: summary.repeat,
    }
}

fn measurement_facts(summary: &MeasurementSummary) -> MeasurementFacts {
    let reason = match &summary.status {
        MeasurementStatus::Done | MeasurementStatus::Interrupted => None,
        MeasurementStatus::Failed { phase, reason, .. } => Some(format!("{}: {reason}", phase.name())),
        MeasurementStatus::Skipped { reason } => Some(reason.clone()),
    };
    let failures = summary.failures.iter();
    MeasurementFacts {
        intervals: summary.intervals.clone(),
        start: summary.start,
        repeat: summary.repeat,
        ending: summary.status.name().to_owned(),
        reason,
        began: summary.began.clone(),
        ended: summary.ended.clone(),
        validity: summary_validity(summary),
        reasons: summary
            .validity
            .as_ref()
            .map(|validity| validity.reasons.clone())
            .unwrap_or_default(),
        warnings: summary.warnings.clone(),
        failures: failures
            .map(|(class, count)| (class.name().to_owned(), *count))
            .collect(),
    }
}

fn figure_facts(cell: &ReportCell<'_>) -> BTreeMap<Definitions, BTreeMap<String, Figure>> {
    let mut names: BTreeSet<(Definitions, &String)> = BTreeSet::new();
    let counted: Vec<&MeasurementSummary> = cell.counted_summaries().collect();
    for summary in &counted {
        for (definitions, figures) in &summary.figures {
            names.extend(figures.keys().map(|name| (*definitions, name)));
        }
    }
    let mut by_definitions: BTreeMap<Definitions, BTreeMap<String, Figure>> = BTreeMap::new();
    for (definitions, name) in names {
        let read = |summary: &MeasurementSummary| {
            let value = summary.figures.get(&definitions)?.get(name).copied().flatten();
            value.filter(|value| value.is_finite())
        };
        let values: Vec<f64> = counted.iter().filter_map(|summary| read(summary)).collect();
        let figures = by_definitions.entry(definitions).or_default();
        if let Some(value) = mean_of_starts(&cell.read_by_start(read)) {
            let figure = Figure {
                value,
                least: values.iter().copied().fold(f64::INFINITY, f64::min),
                most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                values,
            };
            figures.insert(name.clone(), figure);
        }
    }
    by_definitions
}
