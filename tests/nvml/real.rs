//! NVIDIA's own library, on a host that has it. `--nocapture` prints what it says and how long its calls take.

use std::time::Duration;

use matrix::analysis::aggregate::{self, MeasurementContext};
use matrix::base::clock;
use matrix::results::record::telemetry::DeviceId;
use matrix::telemetry::gpu::{DeviceProcesses, GpuSources, Gpus};
use matrix::telemetry::sampler::Sampler;

use crate::skip::skip;

/// The devices of this host, if NVIDIA's library knows any.
fn gpus() -> Option<Gpus> {
    let gpus = Gpus::open(&GpuSources::default()).expect("a library that is there can be used");
    if gpus.is_none() {
        skip("needs an NVIDIA GPU");
    }
    gpus
}

#[test]
fn the_facts_of_a_real_gpu_are_complete() {
    let Some(gpus) = gpus() else { return };
    for (device, gpu) in (0..).zip(gpus.facts()) {
        println!("{gpu:#?}");
        assert!(gpu.uuid.is_some() && gpu.bus.is_some() && gpu.memory_bytes > Some(1 << 30));
        assert!(gpu.driver.is_some() && gpu.cuda.is_some());
        let snapshot = gpus.snapshot(device).expect("it can be read");
        println!("{snapshot:#?}");
        assert!(snapshot.values.contains_key("power_w"), "{snapshot:?}");
    }
}

#[test]
fn a_reading_of_a_real_gpu_fits_its_period() {
    let Some(gpus) = gpus() else { return };
    for mut probe in gpus.probes(&[0], &DeviceProcesses::default()) {
        let mut times = Vec::new();
        let mut last = Vec::new();
        for _ in 0..12 {
            let began = clock::now();
            last = probe.read().expect("it can be read");
            times.push(clock::now().since(began));
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("period {:?}: {times:?}", probe.period());
        println!("{:#?}", last.first().map(|reading| &reading.values));
        times.sort();
        assert!(times[6] < probe.period() / 2, "{times:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_energy_of_a_real_gpu_is_told_alike_by_counter_and_by_power() {
    let Some(gpus) = gpus() else { return };
    let sampler = Sampler::start(gpus.probes(&[0], &DeviceProcesses::default()));
    sampler.sample_now(Duration::from_secs(2)).await;
    let zero = clock::now();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let end = clock::now();
    sampler.sample_now(Duration::from_secs(2)).await;
    let (samples, facts) = sampler.samples_between(zero, zero, end);
    let about = MeasurementContext {
        window_s: end.since(zero).as_secs_f64(),
        devices: vec![DeviceId::local(0)],
        ..MeasurementContext::default()
    };
    let actual = aggregate::summarize_telemetry(&samples, facts, &about);
    println!("{actual:#?}");
    let gpu = actual.gpus.first().expect("it was sampled");
    assert!(
        actual
            .sources
            .iter()
            .any(|source| source.samples >= 40 && source.longest_gap_s < 0.5),
        "{:?}",
        actual.sources
    );
    if let (Some(counter), Some(integral)) = (gpu.counter_j, gpu.integral_j) {
        assert!(
            (counter - integral).abs() < 0.05 * counter,
            "{counter} J, {integral} J"
        );
    }
}
