//! Computes metrics from records, under each of the three sets of definitions.
//!
//! [`summarize`] reads the records of one measurement and returns every metric by name. `classic` and
//! `current` are bench_serving's metrics of that profile as published. `matrix` has all known bugs fixed. A
//! metric without meaning is `None`, never 0. Nothing here judges whether a value is valid.

mod bench_serving;
mod bench_serving_fixed;
mod bench_sets;
mod cache;
mod confidence;
mod dimensions;
mod energy;
mod engine;
mod goodput;
mod histograms;
mod latency;
mod metric;
mod peaks;
mod stats;
mod steady_state;
#[cfg(test)]
mod tests;
mod throughput;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) use bench_serving::asks_accept_length;
pub(crate) use bench_serving::divides_gaps;
#[cfg(test)]
pub(crate) use bench_serving_fixed::generated_tokens;
pub(crate) use bench_serving_fixed::{Held, held};
pub(crate) use bench_sets::MetricSets;
pub(crate) use cache::{CacheHits, CacheTiers, cache_hits};
pub(crate) use confidence::intervals;
pub use confidence::order_interval;
pub(crate) use dimensions::{Count, Flow, Sample, Statistic, Target};
pub use histograms::cut;
pub(crate) use histograms::{Kept, reached, seconds};
pub(crate) use latency::{is_gathered, is_held_back};
pub use metric::Metric;
pub(crate) use metric::{Better, Unit};
pub(crate) use peaks::each_second;
pub(crate) use stats::{Statistics, percentile};
pub(crate) use steady_state::{SteadyState, steady_state};
pub(crate) use throughput::{Rates, rates};

use crate::base::threads::on_all_cores;
use crate::config::scenario::Slo;
use crate::config::workload::Profile;
use crate::plan::{Cell, Launch, Protocol};
use crate::results::record::cell::{Definitions, Figures};
use crate::results::record::request::Request;
use crate::results::record::telemetry::{Energy, EngineWindow};

/// Inputs of the metrics besides the records.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Basis {
    pub protocol: Protocol,
    /// Name of the backend in bench_serving.
    pub backend: String,
    /// Devices of the engine, or 0 if it has none.
    pub devices: u32,
    pub slo: Option<Slo>,
    /// From the start of the measurement until bench_serving would have stopped its clock, for `classic` and
    /// `current`. `None` if it was not measured; the last end of a request is then used.
    pub duration: Option<Duration>,
    /// Tokens accepted per step of speculative decoding, if the server reported it.
    pub accept_length: Option<f64>,
    pub energy: Option<Energy>,
    pub engine: Option<EngineWindow>,
}

impl Basis {
    /// Returns the inputs for a cell of a plan.
    pub(crate) fn of(launch: &Launch, cell: &Cell) -> Self {
        Self {
            protocol: launch.contact.dialect.protocol,
            backend: launch.engine.backend.clone(),
            devices: launch.gpus().unwrap_or(0),
            slo: cell.scenario.slo.clone(),
            duration: None,
            accept_length: None,
            energy: None,
            engine: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Percentiles {
    pub sample: Sample,
    /// Pairs of percentage and percentile, in milliseconds.
    pub values: Vec<(f64, f64)>,
}

/// Computes percentiles of the times of completed requests under the definitions of `matrix`. Samples without
/// a value are left out.
pub(crate) fn percentiles(requests: &[Request], percents: &[f64]) -> Vec<Percentiles> {
    if percents.is_empty() {
        return Vec::new();
    }
    let told = [
        Sample::Ttft,
        Sample::Tpot,
        Sample::Itl,
        Sample::E2e,
        Sample::E2eDue,
    ];
    let of = |sample: Sample| {
        let values = stats::percentiles_of_each(|| latency::values(requests, sample), percents)?;
        Some(Percentiles {
            sample,
            values: percents.iter().copied().zip(values).collect(),
        })
    };
    told.into_iter().filter_map(of).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// bench_serving of this profile as published.
    Copied(Profile),
    /// bench_serving of this profile with its bugs fixed.
    Mended(Profile),
    Matrix,
}

/// Computes every metric of one measurement, by set of definitions.
pub(crate) fn summarize(requests: &[Request], basis: &Basis) -> BTreeMap<Definitions, Figures> {
    let sets = [
        Set::Matrix,
        Set::Copied(Profile::Classic),
        Set::Copied(Profile::Current),
    ];
    let [matrix, classic, current] = sets_of(requests, basis, sets);
    BTreeMap::from([
        (Definitions::Classic, classic),
        (Definitions::Current, current),
        (Definitions::Matrix, matrix),
    ])
}

/// Computes the metrics of these sets in parallel, on at most as many threads as there are cores. Each set
/// reads all events several times and holds many of them in memory.
pub(crate) fn sets_of<const N: usize>(requests: &[Request], basis: &Basis, sets: [Set; N]) -> [Figures; N] {
    let made: [OnceLock<Figures>; N] = [const { OnceLock::new() }; N];
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(place) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|place| *place < N) {
            made[place].get_or_init(|| figures_of(requests, basis, sets[place]));
        }
    };
    on_all_cores(N, work);
    made.map(|figures| figures.into_inner().unwrap_or_default())
}

fn figures_of(requests: &[Request], basis: &Basis, set: Set) -> Figures {
    match set {
        Set::Copied(profile) => compat_sheet(requests, requests, basis, profile, Faults::Copied).0,
        Set::Mended(profile) => bench_serving_fixed::figures(requests, basis, profile),
        Set::Matrix => matrix_figures(requests, basis),
    }
}

/// Returns the TPOT of a request under the definitions of `matrix`, in milliseconds.
pub(crate) fn tpot_ms(request: &Request) -> Option<f64> {
    latency::Times::of(request).tpot
}

/// Returns the value of a metric. `None` if it is missing or has no meaning.
pub fn figure(figures: &Figures, metric: Metric) -> Option<f64> {
    figures.get(&metric.name()).copied().flatten()
}

/// Returns the number of requests that met every target of an SLO, counted from when they were due. A failed
/// request never does.
pub(crate) fn good(requests: &[Request], slo: &Slo) -> usize {
    goodput::good(requests, slo)
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

#[derive(Default)]
struct Sheet(Figures);

impl Sheet {
    fn put(&mut self, metric: Metric, value: Option<f64>) {
        self.0
            .insert(metric.name(), value.filter(|value| value.is_finite()));
    }

    fn get(&self, metric: Metric) -> Option<f64> {
        figure(&self.0, metric)
    }
}

fn matrix_figures(requests: &[Request], basis: &Basis) -> Figures {
    let mut sheet = Sheet::default();
    throughput::matrix(&mut sheet, requests, basis);
    latency::matrix(&mut sheet, requests);
    engine::matrix(&mut sheet, requests, basis);
    let tpot = sheet.get(Metric::Time(Statistic::Mean, Sample::Tpot));
    let interactivity = tpot.filter(|tpot| *tpot > 0.0).map(|tpot| 1000.0 / tpot);
    sheet.put(Metric::Interactivity, interactivity);
    peaks::matrix(&mut sheet, requests);
    steady_state::matrix(&mut sheet, requests, basis);
    if let Some(slo) = &basis.slo {
        goodput::matrix(&mut sheet, requests, slo);
    }
    if let Some(energy) = &basis.energy {
        energy::matrix(&mut sheet, energy);
    }
    sheet.0
}

/// Whether the known bugs of bench_serving are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    Copied,
    Mended,
}

/// Computes the metrics of a profile from `requests`. `all` are all requests that were due.
fn compat_sheet(
    requests: &[Request],
    all: &[Request],
    basis: &Basis,
    profile: Profile,
    faults: Faults,
) -> Sheet {
    let mut sheet = Sheet::default();
    let answers = bench_serving::answers(requests, basis.protocol, profile);
    let last_end = || {
        all.iter()
            .map(|request| Duration::from_nanos(request.end_ns))
            .max()
    };
    let duration_s = basis
        .duration
        .or_else(last_end)
        .filter(|duration| !duration.is_zero())
        .map(|duration| duration.as_nanos() as f64 / 1e9);
    throughput::compat(&mut sheet, &answers, profile, duration_s);
    let is_divided = profile == Profile::Current && divides_gaps(&basis.backend, basis.accept_length);
    let gaps = match is_divided {
        true => latency::Gaps::PerToken,
        false => latency::Gaps::PerEvent,
    };
    latency::compat(&mut sheet, &answers, profile, gaps, faults);
    if profile == Profile::Current {
        sheet.put(Metric::AcceptLength, basis.accept_length);
        match faults {
            Faults::Copied => peaks::compat(&mut sheet, &answers),
            Faults::Mended => peaks::mended(&mut sheet, requests, all),
        }
        if let Some(slo) = &basis.slo {
            goodput::compat(&mut sheet, &answers, slo, all.len(), duration_s);
        }
    }
    sheet
}
