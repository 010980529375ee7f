//! Computes metrics from records, under each of the three sets of definitions.
//!
//! [`summarize`] reads the records of one measurement and returns every metric by name. `classic` and
//! `current` are bench_serving's metrics of that profile as published. `matrix` has all known bugs fixed. A
//! metric without meaning is `None`, never 0. Nothing here judges whether a value is valid.

mod answer_checks;
mod audio;
mod bench_serving;
mod bench_serving_fixed;
mod bench_serving_latency;
mod bench_serving_metrics;
mod bench_sets;
mod cache;
mod chunk_tokens;
mod coalesced;
mod confidence;
mod dimensions;
mod energy;
mod engine;
mod goodput;
mod histograms;
mod inputs;
mod latency;
mod metric;
mod metric_set;
mod peaks;
mod stats;
mod steady_state;
#[cfg(test)]
mod tests;
mod throughput;
mod token_totals;
mod vllm_serve;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bench_serving::Compat;
pub(crate) use bench_serving::asks_accept_length;
pub(crate) use bench_serving::divides_gaps;
#[cfg(test)]
pub(crate) use bench_serving_fixed::generated_tokens;
pub(crate) use bench_serving_fixed::{BenchServingView, bench_serving_view};
pub(crate) use bench_sets::MetricSets;
pub(crate) use cache::{CacheHits, CacheTiers, cache_hits, session_hits};
pub(crate) use coalesced::{is_coalesced, is_held_back};
pub use confidence::order_interval;
pub(crate) use confidence::percentile_intervals;
pub(crate) use dimensions::{LatencyKind, Quantity, Statistic, Target, TokenCount};
pub(crate) use engine::theoretical_hit_share;
pub(crate) use goodput::slo_severity;
pub use histograms::summarize_window;
pub(crate) use histograms::{HistogramKind, histograms_per_second, values_at_shares};
pub(crate) use inputs::MetricInputs;
pub use metric::Metric;
pub(crate) use metric::{Direction, Unit};
use metric_set::MetricSet;
pub use metric_set::metric_value;
pub(crate) use peaks::load_per_second;
pub(crate) use stats::{Statistics, percentile};
pub(crate) use steady_state::{SteadyState, steady_state};
pub(crate) use throughput::{Rates, request_rates};
pub(crate) use vllm_serve::{GoodputTargets, VllmFigures, VllmRequest, VllmTime};

use crate::base::threads::on_all_cores;
use crate::config::scenario::Slo;
use crate::config::workload::Profile;
use crate::results::record::cell::{Definitions, MetricValues};
use crate::results::record::request::Request;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Percentiles {
    pub(crate) sample: LatencyKind,
    /// Pairs of percentage and percentile, in milliseconds.
    pub(crate) values: Vec<(f64, f64)>,
}

/// Computes percentiles of the times of completed requests under the definitions of `matrix`. Samples without
/// a value are left out.
pub(crate) fn percentiles(requests: &[Request], percents: &[f64]) -> Vec<Percentiles> {
    if percents.is_empty() {
        return Vec::new();
    }
    let latencies = [
        LatencyKind::Ttft,
        LatencyKind::Tpot,
        LatencyKind::Itl,
        LatencyKind::E2e,
        LatencyKind::E2eDue,
    ];
    let percentiles_of = |kind: LatencyKind| {
        let values = stats::percentiles_of_repeatable(|| latency::latency_values(requests, kind), percents)?;
        Some(Percentiles {
            sample: kind,
            values: percents.iter().copied().zip(values).collect(),
        })
    };
    latencies.into_iter().filter_map(percentiles_of).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefinitionSet {
    /// bench_serving of this profile as published.
    AsPublished(Profile),
    /// bench_serving of this profile with its bugs fixed.
    Fixed(Profile),
    Matrix,
}

/// Computes every metric of one measurement, by set of definitions.
pub(crate) fn summarize(requests: &[Request], inputs: &MetricInputs) -> BTreeMap<Definitions, MetricValues> {
    let sets = [
        DefinitionSet::Matrix,
        DefinitionSet::AsPublished(Profile::Classic),
        DefinitionSet::AsPublished(Profile::Current),
    ];
    let [matrix, classic, current] = compute_sets(requests, inputs, sets);
    BTreeMap::from([
        (Definitions::Classic, classic),
        (Definitions::Current, current),
        (Definitions::Matrix, matrix),
    ])
}

/// Computes the metrics of these sets in parallel, on at most as many threads as there are cores. Each set
/// reads all events several times and holds many of them in memory.
pub(crate) fn compute_sets<const N: usize>(
    requests: &[Request],
    inputs: &MetricInputs,
    sets: [DefinitionSet; N],
) -> [MetricValues; N] {
    let made: [OnceLock<MetricValues>; N] = [const { OnceLock::new() }; N];
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(place) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|place| *place < N) {
            made[place].get_or_init(|| compute_figures(requests, inputs, sets[place]));
        }
    };
    on_all_cores(N, work);
    made.map(|figures| figures.into_inner().unwrap_or_default())
}

fn compute_figures(requests: &[Request], inputs: &MetricInputs, set: DefinitionSet) -> MetricValues {
    let mut values = match set {
        DefinitionSet::AsPublished(profile) => {
            bench_serving_metrics::bench_serving_metrics(
                requests,
                requests,
                inputs,
                profile,
                Compat::AsPublished,
            )
            .0
        }
        DefinitionSet::Fixed(profile) => bench_serving_fixed::fixed_figures(requests, inputs, profile),
        DefinitionSet::Matrix => matrix_figures(requests, inputs),
    };
    audio::add_audio(&mut values, requests);
    values
}

/// Returns the TPOT of a request under the definitions of `matrix`, in milliseconds.
pub(crate) fn tpot_ms(request: &Request) -> Option<f64> {
    latency::Times::from_sending(request).tpot
}

/// Returns the limits of an SLO in milliseconds, by target. Targets without a limit are left out.
pub(crate) fn slo_limits(slo: &Slo) -> Vec<(Target, f64)> {
    let limits = goodput::limits_ms(slo);
    Target::ALL
        .into_iter()
        .zip(limits)
        .filter_map(|(target, limit)| Some((target, limit?)))
        .collect()
}

fn matrix_figures(requests: &[Request], inputs: &MetricInputs) -> MetricValues {
    let mut metrics = MetricSet::default();
    throughput::add_throughput(&mut metrics, requests, inputs);
    latency::add_latencies(&mut metrics, requests);
    engine::add_engine_metrics(&mut metrics, requests, inputs);
    metrics.insert(Metric::Interactivity, metrics.get(Metric::Interactivity));
    peaks::add_peaks(&mut metrics, requests);
    steady_state::add_steady_state(&mut metrics, requests, inputs);
    answer_checks::add_answer_checks(&mut metrics, requests);
    match &inputs.slo {
        Some(slo) => goodput::add_goodput(&mut metrics, requests, slo),
        None => goodput::add_correct_rate(&mut metrics, requests),
    }
    if let Some(energy) = &inputs.energy {
        energy::add_energy(&mut metrics, energy);
    }
    metrics.0
}
