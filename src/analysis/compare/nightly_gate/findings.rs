//! Findings of a nightly run.

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::compare::environment_diff;
use crate::analysis::compare::pairwise::suspect_starts::{SuspectStarts, suspect_starts};
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::base::text::pluralize;
use crate::results::record::cell_stats::{CellStats, ExcludedMeasurement, ExclusionCause, RunStats};
use crate::results::record::nightly::{Finding, FindingKind};

pub(super) fn new_finding(
    kind: FindingKind,
    cell: Option<&CellKey>,
    metric: Option<Metric>,
    text: impl Into<String>,
) -> Finding {
    Finding {
        kind,
        cell: cell.cloned(),
        figure: metric.map(Metric::name),
        text: text.into(),
    }
}

/// Returns the findings about failed and invalid cells, whatever they are compared with. Cells with some
/// valid starts are included.
pub(crate) fn failure_findings(candidate_run: &RunStats) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (key, cell) in &candidate_run.cells {
        if let Some((cause, reason)) = cell.exclusion() {
            let kind = match cause {
                ExclusionCause::NotMeasured => FindingKind::Missing,
                ExclusionCause::Failed => FindingKind::Failed,
                ExclusionCause::Invalid => FindingKind::Invalid,
            };
            findings.push(new_finding(kind, Some(key), None, reason));
            continue;
        }
        for (cause, kind) in [
            (ExclusionCause::NotMeasured, FindingKind::Missing),
            (ExclusionCause::Failed, FindingKind::Failed),
            (ExclusionCause::Invalid, FindingKind::Invalid),
        ] {
            let of_cause: Vec<&ExcludedMeasurement> = cell
                .excluded
                .iter()
                .filter(|excluded| excluded.cause == cause)
                .collect();
            let starts: BTreeSet<u32> = of_cause.iter().map(|excluded| excluded.start).collect();
            if let Some(first) = of_cause.first() {
                let text = format!(
                    "number of affected starts of this cell: {}; reason in the first of these starts: {}",
                    starts.len(),
                    first.reason
                );
                findings.push(new_finding(kind, Some(key), None, text));
            }
        }
    }
    findings
}

/// Returns the remarks for a finding: differences of the engines, and suspect measurements.
pub(super) fn remarks(baseline_cell: &CellStats, candidate_cell: &CellStats, metric: Metric) -> String {
    let mut words = String::new();
    let differs = environment_diff::engine_differences_in_words(baseline_cell, candidate_cell);
    if !differs.is_empty() {
        words.push_str(&format!("; engine differences: {differs}"));
    }
    let sides = [("baseline", baseline_cell), ("candidate", candidate_cell)];
    let doubts = sides
        .map(|(side, cell)| suspect_starts(side, cell, metric))
        .concat();
    if !doubts.is_empty() {
        words.push_str(&format!("; suspect: {}", doubts_in_words(&doubts)));
    }
    words
}

/// Each code once, with the number of starts of each side.
fn doubts_in_words(doubts: &[SuspectStarts]) -> String {
    let mut by_code: BTreeMap<&str, BTreeMap<&str, BTreeSet<u32>>> = BTreeMap::new();
    for doubt in doubts {
        let sides = by_code.entry(doubt.code()).or_default();
        sides.entry(doubt.side).or_default().extend(&doubt.starts);
    }
    let of_code = |(code, sides): (&str, BTreeMap<&str, BTreeSet<u32>>)| {
        let sides: Vec<String> = sides
            .iter()
            .map(|(side, starts)| format!("{} of the {side}", pluralize(starts.len(), "start", "starts")))
            .collect();
        format!("{code} in {}", sides.join(" and "))
    };
    let codes: Vec<String> = by_code.into_iter().map(of_code).collect();
    codes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_suspicion_is_named_once_with_its_starts() {
        let doubt = |side, starts: &[u32], reason: &str| SuspectStarts {
            side,
            starts: starts.iter().copied().collect(),
            reason: reason.to_owned(),
        };
        let doubts = [
            doubt("baseline", &[3], "host-busy (1.58 of 2 processors)"),
            doubt("baseline", &[1, 2], "host-busy (1.61 of 2 processors)"),
            doubt("candidate", &[4], "host-busy (1.66 of 2 processors)"),
            doubt("candidate", &[4], "window-short (5.2 s)"),
        ];
        assert_eq!(
            doubts_in_words(&doubts),
            "host-busy in 3 starts of the baseline and 1 start of the candidate, window-short in 1 start of the candidate"
        );
    }
}
