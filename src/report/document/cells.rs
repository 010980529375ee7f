//! Facts of each cell: what it is, its figures, and how each of its measurements ended.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::time_series::{self, Distribution, MeasurementTimeSeries, Series};
use crate::analysis::compare::precision::CellPrecision;
use crate::analysis::metrics::Metric;
use crate::plan::Measurement;
use crate::report::engine_report::command_of;
use crate::report::tables::{ReportCell, is_unknown, mean_of_starts, status_in_words, summary_validity};
use crate::results::record::cell::{Definitions, MeasurementStatus, Origin, Summary};
use crate::results::record::provenance::UnknownFact;
use crate::results::record::validity::{Reason, Verdict};

/// A cell with everything that was measured of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct CellFacts {
    /// The run.
    pub run: String,
    /// The cell's key, unique within its run.
    pub cell: String,
    /// The launch it was measured on.
    pub launch: String,
    /// The engine with its version.
    pub engine: String,
    /// The engine's name in the matrix.
    pub engine_name: String,
    /// The version asked for, else the one that the engine reports.
    pub version: Option<String>,
    /// The model as the matrix names it.
    pub model: String,
    /// What the engine loaded.
    pub checkpoint: String,
    /// The precision of the weights, where known.
    pub precision: Option<String>,
    /// Tensor-parallel size; absent where what was imported does not tell it.
    pub tp: Option<u32>,
    /// Pipeline-parallel size.
    pub pp: u32,
    /// Data-parallel size.
    pub dp: u32,
    /// Expert-parallel size.
    pub ep: u32,
    /// GPUs of the engine; 0 where it runs without, absent where what was imported does not tell it.
    pub gpus: Option<u32>,
    /// `container`, `process` or `attach`.
    pub executor: String,
    /// The scenario's name.
    pub scenario: String,
    /// The scenario with what an axis may have changed of it.
    pub scenario_in_full: String,
    /// Requests per second; absent where they are sent all at once or at a rate that changes.
    pub rate_req_s: Option<f64>,
    /// The most requests under way at once; absent where there is no bound.
    pub concurrency: Option<u32>,
    /// Prompts that were sent, else those asked for.
    pub prompts: u32,
    /// A digest of all prompts with their lengths, where every measurement sent the same.
    pub prompts_hash: Option<String>,
    /// The image's digest, for a container.
    pub image_digest: Option<String>,
    /// The command that started the engine.
    pub command: String,
    /// How it ended, in a few words.
    pub status: String,
    /// Where its figures come from.
    pub origin: Origin,
    /// Whether its figures can be believed.
    pub validity: Verdict,
    /// How well it is known; absent unless its matrix says how well it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certainty: Option<PrecisionFacts>,
    /// Every measurement.
    pub measurements: Vec<MeasurementFacts>,
    /// The figures by definition set and name, over the measurements that are not invalid, or over all if every one is. A name ends in
    /// its unit; without one it is a share.
    pub figures: BTreeMap<Definitions, BTreeMap<String, Figure>>,
    /// How latencies are distributed, over the same measurements; none where no histograms were kept.
    pub distributions: Vec<Distribution>,
    /// What happened over time in the measurement with the median throughput; none where nothing was kept.
    pub series: Vec<Series>,
    /// Length of the measured window of that measurement, from 0, in seconds.
    pub window_s: Option<f64>,
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

/// A figure over the measurements of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Figure {
    /// The mean of its starts, as comparisons take it: the geometric one, or the arithmetic one of what holds a zero.
    pub value: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// The value of each measurement that has it, in the order of starts and repeats.
    pub values: Vec<f64>,
}

/// How well a cell is known by its starts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct PrecisionFacts {
    /// How far its 95 % interval should reach to either side, as a share.
    pub wanted_share: f64,
    /// How far it reaches, for the figure known worst of those that gate; absent where that cannot be told.
    pub half_width_share: Option<f64>,
    /// That figure, for people.
    pub figure: Option<String>,
    /// The starts that count.
    pub starts: Option<usize>,
    /// Whether it was known well enough (`enough`), or why it was started again no more: `most-starts`, `budget-spent`, `hopeless`; a run
    /// that was stopped may leave `wants-more`.
    pub outlook: String,
}

/// One measurement of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct MeasurementFacts {
    /// Which start of the launch, from 1.
    pub start: u32,
    /// Which repeat on that start, from 1.
    pub repeat: u32,
    /// `done`, `failed`, `skipped` or `interrupted`.
    pub ending: String,
    /// Why, where it is not `done`.
    pub reason: Option<String>,
    /// When it began, RFC 3339.
    pub began: String,
    /// When it ended, RFC 3339.
    pub ended: String,
    /// Whether its figures can be believed.
    pub validity: Verdict,
    /// What was found for or against it, with advice.
    pub reasons: Vec<Reason>,
    /// Doubts that belong beside its figures.
    pub warnings: Vec<String>,
    /// Failed requests by class.
    pub failures: BTreeMap<String, u32>,
    /// Between which two values percentiles lie with 95 % confidence as far as the requests alone tell, in milliseconds, by the figure's name.
    pub intervals: BTreeMap<String, [f64; 2]>,
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
    let reported =
        |fact: &dyn Fn(&Summary) -> Option<String>| report_cell.summaries.iter().find_map(|one| fact(one));
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
        executor: launch.place.executor().to_owned(),
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
pub(super) fn measurement(summary: &Summary) -> Measurement {
    Measurement {
        cell: summary.cell.clone(),
        start: summary.start,
        repeat: summary.repeat,
    }
}

fn measurement_facts(summary: &Summary) -> MeasurementFacts {
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
    let counted: Vec<&Summary> = cell.counted_summaries().collect();
    for summary in &counted {
        for (definitions, figures) in &summary.figures {
            names.extend(figures.keys().map(|name| (*definitions, name)));
        }
    }
    let mut by_definitions: BTreeMap<Definitions, BTreeMap<String, Figure>> = BTreeMap::new();
    for (definitions, name) in names {
        let read = |summary: &Summary| {
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
