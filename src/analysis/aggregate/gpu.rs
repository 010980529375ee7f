//! Aggregates the samples of one device over the window.

use crate::analysis::aggregate::MeasurementContext;
use crate::analysis::aggregate::series::{Series, is_within, sample_names};
use crate::analysis::metrics::percentile;
use crate::results::record::telemetry::{DeviceId, GpuWindow, Sample};

const BUSY_UTILISATION: f64 = 0.1;

const THROTTLE_PREFIX: &str = "throttled_";

/// The energy counter. It gets no range.
const ENERGY_COUNTER: &str = "energy_j";

/// Returns the samples of a device from the vendor's tools; the engine's and the host's samples are left out.
pub(super) fn device_samples<'s>(
    samples: &'s [Sample],
    device: &DeviceId,
) -> impl Iterator<Item = &'s Sample> {
    samples.iter().filter(move |sample| {
        sample.device == Some(device.device) && sample.node == device.node && sample.source.is_gpu()
    })
}

/// Returns `None` if there is no sample of the device.
pub(super) fn gpu_window(
    samples: &[Sample],
    device: &DeviceId,
    about: &MeasurementContext,
) -> Option<GpuWindow> {
    let end = about.window_s;
    let own: Vec<&Sample> = device_samples(samples, device).collect();
    if own.is_empty() {
        return None;
    }
    let series = |name: &str| Series::from_samples(own.iter().copied(), name);
    let ranges = sample_names(&own)
        .into_iter()
        .filter(|name| name != ENERGY_COUNTER && !name.starts_with(THROTTLE_PREFIX))
        .filter_map(|name| Some((name.clone(), series(&name).range(end)?)))
        .collect();
    let within: Vec<&Sample> = own
        .iter()
        .copied()
        .filter(|sample| is_within(sample, end))
        .collect();
    let value = |sample: &Sample, name: &str| sample.values.get(name).copied();
    let busy: Vec<&Sample> = within
        .iter()
        .copied()
        .filter(|sample| value(sample, "gpu_util_share").is_some_and(|share| share >= BUSY_UTILISATION))
        .collect();
    let clocks = busy.iter().filter_map(|sample| value(sample, "sm_clock_mhz"));
    let mut clocks: Vec<f64> = clocks.collect();
    clocks.sort_unstable_by(f64::total_cmp);
    let throttled = sample_names(&within).into_iter().filter_map(|name| {
        let sampled: Vec<f64> = within.iter().filter_map(|sample| value(sample, &name)).collect();
        let seen = sampled.iter().filter(|value| **value > 0.0).count();
        let reason = name.strip_prefix(THROTTLE_PREFIX).filter(|_| seen > 0)?;
        Some((reason.to_owned(), seen as f64 / sampled.len() as f64))
    });
    Some(GpuWindow {
        rest_memory_bytes: None,
        node: device.node.clone(),
        device: device.device,
        ranges,
        busy_samples: u32::try_from(busy.len()).unwrap_or(u32::MAX),
        busy_clock_mhz: (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64),
        clock_spread: clock_spread(&clocks),
        throttled: throttled.collect(),
        foreign: about.foreign.get(device).cloned().unwrap_or_default(),
        counter_j: series(ENERGY_COUNTER).growth_in_window(end),
        integral_j: series("power_w").integral(end),
        idle_w: about.idle_w.get(device).copied(),
    })
}

/// Computes (P95 - P5) / median of ascending values. Returns `None` for fewer than two values.
fn clock_spread(clocks: &[f64]) -> Option<f64> {
    let (_, rest) = clocks.split_first()?;
    let median = percentile(clocks, 50.0);
    (median > 0.0 && !rest.is_empty()).then(|| (percentile(clocks, 95.0) - percentile(clocks, 5.0)) / median)
}
