//! Compares two cells: whether they are comparable, the samples for the decision function, and the ratio from
//! its answer.
//!
//! Every ratio of every report is computed here; cells that are not [`comparable`] get none.

use std::collections::BTreeMap;

use super::Shown;
use crate::analysis::compare::comparable::{self, Comparability, Side};
use crate::analysis::compare::decision::{Answer, Design, Gap, LEVEL, Outcome, Question, Sample};
use crate::analysis::compare::{from_run, gates, percentile, question, resolution, stored, verdict};
use crate::analysis::metrics::{self, Better, Flow, Metric};
use crate::results::record::cell::{Definitions, Summary};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub value: f64,
    /// 95 % confidence interval; `None` if a side has a single start.
    pub interval: Option<[f64; 2]>,
    /// Number of starts of the reference and of the cell.
    pub starts: [usize; 2],
    pub is_reference: bool,
    /// The decision over all gating metrics together.
    pub standing: Standing,
    pub reason: String,
}

impl Ratio {
    /// Whether a side has a single start, so that the error of the ratio is unknown.
    pub(crate) fn is_of_one_start(&self) -> bool {
        !self.is_reference && self.starts.contains(&1)
    }
}

/// The relation of a row to the row that it is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Held {
    /// The ratio, and the differences to print beside it.
    Ratio(Ratio, Vec<String>),
    /// The reasons for which there is no ratio, and the ratio per GPU if only the numbers of GPUs differ.
    Refused(Vec<String>, Option<f64>),
}

/// How a cell compares with its reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
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

impl Standing {
    /// The same comparison seen from the other side.
    pub(super) const fn reversed(self) -> Self {
        match self {
            Self::Better => Self::Worse,
            Self::Worse => Self::Better,
            other => other,
        }
    }

    /// Combines the answers on all gating metrics of a pair.
    pub(super) fn of(answers: &[Answer]) -> Self {
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
            (found @ (Self::Better | Self::Worse), _) | (_, found @ (Self::Better | Self::Worse)) => found,
            (Self::NotJudged, _) | (_, Self::NotJudged) => Self::NotJudged,
            _ => Self::Unclear,
        })
    }
}

/// The gating metrics of one model and scenario; ratios are of the first. A metric that some measurement
/// lacks is replaced by its counterpart over the full run.
pub(super) fn gates_of(group: &[&Shown<'_>]) -> Vec<Metric> {
    let Some(first) = group.first() else {
        return Vec::new();
    };
    let measured = || group.iter().filter(|one| one.is_done());
    let fitting = |metric: Metric| {
        let full = gates::of_full_run(metric);
        let is_known = measured().all(|one| one.counted().all(|summary| has(summary, metric)));
        if is_known { metric } else { full }
    };
    gates::gates(&first.cell.scenario)
        .into_iter()
        .map(fitting)
        .collect()
}

fn has(summary: &Summary, metric: Metric) -> bool {
    let known = summary.figures.get(&Definitions::Matrix);
    known.is_some_and(|figures| gates::has(figures, metric))
}

/// Whether `one` may be compared with `other`.
pub(super) fn comparability(one: &Shown<'_>, other: &Shown<'_>) -> Comparability {
    let (our_part, their_part) = (part(one), part(other));
    comparable::comparable(&told(one, &our_part), &told(other, &their_part))
}

/// Samples of `reference` and `one` under the metric set that both have; empty samples if they share none.
pub(super) fn samples(reference: &Shown<'_>, one: &Shown<'_>, metric: Metric) -> [Sample; 2] {
    let (our_part, their_part) = (part(one), part(reference));
    let shared = comparable::shared(&told(one, &our_part), &told(reference, &their_part));
    let Some(set) = shared else {
        return [Sample::default(), Sample::default()];
    };
    let least = resolution::common([reference, one].map(|shown| least(shown, set, metric)));
    [reference, one].map(|shown| {
        let starts = shown.by_start(|summary| read(summary, set, metric));
        of_starts(shown, set, metric, &starts, least)
    })
}

/// The measurements that a comparison looks at. An invalid measurement beside valid ones is left out of the
/// figures, so it must not make the cells incomparable either.
fn part<'a>(shown: &Shown<'a>) -> Vec<&'a Summary> {
    let verdict = shown.verdict();
    let is_known = |summary: &&Summary| super::verdict_of(summary) <= verdict;
    shown.summaries.iter().copied().filter(is_known).collect()
}

/// The question whether a metric of `one` is better than that of its reference, with the noise of the host,
/// as `compare` asks it.
pub(super) fn question(
    reference: &Shown<'_>,
    one: &Shown<'_>,
    metric: Metric,
    comparability: &Comparability,
) -> Question {
    let noise = one
        .noise
        .and_then(|noise| stored::known(noise, &one.cell.key, &metric.name()));
    let attached = [reference, one].map(|shown| shown.launch.is_attached());
    let lengths = || {
        let [theirs, ours] = [reference, one].map(|shown| {
            let counted: Vec<&Summary> = shown.counted().collect();
            comparable::answer_tokens(&shown.cell.scenario, &counted)
        });
        let told = comparable::lengths_apart(ours, theirs)?;
        comparable::depends_on_length(metric).then_some(Gap::NotComparable(told))
    };
    let slo = || {
        let [theirs, ours] = [reference, one].map(|shown| comparable::slo(&shown.cell.scenario));
        comparable::slo_apart(metric, &ours, &theirs).map(Gap::NotComparable)
    };
    let drained = || {
        let mut rows = [reference, one].into_iter();
        rows.find_map(|shown| {
            let figures = shown
                .counted()
                .filter_map(|summary| summary.figures.get(&Definitions::Matrix));
            let why = gates::drained(&shown.cell.scenario, metric, figures)?;
            Some(Gap::NotComparable(format!("{}: {why}", shown.engine())))
        })
    };
    let scarce = || {
        let mut rows = [reference, one].into_iter();
        rows.find_map(|shown| {
            let completed = shown.counted().filter_map(|summary| {
                let figures = summary.figures.get(&Definitions::Matrix)?;
                metrics::figure(figures, Metric::Completed)
            });
            let fewest = completed.reduce(f64::min)?;
            let why = percentile::too_few(metric, fewest as u32)?;
            Some(Gap::Missing(format!("{}: {why}", shown.engine())))
        })
    };
    let whole = question::of_samples(samples(reference, one, metric), attached, metric, noise);
    let asked = match rounds(reference, one, metric) {
        Some([baseline, candidate]) => Question {
            baseline,
            candidate,
            design: Design::Rounds,
            ..whole
        },
        None => whole,
    };
    Question {
        gap: gap(comparability)
            .or_else(lengths)
            .or_else(slo)
            .or_else(drained)
            .or_else(scarce),
        ..asked
    }
}

/// Samples of two rows of one run that alternated, from the rounds in which both starts count; `None` if they
/// did not alternate. Rounds on an attached server are repeats on its one start.
fn rounds(reference: &Shown<'_>, one: &Shown<'_>, metric: Metric) -> Option<[Sample; 2]> {
    let (plan, theirs) = (one.plan?, reference.plan?);
    if !std::ptr::eq(plan, theirs) {
        return None;
    }
    let (our_part, their_part) = (part(one), part(reference));
    let set = comparable::shared(&told(one, &our_part), &told(reference, &their_part))?;
    let values = [reference, one].map(|shown| {
        let mut starts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for summary in shown.counted() {
            let own = starts.entry(summary.start).or_default();
            own.extend(read(summary, set, metric));
        }
        starts.retain(|_, repeats| !repeats.is_empty());
        starts
    });
    let made = plan.rounds(&reference.launch.id, &one.launch.id);
    let whole: Vec<[u32; 2]> = made
        .into_iter()
        .filter(|round| (0..2).all(|side| values[side].contains_key(&round[side])))
        .collect();
    if whole.is_empty() {
        return None;
    }
    let least = resolution::common([reference, one].map(|shown| least(shown, set, metric)));
    let of = |side: usize, shown: &Shown<'_>| {
        let starts = whole.iter().map(|round| values[side][&round[side]].clone());
        let starts: Vec<Vec<f64>> = match shown.launch.is_attached() {
            true => vec![starts.flatten().collect()],
            false => starts.collect(),
        };
        of_starts(shown, set, metric, &starts, least)
    };
    Some([of(0, reference), of(1, one)])
}

fn read(summary: &Summary, definitions: Definitions, metric: Metric) -> Option<f64> {
    metrics::figure(summary.figures.get(&definitions)?, metric)
}

fn told<'s>(shown: &Shown<'s>, part: &'s [&'s Summary]) -> Side<'s> {
    Side {
        launch: shown.launch,
        cell: shown.cell,
        summaries: part,
        machine: shown.machine,
    }
}

/// The value that zeros of a metric are raised to, since logarithms are compared (`resolution::least`).
fn least(shown: &Shown<'_>, definitions: Definitions, metric: Metric) -> Option<f64> {
    let of_all = |metric: Metric| -> Vec<f64> {
        let read = |summary| read(summary, definitions, metric);
        shown.counted().filter_map(read).collect()
    };
    let completed = of_all(Metric::Completed).into_iter().reduce(f64::min);
    resolution::least(metric, &of_all(Metric::Throughput(Flow::Requests)), completed)
}

/// Builds the sample of a row from the values of its starts.
fn of_starts(
    shown: &Shown<'_>,
    definitions: Definitions,
    metric: Metric,
    starts: &[Vec<f64>],
    least: Option<f64>,
) -> Sample {
    let sample = Sample::of_starts(&resolution::raised(starts, least)).unwrap_or_default();
    let bounds: Vec<[f64; 2]> = shown
        .counted()
        .filter_map(|summary| summary.intervals.get(&metric.name()).copied())
        .collect();
    Sample {
        is_at_jump: percentile::is_at_jump(sample.value().unwrap_or_default(), &bounds),
        launch: Some(format!("{}/{}", shown.run, shown.launch.id)),
        first_stage: shown.stage.map(|stage| {
            let counted: Vec<&Summary> = shown.counted().collect();
            from_run::first_stage(&counted, stage) as usize
        }),
        resolution: resolution::of(shown.counted(), definitions, metric),
        counting: resolution::counting(metric, &sample.logs, least),
        ..sample
    }
}

/// The ratio of the first metric, with the standing over all metrics; `None` if there is no estimate.
pub(super) fn ratio(answers: &[Answer], is_reversed: bool) -> Option<Ratio> {
    let first = answers.first()?;
    let estimate = first.estimate?;
    let interval = estimate
        .interval(LEVEL)
        .filter(|_| first.starts.iter().all(|starts| *starts > 1))
        .map(|interval| [1.0 + interval.low, 1.0 + interval.high]);
    let standing = Standing::of(answers);
    let [theirs, ours] = first.starts;
    let deciding = answers
        .iter()
        .find(|answer| Standing::of(std::slice::from_ref(*answer)) == standing);
    let reason = deciding.unwrap_or(first).reason();
    let value = 1.0 + estimate.change();
    Some(match is_reversed {
        false => Ratio {
            value,
            interval,
            starts: [theirs, ours],
            is_reference: false,
            standing,
            reason,
        },
        true => Ratio {
            value: 1.0 / value,
            interval: interval.map(|[low, high]| [1.0 / high, 1.0 / low]),
            starts: [ours, theirs],
            is_reference: false,
            standing: standing.reversed(),
            reason,
        },
    })
}

/// Why a pair gets no verdict, whatever its starts are: more differs than the engine.
fn gap(comparability: &Comparability) -> Option<Gap> {
    match comparability {
        Comparability::Comparable | Comparability::WithDifferences(_) => None,
        Comparability::DescribedOnly(why) => Some(Gap::NotComparable(why.join(", "))),
        Comparability::PerGpuOnly(why) | Comparability::Not(why) => Some(Gap::NotComparable(why.join(", "))),
    }
}

pub(super) fn better(metric: Metric) -> Better {
    metric.better().unwrap_or(Better::Higher)
}
