//! Counts good requests, which met every target of the SLO and whose answers are correct where answers are checked. Failed
//! requests are never good and stay in the denominator; requests that the client cancelled as planned are not judged and in
//! neither.
//!
//! Under the definitions of `matrix` the times count from when a request was due, because that is how long
//! its user waits, including the wait for a slot if concurrency is limited. bench_serving counts from
//! sending.

use super::answer_checks::may_be_good;
use super::bench_serving::{Compat, SuccessfulRequest};
use super::coalesced::{are_coalesced, is_coalesced};
use super::dimensions::Target;
use super::latency::Times;
use super::metric::Metric;
use super::metric_set::MetricSet;
use super::throughput::measured_window_s;
use crate::base::units::HumanDuration;
use crate::config::scenario::Slo;
use crate::results::record::request::{Request, judged_requests};

/// Computes goodput under the definitions of `matrix`. A target without a value is missed, except TPOT, which
/// an answer of one token cannot miss. If answers arrive in one piece, a target of TPOT cannot be judged, so
/// goodput has no value.
///
/// Source: docs/bench-serving.md 7.5.
pub(super) fn add_goodput(metrics: &mut MetricSet, requests: &[Request], slo: &Slo) {
    add_goodput_metrics(
        metrics,
        &target_values(requests),
        slo,
        judged_requests(requests),
        measured_window_s(requests),
    );
    if slo.max_tpot().is_some() && are_coalesced(requests) {
        for metric in [
            Metric::Goodput,
            Metric::Attainment,
            Metric::AttainmentOf(Target::Tpot),
        ] {
            metrics.insert(metric, None);
        }
    }
}

/// Computes the rate of correct answers as goodput, for checked answers without an SLO.
pub(super) fn add_correct_rate(metrics: &mut MetricSet, requests: &[Request]) {
    if let Some(correct) = metrics.get(Metric::Correct) {
        let rate = measured_window_s(requests).map(|duration| correct / duration);
        metrics.insert(Metric::Goodput, rate);
    }
}

/// Returns the values of completed requests in milliseconds, in the order of [`Target::ALL`].
fn target_values(requests: &[Request]) -> Vec<TargetValues> {
    requests
        .iter()
        .filter(|request| request.is_completed())
        .map(request_values)
        .collect()
}

fn request_values(request: &Request) -> TargetValues {
    let times = Times::from_due(request);
    let missed = f64::INFINITY;
    TargetValues {
        times: [
            times.ttft.unwrap_or(missed),
            times
                .tpot
                .unwrap_or(if is_coalesced(request) { missed } else { 0.0 }),
            times.e2e.unwrap_or(missed),
        ],
        may_be_good: may_be_good(request),
    }
}

/// What makes a request good.
struct TargetValues {
    /// Milliseconds in the order of [`Target::ALL`].
    times: [f64; 3],
    /// Whether the answer is correct, or is not checked.
    may_be_good: bool,
}

/// Returns the largest share of a limit that a request used, counted from when it was due: above 1 it misses the
/// SLO. Infinite if it failed or its answer is wrong.
pub(crate) fn slo_severity(request: &Request, slo: &Slo) -> f64 {
    if !request.is_completed() {
        return f64::INFINITY;
    }
    let value = request_values(request);
    if !value.may_be_good {
        return f64::INFINITY;
    }
    let used = value.times.into_iter().zip(limits_ms(slo));
    used.filter_map(|(time, limit)| limit.map(|limit| time / limit))
        .fold(0.0, f64::max)
}

fn meets_limit(value: &TargetValues, limits: &[Option<f64>; 3], target: usize) -> bool {
    limits[target].is_none_or(|limit| value.times[target] <= limit)
}

fn is_good(value: &TargetValues, limits: &[Option<f64>; 3]) -> bool {
    value.may_be_good && (0..Target::ALL.len()).all(|target| meets_limit(value, limits, target))
}

/// Computes goodput as bench_serving prints it; with its bugs fixed, only correct answers are good where answers are checked.
///
/// Source: docs/bench-serving.md 7.5.
pub(super) fn add_bench_serving_goodput(
    metrics: &mut MetricSet,
    answers: &[SuccessfulRequest<'_>],
    slo: &Slo,
    all: usize,
    duration_s: Option<f64>,
    faults: Compat,
) {
    let values: Vec<TargetValues> = answers
        .iter()
        .map(|answer| TargetValues {
            times: [answer.ttft, answer.tpot().unwrap_or(0.0), answer.latency]
                .map(|seconds| seconds * 1000.0),
            may_be_good: faults == Compat::AsPublished || answer.may_be_good,
        })
        .collect();
    add_goodput_metrics(metrics, &values, slo, all, duration_s);
}

fn add_goodput_metrics(
    metrics: &mut MetricSet,
    values: &[TargetValues],
    slo: &Slo,
    due: usize,
    duration_s: Option<f64>,
) {
    let limits = limits_ms(slo);
    let share = |count: usize| (due > 0).then(|| count as f64 / due as f64);
    let good = values.iter().filter(|value| is_good(value, &limits)).count();
    metrics.insert(Metric::Goodput, duration_s.map(|duration| good as f64 / duration));
    metrics.insert(Metric::Attainment, share(good));
    for (at, target) in Target::ALL.into_iter().enumerate() {
        if limits[at].is_some() {
            let met = values
                .iter()
                .filter(|value| meets_limit(value, &limits, at))
                .count();
            metrics.insert(Metric::AttainmentOf(target), share(met));
        }
    }
}

/// Returns the limits in milliseconds, in the order of [`Target::ALL`].
pub(super) fn limits_ms(slo: &Slo) -> [Option<f64>; 3] {
    let [ttft, e2e] = [slo.ttft, slo.e2e].map(|limit| limit.map(HumanDuration::duration));
    [ttft, slo.max_tpot(), e2e].map(|limit| limit.map(|limit| limit.as_nanos() as f64 / 1e6))
}
