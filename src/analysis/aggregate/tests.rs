use proptest::prelude::*;

use super::*;

fn sample(source: TelemetrySource, device: Option<u32>, at_s: f64, values: &[(&str, f64)]) -> Sample {
    Sample {
        at_ns: (at_s * 1e9).round() as i64,
        source,
        node: None,
        device,
        values: values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect(),
    }
}

fn gpu(device: u32, at_s: f64, values: &[(&str, f64)]) -> Sample {
    sample(TelemetrySource::Nvml, Some(device), at_s, values)
}

fn engine(at_s: f64, values: &[(&str, f64)]) -> Sample {
    sample(TelemetrySource::Engine, None, at_s, values)
}

fn about(seconds: f64, devices: &[u32]) -> MeasurementContext {
    MeasurementContext {
        unsampled_devices: 0,
        window_s: seconds,
        devices: devices.iter().copied().map(DeviceId::local).collect(),
        ..MeasurementContext::default()
    }
}

fn is_close(one: Option<f64>, two: f64) -> bool {
    one.is_some_and(|one| (one - two).abs() <= 1e-6 * two.abs().max(1.0))
}

/// Returns samples of a power that rises linearly from `from` by `slope` per second, with the energy counter
/// that belongs to it.
fn ramp(device: u32, from: f64, slope: f64, moments: &[f64]) -> Vec<Sample> {
    let energy = |at: f64| 1e6 + from * at + slope * at * at / 2.0;
    moments
        .iter()
        .map(|at| {
            gpu(
                device,
                *at,
                &[("power_w", from + slope * at), ("energy_j", energy(*at))],
            )
        })
        .collect()
}

proptest! {
    #[test]
    fn the_energy_of_a_ramp_is_exact(
        from in 50.0..400.0_f64,
        slope in 0.0..20.0_f64,
        millis in 200..30_000_i32,
        steps in prop::collection::vec(0.01..2.9_f64, 1..200),
    ) {
        let seconds = f64::from(millis) * 1e6 / 1e9;
        let mut moments = vec![-0.07];
        for step in steps {
            let last = *moments.last().unwrap();
            moments.push(last + step);
        }
        // A sample at the end makes the counter exact there. Elsewhere the counter is curved, but
        // interpolated linearly.
        moments.retain(|at| *at < seconds);
        moments.extend([0.0, seconds]);
        moments.sort_by(f64::total_cmp);
        let gap = moments.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        let telemetry_summary = summarize_telemetry(&ramp(3, from, slope, &moments), Vec::new(), &about(seconds, &[3]));
        let truth = from * seconds + slope * seconds * seconds / 2.0;
        prop_assert!(is_close(telemetry_summary.gpus[0].counter_j, truth), "{telemetry_summary:?}");
        match gap <= MAX_SAMPLE_GAP_S {
            true => prop_assert!(is_close(telemetry_summary.gpus[0].integral_j, truth), "{telemetry_summary:?}"),
            false => prop_assert_eq!(telemetry_summary.gpus[0].integral_j, None),
        }
        let energy = telemetry_summary.energy.unwrap();
        prop_assert_eq!(energy.source, EnergySource::Counter);
        prop_assert_eq!(energy.disagrees_j, None);
        prop_assert!(is_close(Some(energy.mean_w), truth / seconds));
        prop_assert!(is_close(energy.peak_w, from + slope * seconds), "{energy:?}");
    }

    #[test]
    fn whatever_was_sampled_ranges_are_in_order_and_nothing_panics(
        moments in prop::collection::vec((-5.0..20.0_f64, 0.0..500.0_f64), 0..30),
        seconds in 0.0..15.0_f64,
    ) {
        let mut moments = moments;
        moments.sort_by(|one, two| one.0.total_cmp(&two.0));
        let samples: Vec<Sample> = moments
            .iter()
            .flat_map(|(at, value)| [
                gpu(0, *at, &[("power_w", *value), ("gpu_util_share", value / 500.0), ("sm_clock_mhz", *value)]),
                engine(*at, &[("running", *value), ("generation_tokens", *value), ("ttft_s_sum", *value)]),
                sample(TelemetrySource::Host, None, *at, &[("client_cpu_s", *value), ("load_1", *value), ("net_rx_bytes_total", *value)]),
            ])
            .collect();
        let telemetry_summary = summarize_telemetry(&samples, Vec::new(), &about(seconds, &[0]));
        let ranges = telemetry_summary.gpus.iter().flat_map(|gpu| gpu.ranges.values());
        let engine = telemetry_summary.engine.iter().flat_map(|engine| engine.gauges.values());
        let host = telemetry_summary.host.iter().flat_map(|host| host.ranges.values());
        for range in ranges.chain(engine).chain(host) {
            prop_assert!(range.min <= range.mean && range.mean <= range.max, "{range:?}");
        }
        prop_assert_eq!(telemetry_summary.gpus.is_empty(), moments.is_empty());
    }
}

#[test]
fn a_silent_stretch_tells_no_integral_and_an_open_end_no_counter() {
    let of =
        |moments: &[f64]| summarize_telemetry(&ramp(0, 100.0, 0.0, moments), Vec::new(), &about(10.0, &[0]));
    let whole = of(&[-0.1, 2.0, 4.0, 6.0, 8.0, 10.1]);
    assert!(is_close(
        whole.energy.as_ref().map(|energy| energy.joules),
        1000.0
    ));
    let hole = of(&[-0.1, 2.0, 5.1, 8.0, 10.1]);
    assert_eq!(hole.gpus[0].integral_j, None);
    assert!(is_close(hole.gpus[0].counter_j, 1000.0), "a counter counts on");
    let open = of(&[-0.1, 2.0, 4.0, 6.0, 8.0]);
    assert_eq!(
        (open.gpus[0].counter_j, open.gpus[0].integral_j),
        (None, Some(1000.0))
    );
    assert_eq!(open.energy.unwrap().source, EnergySource::Power);
    let dead = of(&[-0.1, 2.0, 4.0]);
    assert_eq!((dead.gpus[0].integral_j, dead.energy), (None, None));
    assert_eq!(of(&[]).gpus, []);
}

#[test]
fn energy_is_that_of_all_devices_of_the_launch_and_of_no_other() {
    let moments = [-0.5, 1.0, 2.0, 3.0, 4.0, 5.0];
    let mut samples = ramp(0, 100.0, 0.0, &moments);
    samples.extend(ramp(1, 200.0, 0.0, &moments));
    samples.extend(ramp(2, 999.0, 0.0, &moments));
    samples.sort_by_key(|sample| sample.at_ns);
    let mut both = about(4.0, &[0, 1]);
    both.idle_w = BTreeMap::from([(DeviceId::local(0), 50.0), (DeviceId::local(1), 60.0)]);
    let energy = summarize_telemetry(&samples, Vec::new(), &both).energy.unwrap();
    assert!(is_close(Some(energy.joules), 1200.0) && is_close(energy.peak_w, 300.0));
    assert!(is_close(energy.above_idle_j, 1200.0 - 440.0));
    both.idle_w.remove(&DeviceId::local(1));
    assert_eq!(
        summarize_telemetry(&samples, Vec::new(), &both)
            .energy
            .unwrap()
            .above_idle_j,
        None
    );
    let silent = about(4.0, &[0, 1, 7]);
    assert_eq!(
        summarize_telemetry(&samples, Vec::new(), &silent).energy,
        None,
        "one of them tells nothing"
    );
}

#[test]
fn a_counter_that_disagrees_with_the_power_is_shown_with_it() {
    let of = |factor: f64| {
        let samples: Vec<Sample> = [0.0, 1.0, 2.0]
            .map(|at| gpu(0, at, &[("power_w", 100.0), ("energy_j", factor * 100.0 * at)]))
            .into();
        summarize_telemetry(&samples, Vec::new(), &about(2.0, &[0]))
            .energy
            .unwrap()
    };
    assert_eq!(of(1.04).disagrees_j, None);
    let off = of(1.10);
    assert_eq!(
        (off.source, off.disagrees_j),
        (EnergySource::Counter, Some(200.0))
    );
}

#[test]
fn clocks_are_judged_while_busy_and_reasons_of_throttling_by_their_share() {
    let mut samples = vec![gpu(
        0,
        -0.1,
        &[
            ("gpu_util_share", 1.0),
            ("sm_clock_mhz", 1.0),
            ("throttled_power", 1.0),
        ],
    )];
    for step in 0..10_u32 {
        let busy = f64::from(u32::from(step >= 4));
        let clock = if step >= 4 {
            1980.0 + f64::from(step)
        } else {
            345.0
        };
        samples.push(gpu(
            0,
            f64::from(step),
            &[
                ("gpu_util_share", busy),
                ("sm_clock_mhz", clock),
                ("throttled_thermal", f64::from(u32::from(step == 9))),
                ("throttled_power", 0.0),
            ],
        ));
    }
    let telemetry_summary = summarize_telemetry(&samples, Vec::new(), &about(9.0, &[0]));
    let gpu = &telemetry_summary.gpus[0];
    assert_eq!((gpu.busy_samples, gpu.busy_clock_mhz), (6, Some(1986.5)));
    assert!(is_close(gpu.clock_spread, 4.5 / 1986.5), "{gpu:?}");
    assert_eq!(gpu.throttled, BTreeMap::from([("thermal".to_owned(), 0.1)]));
    assert_eq!(gpu.ranges["sm_clock_mhz"].min, 345.0);
    assert!(!gpu.ranges.contains_key("throttled_thermal"));
}

#[test]
fn an_engine_is_told_by_differences_and_a_fall_is_a_reset() {
    let window_of = |name: &str, values: [f64; 3]| {
        let moments = [-0.5, 5.0, 10.2];
        let samples: Vec<Sample> = moments
            .into_iter()
            .zip(values)
            .map(|(at, value)| engine(at, &[(name, value)]))
            .collect();
        summarize_telemetry(&samples, Vec::new(), &about(10.0, &[]))
            .engine
            .unwrap()
    };
    assert_eq!(
        window_of("generation_tokens", [100.0, 500.0, 900.0]).grown["generation_tokens"],
        800.0
    );
    let anew = window_of("generation_tokens", [100.0, 5.0, 900.0]);
    assert_eq!(
        (anew.reset, anew.grown.len()),
        (vec!["generation_tokens".to_owned()], 0)
    );
    let in_turn = |pages: [f64; 6]| {
        let samples: Vec<Sample> = pages
            .into_iter()
            .enumerate()
            .map(|(second, value)| {
                engine(
                    2.0 * second as f64 - 0.1,
                    &[("generation_tokens", value), ("prefix_hits", 3.0)],
                )
            })
            .collect();
        summarize_telemetry(&samples, Vec::new(), &about(9.0, &[]))
            .engine
            .unwrap()
    };
    let two = in_turn([500.0, 100.0, 500.0, 300.0, 700.0, 500.0]);
    assert_eq!(two.mixed, ["generation_tokens"], "pages of two servers");
    assert_eq!((two.reset.len(), two.grown.len()), (0, 0));
    let alike = in_turn([500.0, 700.0, 690.0, 900.0, 880.0, 1280.0]);
    assert!(alike.is_in_turn, "two of the same load");
    for unclear in [
        [500.0, 700.0, 900.0, 1100.0, 1300.0, 1280.0],
        [2000.0, 2100.0, 1600.0, 1900.0, 2200.0, 2500.0],
    ] {
        let window = in_turn(unclear);
        assert_eq!((window.mixed.len(), window.reset.len()), (1, 0), "{unclear:?}");
        assert!(
            !window.is_in_turn,
            "{unclear:?}: one of several workers may have begun anew"
        );
    }
    let unlike = in_turn([9500.0, 100.0, 9700.0, 300.0, 9900.0, 500.0]);
    assert!(
        unlike.is_in_turn && unlike.reset.is_empty(),
        "a new one and an old one"
    );
    for anew in [
        [500.0, 700.0, 0.0, 600.0, 1200.0, 1800.0],
        [500.0, 700.0, 0.0, 300.0, 600.0, 900.0],
        [100.0, 10.0, 80.0, 150.0, 10.0, 200.0],
    ] {
        let window = in_turn(anew);
        assert_eq!(
            (window.mixed.len(), window.reset.len()),
            (0, 1),
            "{anew:?}: it began anew"
        );
    }
    let running = window_of("running", [0.0, 4.0, 0.0]).gauges["running"];
    assert_eq!(running.max, 4.0);
    assert!(running.mean > 1.5 && running.mean < 2.5);

    let stored = |at, hits| engine(at, &[("prefix_hits", hits), ("external_hits", 10.0 * hits)]);
    let window = summarize_telemetry(
        &[stored(-0.1, 1.0), stored(10.1, 3.0)],
        Vec::new(),
        &about(10.0, &[]),
    );
    let grown = window.engine.unwrap().grown;
    assert_eq!(
        grown["prefix_hits"], 22.0,
        "those of a store of others are hits too"
    );

    let times = |at, sum, count| {
        engine(
            at,
            &[
                ("ttft_s_sum", sum),
                ("ttft_s_count", count),
                ("prefix_hits", sum),
                ("prefix_misses", count),
            ],
        )
    };
    let samples = [times(-0.1, 3.0, 1.0), times(10.1, 5.0, 5.0)];
    let window = summarize_telemetry(&samples, Vec::new(), &about(10.0, &[]))
        .engine
        .unwrap();
    assert_eq!((window.means["ttft_s"], window.grown["ttft_s_count"]), (0.5, 4.0));
    assert_eq!(window.grown["prefix_queries"], 6.0);
    let begun_late = [times(0.1, 3.0, 1.0), times(10.1, 5.0, 5.0)];
    let window = summarize_telemetry(&begun_late, Vec::new(), &about(10.0, &[]))
        .engine
        .unwrap();
    assert_eq!(
        (window.means.len(), window.grown.len()),
        (0, 0),
        "what was before nobody knows"
    );
    let fell_silent = [times(-0.1, 3.0, 1.0), times(5.0, 5.0, 5.0)];
    let window = summarize_telemetry(&fell_silent, Vec::new(), &about(10.0, &[]))
        .engine
        .unwrap();
    assert_eq!(
        (window.means.len(), window.grown.len()),
        (0, 0),
        "and what came after"
    );
}

#[test]
fn an_engine_that_tells_energy_of_its_own_is_taken_at_its_word() {
    let samples =
        [-0.5, 5.0, 10.5].map(|at| engine(at, &[("power_w", 300.0), ("energy_j", 300.0 * at + 500.0)]));
    let mut sim = about(10.0, &[]);
    sim.is_simulated = true;
    let energy = summarize_telemetry(&samples, Vec::new(), &sim).energy.unwrap();
    assert!(energy.is_simulated && energy.source == EnergySource::Engine);
    assert!(is_close(Some(energy.joules), 3000.0) && is_close(energy.peak_w, 300.0));
    // Power is unknown between two polls of the engine.
    let samples =
        [-0.5, 5.0, 10.5].map(|at| engine(at, &[("power_w", 80.0), ("energy_j", 300.0 * at + 500.0)]));
    let energy = summarize_telemetry(&samples, Vec::new(), &sim).energy.unwrap();
    assert_eq!(energy.disagrees_j, None);
    assert!(is_close(Some(energy.joules), 3000.0));
}

#[test]
fn a_host_is_told_in_processors_and_in_rates() {
    let host = |at: f64| {
        let values = [
            ("cpus", 4.0),
            ("client_cpu_s", 0.5 * at + 9.0),
            ("engine_cpu_s", 2.0 * at),
            ("busy_cpu_s", 2.6 * at + 9.0),
            ("other_cpu_s", 0.1 * at),
            ("client_wait_s", 0.01 * at),
            ("shares_cpus", 1.0),
            ("load_1", 2.5),
            ("context_switches_total", 1000.0 * at),
        ];
        sample(TelemetrySource::Host, None, at + 1.0, &values)
    };
    let samples = [-1.5, 1.0, 3.0, 6.0, 9.5].map(host);
    let host_window = summarize_telemetry(&samples, Vec::new(), &about(10.0, &[]))
        .host
        .unwrap();
    assert_eq!((host_window.cpus, host_window.shares_cpus), (4, Some(true)));
    assert!(
        is_close(host_window.client_cpus, 0.5)
            && is_close(host_window.engine_cpus, 2.0)
            && is_close(host_window.other_cpus, 0.1)
    );
    assert!(is_close(host_window.client_wait_s, 0.1));
    assert!(is_close(
        Some(host_window.ranges["context_switches_per_s"].mean),
        1000.0
    ));
    let names: Vec<&str> = host_window.ranges.keys().map(String::as_str).collect();
    assert_eq!(names, ["context_switches_per_s", "load_1"]);
    assert_eq!(summarize_telemetry(&[], Vec::new(), &about(10.0, &[])).host, None);
}

#[test]
fn the_peak_is_that_of_samples_within_the_window_and_never_below_the_mean() {
    let of = |samples: &[(f64, f64, f64)]| {
        let samples: Vec<Sample> = samples
            .iter()
            .map(|(at, watts, joules)| gpu(0, *at, &[("power_w", *watts), ("energy_j", *joules)]))
            .collect();
        let energy = summarize_telemetry(&samples, Vec::new(), &about(2.0, &[0]))
            .energy
            .unwrap();
        (energy.mean_w.round(), energy.peak_w.map(f64::round))
    };
    // Both samples are outside the window and show an idle device. Only the counter includes the load.
    assert_eq!(of(&[(-0.5, 80.0, 0.0), (2.5, 80.0, 900.0)]), (300.0, None));
    assert_eq!(
        of(&[(-0.5, 80.0, 0.0), (1.0, 80.0, 450.0), (2.5, 80.0, 900.0)]),
        (300.0, Some(300.0))
    );
    assert_eq!(
        of(&[(-0.5, 80.0, 0.0), (1.0, 500.0, 450.0), (2.5, 80.0, 900.0)]),
        (300.0, Some(500.0))
    );
}

/// Samples of a constant power of a GPU of another node.
fn elsewhere(node: &str, device: u32, watts: f64, moments: &[f64]) -> Vec<Sample> {
    let sample = |at: &f64| Sample {
        node: Some(node.to_owned()),
        ..gpu(device, *at, &[("power_w", watts), ("energy_j", 1e6 + watts * at)])
    };
    moments.iter().map(sample).collect()
}

#[test]
fn gpus_with_one_index_on_two_nodes_are_two_and_energy_is_that_of_both() {
    let moments = [-0.5, 1.0, 3.0, 4.5];
    let mut samples = ramp(0, 100.0, 0.0, &moments);
    samples.extend(elsewhere("node2", 0, 250.0, &moments));
    samples.sort_by_key(|sample| sample.at_ns);
    let remote = DeviceId {
        node: Some("node2".to_owned()),
        device: 0,
    };
    let mut about = about(4.0, &[0]);
    about.devices.push(remote.clone());
    about.nodes.push(NodeWindow {
        node: "node2".to_owned(),
        ..NodeWindow::default()
    });
    about.foreign = BTreeMap::from([(
        remote.clone(),
        vec![GpuProcess {
            pid: 7,
            name: None,
            memory_bytes: None,
        }],
    )]);
    let telemetry = summarize_telemetry(&samples, Vec::new(), &about);
    let [first, second] = &telemetry.gpus[..] else {
        panic!("{:?}", telemetry.gpus)
    };
    assert_eq!((first.id(), second.id()), (DeviceId::local(0), remote.clone()));
    assert_eq!(remote.to_string(), "GPU 0 of node2");
    assert!(is_close(first.counter_j, 400.0) && is_close(second.counter_j, 1000.0));
    assert_eq!((first.foreign.len(), second.foreign.len()), (0, 1));
    let energy = telemetry.energy.unwrap();
    assert!(is_close(Some(energy.joules), 1400.0) && is_close(energy.peak_w, 350.0));
    // The samples of the node end at the start of the window.
    let is_kept = |sample: &Sample| sample.node.is_none() || sample.at_ns < 500_000_000;
    samples.retain(is_kept);
    assert_eq!(summarize_telemetry(&samples, Vec::new(), &about).energy, None);
    // It was never read: the engine's own figure does not stand in for a part of its GPUs.
    samples.retain(|sample| sample.node.is_none());
    samples.extend(moments.map(|at| engine(at, &[("energy_j", 100.0 * at + 500.0)])));
    samples.sort_by_key(|sample| sample.at_ns);
    assert_eq!(summarize_telemetry(&samples, Vec::new(), &about).energy, None);
}

#[test]
fn the_host_of_another_node_is_apart_from_that_of_the_load() {
    let host = |node: Option<&str>, at: f64, busy: f64| Sample {
        node: node.map(str::to_owned),
        ..sample(
            TelemetrySource::Host,
            None,
            at,
            &[
                ("cpus", 8.0),
                ("busy_cpu_s", busy * at + 10.0),
                ("client_cpu_s", 5.0),
                ("engine_cpu_s", 3.0),
                ("other_cpu_s", 1.0),
            ],
        )
    };
    let mut samples: Vec<Sample> = [-0.5, 2.0, 4.5]
        .into_iter()
        .flat_map(|at| [host(None, at, 1.0), host(Some("node2"), at, 6.0)])
        .collect();
    samples.sort_by_key(|sample| sample.at_ns);
    let mut about = about(4.0, &[]);
    about.nodes.push(NodeWindow {
        node: "node2".to_owned(),
        ..NodeWindow::default()
    });
    let telemetry = summarize_telemetry(&samples, Vec::new(), &about);
    let (here, there) = (telemetry.host.unwrap(), telemetry.nodes[0].host.clone().unwrap());
    assert!(is_close(here.other_cpus, 1.0) && is_close(there.other_cpus, 6.0));
    assert_eq!((here.client_cpus, there.client_cpus), (Some(0.0), None));
}
