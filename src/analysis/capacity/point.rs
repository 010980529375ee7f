//! Judges the requests of a point against the SLO.

use super::outcomes::{EndedRequest, outcomes};
use super::probe_test::{self, Doubt, ProbeDecision};
use crate::analysis::metrics;
use crate::config::scenario::Slo;
use crate::config::search::{Search, SearchVariable};
use crate::config::validity::ValidityBounds;
use crate::results::record::request::{Request, judged_requests};
use crate::results::record::search::{
    PointDecision, PointDoubt, PointJudgement, RequestsAfterStart, UnreachedRate,
};

/// Fewest requests for which a rate is meaningful.
const MIN_REQUESTS: usize = 8;

/// Judges whether enough requests met the SLO, counted from when they were due. Failed requests are misses; requests that the client
/// cancelled as planned are not judged. `decided` is the number of requests after which the point was ended, if it was: later ones were
/// sent only until then. `is_closed` says that requests have no due times of their own. A rate that was not reached does not hold, because another load was measured.
pub(crate) fn judge_point(
    requests: &[Request],
    slo: &Slo,
    search: &Search,
    decided: Option<usize>,
    is_closed: bool,
) -> PointJudgement {
    let total = judged_requests(requests);
    let last = match search.by {
        SearchVariable::Sessions => last_session_start(requests),
        SearchVariable::Rate | SearchVariable::Concurrency => u64::MAX,
    };
    let judged = requests.iter().filter(|request| request.due_ns <= last);
    let mut outcomes = outcomes(judged.map(|request| EndedRequest::new(request, slo)), is_closed);
    outcomes.truncate(decided.unwrap_or(outcomes.len()));
    let good = outcomes.iter().filter(|outcome| outcome.severity <= 1.0).count();
    let estimate = probe_test::judge(&outcomes, search.target);
    let rates = metrics::request_rates(requests)
        .filter(|_| search.by == SearchVariable::Rate && total >= MIN_REQUESTS);
    let is_reached =
        rates.is_none_or(|rates| rates.sent >= rates.due * (1.0 - ValidityBounds::default().rate));
    let decision = match estimate.map(|estimate| estimate.decision) {
        _ if !is_reached => PointDecision::Fails,
        Some(ProbeDecision::Holds) => PointDecision::Holds,
        Some(ProbeDecision::Fails) => PointDecision::Fails,
        Some(ProbeDecision::Undecided) | None => PointDecision::Undecided,
    };
    let is_too_few = (outcomes.len() as u64) < search.min_requests();
    let doubt = match estimate.map(|estimate| estimate.doubt) {
        None => Some(PointDoubt::TooFew),
        Some(Some(_)) if is_too_few => Some(PointDoubt::TooFew),
        Some(Some(Doubt::NearTarget)) => Some(PointDoubt::NearTarget),
        Some(Some(Doubt::TooFew)) => Some(PointDoubt::Clustered),
        Some(Some(Doubt::Growing)) => Some(PointDoubt::Growing),
        Some(Some(Doubt::Unsettled)) => Some(PointDoubt::Unsettled),
        Some(None) => None,
    };
    PointJudgement {
        requests: outcomes.len() as u64,
        good: good as u64,
        attainment: match outcomes.is_empty() {
            true => 0.0,
            false => good as f64 / outcomes.len() as f64,
        },
        interval: estimate.map_or([0.0, 1.0], |estimate| estimate.interval(good, outcomes.len())),
        after_start: estimate.map(|estimate| RequestsAfterStart {
            requests: estimate.judged,
            good: estimate.judged_good,
        }),
        severity: estimate
            .map(|estimate| estimate.severity)
            .filter(|severity| severity.is_finite()),
        dispersion: estimate.map(|estimate| estimate.dispersion),
        due_per_s: (search.by == SearchVariable::Rate)
            .then(|| due_per_s(requests))
            .flatten(),
        decision: Some(decision),
        doubt: doubt.filter(|_| decision == PointDecision::Undecided),
        holds: decision == PointDecision::Holds,
        unreached: rates.filter(|_| !is_reached).map(|rates| UnreachedRate {
            due_per_s: rates.due,
            sent_per_s: rates.sent,
        }),
        peak_concurrency: None,
        ran_out_s: None,
    }
}

/// Judges a point at a concurrency or a number of sessions. `peak` is the highest number of requests in flight, or of sessions. A value that
/// was not reached does not hold.
pub(crate) fn judge_concurrency(judged: PointJudgement, value: f64, peak: f64) -> PointJudgement {
    let is_reached = peak >= value * (1.0 - ValidityBounds::default().rate);
    PointJudgement {
        holds: judged.holds && is_reached,
        decision: judged
            .decision
            .map(|decision| match decision == PointDecision::Holds && !is_reached {
                true => PointDecision::Undecided,
                false => decision,
            }),
        peak_concurrency: (!is_reached).then_some(peak),
        ..judged
    }
}

/// When the last conversation began, as time since the load began. Later requests ran beside fewer and fewer sessions.
fn last_session_start(requests: &[Request]) -> u64 {
    let first_rounds = requests.iter().filter(|request| request.is_first_round());
    first_rounds.map(|request| request.due_ns).max().unwrap_or(0)
}

/// Returns the rate at which requests were due, over the gaps between them.
fn due_per_s(requests: &[Request]) -> Option<f64> {
    metrics::request_rates(requests).map(|rates| rates.due)
}

#[cfg(test)]
mod tests;
