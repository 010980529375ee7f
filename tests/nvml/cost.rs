//! What it costs to ask eight devices.

use std::fs;
use std::time::Duration;

use matrix::telemetry::gpu::{DeviceProcesses, GpuSources, Gpus};
use matrix::telemetry::sampler::Sampler;

use crate::stub::Stub;

/// For how long they are asked.
const LONG: Duration = Duration::from_secs(12);

/// The share of a processor that they may cost. Code that is not optimized costs a little more, and with neighbours on the same
/// processors much more: `tests/telemetry-cost.sh` holds optimized code to the hundredth that counts.
const BOUND: f64 = if cfg!(debug_assertions) { 0.015 } else { 0.01 };

/// Wake-ups a second whose bare cost they may have, where waking up is expensive: they wake up about 550 times.
const WAKE_UPS: f64 = 800.0;

/// Processor time of the threads that ask, so far.
fn spent() -> Duration {
    let threads = fs::read_dir("/proc/self/task").expect("threads can be listed");
    let of = |folder: fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).ok();
        let name = read("comm")?;
        let first = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
        name.starts_with("probe nvml")
            .then(|| Duration::from_nanos(first))
    };
    threads.flatten().filter_map(of).sum()
}

/// Processor time of a thread that does nothing but wake up, for each time.
fn wake_up() -> Duration {
    const TIMES: u32 = 400;
    let spent = || -> u64 {
        let own = fs::read_to_string("/proc/thread-self/schedstat").expect("a thread knows its time");
        let first = own.split_whitespace().next().expect("it begins with its time");
        first.parse().expect("it is in nanoseconds")
    };
    let waits = std::thread::spawn(move || {
        let before = spent();
        (0..TIMES).for_each(|_| std::thread::sleep(Duration::from_millis(3)));
        Duration::from_nanos(spent() - before)
    });
    waits.join().expect("it only waits") / TIMES
}

#[test]
fn eight_devices_whose_calls_take_milliseconds_cost_next_to_nothing() {
    let stub = Stub::of(
        "gpus 8\npower 0:100 10:400\nutil 90 50\nlinks 100 100\nmemory-heat 60\nslow * 3\nslow nvmlDeviceGetPowerUsage 5\n\
         slow nvmlDeviceGetUtilizationRates 1\n",
    );
    let places = GpuSources {
        nvml: Some(stub.file()),
        path: None,
    };
    let gpus = Gpus::open(&places)
        .expect("it can be used")
        .expect("it knows devices");
    let devices: Vec<u32> = (0..8).collect();
    let zero = matrix::base::clock::now();
    let sampler = Sampler::start(gpus.probes(&devices, &DeviceProcesses::default()));
    // What a thread costs to begin with is none of the asking.
    std::thread::sleep(Duration::from_millis(500));
    let share = || {
        let before = spent();
        std::thread::sleep(LONG);
        let share = (spent() - before).as_secs_f64() / LONG.as_secs_f64();
        let bare = wake_up();
        println!(
            "8 devices for {} s: {:.2} % of a processor, {bare:?} for each time that a thread wakes up",
            LONG.as_secs(),
            share * 100.0,
        );
        (share, f64::max(BOUND, WAKE_UPS * bare.as_secs_f64()))
    };
    // What runs beside only adds to it and takes turns away, so the best of some tries counts.
    let mut most = 0;
    let least = (0..4).map(|_| {
        let began = matrix::base::clock::now();
        let (share, bound) = share();
        let (samples, _) = sampler.samples_between(zero, began, matrix::base::clock::now());
        most = most.max(samples.len());
        (share < bound, samples.len())
    });
    let least = { least }.find(|(is_cheap, samples)| *is_cheap && *samples > 900);
    let (_, facts) = sampler.samples_between(zero, zero, matrix::base::clock::now());
    assert_eq!(facts.len(), 16, "a quick and a slow probe each");
    assert!(most > 900, "they keep up: {most} samples");
    assert!(
        least.is_some(),
        "{:.1} % of a processor and more each time, and more than waking up costs",
        BOUND * 100.0
    );
}
