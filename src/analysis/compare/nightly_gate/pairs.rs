//! Pairs the cells of a nightly run with those of its baseline.

use super::findings::{failure_findings, new_finding};
use super::screen_result::ScreenResult;
use crate::analysis::compare::decision::NoVerdict;
use crate::analysis::compare::difference::{Difference, DifferenceKind};
use crate::analysis::compare::{environment_diff, pairwise, reliability};
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::{CellStats, Facts, RunStats};
use crate::results::record::nightly::FindingKind;

/// Two cells that form a pair, and the reason that they cannot be judged, if any.
pub(super) struct CellPair<'a> {
    pub(super) key: &'a CellKey,
    pub(super) baseline: &'a CellKey,
    pub(super) baseline_cell: &'a CellStats,
    pub(super) candidate_cell: &'a CellStats,
    /// The hosts that measured the candidate.
    pub(super) hosts: &'a [Facts],
    pub(super) no_verdict: Option<NoVerdict>,
}

/// The starts of the baseline that a night is judged against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BaselineStarts {
    /// Those in the baseline's file.
    Stored,
    /// Those in the night's own run.
    Fresh,
}

/// Computes what is known before any metric is compared: findings, pairs of cells, and the number of gating
/// metrics.
pub(super) fn pair_cells<'a>(
    baseline: &'a RunStats,
    candidate_run: &'a RunStats,
    judged_against: BaselineStarts,
) -> (ScreenResult, Vec<CellPair<'a>>) {
    let mut screen_result = ScreenResult::default();
    let events = environment_diff::side_differences(baseline, candidate_run);
    let events: Vec<&Difference> = events
        .iter()
        .filter(|event| event.kind == DifferenceKind::Environment)
        .collect();
    let consequence = match judged_against {
        BaselineStarts::Stored => "there are no verdicts until you run `matrix baseline accept`",
        BaselineStarts::Fresh => {
            "this nightly run also starts the baseline, and compares each cell with these starts"
        }
    };
    for event in &events {
        let text = format!("{}; {consequence}", event.in_words());
        screen_result
            .findings
            .push(new_finding(FindingKind::Environment, None, None, text));
    }
    screen_result.findings.extend(failure_findings(candidate_run));
    let matched = pairwise::match_cells(baseline, candidate_run);
    screen_result
        .findings
        .extend(reliability::failures(&matched).into_iter().map(|failure| {
            let kind = match failure.is_regression {
                true => FindingKind::Worse,
                false => FindingKind::Unclear,
            };
            new_finding(kind, Some(&failure.cell), None, failure.text)
        }));
    let is_new = |key: &CellKey| !matched.iter().any(|(paired, ..)| *paired == key);
    for (key, cell) in candidate_run.cells.iter().filter(|(key, _)| is_new(key)) {
        screen_result.metrics += cell.gates.len();
        if cell.exclusion().is_none() {
            let text = "the cell is not in the baseline; `matrix baseline accept` adds it";
            screen_result
                .findings
                .push(new_finding(FindingKind::NotJudged, Some(key), None, text));
        }
    }
    let is_lost = |cell: &CellStats| !matched.iter().any(|(_, paired, _)| std::ptr::eq(*paired, cell));
    for (key, cell) in baseline.cells.iter().filter(|(_, cell)| is_lost(cell)) {
        screen_result.metrics += cell.gates.len();
        let text = "the cell is in the baseline, but was not measured; `matrix baseline accept` removes it";
        screen_result
            .findings
            .push(new_finding(FindingKind::Missing, Some(key), None, text));
    }
    let of_baseline = |baseline_cell: &CellStats| {
        let entry = baseline
            .cells
            .iter()
            .find(|(_, cell)| std::ptr::eq(*cell, baseline_cell));
        entry.map(|(key, _)| key)
    };
    let pairs: Vec<CellPair<'a>> = matched
        .iter()
        .map(|(key, baseline_cell, candidate_cell)| CellPair {
            key,
            baseline: of_baseline(baseline_cell).unwrap_or(key),
            baseline_cell,
            candidate_cell,
            hosts: candidate_run.hosts(candidate_cell),
            no_verdict: forbidden_reason(baseline_cell, candidate_cell, &events),
        })
        .collect();
    screen_result.metrics += pairs
        .iter()
        .map(|pair| pair.candidate_cell.gates.len())
        .sum::<usize>();
    (screen_result, pairs)
}

/// Says why a pair cannot be judged, whatever its metrics are.
fn forbidden_reason(
    baseline_cell: &CellStats,
    candidate_cell: &CellStats,
    events: &[&Difference],
) -> Option<NoVerdict> {
    if let Some((cause, reason)) = baseline_cell.exclusion() {
        let why = format!(
            "the baseline has no valid measurement of this cell: {}: {reason}",
            cause.name()
        );
        return Some(NoVerdict::Missing(why));
    }
    let own = environment_diff::cell_differences(baseline_cell, candidate_cell);
    let of_cell = own
        .iter()
        .filter(|difference| difference.kind.forbids_verdict() && !events.contains(difference));
    let events_in_words: Vec<String> = events
        .iter()
        .copied()
        .chain(of_cell)
        .map(Difference::in_words)
        .collect();
    match events_in_words.is_empty() {
        false => Some(NoVerdict::NotComparable(events_in_words.join("; "))),
        true => {
            environment_diff::unknown_difference(baseline_cell, candidate_cell).map(NoVerdict::NotComparable)
        }
    }
}
