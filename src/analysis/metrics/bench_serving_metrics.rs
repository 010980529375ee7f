//! The metrics that bench_serving prints.

use std::time::Duration;

use super::bench_serving::Compat;
use super::bench_serving::{self, divides_gaps};
use super::bench_serving_latency::{ItlUnit, add_bench_serving_latencies};
use super::inputs::MetricInputs;
use super::metric::Metric;
use super::metric_set::MetricSet;
use super::{goodput, peaks, throughput};
use crate::config::workload::Profile;
use crate::results::record::request::{Request, judged_requests};

/// Computes the metrics of a profile from `requests`. `all` are all requests that were due.
pub(super) fn bench_serving_metrics(
    requests: &[Request],
    due_requests: &[Request],
    inputs: &MetricInputs,
    profile: Profile,
    faults: Compat,
) -> MetricSet {
    let mut metrics = MetricSet::default();
    let answers = bench_serving::successful_requests(requests, inputs.protocol, profile);
    let last_end = || {
        due_requests
            .iter()
            .map(|request| Duration::from_nanos(request.end_ns))
            .max()
    };
    let duration_s = inputs
        .duration
        .or_else(last_end)
        .filter(|duration| !duration.is_zero())
        .map(|duration| duration.as_nanos() as f64 / 1e9);
    throughput::add_bench_serving_throughput(&mut metrics, &answers, profile, duration_s);
    let is_divided = profile == Profile::Current && divides_gaps(&inputs.backend, inputs.accept_length);
    let gaps = match is_divided {
        true => ItlUnit::PerToken,
        false => ItlUnit::PerEvent,
    };
    add_bench_serving_latencies(&mut metrics, &answers, profile, gaps, faults);
    if profile == Profile::Current {
        metrics.insert(Metric::AcceptLength, inputs.accept_length);
        match faults {
            Compat::AsPublished => peaks::add_bench_serving_peaks(&mut metrics, &answers),
            Compat::Fixed => peaks::add_fixed_peaks(&mut metrics, requests, due_requests),
        }
        if let Some(slo) = &inputs.slo {
            goodput::add_bench_serving_goodput(
                &mut metrics,
                &answers,
                slo,
                judged_requests(due_requests),
                duration_s,
                faults,
            );
        }
    }
    metrics
}
