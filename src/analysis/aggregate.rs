//! Turns telemetry samples into the values of the measured window.

mod engine;
mod gpu;
mod host;
mod series;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::aggregate::series::Series;
use crate::results::record::telemetry::{
    DeviceId, Energy, EnergySource, GpuProcess, GpuWindow, HostWindow, NodeWindow, Sample, SourceFacts,
    Telemetry, TelemetrySource,
};

/// Longest time between two samples over which a value is interpolated, in seconds.
pub(crate) const MAX_SAMPLE_GAP_S: f64 = 3.0;

/// Two measurements of the same energy disagree if they differ by more than this share.
const ENERGY_DISAGREEMENT: f64 = 0.05;

/// Shortest window in which the integral of power is compared with an energy counter, in seconds. Shorter
/// windows have too few power samples.
const MIN_COMPARED_WINDOW_S: f64 = 2.0;

/// What [`summarize_telemetry`] needs besides the samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasurementContext {
    /// Length of the window in seconds: from the start of the measurement to the end of the last request.
    pub window_s: f64,
    /// Devices of the launch on all its nodes. Other devices are left out.
    pub devices: Vec<DeviceId>,
    /// Number of further GPUs of the launch, on other nodes, which cannot be read.
    pub unsampled_devices: u32,
    /// Power of each device before the engine was started, where it was measured.
    pub idle_w: BTreeMap<DeviceId, f64>,
    /// Processes on each device that do not belong to the engine.
    pub foreign: BTreeMap<DeviceId, Vec<GpuProcess>>,
    /// Further nodes of the launch, whose hosts are not aggregated yet.
    pub nodes: Vec<NodeWindow>,
    /// The engine is simulated, so its power values are synthetic.
    pub is_simulated: bool,
}

/// What the samples of a measurement say. They are in the order of time, with one before the window and one after it where there is any.
pub fn summarize_telemetry(
    samples: &[Sample],
    sources: Vec<SourceFacts>,
    about: &MeasurementContext,
) -> Telemetry {
    let from_source = |source: TelemetrySource| samples_of(samples, None, source);
    let gpus: Vec<GpuWindow> = about
        .devices
        .iter()
        .filter_map(|device| gpu::gpu_window(samples, device, about))
        .collect();
    let engine = from_source(TelemetrySource::Engine);
    let others: BTreeSet<TelemetrySource> = samples
        .iter()
        .map(|sample| sample.source)
        .filter(|source| !source.has_own_field())
        .collect();
    // The engine's own figure does not stand in for GPUs of several nodes of which a part was read.
    let is_partial = !about.nodes.is_empty() && !gpus.is_empty();
    let own_figure = || engine_energy(&engine, about).filter(|_| !is_partial);
    let energy = gpu_energy(samples, &gpus, about).or_else(own_figure);
    Telemetry {
        seconds: about.window_s,
        energy,
        sources,
        gpus,
        engine: engine::engine_window(&engine, about.window_s),
        host: host::host_window(&from_source(TelemetrySource::Host), about.window_s),
        ranges: others
            .into_iter()
            .map(|source| {
                (
                    source,
                    series::ranges(&from_source(source), about.window_s, |_| true),
                )
            })
            .collect(),
        kernel: Vec::new(),
        nodes: about
            .nodes
            .iter()
            .map(|node| node_window(samples, node, about))
            .collect(),
    }
}

/// Returns the samples of a source of one node.
fn samples_of<'s>(samples: &'s [Sample], node: Option<&str>, source: TelemetrySource) -> Vec<&'s Sample> {
    let is_selected = |sample: &&Sample| sample.source == source && sample.node.as_deref() == node;
    samples.iter().filter(is_selected).collect()
}

/// Adds the use of its host to a further node. The load runs on another node, so there is no client.
fn node_window(samples: &[Sample], node: &NodeWindow, about: &MeasurementContext) -> NodeWindow {
    let host = samples_of(samples, Some(&node.node), TelemetrySource::Host);
    let without_client = |host: HostWindow| HostWindow {
        client_cpus: None,
        client_wait_s: None,
        shares_cpus: None,
        ..host
    };
    NodeWindow {
        host: host::host_window(&host, about.window_s).map(without_client),
        ..node.clone()
    }
}

/// Returns the energy of all devices of the launch. `None` if one of them reports none.
fn gpu_energy(samples: &[Sample], gpus: &[GpuWindow], about: &MeasurementContext) -> Option<Energy> {
    if gpus.is_empty() || gpus.len() < about.devices.len() || about.unsampled_devices > 0 {
        return None;
    }
    let sum_over_gpus =
        |quantity: fn(&GpuWindow) -> Option<f64>| gpus.iter().map(quantity).sum::<Option<f64>>();
    let curves: Vec<Series> = gpus
        .iter()
        .map(|gpu| Series::from_samples(gpu::device_samples(samples, &gpu.id()), "power_w"))
        .collect();
    reconciled_energy(
        [
            (EnergySource::Counter, sum_over_gpus(|gpu| gpu.counter_j)),
            (EnergySource::Power, sum_over_gpus(|gpu| gpu.integral_j)),
        ],
        series::peak_of_sum(&curves, about.window_s),
        sum_over_gpus(|gpu| gpu.idle_w),
        about,
    )
}

/// Returns the energy of the devices as the engine reports it. The engine is polled once a second, which is
/// too rare to compare its energy counter with the integral of its power. So the second source is empty.
fn engine_energy(samples: &[&Sample], about: &MeasurementContext) -> Option<Energy> {
    let series = |name: &str| Series::from_samples(samples.iter().copied(), name);
    let power = series("power_w");
    let counted = series("energy_j").growth_in_window(about.window_s);
    let joules = counted.or_else(|| power.integral(about.window_s));
    reconciled_energy(
        [(EnergySource::Engine, joules), (EnergySource::Engine, None)],
        series::peak_of_sum(&[power], about.window_s),
        None,
        about,
    )
}

/// Takes the energy of the first source that has one, and compares it with the second.
fn reconciled_energy(
    ways: [(EnergySource, Option<f64>); 2],
    peak_w: Option<f64>,
    idle_w: Option<f64>,
    about: &MeasurementContext,
) -> Option<Energy> {
    let [first, second] = ways;
    let (source, joules) = ways
        .into_iter()
        .find_map(|(source, joules)| Some((source, joules?)))?;
    if about.window_s <= 0.0 {
        return None;
    }
    let mean_w = joules / about.window_s;
    let second_j = first
        .1
        .and(second.1)
        .filter(|_| about.window_s >= MIN_COMPARED_WINDOW_S);
    Some(Energy {
        source,
        joules,
        disagrees_j: second_j.filter(|second_j| {
            (second_j - joules).abs() > ENERGY_DISAGREEMENT * joules.abs().max(second_j.abs())
        }),
        above_idle_j: idle_w.map(|idle| joules - idle * about.window_s),
        mean_w,
        // Samples can miss the peak, so the peak is at least the mean.
        peak_w: peak_w.map(|peak| peak.max(mean_w)),
        is_simulated: about.is_simulated,
    })
}
