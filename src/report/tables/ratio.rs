//! Two cells compared: whether they may be, the samples that the decision function gets, and what its answer makes of them.
//!
//! Every ratio of every report passes through here: what is not [`comparable`] gets none.

use super::Shown;
use crate::judge::compare::comparable::{self, Comparability, Side};
use crate::judge::compare::decision::{Answer, Gap, LEVEL, Outcome, Sample};
use crate::judge::compare::{gates, verdict};
use crate::judge::metrics::{self, Better, Metric};
use crate::results::record::cell::{Definitions, Summary};

/// A metric of a cell relative to that of the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// The ratio of the geometric means over starts.
    pub value: f64,
    /// Where it lies with 95 % confidence; `None` where a side has a single start.
    pub interval: Option<[f64; 2]>,
    /// Starts of the reference and of the cell.
    pub starts: [usize; 2],
    /// Whether the cell is the reference itself.
    pub is_reference: bool,
    /// What the decision function says of all gating metrics together.
    pub standing: Standing,
    /// Why it says so.
    pub reason: String,
}

impl Ratio {
    /// Whether a side has a single start, so that nothing tells how far the ratio may be off.
    pub fn is_of_one_start(&self) -> bool {
        !self.is_reference && self.starts.contains(&1)
    }
}

/// What a row is beside the row that it is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Held {
    /// The ratio, with the differences that belong beside it.
    Ratio(Ratio, Vec<String>),
    /// None, and why; where only the numbers of GPUs are unequal, the ratio per GPU.
    Refused(Vec<String>, Option<f64>),
}

/// What may be said of a cell and its reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Better in at least one gating metric, and worse in none.
    Better,
    /// Worse in at least one, and better in none.
    Worse,
    /// The same in all.
    Same,
    /// The starts do not tell, or it is better in one metric and worse in another.
    Unclear,
    /// There are too few starts, more differs than the engine, or the better one alone is suspect.
    NotJudged,
}

impl Standing {
    /// The standing of the other side.
    pub(super) const fn reversed(self) -> Self {
        match self {
            Self::Better => Self::Worse,
            Self::Worse => Self::Better,
            other => other,
        }
    }

    /// What the answers on all gating metrics of a pair come to.
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

/// The metrics that the cells of one model and scenario are compared by, the one that ratios are of first.
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
    known.is_some_and(|figures| metrics::figure(figures, metric).is_some())
}

/// Whether two cells may be compared; `one` relative to `other`.
pub(super) fn comparability(one: &Shown<'_>, other: &Shown<'_>) -> Comparability {
    let (our_part, their_part) = (part(one), part(other));
    comparable::comparable(&side(one, &our_part), &side(other, &their_part))
}

/// The samples of two cells under the definitions that both have, the reference's first; without values where there is none.
pub(super) fn samples(reference: &Shown<'_>, one: &Shown<'_>, metric: Metric) -> [Sample; 2] {
    let (our_part, their_part) = (part(one), part(reference));
    let shared = comparable::shared(&side(one, &our_part), &side(reference, &their_part));
    [reference, one].map(|shown| shared.map_or_else(Sample::default, |set| sample(shown, set, metric)))
}

/// The measurements that a comparison knows of: an invalid one beside sound ones is left out of the cell's figures, so it keeps
/// nothing apart either.
fn part<'a>(shown: &Shown<'a>) -> Vec<&'a Summary> {
    let verdict = shown.verdict();
    let is_known = |summary: &&Summary| super::verdict_of(summary) <= verdict;
    shown.summaries.iter().copied().filter(is_known).collect()
}

fn side<'s>(shown: &Shown<'s>, part: &'s [&'s Summary]) -> Side<'s> {
    Side {
        launch: shown.launch,
        cell: shown.cell,
        summaries: part,
        machine: shown.machine,
    }
}

fn sample(shown: &Shown<'_>, definitions: Definitions, metric: Metric) -> Sample {
    let read = |summary: &Summary| metrics::figure(summary.figures.get(&definitions)?, metric);
    let starts = shown.by_start(read);
    Sample {
        launch: Some(format!("{}/{}", shown.run, shown.launch.id)),
        resolution: match metric {
            Metric::Found(_) => resolution(shown),
            _ => 0.0,
        },
        ..Sample::of_starts(&starts).unwrap_or_default()
    }
}

/// Half a step of the grid on which a cell's searches found their values, as a share: what holds is known, and the lowest value that does not.
fn resolution(shown: &Shown<'_>) -> f64 {
    let steps = shown.counted().filter_map(|summary| {
        let search = summary.search.as_ref()?;
        Some((search.fails_at? / search.found?).sqrt() - 1.0)
    });
    steps.fold(0.0, f64::max)
}

/// The ratio that the answers on a pair tell: of the first metric, with what all of them say. `None` without an estimate.
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

/// Why a pair has no verdict, whatever its starts say: something besides the engine differs.
pub(super) fn gap(comparability: &Comparability) -> Option<Gap> {
    match comparability {
        Comparability::Comparable | Comparability::WithDifferences(_) => None,
        Comparability::DescribedOnly(why) => Some(Gap::NotComparable(why.join(", "))),
        Comparability::PerGpuOnly(why) | Comparability::Not(why) => Some(Gap::NotComparable(why.join(", "))),
    }
}

/// Which way a ratio of a metric is better.
pub(super) fn better(metric: Metric) -> Better {
    metric.better().unwrap_or(Better::Higher)
}
