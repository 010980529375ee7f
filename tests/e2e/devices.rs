//! What a run does about the devices of its launches, on a library that stands in for NVIDIA's.

use matrix::results::record::telemetry::{EnergySource, Telemetry};
use matrix::results::record::validity::ReasonCode;

use crate::harness::{Bench, Ran, sims, summary};
use crate::nvml::Stub;

/// A simulated engine that takes a GPU.
fn on_a_gpu(requests: u32) -> Bench {
    let matrix = sims(
        &[("a", "vllm", "")],
        &format!("  - random-1k-1k: {{ prompts: {requests}, input_len: 16, output_len: 8, warmup: 0 }}\n"),
    );
    Bench::of(&matrix.replace("as: a,", "as: a, devices: gpu,"))
}

fn count(ran: &Ran, text: &str) -> usize {
    ran.stderr.matches(text).count()
}

#[test]
fn nothing_is_started_beside_a_stranger_on_its_gpu_who_is_named() {
    let own = std::process::id();
    let stub = Stub::of(&format!("gpus 2\nprocess gpu=0 {own} 300\nhold gpu=1 4096\n"));
    let bench = on_a_gpu(2).gpus(&stub);
    let ran = bench.run(&[]).exits(4);
    let whose = format!("GPU 0 is used by process {own} (");
    let ran = ran
        .says(&whose)
        .says(", 300 MiB)")
        .says("help: stop the other processes on the GPU, because they distort the measurement")
        .says("preflight failed (1 error)");
    assert_eq!(count(&ran, "GPU 1"), 0, "no launch uses it: {}", ran.stderr);
    stub.rewrite("hold gpu=0 3072\n");
    bench.run(&[]).exits(4).says(
        "3.5 GiB of the memory of GPU 0 is in use, but no process is reported that uses it (`rest_memory` allows 1GiB on an idle GPU)",
    );
    stub.rewrite("lost gpu=0\n");
    bench.run(&[]).exits(4).says("GPU 0 cannot be read");
}

#[test]
fn a_library_that_cannot_be_used_is_told_before_anything_starts() {
    let bench = on_a_gpu(2).variable(crate::nvml::VARIABLE, "/nowhere/libnvidia-ml.so.1");
    bench
        .run(&[])
        .exits(2)
        .says("error: /nowhere/libnvidia-ml.so.1 cannot be used: ")
        .says("set MATRIX_NVML_LIBRARY to the path of NVIDIA's `libnvidia-ml.so.1`");
    let launch_without = Stub::of("gpus 0\n");
    on_a_gpu(2)
        .gpus(&launch_without)
        .run(&[])
        .exits(4)
        .says("needs 1 GPU, but this host has 0");
}

#[test]
fn the_next_launch_waits_until_the_memory_of_the_last_one_is_free() {
    let stub =
        Stub::of("gpus 1\nname NVIDIA Test\nprocess engine 20000\nhold from=gone until=gone+2 20000\n");
    let bench = on_a_gpu(2).gpus(&stub);
    let ran = bench.run(&[]).exits(0);
    assert_eq!(count(&ran, "still"), 0, "{}", ran.stderr);
    let run = bench.finished();
    assert_eq!(run.machine.gpus, ["NVIDIA Test"]);
    assert_eq!(run.machine.devices[0].cuda.as_deref(), Some("12.8"));
    assert_eq!(summary(&run, "a", "random-1k-1k").engine.devices, [0]);
    bench.leaves_no_process();
}

#[test]
fn whoever_holds_a_gpu_after_its_engine_was_stopped_is_named() {
    let own = std::process::id();
    let stub = Stub::of(&format!("gpus 1\nprocess {own} 2000 from=gone\n"));
    let bench = on_a_gpu(2).gpus(&stub);
    let said = bench
        .run(&[])
        .exits(0)
        .says("was stopped 5 s ago, but GPU 0 is still used by");
    assert!(
        said.stderr.contains(&format!("process {own} (")),
        "{}",
        said.stderr
    );
}

/// A load of some seconds on an engine that takes two GPUs of the stub, and what was told of it; the run ends with this code.
fn loaded(stub: &Stub, exit: i32) -> (Telemetry, Vec<ReasonCode>) {
    let matrix = sims(
        &[("a", "vllm", "--step, 20ms")],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 300, concurrency: 4, warmup: 0 }\n",
    );
    let matrix = matrix
        .replace("as: a,", "as: a, devices: gpu,")
        .replace("- m: {", "- m: { tp: 2,");
    let bench = Bench::of(&matrix).gpus(stub);
    bench.run(&[]).exits(exit);
    let run = bench.finished();
    let summary = summary(&run, "a", "random-1k-1k");
    assert_eq!(
        summary.failures.values().sum::<u32>(),
        0,
        "{:?}",
        summary.failures
    );
    let validity = summary.validity.as_ref().expect("it is judged");
    let codes = validity.reasons.iter().map(|reason| reason.code).collect();
    (summary.telemetry.clone().expect("it was watched"), codes)
}

#[test]
fn what_the_devices_of_a_launch_went_through_is_in_its_row() {
    let own = std::process::id();
    let stub = Stub::of(&format!(
        "gpus 3\npower 70\nbusy 300\nutil from=engine 95 60\nclock from=engine 1755\nprocess engine 20000\n\
         process gpu=1 {own} 300 from=engine\nthrottle gpu=0 hot from=engine\n"
    ));
    // A GPU that is too hot or shared measures nothing.
    let (actual, codes) = loaded(&stub, 3);
    let devices: Vec<u32> = actual.gpus.iter().map(|gpu| gpu.device).collect();
    assert_eq!(devices, [0, 1], "two of three are the launch's");
    let (first, second) = (&actual.gpus[0], &actual.gpus[1]);
    assert_eq!(
        first.throttled.get("thermal"),
        Some(&1.0),
        "{:?}",
        first.throttled
    );
    assert_eq!(second.throttled.get("thermal").copied().unwrap_or(0.0), 0.0);
    assert_eq!(first.foreign, [], "the engine's own is no stranger");
    assert_eq!(
        second
            .foreign
            .iter()
            .map(|process| process.pid)
            .collect::<Vec<_>>(),
        [own]
    );
    for gpu in &actual.gpus {
        assert_eq!(gpu.rest_memory_bytes, Some(512 << 20));
        assert!(
            (gpu.idle_w.expect("it was measured") - 70.0).abs() < 1.0,
            "{gpu:?}"
        );
        let (counter, integral) = (
            gpu.counter_j.expect("counted"),
            gpu.integral_j.expect("integrated"),
        );
        assert!(
            (counter - integral).abs() < 0.05 * counter,
            "{counter} J, {integral} J"
        );
        assert_eq!(gpu.busy_clock_mhz, Some(1755.0));
    }
    let energy = actual.energy.expect("it is reported");
    assert_eq!(energy.source, EnergySource::Counter);
    assert!((energy.mean_w - 740.0).abs() < 40.0, "{} W", energy.mean_w);
    let above = energy.above_idle_j.expect("idle was measured");
    assert!(
        (above / energy.joules - 600.0 / 740.0).abs() < 0.05,
        "{above} of {} J",
        energy.joules
    );
    for code in [ReasonCode::ThrottledThermal, ReasonCode::GpuShared] {
        assert!(codes.contains(&code), "{code:?} in {codes:?}");
    }
    assert!(!codes.contains(&ReasonCode::TelemetryGap), "{codes:?}");
}

/// Memory that a process in another container takes, a slow bus and a memory error: each is named for its GPU, and none else.
#[test]
fn what_nobody_on_this_host_can_see_is_found_by_what_it_does_to_a_gpu() {
    let stub = Stub::of(
        "gpus 3\nutil from=engine 95 60\nclock from=engine 1755\nprocess engine 20000\nslot 5 16\nlink 5 16\nfaults 3 0 0\n\
         hold gpu=0 30000 from=engine+4\nlink gpu=1 5 8\nfaults gpu=2 4 0 0 from=engine+4\n",
    );
    let matrix = sims(
        &[("a", "vllm", "--step, 20ms")],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 300, concurrency: 4, warmup: 0 }\n",
    );
    let matrix = matrix
        .replace("as: a,", "as: a, devices: gpu,")
        .replace("- m: {", "- m: { tp: 3,");
    let bench = Bench::of(&matrix).gpus(&stub);
    bench.run(&[]).exits(0);
    let run = bench.finished();
    let validity = summary(&run, "a", "random-1k-1k")
        .validity
        .clone()
        .expect("it is judged");
    let codes = [
        ReasonCode::GpuMemoryUnexplained,
        ReasonCode::PcieDowntrained,
        ReasonCode::GpuErrors,
    ];
    let found: Vec<(ReasonCode, &str)> = validity
        .reasons
        .iter()
        .filter(|reason| codes.contains(&reason.code))
        .map(|reason| (reason.code, reason.measured.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (
                ReasonCode::GpuMemoryUnexplained,
                "GPU 0: some GPU memory belongs to no process of the engine (30000MiB)"
            ),
            (
                ReasonCode::GpuErrors,
                "GPU 2: the GPU had uncorrectable memory errors during the measurement (count: 1)"
            ),
            (ReasonCode::PcieDowntrained, "GPU 1: 8 of 16 lanes"),
        ],
        "{:#?}",
        validity.reasons
    );
}

/// A desktop holds memory of the only GPU: it is measured on, with a note.
#[test]
fn a_desktop_on_the_gpu_is_a_note_and_keeps_nobody_from_measuring() {
    let stub = Stub::of("gpus 1\nrest 1400\ndesktop 1\n");
    let bench = on_a_gpu(1).gpus(&stub);
    bench.run(&[]).exits(0);
    let run = bench.finished();
    let validity = summary(&run, "a", "random-1k-1k")
        .validity
        .clone()
        .expect("it is judged");
    let found = validity
        .reasons
        .iter()
        .find(|reason| reason.code == ReasonCode::GpuNotAtRest);
    let found = found.expect("it is said");
    assert_eq!(found.describe_weight(), "note");
    assert!(found.measured.contains("a desktop included"), "{found:?}");
    let headless = Stub::of("gpus 1\nrest 1400\n");
    let refused = on_a_gpu(1).gpus(&headless);
    refused.run(&[]).exits(4).says("of the memory of GPU 0 is in use");
}

#[test]
fn devices_that_die_or_hang_under_a_load_are_told_and_hold_up_nobody() {
    let stub = Stub::of(
        "gpus 2\nlost gpu=0 from=engine+2\nhang nvmlDeviceGetClockInfo gpu=1 from=engine+2 until=engine+4\n",
    );
    let (actual, codes) = loaded(&stub, 0);
    let troubles: Vec<&str> = actual
        .sources
        .iter()
        .filter_map(|source| source.trouble.as_deref())
        .collect();
    assert!(
        troubles.iter().any(|said| said.contains("fell off the bus")),
        "{troubles:?}"
    );
    assert!(
        troubles.len() >= 3,
        "the one that hangs is told too: {troubles:?}"
    );
    assert!(codes.contains(&ReasonCode::TelemetryGap), "{codes:?}");
}

/// An engine whose log says nothing while its weights load: as long as they come to its GPU it does not hang.
#[test]
fn memory_that_grows_is_a_sign_of_life_while_an_engine_starts() {
    let growing: String = (0..40)
        .map(|step| {
            format!(
                "hold from=engine+{}.{} {}\n",
                step / 2,
                step % 2 * 5,
                700 + 100 * step
            )
        })
        .collect();
    let matrix = sims(
        &[("a", "vllm", "\"--start-delay=8s\"")],
        "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 8, warmup: 0 }\n",
    )
    .replace(
        "as: a,",
        "as: a, devices: gpu, timeouts: { start: 30s, stall: 1500ms, stop: 1s },",
    );
    let stub = Stub::of(&format!("gpus 1\n{growing}"));
    Bench::of(&matrix).gpus(&stub).run(&[]).exits(0);
    let stub = Stub::of("gpus 1\n");
    Bench::of(&matrix)
        .gpus(&stub)
        .run(&[])
        .exits(3)
        .says("the engine hangs: no log output for")
        .says("the engine's GPU memory use did not grow");
}
