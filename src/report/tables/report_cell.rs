//! A cell of a report with its measurements, and the values that tables show of it.

use std::collections::{BTreeMap, BTreeSet};

use super::cost::CellPrices;
use crate::analysis::compare::gates::Load;
use crate::analysis::compare::precision::CellPrecision;
use crate::analysis::graded::agreement::CellAgreement;
use crate::analysis::graded::reference::AnswerComparison;
use crate::analysis::metrics::{self, Metric, Quantity};
use crate::base::ids::{CellKey, ContentHash};
use crate::config::prices::Prices;
use crate::plan::{Cell, Launch, Plan};
use crate::report::table::{Mark, Value};
use crate::results::record::cell::{Definitions, MeasurementStatus, MeasurementSummary, Origin};
use crate::results::record::cell_stats::Noise;
use crate::results::record::machine::Machine;
use crate::results::record::provenance::{Tool, UnknownFact};
use crate::results::record::validity::{MetricFamily, Verdict};

/// A cell with all of its measurements.
#[derive(Clone, Debug)]
pub(crate) struct ReportCell<'a> {
    /// Name of the run; empty if the report has only one.
    pub(crate) run: &'a str,
    /// The machine of the run; set only if the report has several runs.
    pub(crate) machine: Option<&'a Machine>,
    pub(crate) launch: &'a Launch,
    pub(crate) cell: &'a Cell,
    /// Measurements in any order; empty if nothing was measured yet.
    pub(crate) summaries: Vec<&'a MeasurementSummary>,
    /// The version that the engine reports in other cells of the run, if all of them agree. With it, a cell
    /// that is not measured yet or failed to start is shown as the same engine.
    pub(crate) other_engine_version: Option<&'a str>,
    /// Precision of the cell, if its matrix asks for one.
    pub(crate) precision: Option<&'a CellPrecision>,
    /// The plan of the run; it determines which starts alternated.
    pub(crate) plan: Option<&'a Plan>,
    /// The last start that was planned before a stopping rule looked at results; `None` without a stopping
    /// rule.
    pub(crate) stage: Option<u32>,
    /// Noise of the host's figures, if `matrix noise` measured it.
    pub(crate) noise: Option<&'a Noise>,
    /// Comparisons of graded answers with references, of all cells of the run.
    pub(crate) answer_comparisons: &'a [AnswerComparison],
    /// How far answers to greedy probes agree, of all cells of the run.
    pub(crate) agreements: &'a [CellAgreement],
    /// The prices that its costs follow from.
    pub(crate) prices: CellPrices,
}

impl<'a> ReportCell<'a> {
    /// Every cell of a plan with its measurements, in the order of the plan.
    pub(crate) fn from_plan(plan: &'a Plan, summaries: &'a [MeasurementSummary]) -> Vec<Self> {
        Self::from_run("", None, plan, summaries)
    }

    /// Like [`Self::from_plan`], for one of several runs.
    pub(crate) fn from_run(
        run: &'a str,
        machine: Option<&'a Machine>,
        plan: &'a Plan,
        summaries: &'a [MeasurementSummary],
    ) -> Vec<Self> {
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for summary in summaries {
            let launch = plan.launches.iter().find(|launch| launch.id == summary.launch);
            if let (Some(version), Some(launch)) = (&summary.engine.version, launch) {
                versions
                    .entry(launch.engine.name.as_str())
                    .or_default()
                    .insert(version);
            }
        }
        let only = |launch: &Launch| match versions.get(launch.engine.name.as_str()) {
            Some(versions) if versions.len() == 1 => versions.first().copied(),
            _ => None,
        };
        let mut of_cells = MeasurementSummary::by_cell(summaries);
        let cells = plan.cells.iter().map(|cell| Self {
            run,
            machine,
            launch: plan.launch(&cell.launch),
            cell,
            summaries: of_cells.remove(&cell.key).unwrap_or_default(),
            other_engine_version: only(plan.launch(&cell.launch)),
            precision: None,
            plan: Some(plan),
            stage: plan.until.as_ref().map(|until| until.stage),
            noise: None,
            answer_comparisons: &[],
            agreements: &[],
            prices: CellPrices::default(),
        });
        cells.collect()
    }

    /// Sets the precision of the cell.
    pub(crate) fn with_precisions(self, certainties: &'a BTreeMap<CellKey, CellPrecision>) -> Self {
        let precision = certainties.get(&self.cell.key);
        Self { precision, ..self }
    }

    /// Sets the noise of the host.
    pub(crate) fn with_noise(self, noise: Option<&'a Noise>) -> Self {
        Self { noise, ..self }
    }

    /// Sets the comparisons of graded answers of the run.
    pub(crate) fn with_answer_comparisons(self, answer_comparisons: &'a [AnswerComparison]) -> Self {
        Self {
            answer_comparisons,
            ..self
        }
    }

    /// Sets the agreement of answers to greedy probes of the run.
    pub(crate) fn with_agreements(self, agreements: &'a [CellAgreement]) -> Self {
        Self { agreements, ..self }
    }

    /// Sets the prices of what it was measured on.
    pub(crate) fn with_prices(self, prices: &Prices, machine: &Machine) -> Self {
        let prices = CellPrices::new(prices, self.launch, machine, &self.summaries);
        Self { prices, ..self }
    }

    /// The engine with its version: the requested one, else the one reported by this cell or by the other
    /// cells of the run.
    pub(crate) fn engine(&self) -> String {
        let engine = &self.launch.engine;
        let reported = || {
            self.summaries
                .iter()
                .find_map(|summary| summary.engine.version.as_deref())
        };
        match engine
            .version
            .as_deref()
            .or_else(reported)
            .or(self.other_engine_version)
        {
            Some(version) => format!("{}@{version}", engine.name),
            None => engine.name.clone(),
        }
    }

    /// The measurements that ended as `Done`.
    pub(crate) fn completed(&self) -> impl Iterator<Item = &'a MeasurementSummary> {
        self.summaries
            .iter()
            .copied()
            .filter(|summary| summary.status == MeasurementStatus::Done)
    }

    /// The measurements that figures come from: those that are done and not invalid, or all that are done if
    /// all are invalid.
    pub(crate) fn counted_summaries(&self) -> impl Iterator<Item = &'a MeasurementSummary> {
        let verdict = self.validity();
        self.completed()
            .filter(move |summary| summary_validity(summary) <= verdict)
    }

    /// The worst validity verdict of the measurements that count.
    pub(crate) fn validity(&self) -> Verdict {
        let verdicts = || self.completed().map(summary_validity);
        let sound = verdicts().filter(|verdict| *verdict < Verdict::Invalid).max();
        sound.or_else(|| verdicts().max()).unwrap_or_default()
    }

    /// The digest of the prompts, if all measurements sent the same.
    pub(crate) fn prompts_hash(&self) -> Option<&'a ContentHash> {
        let first = self.summaries.first()?.prompts_hash.as_ref()?;
        let is_same = |summary: &&MeasurementSummary| summary.prompts_hash.as_ref() == Some(first);
        self.summaries.iter().all(is_same).then_some(first)
    }

    /// The key of the cell, after the name of its run if there are several.
    pub(crate) fn name(&self) -> String {
        match self.run {
            "" => self.cell.key.to_string(),
            run => format!("{run}: {}", self.cell.key),
        }
    }

    /// Whether the cell was measured and every measurement is done.
    pub(crate) fn is_done(&self) -> bool {
        !self.summaries.is_empty() && self.completed().count() == self.summaries.len()
    }

    /// The scenario's name with the values that an axis may have set.
    pub(crate) fn scenario(&self) -> String {
        let scenario = &self.cell.scenario;
        let mut words = scenario.name.clone();
        if !scenario.arrival.rate.is_infinite() {
            words.push_str(&format!(", {} req/s", scenario.arrival.rate));
        }
        if let Some(pace) = &scenario.arrival.pace {
            words.push_str(&format!(", {pace} req/s"));
        }
        if let Some(search) = &scenario.search {
            words.push_str(&format!(", {search}"));
        }
        if let Some(limit) = scenario.arrival.concurrency {
            words.push_str(&format!(", at most {limit} at once"));
        }
        words
    }

    /// Values that `read` gives for the measurements that count, grouped by start, since repeats on one start
    /// are not independent. An attached server has one start, however often it is measured.
    pub(crate) fn read_by_start(&self, read: impl Fn(&MeasurementSummary) -> Option<f64>) -> Vec<Vec<f64>> {
        let mut starts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for summary in self.counted_summaries() {
            if let Some(value) = read(summary) {
                let start = if self.launch.is_attached() {
                    1
                } else {
                    summary.start
                };
                starts.entry(start).or_default().push(value);
            }
        }
        starts.into_values().collect()
    }

    /// The values of a metric in the measurements that count and have it.
    pub(crate) fn values(&self, metric: Metric) -> Vec<f64> {
        self.counted_summaries()
            .filter_map(|summary| metric_value(summary, metric))
            .collect()
    }

    /// The value shown for a metric: the mean over starts, as comparisons use it.
    pub(crate) fn value(&self, metric: Metric) -> Option<f64> {
        mean_of_starts(&self.values_by_start(metric))
    }

    /// The values of a metric in the measurements that count and have it, grouped by start.
    pub(crate) fn values_by_start(&self, metric: Metric) -> Vec<Vec<f64>> {
        self.read_by_start(|summary| metric_value(summary, metric))
    }

    /// The value of a metric with the smallest and the largest of several measurements.
    pub(crate) fn value_with_range(&self, metric: Metric, decimals: usize) -> Value {
        let values = self.values(metric);
        match (&values[..], self.value(metric)) {
            (_, None) => Value::Missing,
            ([_], Some(value)) => Value::Number { value, decimals },
            (several, Some(mean)) => Value::Spread {
                median: mean,
                least: several.iter().copied().fold(f64::INFINITY, f64::min),
                most: several.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                decimals,
            },
        }
    }

    /// The measurement with the median output throughput among those that count; the lower of two in the
    /// middle.
    pub(crate) fn median_summary(&self) -> Option<&'a MeasurementSummary> {
        let value = |summary: &MeasurementSummary| {
            metric_value(summary, Metric::Throughput(Quantity::Output)).unwrap_or(0.0)
        };
        let mut counted: Vec<&MeasurementSummary> = self.counted_summaries().collect();
        counted.sort_by(|a, b| value(a).total_cmp(&value(b)));
        let middle = counted.len().checked_sub(1)? / 2;
        counted.get(middle).copied()
    }

    pub(crate) fn origin(&self) -> Origin {
        match self.summaries.first() {
            Some(summary) => summary.origin,
            None if self.launch.engine.simulated => Origin::Simulated,
            None => Origin::Measured,
        }
    }

    /// The tool whose output it was read from.
    fn tool(&self) -> Option<Tool> {
        let mut imported = self
            .summaries
            .iter()
            .filter_map(|summary| summary.imported.as_ref());
        imported.next().map(|imported| imported.tool)
    }

    pub(super) fn marks(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        match self.origin() {
            Origin::Measured => {}
            Origin::Imported => marks.push(Mark::Imported(self.tool())),
            Origin::Simulated => marks.push(Mark::Simulated),
        }
        if self.origin() == Origin::Imported && self.launch.engine.simulated {
            marks.push(Mark::Simulated);
        }
        match self.validity() {
            Verdict::Valid => {}
            Verdict::Suspect => marks.push(Mark::Suspect),
            Verdict::Invalid => marks.push(Mark::Invalid),
        }
        let in_part = |family: &MetricFamily| {
            let mut validities = self
                .counted_summaries()
                .filter_map(|summary| summary.validity.as_ref());
            validities.any(|validity| validity.verdict_for(*family) > validity.verdict)
        };
        marks.extend(MetricFamily::ALL.into_iter().filter(in_part).map(Mark::SuspectIn));
        let is_doubtful = |summary: &&MeasurementSummary| {
            !summary.warnings.is_empty()
                || !summary.retries.is_empty()
                || !summary.concurrent_launches.is_empty()
        };
        if self.summaries.iter().any(is_doubtful) {
            marks.push(Mark::Warning);
        }
        let is_failed =
            |summary: &&MeasurementSummary| matches!(summary.status, MeasurementStatus::Failed { .. });
        if self.summaries.iter().any(is_failed) {
            marks.push(Mark::Failed);
        }
        marks
    }
}

/// The validity verdict of a measurement; `Valid` if it was never judged.
pub(crate) fn summary_validity(summary: &MeasurementSummary) -> Verdict {
    summary
        .validity
        .as_ref()
        .map_or_else(Verdict::default, |validity| validity.verdict)
}

/// Whether a fact is unknown: an import does not have it, or an attached server was not declared with it.
pub(crate) fn is_unknown(cell: &ReportCell<'_>, what: UnknownFact) -> bool {
    let imported = cell
        .summaries
        .iter()
        .filter_map(|summary| summary.imported.as_ref());
    let is_undeclared = what == UnknownFact::Gpus && cell.launch.gpus().is_none();
    is_undeclared || imported.into_iter().any(|imported| imported.lacks(what))
}

/// Whether all requests are sent at once: their time to the first token is the wait in the engine's queue. An unknown load is none.
pub(crate) fn is_burst(cell: &ReportCell<'_>) -> bool {
    Load::from_scenario(&cell.cell.scenario) == Load::Burst && !is_unknown(cell, UnknownFact::Rate)
}

/// A figure under the definitions `matrix`. An import that lacks them gives it under the definitions that it
/// follows.
pub(crate) fn metric_value(summary: &MeasurementSummary, metric: Metric) -> Option<f64> {
    let by = |definitions| metrics::metric_value(summary.figures.get(definitions)?, metric);
    let others = || match summary.origin {
        Origin::Imported => [Definitions::Classic, Definitions::Current].iter().find_map(by),
        Origin::Measured | Origin::Simulated => None,
    };
    by(&Definitions::Matrix).or_else(others)
}

/// The mean that comparisons use: geometric, or arithmetic if a value is not above zero.
fn mean_value(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    match values {
        [] => None,
        [value] => Some(*value),
        _ if values.iter().all(|value| *value > 0.0) => {
            Some((values.iter().map(|value| value.ln()).sum::<f64>() / n).exp())
        }
        _ => Some(values.iter().sum::<f64>() / n),
    }
}

/// The mean over starts; each start is represented by the mean of its repeats.
pub(crate) fn mean_of_starts(starts: &[Vec<f64>]) -> Option<f64> {
    mean_value(&means_of_starts(starts))
}

/// The mean of the repeats of each start.
pub(crate) fn means_of_starts(starts: &[Vec<f64>]) -> Vec<f64> {
    starts.iter().filter_map(|repeats| mean_value(repeats)).collect()
}

/// How a cell ended, in a few words.
pub(crate) fn status_in_words(cell: &ReportCell<'_>) -> String {
    let total = cell.summaries.len();
    let done = cell.completed().count();
    let is_invalid = cell.validity() == Verdict::Invalid;
    let counted = cell.counted_summaries().count();
    match (done, total) {
        (_, 0) => "not measured".to_owned(),
        (1, 1) if is_invalid => "invalid".to_owned(),
        (1, 1) => "done".to_owned(),
        (0, _) => cell
            .summaries
            .last()
            .map_or_else(String::new, |summary| ending_in_words(summary)),
        (done, total) if done == total && is_invalid => format!("invalid, n={total}"),
        (done, total) if done == total && counted < total => {
            format!("done, n={counted}, {} invalid", total - counted)
        }
        (done, total) if done == total => format!("done, n={total}"),
        (done, total) => format!("{done} of {total} done"),
    }
}

fn ending_in_words(summary: &MeasurementSummary) -> String {
    match &summary.status {
        MeasurementStatus::Failed { phase, .. } => format!("failed in {}", phase.name()),
        other => other.name().to_owned(),
    }
}
