//! Records to figures, under each of the three definition sets.
//!
//! [`summarize`] reads the records of one measurement and gives every figure its name and value: `classic` and `current` as
//! bench_serving of that profile would compute them, faults included, `matrix` with every fault mended. A figure without
//! meaning is `None`, never 0. Nothing here judges whether a figure can be trusted.

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

/// What figures depend on besides the records.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Basis {
    /// The protocol that was spoken.
    pub protocol: Protocol,
    /// The name that bench_serving knows the backend by.
    pub backend: String,
    /// Devices of the engine; 0 if it has none.
    pub devices: u32,
    /// What makes a request good, where the scenario says so.
    pub slo: Option<Slo>,
    /// From the start of the measurement until bench_serving would have stopped its clock, for `classic` and `current`; where
    /// nobody measured it, until the last request ended.
    pub duration: Option<Duration>,
    /// Tokens accepted per step of speculative decoding, where the server reported it.
    pub accept_length: Option<f64>,
    /// Energy of the measurement, where anybody told it.
    pub energy: Option<Energy>,
    /// What the engine's own metrics say, where it was asked.
    pub engine: Option<EngineWindow>,
}

impl Basis {
    /// The basis of a cell of a plan.
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

/// Percentiles of one sample of times.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Percentiles {
    pub sample: Sample,
    /// Percentages and the values below which so many lie, in milliseconds.
    pub values: Vec<(f64, f64)>,
}

/// Percentiles of the times of completed requests under the definitions of `matrix`; samples without a value are left out.
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

/// A set of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// As bench_serving of this profile would compute them.
    Copied(Profile),
    /// The same with its faults mended.
    Mended(Profile),
    /// Under the definitions of `matrix`.
    Matrix,
}

/// Every figure of one measurement, by definition set.
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

/// The figures of these sets, as many at the same time as there are cores: each reads all events several times, and holds many of them.
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

/// TPOT of a request under the definitions of `matrix`, in milliseconds, where it has one.
pub(crate) fn tpot_ms(request: &Request) -> Option<f64> {
    latency::Times::of(request).tpot
}

/// A figure by its metric.
pub fn figure(figures: &Figures, metric: Metric) -> Option<f64> {
    figures.get(&metric.name()).copied().flatten()
}

/// How many requests met every target of an SLO, counted from the moments at which they fell due; a failed one never does.
pub(crate) fn good(requests: &[Request], slo: &Slo) -> usize {
    goodput::good(requests, slo)
}

/// The limits of an SLO in milliseconds, by target; targets without a limit are left out.
pub(crate) fn slo_limits(slo: &Slo) -> Vec<(Target, f64)> {
    let limits = goodput::limits_ms(slo);
    Target::ALL
        .into_iter()
        .zip(limits)
        .filter_map(|(target, limit)| Some((target, limit?)))
        .collect()
}

/// Figures as they are put together.
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

/// Whether the faults of bench_serving are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    Copied,
    /// As they should be.
    Mended,
}

/// Figures from the records to be read; `all` are those that fell due.
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
