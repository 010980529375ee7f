//! What is told of devices, from the facts to a hanging call.

use std::time::Duration;

use matrix::base::clock;
use matrix::results::record::machine::Machine;
use matrix::results::record::telemetry::{SampleValues, TelemetrySource};
use matrix::telemetry::gpu::{DeviceProcesses, GpuSources, Gpus};
use matrix::telemetry::probe::Probe;

use crate::stub::Stub;

fn places(stub: &Stub) -> GpuSources {
    GpuSources {
        nvml: Some(stub.file()),
        path: None,
    }
}

fn open(stub: &Stub) -> Gpus {
    Gpus::open(&places(stub))
        .expect("the library can be used")
        .expect("it knows devices")
}

/// The probe of a device that asks often, and the one that does not.
fn probes(gpus: &Gpus, device: u32, processes: &DeviceProcesses) -> (Box<dyn Probe>, Box<dyn Probe>) {
    let mut probes = gpus.probes(&[device], processes);
    let slow = probes.pop().expect("two probes");
    let quick = probes.pop().expect("two probes");
    assert!(probes.is_empty() && quick.period() < slow.period());
    (quick, slow)
}

fn values(probe: &mut dyn Probe) -> SampleValues {
    let mut readings = probe.read().expect("it tells");
    assert_eq!(readings.len(), 1);
    let reading = readings.remove(0);
    assert_eq!(reading.device, probe.device());
    reading.values
}

#[test]
fn each_device_tells_what_it_is_and_the_machine_is_told() {
    let stub = Stub::of(
        "gpus 2\nname NVIDIA H100 80GB HBM3\ndriver 580.95.05\ncuda 13000\nmemory 81559\nlimit 650\nnvlink 2\necc\n",
    );
    let gpus = open(&stub);
    assert_eq!(gpus.source(), TelemetrySource::Nvml);
    let [first, second] = gpus.facts() else {
        panic!("{:?}", gpus.facts());
    };
    assert_eq!(first.name, "NVIDIA H100 80GB HBM3");
    assert_eq!(
        first.uuid.as_deref(),
        Some("GPU-57b00000-0000-4000-8000-000000000000")
    );
    assert_eq!(
        (first.bus.as_deref(), second.bus.as_deref()),
        (Some("0000:10:00.0"), Some("0000:21:00.0"))
    );
    assert_eq!(
        (first.driver.as_deref(), first.cuda.as_deref()),
        (Some("580.95.05"), Some("13.0"))
    );
    assert_eq!(
        (first.memory_bytes, first.power_limit_w),
        (Some(81_559 << 20), Some(650.0))
    );
    assert_eq!(
        (first.max_sm_clock_mhz, first.ecc, first.mig),
        (Some(1980.0), Some(true), Some(false))
    );
    assert_eq!(first.vbios.as_deref(), Some("96.00.A5.00.01"));
    assert_eq!(
        first.links.get(&1).map(String::as_str),
        Some("nvlink"),
        "by a switch"
    );
    let mut machine = Machine::default();
    gpus.describe(&mut machine);
    assert_eq!(machine.gpus, [first.name.as_str(); 2]);
    assert_eq!(machine.driver.as_deref(), Some("580.95.05"));
    assert_eq!(machine.devices, gpus.facts());
    let apart = open(&Stub::of("gpus 2\n"));
    assert_eq!(
        apart.facts()[0].links.get(&1).map(String::as_str),
        Some("numa-node")
    );
}

#[test]
fn without_a_library_a_driver_or_a_device_nobody_tells_and_nothing_is_wrong() {
    let none = GpuSources::default();
    // This machine may have the real library.
    if !std::path::Path::new("/dev/nvidia0").exists() {
        assert!(Gpus::open(&none).expect("absence is no trouble").is_none());
    }
    assert!(
        Gpus::open(&places(&Stub::of("gpus 0\n")))
            .expect("no device is no trouble")
            .is_none()
    );
    let said = Gpus::open(&places(&Stub::of("gpus -1\n"))).expect_err("it was named");
    assert!(said.contains("driver is not loaded"), "{said}");
    let said = Gpus::open(&places(&Stub::of("error nvmlInit_v2 18\n"))).expect_err("it cannot be used");
    assert!(said.contains("mismatch"), "{said}");
}

#[test]
fn values_come_under_our_names_and_units() {
    let stub = Stub::of(
        "gpus 2\npower 250.5\nutil 87 40\nclock 1755 2619\nheat 61\nmemory-heat 70\nrest 1000\nthrottle power\nthrottle idle\n\
         pcie 2000 3000\nlinks 100 200\n",
    );
    let gpus = open(&stub);
    let (mut quick, mut slow) = probes(&gpus, 1, &DeviceProcesses::default());
    let mut actual = values(&mut *quick);
    let joules = actual.remove("energy_j").expect("it has a counter");
    assert!(joules > 123_456.0, "{joules}");
    let expected = [
        ("gpu_util_share", 0.87),
        ("memory_clock_mhz", 2619.0),
        ("memory_temperature_c", 70.0),
        ("memory_used_bytes", 1_048_576_000.0),
        ("memory_util_share", 0.4),
        ("power_w", 250.5),
        ("sm_clock_mhz", 1755.0),
        ("temperature_c", 61.0),
        ("throttled_hardware", 0.0),
        ("throttled_other", 0.0),
        ("throttled_power", 1.0),
        ("throttled_thermal", 0.0),
    ];
    let expected: SampleValues = expected
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    assert_eq!(actual, expected);
    let first = values(&mut *slow);
    assert_eq!(first.get("pcie_tx_bytes_per_s"), Some(&2e6));
    assert_eq!(first.get("pcie_rx_bytes_per_s"), Some(&3e6));
    assert_eq!(
        first.get("nvlink_tx_bytes_per_s"),
        None,
        "there is nothing to hold it against"
    );
    assert_eq!((first["processes"], first["foreign_processes"]), (0.0, 0.0));
    let second = values(&mut *slow);
    assert_eq!(second.get("nvlink_tx_bytes_per_s"), Some(&(100.0 * 1_048_576.0)));
    assert_eq!(second.get("nvlink_rx_bytes_per_s"), Some(&(200.0 * 1_048_576.0)));
}

#[test]
fn a_driver_that_takes_its_time_is_asked_for_power_each_time_and_for_the_rest_in_turns() {
    let stub = Stub::of("gpus 1\npower 250\nutil 87 40\nslow * 2\n");
    let (mut quick, _) = probes(&open(&stub), 0, &DeviceProcesses::default());
    let first = values(&mut *quick);
    let actual: Vec<SampleValues> = (0..9).map(|_| values(&mut *quick)).collect();
    let of = |name: &str| actual.iter().filter(|values| values.contains_key(name)).count();
    // Power and energy come in one call, of which the energy is what takes long.
    assert_eq!((of("power_w"), of("energy_j")), (9, 1));
    assert_eq!((of("gpu_util_share"), of("sm_clock_mhz")), (3, 3));
    assert_eq!((of("throttled_power"), of("memory_used_bytes")), (3, 1));
    for values in &actual {
        assert!(values.keys().all(|name| first.contains_key(name)), "{values:?}");
    }
}

#[test]
fn the_energy_counter_is_the_integral_of_the_power_that_is_told() {
    // Up from 100 W to 400 W and down again, once more on the second device.
    let script = "gpus 2\npower gpu=0 0:100 1:400 2:100\npower gpu=1 0:300\n";
    adds_up(&Stub::of(script));
    adds_up(&Stub::of(&format!("{script}bare\n")));
}

/// Watches the first device of a stub for its ramp.
fn adds_up(stub: &Stub) {
    let gpus = open(stub);
    let (mut quick, _) = probes(&gpus, 0, &DeviceProcesses::default());
    let mut actual: Vec<(f64, f64, f64)> = Vec::new();
    let began = clock::now();
    let elapsed = || clock::now().since(began);
    while elapsed() < Duration::from_millis(2500) {
        let asked = elapsed();
        let now = values(&mut *quick);
        let at = (asked + elapsed()).as_secs_f64() / 2.0;
        // Where a busy host made an answer late, the rest is asked for in turns.
        if let Some((watts, joules)) = now.get("power_w").zip(now.get("energy_j")) {
            actual.push((at, *watts, *joules));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let by_counter = actual.last().expect("it is reported").2 - actual[0].2;
    let by_power: f64 = actual
        .windows(2)
        .map(|pair| (pair[0].1 + pair[1].1) / 2.0 * (pair[1].0 - pair[0].0))
        .sum();
    let apart = (by_counter - by_power).abs() / by_counter;
    assert!(
        apart < 0.03,
        "{by_counter} J by the counter, {by_power} J by power"
    );
    let most = actual.iter().map(|(_, watts, _)| *watts).fold(0.0, f64::max);
    assert!(most > 250.0, "it went up: {most} W");
    let (mut steady, _) = probes(&gpus, 1, &DeviceProcesses::default());
    assert_eq!(values(&mut *steady)["power_w"], 300.0);
}

#[test]
fn throttling_is_told_from_the_moment_on_which_it_begins() {
    let stub = Stub::of("gpus 2\nthrottle gpu=1 from=0.6 until=1.4 hot\n");
    let gpus = open(&stub);
    let (mut quick, _) = probes(&gpus, 1, &DeviceProcesses::default());
    let (mut other, _) = probes(&gpus, 0, &DeviceProcesses::default());
    let mut seen = Vec::new();
    for _ in 0..40 {
        // A reading of which calls took their time leaves some for the next ones.
        seen.extend(
            values(&mut *quick)
                .get("throttled_thermal")
                .map(|share| *share > 0.0),
        );
        let others = values(&mut *other);
        assert!(others.get("throttled_thermal").is_none_or(|share| *share == 0.0));
        std::thread::sleep(Duration::from_millis(50));
    }
    seen.dedup();
    assert_eq!(seen, [false, true, false]);
}

#[test]
fn who_computes_on_a_device_is_named_and_strangers_are_told_from_our_own() {
    let own = std::process::id();
    let stranger = std::os::unix::process::parent_id();
    let stub = Stub::of(&format!(
        "process gpu=0 {own} 2000\nprocess gpu=0 {stranger} 300 until=0.5\n"
    ));
    let gpus = open(&stub);
    let look = gpus.snapshot(0).expect("it tells");
    let there = look.processes.expect("it tells who is there");
    assert_eq!(there.len(), 2);
    assert!(there.iter().all(|process| process.name.is_some()), "{there:?}");
    assert_eq!(look.values["memory_used_bytes"], 2812.0 * 1_048_576.0);
    let processes = DeviceProcesses::new(vec![own], Vec::new());
    let (_, mut slow) = probes(&gpus, 0, &processes);
    let actual = values(&mut *slow);
    assert_eq!((actual["processes"], actual["foreign_processes"]), (2.0, 1.0));
    std::thread::sleep(Duration::from_millis(600));
    let actual = values(&mut *slow);
    assert_eq!((actual["processes"], actual["foreign_processes"]), (1.0, 0.0));
    let foreign = processes.foreign(0);
    assert_eq!(foreign.len(), 1, "who has left was there");
    assert_eq!(
        (foreign[0].pid, foreign[0].memory_bytes),
        (stranger, Some(300 << 20))
    );
    assert_eq!(processes.on_device(0).len(), 2);
}

#[test]
fn a_device_that_falls_off_the_bus_says_so_and_the_other_goes_on() {
    let stub = Stub::of("gpus 2\nlost gpu=0 from=0.4 until=1\n");
    let gpus = open(&stub);
    let (mut quick, mut slow) = probes(&gpus, 0, &DeviceProcesses::default());
    let (mut other, _) = probes(&gpus, 1, &DeviceProcesses::default());
    values(&mut *quick);
    std::thread::sleep(Duration::from_millis(500));
    for probe in [&mut quick, &mut slow] {
        let said = probe.read().expect_err("it is gone");
        assert!(
            said.contains("GPU 0") && said.contains("fell off the bus"),
            "{said}"
        );
    }
    assert!(gpus.snapshot(0).is_err());
    values(&mut *other);
    std::thread::sleep(Duration::from_millis(600));
    values(&mut *quick);
    values(&mut *slow);
}

#[test]
fn what_a_library_or_device_does_not_offer_is_absent_and_the_rest_is_told() {
    let stub = Stub::of(
        "gpus 1\nbare\nwithout nvmlDeviceGetTotalEnergyConsumption\nwithout nvmlDeviceGetMemoryInfo_v2\n\
         without nvmlDeviceGetComputeRunningProcesses_v3\nwithout nvmlGpmQueryDeviceSupport\n\
         error nvmlDeviceGetUtilizationRates 3\nerror nvmlDeviceGetPcieThroughput 3\nerror nvmlDeviceGetVbiosVersion 3\n",
    );
    let gpus = open(&stub);
    assert_eq!(
        (gpus.facts()[0].vbios.as_deref(), gpus.facts()[0].memory_bytes),
        (None, None)
    );
    let (mut quick, mut slow) = probes(&gpus, 0, &DeviceProcesses::default());
    for _ in 0..2 {
        let actual = values(&mut *quick);
        for absent in [
            "energy_j",
            "memory_used_bytes",
            "gpu_util_share",
            "memory_temperature_c",
        ] {
            assert!(!actual.contains_key(absent), "{absent} in {actual:?}");
        }
        assert_eq!(actual["power_w"], 70.0);
    }
    let said = slow.read().expect_err("there is nothing that it tells");
    assert!(said.contains("GPU 0 cannot be read"), "{said}");
    assert_eq!(gpus.snapshot(0).expect("it tells").processes, None);
}

#[test]
fn a_call_that_hangs_is_left_behind() {
    let stub = Stub::of("gpus 2\nhang nvmlDeviceGetUtilizationRates gpu=1\n");
    let gpus = open(&stub);
    let began = clock::now();
    let said = gpus.snapshot(1).expect_err("it hangs");
    assert!(said.contains("no response within"), "{said}");
    assert!(clock::now().since(began) < Duration::from_secs(15));
    gpus.snapshot(0).expect("the other tells");
}
