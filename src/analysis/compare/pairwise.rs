//! Compares two sides cell by cell: pairs, differences and verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::decision::{self, Answer, Estimate, Gap, KnownNoise, Question, Sample};
use super::environment_diff::{self, Difference, Kind};
use super::gates;
use super::power::{self, Components};
use super::reliability::{self, Failure};
use super::verdict::{self, Verdict};
use super::{from_run, question, stored};
use crate::analysis::metrics::{Metric, Statistics};
use crate::base::ids::CellKey;
use crate::config::select::AxisValues;
use crate::results::record::cell_stats::{Cause, Noise, Side, SideCell};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    /// Floor: the smallest change that matters, as a share.
    pub bound: f64,
    pub noise: Option<&'a Noise>,
    /// Whether verdicts are given even if the environment changed.
    pub across: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    /// Differences besides metrics, with the cells that have them. Without cells: differences of the whole
    /// sides.
    pub differences: Vec<(Difference, Vec<CellKey>)>,
    /// Every gating metric of every pair, in the order of the baseline's cells.
    pub rows: Vec<Row>,
    pub unpaired: Vec<Unpaired>,
    /// Failures of the candidate that the baseline did not have, or had less often.
    pub failures: Vec<Failure>,
    /// The floor that was applied, as a share.
    pub bound: f64,
}

/// A cell of one side that the other lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unpaired {
    pub cell: CellKey,
    pub side: &'static str,
    /// Number of its gating metrics.
    pub gates: usize,
}

/// A reason why starts of one side are suspect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspicion {
    pub side: &'static str,
    pub starts: BTreeSet<u32>,
    /// The reason code, with the measured value in brackets.
    pub reason: String,
}

impl Suspicion {
    pub(crate) fn code(&self) -> &str {
        self.reason.split(' ').next().unwrap_or_default()
    }
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let starts: Vec<String> = self.starts.iter().map(u32::to_string).collect();
        write!(f, "{}, start {}: {}", self.side, starts.join(", "), self.reason)
    }
}

/// One gating metric of one pair.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub cell: CellKey,
    pub metric: Metric,
    /// Starts of the baseline and of the candidate.
    pub samples: [Sample; 2],
    /// Whether the metric is zero on every start of that side, such as a goodput that no request met.
    pub is_zero: [bool; 2],
    /// For a percentile: its 95 % confidence interval from the requests of single starts, for baseline and
    /// candidate. Each bound is the median over the starts.
    pub known: [Option<[f64; 2]>; 2],
    /// Variance of the candidate, of logarithms.
    pub spread: Components,
    /// Noise of this metric on this host, if it was measured.
    pub noise: Option<KnownNoise>,
    pub answer: Answer,
    /// Why a side that was measured has no usable value.
    pub refused: Option<Cause>,
    /// Measurements of both sides that are excluded.
    pub left_out: Vec<String>,
    /// Measurements of both sides that are included but suspect in this metric.
    pub suspect: Vec<Suspicion>,
    /// Whether baseline and candidate are attached servers. The verdict then applies to these servers and to
    /// no other start.
    pub attached: [bool; 2],
}

impl Row {
    pub(crate) fn reason(&self) -> String {
        let reason = self.answer.reason_of(self.change_of_zero());
        let of_whom = match self.attached {
            _ if self.verdict().is_none() => return reason,
            [false, false] => return reason,
            [true, true] => "these two running servers",
            [true, false] => "the running server of the baseline",
            [false, true] => "the running server of the candidate",
        };
        format!("{reason}; for {of_whom} only, whose measurements are repeats")
    }

    /// Returns the text for a change of a metric that is zero on one side. The estimate would only show the
    /// value of half a request.
    pub(crate) const fn change_of_zero(&self) -> Option<&'static str> {
        match self.is_zero {
            [false, true] => Some("to zero"),
            [true, false] => Some("from zero"),
            [false, false] | [true, true] => None,
        }
    }

    /// Returns the estimate, unless both sides are zero.
    pub(crate) fn estimate(&self) -> Option<Estimate> {
        self.answer.estimate.filter(|_| self.is_zero != [true, true])
    }

    /// Returns the value of the baseline (0) or of the candidate (1).
    pub(crate) fn value(&self, side: usize) -> Option<f64> {
        self.samples[side]
            .value()
            .map(|value| if self.is_zero[side] { 0.0 } else { value })
    }

    pub(crate) const fn verdict(&self) -> Option<Verdict> {
        self.answer.verdict()
    }

    pub(crate) fn word(&self) -> &'static str {
        self.refused.map_or_else(|| self.answer.word(), Cause::name)
    }
}

impl Comparison {
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.rows
            .iter()
            .filter(|row| row.verdict() == Some(verdict))
            .count()
    }

    /// Returns the number of metrics to be judged, including those of cells that the candidate lacks.
    pub(crate) fn figures(&self) -> usize {
        self.rows.len() + self.lost().map(|lost| lost.gates).sum::<usize>()
    }

    /// Returns the number of metrics with a verdict.
    pub(crate) fn judged(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict().is_some()).count()
    }

    pub(crate) fn is_less_reliable(&self) -> bool {
        self.failures.iter().any(|failure| failure.is_regression)
    }

    pub(crate) fn lost(&self) -> impl Iterator<Item = &Unpaired> {
        self.unpaired.iter().filter(|unpaired| unpaired.side == BASELINE)
    }
}

const BASELINE: &str = "baseline";
const CANDIDATE: &str = "candidate";

/// Pairs the cells of two sides. Cells with the same key form a pair. A cell without a partner is paired with
/// one that differs in the version alone, if there is exactly one.
pub(crate) fn pairs<'a>(first: &'a Side, second: &'a Side) -> Pairs<'a> {
    let same = |key: &CellKey| second.cells.get_key_value(key);
    let loose = |axes: &AxisValues| -> AxisValues {
        axes.iter()
            .filter(|(name, _)| *name != "version")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    let mut partners: BTreeMap<AxisValues, Vec<(&CellKey, &SideCell)>> = BTreeMap::new();
    for (key, cell) in second
        .cells
        .iter()
        .filter(|(key, _)| !first.cells.contains_key(key))
    {
        partners.entry(loose(&cell.axes)).or_default().push((key, cell));
    }
    let is_alone = |axes: &AxisValues| {
        let rivals = first
            .cells
            .iter()
            .filter(|(key, cell)| !second.cells.contains_key(key) && loose(&cell.axes) == *axes);
        rivals.count() == 1
    };
    first
        .cells
        .iter()
        .filter_map(|(key, cell)| {
            if let Some((key, partner)) = same(key) {
                return Some((key, cell, partner));
            }
            let axes = loose(&cell.axes);
            match partners.get(&axes)?.as_slice() {
                [(key, partner)] if is_alone(&axes) => Some((*key, cell, *partner)),
                _ => None,
            }
        })
        .collect()
}

/// Compares two sides. The first is the baseline.
pub(crate) fn compare(first: &Side, second: &Side, terms: &Terms<'_>) -> Comparison {
    let ask: Ask<'_> = &|_, [one, two], metric, noise| question::of_cells(one, two, metric, noise);
    compare_pairs(first, second, pairs(first, second), terms, ask)
}

/// Builds the question for a metric of the pair with the candidate's key.
pub(crate) type Ask<'a> = &'a dyn Fn(&CellKey, [&SideCell; 2], Metric, Option<KnownNoise>) -> Question;

/// Pairs of cells of two sides, with the candidate's key.
pub(crate) type Pairs<'a> = Vec<(&'a CellKey, &'a SideCell, &'a SideCell)>;

/// Compares these pairs of the two sides. `ask` builds the questions.
pub(crate) fn compare_pairs(
    first: &Side,
    second: &Side,
    pairs: Pairs<'_>,
    terms: &Terms<'_>,
    ask: Ask<'_>,
) -> Comparison {
    let of_sides = environment_diff::of_sides(first, second);
    let of_pairs: Vec<(&CellKey, Vec<Difference>)> = pairs
        .iter()
        .map(|(key, one, two)| {
            // A side that was not measured has no values that could differ.
            let is_missing = one.is_missing() || two.is_missing();
            let own = (!is_missing).then(|| environment_diff::of_cells(one, two));
            (*key, own.unwrap_or_default())
        })
        .collect();
    let mut asked = Vec::new();
    for ((key, one, two), (_, own)) in pairs.iter().zip(&of_pairs) {
        let differing: Vec<&Difference> = of_sides.iter().chain(own).collect();
        let forbidden = forbidden(&differing, terms.across);
        for metric in two.gates.iter().filter_map(|name| Metric::of_name(name)) {
            let metric = gates::of_pair(metric, one, two);
            let noise = terms
                .noise
                .and_then(|noise| stored::known(noise, key, &metric.name()));
            let question = ask(key, [one, two], metric, noise);
            let unknown = || environment_diff::unknown(one, two);
            let gap = question
                .gap
                .or_else(|| forbidden.clone().or_else(unknown).map(Gap::NotComparable));
            asked.push((*key, *one, *two, metric, Question { gap, ..question }));
        }
    }
    let questions: Vec<Question> = asked.iter().map(|(.., question)| question.clone()).collect();
    let terms_of_family = decision::Terms {
        bound: terms.bound,
        family: 0,
    };
    let answers = decision::decide(&questions, &terms_of_family);
    let rows = asked.into_iter().zip(answers);
    let rows = rows
        .map(|((key, one, two, metric, question), answer)| row(key, [one, two], metric, question, answer));
    let paired = |key: &CellKey| pairs.iter().any(|(second, ..)| *second == key);
    let has_partner = |cell: &SideCell| pairs.iter().any(|(_, first, _)| std::ptr::eq(*first, cell));
    let unpaired = |(key, cell): (&CellKey, &SideCell), side| Unpaired {
        cell: key.clone(),
        side,
        gates: cell.gates.len(),
    };
    let lost = first.cells.iter().filter(|(_, cell)| !has_partner(cell));
    let new = second.cells.iter().filter(|(key, _)| !paired(key));
    Comparison {
        rows: rows.collect(),
        failures: reliability::failures(&pairs),
        unpaired: lost
            .map(|lost| unpaired(lost, BASELINE))
            .chain(new.map(|new| unpaired(new, CANDIDATE)))
            .collect(),
        bound: terms.bound,
        differences: of_sides
            .iter()
            .map(|difference| (difference.clone(), Vec::new()))
            .chain(
                environment_diff::gathered(of_pairs)
                    .into_iter()
                    .map(|(difference, cells)| (difference, cells.into_iter().cloned().collect())),
            )
            .collect(),
    }
}

/// Says why a difference of metrics cannot be attributed to the engine. `None` if it can.
pub(crate) fn forbidden(differences: &[&Difference], across: bool) -> Option<String> {
    let told: Vec<String> = differences
        .iter()
        .filter(|difference| difference.kind.forbids() && !(across && difference.kind == Kind::Environment))
        .map(|difference| difference.told())
        .collect();
    (!told.is_empty()).then(|| format!("more than the engine differs: {}", told.join("; ")))
}

fn row(key: &CellKey, cells: [&SideCell; 2], metric: Metric, question: Question, answer: Answer) -> Row {
    let name = metric.name();
    let [one, two] = cells;
    let repeats = two.figures.get(&name).map_or(&[][..], Vec::as_slice);
    let logs: Vec<Vec<f64>> = repeats
        .iter()
        .filter_map(|repeats| verdict::logs(repeats))
        .collect();
    Row {
        cell: key.clone(),
        metric,
        known: cells.map(|cell| known(cell, &name)),
        spread: power::components(&logs),
        noise: question.noise,
        samples: [question.baseline, question.candidate],
        is_zero: cells.map(|cell| {
            let starts = cell.starts(&name);
            !starts.is_empty() && starts.iter().all(|value| *value == 0.0)
        }),
        answer,
        refused: cells
            .iter()
            .filter_map(|cell| cell.refused())
            .map(|(cause, _)| cause)
            .find(|cause| *cause != Cause::NotMeasured),
        attached: [one.attached, two.attached],
        left_out: left_out(BASELINE, one).chain(left_out(CANDIDATE, two)).collect(),
        suspect: [suspect(BASELINE, one, metric), suspect(CANDIDATE, two, metric)].concat(),
    }
}

/// Returns the median of both bounds of a percentile over the measurements of a cell.
fn known(cell: &SideCell, figure: &str) -> Option<[f64; 2]> {
    let all = cell.intervals.get(figure)?;
    let middle = |at: usize| {
        let bounds: Vec<f64> = all.iter().map(|between| between[at]).collect();
        Statistics::of(&bounds).map(|statistics| statistics.median)
    };
    Some([middle(0)?, middle(1)?])
}

fn left_out<'a>(side: &'a str, cell: &'a SideCell) -> impl Iterator<Item = String> + 'a {
    cell.excluded.iter().map(move |excluded| {
        format!(
            "{side}, start {}, repeat {}: {}: {}",
            excluded.start,
            excluded.repeat,
            excluded.cause.name(),
            excluded.reason
        )
    })
}

/// Returns the reasons why the starts of a metric are suspect, each once with its starts.
pub(super) fn suspect(side: &'static str, cell: &SideCell, metric: Metric) -> Vec<Suspicion> {
    let mut starts: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    let family = from_run::family(metric);
    let concerned = cell
        .suspect
        .iter()
        .filter(|doubt| doubt.only.is_empty() || doubt.only.iter().any(|only| family == Some(*only)));
    for doubt in concerned {
        starts.entry(&doubt.reason).or_default().insert(doubt.start);
    }
    let suspicion = |(reason, starts): (&str, BTreeSet<u32>)| Suspicion {
        side,
        starts,
        reason: reason.to_owned(),
    };
    starts.into_iter().map(suspicion).collect()
}
