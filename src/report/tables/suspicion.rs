//! Why a row with better figures does not win against another one.

use std::collections::{BTreeMap, BTreeSet};

use super::notes::suspect_reasons;
use super::report_cell::ReportCell;
use crate::analysis::compare::from_run;
use crate::analysis::metrics::Metric;
use crate::results::record::validity::ReasonCode;

/// The share of the other row's goodput that a winner must have.
const MIN_GOODPUT: f64 = 0.95;

/// Why a row with more throughput does not win: it answers fewer requests within the SLO than the other row.
pub(super) fn slo_reason(winner: &ReportCell<'_>, loser: &ReportCell<'_>) -> Option<String> {
    let [ours, theirs] = [winner, loser].map(|cell| cell.value(Metric::Goodput));
    let (ours, theirs) = ours.zip(theirs)?;
    (ours < MIN_GOODPUT * theirs).then(|| {
        format!(
            "{} has better figures, but only {ours:.2} instead of {theirs:.2} requests per second within the SLO",
            winner.engine()
        )
    })
}

/// Why a row with better figures does not win against another one: it answers fewer requests within the SLO, at least one of
/// its starts is suspect, or at least half of the other row's starts were disturbed and none of its own.
pub(super) fn no_win_reason(winner: &ReportCell<'_>, loser: &ReportCell<'_>) -> Option<String> {
    let (ours, theirs) = (suspect_counts(winner), suspect_counts(loser));
    let both = || {
        let codes = code_list(ours.keys())?;
        Some(format!(
            "{} and {} are suspect ({codes})",
            winner.engine(),
            loser.engine()
        ))
    };
    // A single slow start among several is part of the spread.
    let half = loser.counted_summaries().count().div_ceil(2);
    let disturbed = || {
        let shared = theirs
            .iter()
            .filter(|(code, starts)| code.is_disturbance() && **starts >= half && !ours.contains_key(code));
        code_list(shared.map(|(code, _)| code))
            .map(|codes| format!("{} alone was disturbed ({codes})", loser.engine()))
    };
    slo_reason(winner, loser)
        .or_else(|| one_sided_suspicion(winner, loser))
        .or_else(both)
        .or_else(disturbed)
}

/// The note that one row is suspect for a reason that the other row does not have.
pub(super) fn one_sided_suspicion(cell: &ReportCell<'_>, opponent: &ReportCell<'_>) -> Option<String> {
    let (ours, theirs) = (suspect_counts(cell), suspect_counts(opponent));
    let own = ours.keys().filter(|code| !theirs.contains_key(code));
    code_list(own).map(|codes| format!("{} alone is suspect ({codes})", cell.engine()))
}

/// Codes for which whole measurements of a row are suspect, with the number of measurements.
fn suspect_counts(cell: &ReportCell<'_>) -> BTreeMap<ReasonCode, usize> {
    let mut counts: BTreeMap<ReasonCode, usize> = BTreeMap::new();
    for reason in cell.counted_summaries().flat_map(suspect_reasons) {
        if reason.only.is_empty() {
            *counts.entry(reason.code).or_default() += 1;
        }
    }
    counts
}

/// Joins the names of codes; `None` if there are none.
fn code_list<'a>(codes: impl Iterator<Item = &'a ReasonCode>) -> Option<String> {
    let names: Vec<&str> = codes.map(|code| code.name()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Why a better figure does not win: it is suspect in its metric family by a reason that the other row does
/// not have.
pub(super) fn suspect_metric_reason(
    winner: &ReportCell<'_>,
    loser: &ReportCell<'_>,
    metric: Metric,
) -> Option<String> {
    let family = from_run::metric_family(metric)?;
    let codes = |cell: &ReportCell<'_>| -> BTreeSet<ReasonCode> {
        let reasons = cell.counted_summaries().flat_map(suspect_reasons);
        let concerned = reasons.filter(|reason| reason.only.contains(&family));
        concerned.map(|reason| reason.code).collect()
    };
    let (ours, theirs) = (codes(winner), codes(loser));
    let codes = code_list(ours.difference(&theirs))?;
    Some(format!(
        "{} of {} is suspect ({codes})",
        metric.label(),
        winner.engine()
    ))
}
