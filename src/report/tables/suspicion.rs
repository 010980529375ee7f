//! Why a row with better figures does not win against another one.

use std::collections::{BTreeMap, BTreeSet};

use super::notes::suspect_reasons;
use super::report_cell::ReportCell;
use crate::analysis::compare::from_run;
use crate::analysis::metrics::{Metric, Quantity};
use crate::base::text::pluralize;
use crate::results::record::cell::Origin;
use crate::results::record::validity::ReasonCode;

/// The share of the other row's goodput that a winner must have.
const MIN_GOODPUT: f64 = 0.95;

/// The share of the other row's throughput over the whole run that a winner in the steady state must have.
const MIN_WHOLE_RUN: f64 = 0.95;

/// Why a row with better figures does not win: it answers fewer requests within the SLO than the other row, or none, or it has less
/// throughput over the whole run.
pub(crate) fn contradiction(winner: &ReportCell<'_>, loser: &ReportCell<'_>) -> Option<String> {
    let values = |metric| {
        let [ours, theirs] = [winner, loser].map(|cell| cell.value(metric));
        ours.zip(theirs)
    };
    let within_slo = || {
        let (ours, theirs) = values(Metric::Goodput)?;
        let engine = winner.engine();
        match ours <= 0.0 {
            true => Some(format!("{engine} has better figures, but none of its answers meets the SLO")),
            false => (ours < MIN_GOODPUT * theirs).then(|| {
                format!("{engine} has better figures, but only {ours:.2} instead of {theirs:.2} requests per second within the SLO")
            }),
        }
    };
    let whole_run = || {
        values(Metric::SteadyOutput)?;
        let (ours, theirs) = values(Metric::Throughput(Quantity::Output))?;
        (ours < MIN_WHOLE_RUN * theirs).then(|| {
            format!(
                "{} has better figures, but only {ours:.0} instead of {theirs:.0} tok/s of output over the whole run",
                winner.engine()
            )
        })
    };
    within_slo().or_else(whole_run)
}

/// Why it is unknown whether a row meets the SLO of its scenario: a start has no goodput, for instance because a server sent an answer
/// at one time.
fn unknown_goodput(cell: &ReportCell<'_>) -> Option<String> {
    let scenario = &cell.cell.scenario;
    // A search has its own answer to the SLO.
    scenario.slo.as_ref().filter(|_| scenario.search.is_none())?;
    let known = [Metric::Goodput, Metric::Attainment].map(|metric| cell.values(metric).len());
    let known = known[0].max(known[1]);
    let all = cell.counted_summaries().count();
    // No measurement has it where the tool does not record it.
    (known < all && cell.origin() != Origin::Imported).then(|| {
        format!(
            "the goodput of {} is known in {known} of {}",
            cell.engine(),
            pluralize(all, "measurement", "measurements")
        )
    })
}

/// Why a row with better figures does not win against another one: other figures contradict it or are unknown, at least one of
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
    unknown_goodput(winner)
        .or_else(|| unknown_goodput(loser))
        .or_else(|| contradiction(winner, loser))
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
