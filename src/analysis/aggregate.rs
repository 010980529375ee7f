//! Turns telemetry samples into the values of the measured window.

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

/// Longest time between two samples over which a value is interpolated, in seconds.
pub(crate) const LONGEST_GAP_S: f64 = 3.0;

/// Two measurements of the same energy disagree if they differ by more than this share.
const DISAGREE: f64 = 0.05;

/// Shortest window in which the integral of power is compared with an energy counter, in seconds. Shorter
/// windows have too few power samples.
const COMPARED_FROM_S: f64 = 2.0;

/// What [`telemetry`] needs besides the samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// Length of the window in seconds: from the start of the measurement to the end of the last request.
    pub seconds: f64,
    /// Devices of the launch. Other devices of the host are left out.
    pub devices: Vec<u32>,
    /// Power of each device before the engine was started, where it was measured.
    pub idle_w: BTreeMap<u32, f64>,
    /// Processes on each device that do not belong to the engine.
    pub foreign: BTreeMap<u32, Vec<GpuProcess>>,
    /// The engine is simulated, so its power values are synthetic.
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

/// Returns the energy of all devices of the launch. `None` if one of them reports none.
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

/// Returns the energy of the devices as the engine reports it. The engine is polled once a second, which is
/// too rare to compare its energy counter with the integral of its power. So the second source is empty.
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

/// Takes the energy of the first source that has one, and compares it with the second.
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
        // Samples can miss the peak, so the peak is at least the mean.
        peak_w: peak_w.map(|peak| peak.max(mean_w)),
        is_simulated: about.is_simulated,
    })
}
