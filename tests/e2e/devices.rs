//! What a run does about the devices of its launches, on a library that stands in for NVIDIA's.

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
        .says("help: stop it: what else runs on a GPU is measured along with the engine")
        .says("the machine is not fit (1 finding)");
    assert_eq!(count(&ran, "GPU 1"), 0, "no launch uses it: {}", ran.stderr);
    stub.rewrite("hold gpu=0 3072\n");
    bench
        .run(&[])
        .exits(4)
        .says("3.5 GiB of the memory of GPU 0 is taken (more than 1GiB at rest), and nobody is named who holds it");
    stub.rewrite("lost gpu=0\n");
    bench.run(&[]).exits(4).says("GPU 0 tells nothing");
}

#[test]
fn a_library_that_cannot_be_used_is_told_before_anything_starts() {
    let bench = on_a_gpu(2).variable(crate::nvml::VARIABLE, "/nowhere/libnvidia-ml.so.1");
    bench
        .run(&[])
        .exits(2)
        .says("error: /nowhere/libnvidia-ml.so.1 cannot be used: ")
        .says("name NVIDIA's `libnvidia-ml.so.1` with MATRIX_NVML_LIBRARY");
    let launch_without = Stub::of("gpus 0\n");
    on_a_gpu(2)
        .gpus(&launch_without)
        .run(&[])
        .exits(4)
        .says("needs 1 GPUs, and this host has 0");
}

#[test]
fn the_next_launch_waits_until_the_memory_of_the_last_one_is_free() {
    let stub = Stub::of("gpus 1\nname NVIDIA Test\nprocess engine 20000\nhold from=gone until=gone+2 20000\n");
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
    let said = bench.run(&[]).exits(0).says("was stopped 30 s ago, and GPU 0 is still used by");
    assert!(said.stderr.contains(&format!("process {own} (")), "{}", said.stderr);
}
