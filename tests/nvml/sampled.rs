//! Devices as a sampler asks them, cut to a window.

use std::time::Duration;

use matrix::analysis::aggregate::{self, MeasurementContext};
use matrix::base::clock;
use matrix::results::record::telemetry::{DeviceId, EnergySource, Sample, SourceFacts, Telemetry};
use matrix::telemetry::gpu::{DeviceProcesses, GpuSources, Gpus};
use matrix::telemetry::sampler::Sampler;

use crate::stub::Stub;

/// The samples of a window of so many seconds over these devices, with its length.
async fn sampled(stub: &Stub, devices: &[u32], seconds: f64) -> (Vec<Sample>, Vec<SourceFacts>, f64) {
    let places = GpuSources {
        nvml: Some(stub.file()),
        path: None,
    };
    let gpus = Gpus::open(&places)
        .expect("it can be used")
        .expect("it knows devices");
    let sampler = Sampler::start(gpus.probes(devices, &DeviceProcesses::default()));
    sampler.sample_now(Duration::from_secs(2)).await;
    let zero = clock::now();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let end = clock::now();
    sampler.sample_now(Duration::from_secs(2)).await;
    let (samples, facts) = sampler.samples_between(zero, zero, end);
    (samples, facts, end.since(zero).as_secs_f64())
}

/// The telemetry of a window of so many seconds over these devices.
async fn watched(stub: &Stub, devices: &[u32], seconds: f64) -> Telemetry {
    let (samples, facts, window_s) = sampled(stub, devices, seconds).await;
    summary(&samples, facts, devices, window_s)
}

fn summary(samples: &[Sample], facts: Vec<SourceFacts>, devices: &[u32], window_s: f64) -> Telemetry {
    let about = MeasurementContext {
        window_s,
        devices: devices.iter().copied().map(DeviceId::local).collect(),
        idle_w: devices
            .iter()
            .map(|device| (DeviceId::local(*device), 70.0))
            .collect(),
        ..MeasurementContext::default()
    };
    aggregate::summarize_telemetry(samples, facts, &about)
}

/// As on an H200, where each reading costs milliseconds of processor time.
#[tokio::test(flavor = "multi_thread")]
async fn an_energy_counter_that_is_slow_is_read_at_the_edges_and_twice_a_second() {
    let stub = Stub::of("gpus 1\npower 0:100 2:600 4:100\nslow nvmlDeviceGetFieldValues 4\n");
    let (samples, facts, window_s) = sampled(&stub, &[0], 4.0).await;
    let count = |name: &str| {
        let named = samples.iter().filter(|sample| sample.values.contains_key(name));
        named.count()
    };
    let (energy, power) = (count("energy_j"), count("power_w"));
    assert!(
        (3..=16).contains(&energy) && power >= 20,
        "{energy} of energy, {power} of power"
    );
    let actual = summary(&samples, facts, &[0], window_s);
    let gpu = &actual.gpus[0];
    let (counter, integral) = (
        gpu.counter_j.expect("counted"),
        gpu.integral_j.expect("integrated"),
    );
    assert!(
        (counter - integral).abs() < 0.05 * counter,
        "{counter} J, {integral} J"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_energy_of_a_window_is_told_alike_by_counter_and_by_power() {
    let stub = Stub::of(
        "gpus 3\npower gpu=0 0:100 2:600 4:100\npower gpu=1 250\nutil 95 50\nclock 1755\nthrottle gpu=1 thermal\n",
    );
    let actual = watched(&stub, &[0, 1], 4.0).await;
    let devices: Vec<u32> = actual.gpus.iter().map(|gpu| gpu.device).collect();
    assert_eq!(devices, [0, 1], "the third is not the launch's");
    for gpu in &actual.gpus {
        let (counter, integral) = (
            gpu.counter_j.expect("counted"),
            gpu.integral_j.expect("integrated"),
        );
        assert!(
            (counter - integral).abs() < 0.05 * counter,
            "{counter} J, {integral} J"
        );
        assert_eq!(gpu.clock_spread, Some(0.0));
    }
    assert_eq!(
        actual.gpus[0].throttled.get("thermal").copied().unwrap_or(0.0),
        0.0
    );
    assert_eq!(actual.gpus[1].throttled.get("thermal"), Some(&1.0));
    let energy = actual.energy.expect("both tell");
    assert_eq!((energy.source, energy.disagrees_j), (EnergySource::Counter, None));
    let mean = 250.0 + 350.0;
    assert!((energy.mean_w - mean).abs() < 0.1 * mean, "{} W", energy.mean_w);
    assert!(energy.peak_w.expect("power is reported") > 700.0);
    let above = energy.above_idle_j.expect("idle is known");
    assert!((above - (energy.joules - 140.0 * actual.seconds)).abs() < 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_hangs_is_cut_off_and_one_that_dies_says_so_while_the_third_goes_on() {
    let stub = Stub::of("gpus 3\nhang nvmlDeviceGetUtilizationRates gpu=0 from=1\nlost gpu=1 from=1\n");
    let began = clock::now();
    let actual = watched(&stub, &[0, 1, 2], 5.0).await;
    assert!(
        clock::now().since(began) < Duration::from_secs(12),
        "nobody waited for it"
    );
    let trouble = |device: u32| -> Vec<&str> {
        let of = actual
            .sources
            .iter()
            .filter(|source| source.device == Some(device));
        of.filter_map(|source| source.trouble.as_deref()).collect()
    };
    let hung = trouble(0);
    assert_eq!(hung.len(), 1, "only the probe that hangs: {hung:?}");
    let died = trouble(1);
    assert!(
        died.len() == 2 && died[0].contains("fell off the bus"),
        "{died:?}"
    );
    assert!(trouble(2).is_empty(), "{:?}", trouble(2));
    let third = actual
        .sources
        .iter()
        .find(|source| source.device == Some(2))
        .expect("it is asked");
    assert!(third.samples > 30 && third.longest_gap_s < 1.0, "{third:?}");
}
