//! Compares two cells: whether they are comparable, the samples for the decision function, and the ratio from
//! its answer.
//!
//! Every ratio of every report is computed here; cells that are not [`comparable`] get none.

use std::collections::BTreeMap;

use super::report_cell::{ReportCell, summary_validity};
use crate::analysis::compare::cell_facts::{slo_difference, slo_in_words};
use crate::analysis::compare::comparable::{self, Comparability};
use crate::analysis::compare::compared_cell::{ComparedCell, shared_metric_definitions};
use crate::analysis::compare::decision::{
    Answer, CONFIDENCE, Design, MetricQuestion, NoVerdict, Outcome, Sample,
};
use crate::analysis::compare::response_length::{depends_on_length, length_difference, mean_response_tokens};
use crate::analysis::compare::{from_run, gates, percentile, question, resolution, stored, verdict};
use crate::analysis::metrics::{self, Direction, Metric, Quantity};
use crate::results::record::cell::{Definitions, MeasurementSummary};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) value: f64,
    /// 95 % confidence interval; `None` if a side has a single start.
    pub(crate) interval: Option<[f64; 2]>,
    /// Number of starts of the reference and of the cell.
    pub(crate) starts: [usize; 2],
    pub(crate) is_reference: bool,
    /// The decision over all gating metrics together.
    pub(crate) verdict: RatioVerdict,
    pub(crate) reason: String,
}

impl Ratio {
    /// Whether a side has a single start, so that the error of the ratio is unknown.
    pub(crate) fn is_single_start(&self) -> bool {
        !self.is_reference && self.starts.contains(&1)
    }
}

/// The relation of a row to the row that it is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RatioOrReason {
    /// The ratio, and the differences to print beside it.
    Ratio(Ratio, Vec<String>),
    /// The reasons for which there is no ratio, and the ratio per GPU if only the numbers of GPUs differ.
    Refused(Vec<String>, Option<f64>),
}

/// How a cell compares with its reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RatioVerdict {
    /// Better in at least one gating metric, worse in none.
    Better,
    /// Worse in at least one gating metric, better in none.
    Worse,
    Same,
    /// The starts do not decide it, or it is better in one metric and worse in another.
    Unclear,
    /// There are too few starts, more differs than the engine, or the better cell is suspect.
    NotJudged,
}

impl RatioVerdict {
    /// The same comparison seen from the other side.
    pub(super) const fn reversed(self) -> Self {
        match self {
            Self::Better => Self::Worse,
            Self::Worse => Self::Better,
            other => other,
        }
    }

    /// Combines the answers on all gating metrics of a pair.
    pub(super) fn from_answers(answers: &[Answer]) -> Self {
        let mut all = answers.iter().map(|answer| match answer.outcome {
            Outcome::Judged(verdict::Verdict::Better) => Self::Better,
            Outcome::Judged(verdict::Verdict::Worse) => Self::Worse,
            Outcome::Judged(verdict::Verdict::Same) => Self::Same,
            Outcome::Judged(verdict::Verdict::Unclear) => Self::Unclear,
            Outcome::NotJudged(_) => Self::NotJudged,
        });
        let Some(first) = all.next() else {
            return Self::NotJudged;
        };
        all.fold(first, |one, other| match (one, other) {
            (one, other) if one == other => one,
            (Self::Better, Self::Worse) | (Self::Worse, Self::Better) => Self::Unclear,
            (verdict @ (Self::Better | Self::Worse), _) | (_, verdict @ (Self::Better | Self::Worse)) => {
                verdict
            }
            (Self::NotJudged, _) | (_, Self::NotJudged) => Self::NotJudged,
            _ => Self::Unclear,
        })
    }
}

/// The gating metrics of one model and scenario; ratios are of the first. A metric that some measurement
/// lacks is replaced by its counterpart over the full run.
pub(super) fn gating_metrics(group: &[&ReportCell<'_>]) -> Vec<Metric> {
    let Some(first) = group.first() else {
        return Vec::new();
    };
    let measured = || group.iter().filter(|cell| cell.is_done());
    let fitting = |metric: Metric| {
        let full = gates::full_run_metric(metric);
        let is_known = measured().all(|cell| cell.counted_summaries().all(|summary| has(summary, metric)));
        if is_known { metric } else { full }
    };
    gates::gates(&first.cell.scenario)
        .into_iter()
        .map(fitting)
        .collect()
}

fn has(summary: &MeasurementSummary, metric: Metric) -> bool {
    let known = summary.figures.get(&Definitions::Matrix);
    known.is_some_and(|figures| gates::has_metric(figures, metric))
}

/// Whether `one` may be compared with `other`.
pub(crate) fn comparability(cell: &ReportCell<'_>, reference_cell: &ReportCell<'_>) -> Comparability {
    let (our_part, their_part) = (comparison_summaries(cell), comparison_summaries(reference_cell));
    comparable::comparable(
        &compared_cell(cell, &our_part),
        &compared_cell(reference_cell, &their_part),
    )
}

/// Samples of `reference` and `one` under the metric set that both have; empty samples if they share none.
pub(super) fn comparison_samples(
    reference: &ReportCell<'_>,
    compared: &ReportCell<'_>,
    metric: Metric,
) -> [Sample; 2] {
    let (our_part, their_part) = (comparison_summaries(compared), comparison_summaries(reference));
    let shared = shared_metric_definitions(
        &compared_cell(compared, &our_part),
        &compared_cell(reference, &their_part),
    );
    let Some(set) = shared else {
        return [Sample::default(), Sample::default()];
    };
    let min_value =
        resolution::common_min([reference, compared].map(|report_cell| min_value(report_cell, set, metric)));
    [reference, compared].map(|report_cell| {
        let starts = report_cell.read_by_start(|summary| read_metric(summary, set, metric));
        sample_of_starts(report_cell, set, metric, &starts, min_value)
    })
}

/// The measurements that a comparison looks at. An invalid measurement beside valid ones is left out of the
/// figures, so it must not make the cells incomparable either.
fn comparison_summaries<'a>(cell: &ReportCell<'a>) -> Vec<&'a MeasurementSummary> {
    let verdict = cell.validity();
    let is_known = |summary: &&MeasurementSummary| summary_validity(summary) <= verdict;
    cell.summaries.iter().copied().filter(is_known).collect()
}

/// The question whether a metric of `one` is better than that of its reference, with the noise of the host,
/// as `compare` asks it.
pub(super) fn question(
    reference: &ReportCell<'_>,
    compared: &ReportCell<'_>,
    metric: Metric,
    comparability: &Comparability,
) -> MetricQuestion {
    let noise = compared
        .noise
        .and_then(|noise| stored::known_noise(noise, &compared.cell.key, &metric.name()));
    let attached = [reference, compared].map(|cell| cell.launch.is_attached());
    let lengths = || {
        let [theirs, ours] = [reference, compared].map(|cell| {
            let counted: Vec<&MeasurementSummary> = cell.counted_summaries().collect();
            mean_response_tokens(&cell.cell.scenario, &counted)
        });
        let difference = length_difference(ours, theirs)?;
        depends_on_length(metric).then_some(NoVerdict::NotComparable(difference))
    };
    let slo = || {
        let [theirs, ours] = [reference, compared].map(|cell| slo_in_words(&cell.cell.scenario));
        slo_difference(metric, &ours, &theirs).map(NoVerdict::NotComparable)
    };
    let drained = || {
        let mut rows = [reference, compared].into_iter();
        rows.find_map(|cell| {
            let figures = cell
                .counted_summaries()
                .filter_map(|summary| summary.figures.get(&Definitions::Matrix));
            let why = gates::drain_reason(&cell.cell.scenario, metric, figures)?;
            Some(NoVerdict::NotComparable(format!("{}: {why}", cell.engine())))
        })
    };
    let scarce = || {
        let mut rows = [reference, compared].into_iter();
        rows.find_map(|cell| {
            let completed = cell.counted_summaries().filter_map(|summary| {
                let figures = summary.figures.get(&Definitions::Matrix)?;
                metrics::metric_value(figures, Metric::Completed)
            });
            let fewest = completed.reduce(f64::min)?;
            let why = percentile::too_few_requests(metric, fewest as u32)?;
            Some(NoVerdict::Missing(format!("{}: {why}", cell.engine())))
        })
    };
    let whole = question::sample_question(
        comparison_samples(reference, compared, metric),
        attached,
        metric,
        noise,
    );
    let sample_question = match round_samples(reference, compared, metric) {
        Some([baseline, candidate]) => MetricQuestion {
            baseline,
            candidate,
            design: Design::Rounds,
            ..whole
        },
        None => whole,
    };
    MetricQuestion {
        no_verdict: no_verdict(comparability)
            .or_else(lengths)
            .or_else(slo)
            .or_else(drained)
            .or_else(scarce),
        ..sample_question
    }
}

/// Samples of two rows of one run that alternated, from the rounds in which both starts count; `None` if they
/// did not alternate. Rounds on an attached server are repeats on its one start.
fn round_samples(
    reference: &ReportCell<'_>,
    compared: &ReportCell<'_>,
    metric: Metric,
) -> Option<[Sample; 2]> {
    let (plan, theirs) = (compared.plan?, reference.plan?);
    if !std::ptr::eq(plan, theirs) {
        return None;
    }
    let (our_part, their_part) = (comparison_summaries(compared), comparison_summaries(reference));
    let set = shared_metric_definitions(
        &compared_cell(compared, &our_part),
        &compared_cell(reference, &their_part),
    )?;
    let values = [reference, compared].map(|cell| {
        let mut starts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for summary in cell.counted_summaries() {
            let own = starts.entry(summary.start).or_default();
            own.extend(read_metric(summary, set, metric));
        }
        starts.retain(|_, repeats| !repeats.is_empty());
        starts
    });
    let made = plan.rounds(&reference.launch.id, &compared.launch.id);
    let whole: Vec<[u32; 2]> = made
        .into_iter()
        .filter(|round| (0..2).all(|side| values[side].contains_key(&round[side])))
        .collect();
    if whole.is_empty() {
        return None;
    }
    let min_value = resolution::common_min([reference, compared].map(|cell| min_value(cell, set, metric)));
    let sample_of = |side: usize, cell: &ReportCell<'_>| {
        let starts = whole.iter().map(|round| values[side][&round[side]].clone());
        let starts: Vec<Vec<f64>> = match cell.launch.is_attached() {
            true => vec![starts.flatten().collect()],
            false => starts.collect(),
        };
        sample_of_starts(cell, set, metric, &starts, min_value)
    };
    Some([sample_of(0, reference), sample_of(1, compared)])
}

fn read_metric(summary: &MeasurementSummary, definitions: Definitions, metric: Metric) -> Option<f64> {
    metrics::metric_value(summary.figures.get(&definitions)?, metric)
}

fn compared_cell<'s>(report_cell: &ReportCell<'s>, part: &'s [&'s MeasurementSummary]) -> ComparedCell<'s> {
    ComparedCell {
        launch: report_cell.launch,
        cell: report_cell.cell,
        summaries: part,
        machine: report_cell.machine,
    }
}

/// The value that zeros of a metric are raised to, since logarithms are compared (`resolution::min_value`).
fn min_value(cell: &ReportCell<'_>, definitions: Definitions, metric: Metric) -> Option<f64> {
    let of_all = |metric: Metric| -> Vec<f64> {
        let read = |summary| read_metric(summary, definitions, metric);
        cell.counted_summaries().filter_map(read).collect()
    };
    let completed = of_all(Metric::Completed).into_iter().reduce(f64::min);
    resolution::half_request_value(metric, &of_all(Metric::Throughput(Quantity::Requests)), completed)
}

/// Builds the sample of a row from the values of its starts.
fn sample_of_starts(
    cell: &ReportCell<'_>,
    definitions: Definitions,
    metric: Metric,
    starts: &[Vec<f64>],
    min_value: Option<f64>,
) -> Sample {
    let sample = Sample::from_starts(&resolution::raise_zeros(starts, min_value)).unwrap_or_default();
    let bounds: Vec<[f64; 2]> = cell
        .counted_summaries()
        .filter_map(|summary| summary.intervals.get(&metric.name()).copied())
        .collect();
    Sample {
        is_at_jump: percentile::is_at_jump(sample.value().unwrap_or_default(), &bounds),
        launch: Some(format!("{}/{}", cell.run, cell.launch.id)),
        first_stage: cell.stage.map(|stage| {
            let counted: Vec<&MeasurementSummary> = cell.counted_summaries().collect();
            from_run::first_stage_starts(&counted, stage) as usize
        }),
        resolution: resolution::resolution(cell.counted_summaries(), definitions, metric),
        counting_variance: resolution::counting_variance(metric, &sample.logs, min_value),
        ..sample
    }
}

/// The ratio of the first metric, with the standing over all metrics; `None` if there is no estimate.
pub(super) fn ratio(answers: &[Answer], is_reversed: bool) -> Option<Ratio> {
    let first = answers.first()?;
    let estimate = first.estimate?;
    let interval = estimate
        .interval(CONFIDENCE)
        .filter(|_| first.starts.iter().all(|starts| *starts > 1))
        .map(|interval| [1.0 + interval.low, 1.0 + interval.high]);
    let standing = RatioVerdict::from_answers(answers);
    let [theirs, ours] = first.starts;
    let deciding = answers
        .iter()
        .find(|answer| RatioVerdict::from_answers(std::slice::from_ref(*answer)) == standing);
    let reason = deciding.unwrap_or(first).reason();
    let value = 1.0 + estimate.change();
    Some(match is_reversed {
        false => Ratio {
            value,
            interval,
            starts: [theirs, ours],
            is_reference: false,
            verdict: standing,
            reason,
        },
        true => Ratio {
            value: 1.0 / value,
            interval: interval.map(|[low, high]| [1.0 / high, 1.0 / low]),
            starts: [ours, theirs],
            is_reference: false,
            verdict: standing.reversed(),
            reason,
        },
    })
}

/// Why a pair gets no verdict, whatever its starts are: more differs than the engine.
fn no_verdict(comparability: &Comparability) -> Option<NoVerdict> {
    match comparability {
        Comparability::Comparable | Comparability::WithDifferences(_) => None,
        Comparability::DescribedOnly(why) => Some(NoVerdict::NotComparable(why.join(", "))),
        Comparability::PerGpuOnly(why) | Comparability::Not(why) => {
            Some(NoVerdict::NotComparable(why.join(", ")))
        }
    }
}

pub(super) fn ratio_direction(metric: Metric) -> Direction {
    metric.direction().unwrap_or(Direction::Higher)
}
