//! Samples to what they say of the measured window. Pure.

mod engine;
mod gpu;
mod host;
mod series;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::analysis::aggregate::series::Series;
use crate::results::record::telemetry::{
    Energy, EnergySource, GpuProcess, GpuWindow, Sample, Source, SourceFacts, Telemetry,
};

/// The longest time without a sample over which a curve is drawn straight, in seconds.
///
/// Source: anchors/orchestration-anchors.md 5.2.
pub(crate) const LONGEST_GAP_S: f64 = 3.0;

/// Two ways to tell the same energy disagree from this share on.
const DISAGREE: f64 = 0.05;

/// A shorter window has too few samples of power to compare their integral with a counter.
const COMPARED_FROM_S: f64 = 2.0;

/// What is known beside the samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// Length of the window in seconds: from the start of the measurement to the end of the last request.
    pub seconds: f64,
    /// The launch's devices; others of the host do not count for it.
    pub devices: Vec<u32>,
    /// Watts of each device before the engine was started, where they were measured.
    pub idle_w: BTreeMap<u32, f64>,
    /// Processes on each device that are not the engine's.
    pub foreign: BTreeMap<u32, Vec<GpuProcess>>,
    /// Whether the engine is a simulated one, so that its watts are pretended.
    pub is_simulated: bool,
}

/// What the samples of a measurement say. They are in the order of time, with one before the window and one after it where there is any.
pub fn telemetry(samples: &[Sample], sources: Vec<SourceFacts>, about: &About) -> Telemetry {
    let of = |source: Source| -> Vec<&Sample> {
        samples.iter().filter(|sample| sample.source == source).collect()
    };
    let gpus: Vec<GpuWindow> = about
        .devices
        .iter()
        .filter_map(|device| gpu::window(samples, *device, about))
        .collect();
    let engine = of(Source::Engine);
    Telemetry {
        seconds: about.seconds,
        energy: energy_of_gpus(samples, &gpus, about).or_else(|| energy_of_engine(&engine, about)),
        sources,
        gpus,
        engine: engine::window(&engine, about.seconds),
        host: host::window(&of(Source::Host), about.seconds),
        kernel: Vec::new(),
    }
}

/// What all devices of the launch took together, where each of them tells.
fn energy_of_gpus(samples: &[Sample], gpus: &[GpuWindow], about: &About) -> Option<Energy> {
    if gpus.is_empty() || gpus.len() < about.devices.len() {
        return None;
    }
    let all = |of: fn(&GpuWindow) -> Option<f64>| gpus.iter().map(of).sum::<Option<f64>>();
    let curves: Vec<Series> = gpus
        .iter()
        .map(|gpu| Series::of(gpu::samples_of(samples, gpu.device), "power_w"))
        .collect();
    energy(
        [
            (EnergySource::Counter, all(|gpu| gpu.counter_j)),
            (EnergySource::Power, all(|gpu| gpu.integral_j)),
        ],
        series::peak(&curves, about.seconds),
        all(|gpu| gpu.idle_w),
        about,
    )
}

/// What the engine tells of its own devices. Its power is asked for once a second, which says little of what it was in between: where it
/// counts energy, that is not held against the integral.
fn energy_of_engine(samples: &[&Sample], about: &About) -> Option<Energy> {
    let of = |name: &str| Series::of(samples.iter().copied(), name);
    let power = of("power_w");
    let counted = of("energy_j").growth(about.seconds);
    let joules = counted.or_else(|| power.integral(about.seconds));
    energy(
        [(EnergySource::Engine, joules), (EnergySource::Engine, None)],
        series::peak(&[power], about.seconds),
        None,
        about,
    )
}

/// Energy by the first of two ways that tells it, held against the other.
fn energy(
    ways: [(EnergySource, Option<f64>); 2],
    peak_w: Option<f64>,
    idle_w: Option<f64>,
    about: &About,
) -> Option<Energy> {
    let [first, second] = ways;
    let (source, joules) = ways
        .into_iter()
        .find_map(|(source, joules)| Some((source, joules?)))?;
    if about.seconds <= 0.0 {
        return None;
    }
    let mean_w = joules / about.seconds;
    let other = first.1.and(second.1).filter(|_| about.seconds >= COMPARED_FROM_S);
    Some(Energy {
        source,
        joules,
        disagrees_j: other.filter(|other| (other - joules).abs() > DISAGREE * joules.abs().max(other.abs())),
        above_idle_j: idle_w.map(|idle| joules - idle * about.seconds),
        mean_w,
        // A counter that is exact may say more than samples far apart.
        peak_w: peak_w.map(|peak| peak.max(mean_w)),
        is_simulated: about.is_simulated,
    })
}
