//! Compares two sides cell by cell: pairs, differences and verdicts.

pub(crate) mod row;
pub(crate) mod suspect_starts;

use std::collections::BTreeMap;

use super::decision::{self, Answer, KnownNoise, MetricQuestion, NoVerdict};
use super::difference::{Difference, DifferenceKind};
use super::environment_diff;
use super::gates;
use super::power;
use super::reliability::{self, Failure, StartHistory};
use super::verdict::{self, Verdict};
use super::{question, stored};
use crate::analysis::metrics::{Metric, Statistics};
use crate::base::ids::CellKey;
use crate::config::select::AxisValues;
use crate::results::record::cell_stats::{CellStats, ExclusionCause, Noise, RunStats};
use row::Row;
use suspect_starts::suspect_starts;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CompareOptions<'a> {
    /// Floor: the smallest change that matters, as a share.
    pub(crate) bound: f64,
    pub(crate) noise: Option<&'a Noise>,
    /// Whether verdicts are given even if the environment changed.
    pub(crate) allow_environment: bool,
    /// Number of further questions that are asked about the same two sides, for which the correction for multiple tests has to
    /// account.
    pub(crate) further_questions: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    /// Differences besides metrics, with the cells that have them. Without cells: differences of the whole
    /// sides.
    pub(crate) differences: Vec<(Difference, Vec<CellKey>)>,
    /// Every gating metric of every pair, in the order of the baseline's cells.
    pub(crate) rows: Vec<Row>,
    pub(crate) unpaired_cells: Vec<Unpaired>,
    /// Failures of the candidate that the baseline did not have, or had less often.
    pub(crate) failures: Vec<Failure>,
    /// Crashed starts that are no such failures, and results that others replaced.
    pub(crate) start_histories: Vec<StartHistory>,
    /// The floor that was applied, as a share.
    pub(crate) bound: f64,
}

/// A cell of one side that the other lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unpaired {
    pub(crate) cell: CellKey,
    pub(crate) side: &'static str,
    /// Number of its gating metrics.
    pub(crate) gating_metrics: usize,
}

impl Comparison {
    pub(crate) fn count_verdict(&self, verdict: Verdict) -> usize {
        self.rows
            .iter()
            .filter(|row| row.verdict() == Some(verdict))
            .count()
    }

    /// Returns the number of metrics to be judged, including those of cells that the candidate lacks.
    pub(crate) fn figure_count(&self) -> usize {
        self.rows.len() + self.lost_cells().map(|lost| lost.gating_metrics).sum::<usize>()
    }

    /// Returns the number of metrics with a verdict.
    pub(crate) fn judged_count(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict().is_some()).count()
    }

    pub(crate) fn is_less_reliable(&self) -> bool {
        self.failures.iter().any(|failure| failure.is_regression)
    }

    pub(crate) fn lost_cells(&self) -> impl Iterator<Item = &Unpaired> {
        self.unpaired_cells
            .iter()
            .filter(|unpaired| unpaired.side == BASELINE)
    }
}

const BASELINE: &str = "baseline";
const CANDIDATE: &str = "candidate";

/// Pairs the cells of two sides. Cells with the same key form a pair. A cell without a partner is paired with
/// one that differs in the version alone, if there is exactly one.
pub(crate) fn match_cells<'a>(first: &'a RunStats, second: &'a RunStats) -> MatchedCells<'a> {
    let same = |key: &CellKey| second.cells.get_key_value(key);
    let loose = |axes: &AxisValues| -> AxisValues {
        axes.iter()
            .filter(|(name, _)| *name != "version")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    let mut partners: BTreeMap<AxisValues, Vec<(&CellKey, &CellStats)>> = BTreeMap::new();
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

/// The keys of the pairs of [`match_cells`]: of the first side and of the second.
pub(crate) fn matched_keys(first: &RunStats, second: &RunStats) -> Vec<(CellKey, CellKey)> {
    let key_of = |cell: &CellStats| {
        let mut cells = first.cells.iter();
        cells.find_map(|(key, own)| std::ptr::eq(own, cell).then(|| key.clone()))
    };
    let pairs = match_cells(first, second).into_iter();
    pairs
        .filter_map(|(key, cell, _)| Some((key_of(cell)?, key.clone())))
        .collect()
}

/// Compares two sides. The first is the baseline.
pub(crate) fn compare(first: &RunStats, second: &RunStats, options: &CompareOptions<'_>) -> Comparison {
    let ask: QuestionFn<'_> = &|_, [baseline_cell, candidate_cell], metric, noise| {
        question::cell_question(baseline_cell, candidate_cell, metric, noise)
    };
    compare_pairs(first, second, match_cells(first, second), options, ask)
}

/// Builds the question for a metric of the pair with the candidate's key.
pub(crate) type QuestionFn<'a> =
    &'a dyn Fn(&CellKey, [&CellStats; 2], Metric, Option<KnownNoise>) -> MetricQuestion;

/// Pairs of cells of two sides, with the candidate's key.
pub(crate) type MatchedCells<'a> = Vec<(&'a CellKey, &'a CellStats, &'a CellStats)>;

/// Compares these pairs of the two sides. `ask` builds the questions.
pub(crate) fn compare_pairs(
    first: &RunStats,
    second: &RunStats,
    pairs: MatchedCells<'_>,
    options: &CompareOptions<'_>,
    question_for: QuestionFn<'_>,
) -> Comparison {
    let of_sides = environment_diff::side_differences(first, second);
    let of_pairs = pair_differences(&of_sides, &pairs);
    let mut pending_rows = Vec::new();
    for ((key, baseline_cell, candidate_cell), (_, own)) in pairs.iter().zip(&of_pairs) {
        let differing: Vec<&Difference> = of_sides.iter().chain(own).collect();
        let forbidden = forbidden_reason(&differing, options.allow_environment);
        for metric in candidate_cell
            .gates
            .iter()
            .filter_map(|name| Metric::from_name(name))
        {
            let metric = gates::pair_metric(metric, baseline_cell, candidate_cell);
            let noise = options
                .noise
                .and_then(|noise| stored::known_noise(noise, key, &metric.name()));
            let question = question_for(key, [baseline_cell, candidate_cell], metric, noise);
            let unknown = || environment_diff::unknown_difference(baseline_cell, candidate_cell);
            let gap = question
                .no_verdict
                .or_else(|| forbidden.clone().or_else(unknown).map(NoVerdict::NotComparable));
            pending_rows.push((
                *key,
                *baseline_cell,
                *candidate_cell,
                metric,
                MetricQuestion {
                    no_verdict: gap,
                    ..question
                },
            ));
        }
    }
    let questions: Vec<MetricQuestion> = pending_rows
        .iter()
        .map(|(.., question)| question.clone())
        .collect();
    let terms_of_family = decision::DecisionOptions {
        bound: options.bound,
        family: match options.further_questions {
            0 => 0,
            further => questions.len() + further,
        },
    };
    let answers = decision::decide(&questions, &terms_of_family);
    let rows = pending_rows.into_iter().zip(answers);
    let rows = rows.map(
        |((key, baseline_cell, candidate_cell, metric, question), answer)| {
            new_row(key, [baseline_cell, candidate_cell], metric, question, answer)
        },
    );
    Comparison {
        rows: rows.collect(),
        failures: reliability::failures(&pairs),
        start_histories: reliability::start_histories(&pairs),
        unpaired_cells: unpaired_cells(first, second, &pairs),
        bound: options.bound,
        differences: grouped(&of_sides, of_pairs),
    }
}

/// Builds the comparison of the pairs that `is_part` selects, whose metrics were judged elsewhere.
pub(crate) fn judged_pairs(
    first: &RunStats,
    second: &RunStats,
    is_part: &dyn Fn(&CellKey) -> bool,
    rows: Vec<Row>,
    bound: f64,
) -> Comparison {
    let mut pairs = match_cells(first, second);
    let unpaired_cells = unpaired_cells(first, second, &pairs);
    pairs.retain(|(key, ..)| is_part(key));
    let of_sides = environment_diff::side_differences(first, second);
    let of_pairs = pair_differences(&of_sides, &pairs);
    Comparison {
        rows: rows.into_iter().filter(|row| is_part(&row.cell)).collect(),
        failures: reliability::failures(&pairs),
        start_histories: reliability::start_histories(&pairs),
        unpaired_cells,
        bound,
        differences: grouped(&of_sides, of_pairs),
    }
}

/// Returns the differences of each pair that are not those of the whole sides.
fn pair_differences<'a>(
    of_sides: &[Difference],
    pairs: &MatchedCells<'a>,
) -> Vec<(&'a CellKey, Vec<Difference>)> {
    let of_pair = |(key, baseline_cell, candidate_cell): &(&'a CellKey, &CellStats, &CellStats)| {
        // A side that was not measured has no values that could differ.
        let is_missing = baseline_cell.is_missing() || candidate_cell.is_missing();
        let own = (!is_missing).then(|| environment_diff::cell_differences(baseline_cell, candidate_cell));
        let mut own = own.unwrap_or_default();
        // Hosts of cells may differ in what the sides differ in.
        own.retain(|own| !of_sides.contains(own));
        (*key, own)
    };
    pairs.iter().map(of_pair).collect()
}

/// Returns the differences of the sides, and those of pairs with the cells that have them.
fn grouped(
    of_sides: &[Difference],
    of_pairs: Vec<(&CellKey, Vec<Difference>)>,
) -> Vec<(Difference, Vec<CellKey>)> {
    let of_pairs = environment_diff::group_by_difference(of_pairs)
        .into_iter()
        .map(|(difference, cells)| (difference, cells.into_iter().cloned().collect()));
    of_sides
        .iter()
        .map(|difference| (difference.clone(), Vec::new()))
        .chain(of_pairs)
        .collect()
}

/// Returns the cells of both sides that have no partner.
fn unpaired_cells(first: &RunStats, second: &RunStats, pairs: &MatchedCells<'_>) -> Vec<Unpaired> {
    let paired = |key: &CellKey| pairs.iter().any(|(second, ..)| *second == key);
    let has_partner = |cell: &CellStats| pairs.iter().any(|(_, first, _)| std::ptr::eq(*first, cell));
    let unpaired = |(key, cell): (&CellKey, &CellStats), side| Unpaired {
        cell: key.clone(),
        side,
        gating_metrics: cell.gates.len(),
    };
    let lost = first.cells.iter().filter(|(_, cell)| !has_partner(cell));
    let new = second.cells.iter().filter(|(key, _)| !paired(key));
    lost.map(|lost| unpaired(lost, BASELINE))
        .chain(new.map(|new| unpaired(new, CANDIDATE)))
        .collect()
}

/// Says why a difference of metrics cannot be attributed to the engine. `None` if it can.
pub(crate) fn forbidden_reason(differences: &[&Difference], across: bool) -> Option<String> {
    let differences_in_words: Vec<String> = differences
        .iter()
        .filter(|difference| {
            difference.kind.forbids_verdict() && !(across && difference.kind == DifferenceKind::Environment)
        })
        .map(|difference| difference.in_words())
        .collect();
    (!differences_in_words.is_empty()).then(|| {
        format!(
            "not only the engine differs, but also: {}",
            differences_in_words.join("; ")
        )
    })
}

pub(crate) fn new_row(
    key: &CellKey,
    cells: [&CellStats; 2],
    metric: Metric,
    question: MetricQuestion,
    answer: Answer,
) -> Row {
    let name = metric.name();
    let [baseline_cell, candidate_cell] = cells;
    let repeats = candidate_cell.figures.get(&name).map_or(&[][..], Vec::as_slice);
    let logs: Vec<Vec<f64>> = repeats
        .iter()
        .filter_map(|repeats| verdict::logs(repeats))
        .collect();
    Row {
        cell: key.clone(),
        metric,
        percentile_bounds: cells.map(|cell| median_bounds(cell, &name)),
        variance_components: power::variance_components(&logs),
        noise: question.noise,
        samples: [question.baseline, question.candidate],
        is_zero: cells.map(|cell| {
            let starts = cell.start_values(&name);
            !starts.is_empty() && starts.iter().all(|value| *value == 0.0)
        }),
        answer,
        refusal_cause: cells
            .iter()
            .filter_map(|cell| cell.exclusion())
            .map(|(cause, _)| cause)
            .find(|cause| *cause != ExclusionCause::NotMeasured),
        are_attached: [baseline_cell.attached, candidate_cell.attached],
        excluded_measurements: excluded_in_words(BASELINE, baseline_cell)
            .chain(excluded_in_words(CANDIDATE, candidate_cell))
            .collect(),
        suspect_starts: [
            suspect_starts(BASELINE, baseline_cell, metric),
            suspect_starts(CANDIDATE, candidate_cell, metric),
        ]
        .concat(),
    }
}

/// Returns the median of both bounds of a percentile over the measurements of a cell.
fn median_bounds(cell: &CellStats, figure: &str) -> Option<[f64; 2]> {
    let intervals = cell.intervals.get(figure)?;
    let middle = |at: usize| {
        let bounds: Vec<f64> = intervals.iter().map(|between| between[at]).collect();
        Statistics::from_values(&bounds).map(|statistics| statistics.median)
    };
    Some([middle(0)?, middle(1)?])
}

fn excluded_in_words<'a>(side: &'a str, cell: &'a CellStats) -> impl Iterator<Item = String> + 'a {
    let excluded = cell.excluded.iter().map(move |excluded| {
        format!(
            "{side}, start {}, repeat {}: {}: {}",
            excluded.start,
            excluded.repeat,
            excluded.cause.name(),
            excluded.reason
        )
    });
    let replaced = cell.replaced.iter();
    excluded.chain(
        replaced.map(move |result| format!("{side}, {result}; a new measurement replaced this result")),
    )
}
