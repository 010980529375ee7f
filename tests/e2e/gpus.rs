//! Two runs at once on one host do not share its GPUs, which are pretended here.

use std::process::Stdio;

use matrix::results::record::telemetry::EnergySource;

use crate::harness::{Bench, sims, summary};
use crate::nvml::Stub;

#[test]
fn a_second_run_refuses_gpus_that_another_one_has_and_says_whose_they_are() {
    let matrix = sims(
        &[("a", "vllm", "--step, 20ms")],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4000, warmup: 0 }\n",
    );
    let bench =
        Bench::of(&matrix.replace("as: a,", "as: a, devices: gpu,")).variable("MATRIX_PRETEND_GPUS", "1");
    let mut first = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    // GPUs are locked before any engine starts; a process that prints a version may run before.
    bench.until_journal("engine-started");
    let said = bench.run(&[]).exits(4).stderr;
    let whose = format!("another run of matrix on this host (process {})", first.id());
    assert!(
        said.contains("GPU 0 is locked by") && said.contains(&whose),
        "{said}"
    );
    assert!(said.contains("help: wait until that run has ended"), "{said}");
    first.kill().expect("it can be killed");
    first.wait().expect("it ends");
    // The claim ends with the process.
    let after = bench.variable("MATRIX_PRETEND_GPUS", "none");
    after.run(&[]).exits(2).says("MATRIX_PRETEND_GPUS is `none`");
    after.call(&["clean"]).exits(0);
    after.leaves_no_process();
}

/// Somebody else computes on the first of four GPUs: a run takes an idle one, or those that it is told to take.
#[test]
fn a_stranger_on_another_gpu_keeps_nobody_from_measuring() {
    let stub = Stub::of(&format!("gpus 4\nprocess gpu=0 {} 300\n", std::process::id()));
    let matrix = sims(
        &[("a", "vllm", "")],
        "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 8, warmup: 0 }\n",
    )
    .replace("as: a,", "as: a, devices: gpu,");
    let leased = |bench: Bench, flags: &[&str]| {
        bench.run(flags).exits(0);
        let run = bench.finished();
        summary(&run, "a", "random-1k-1k").engine.devices.clone()
    };
    let bench = |matrix: &str| Bench::of(matrix).gpus(&stub);
    assert_eq!(leased(bench(&matrix), &[]), [1]);
    assert_eq!(leased(bench(&matrix), &["--gpus", "2-3"]), [2]);
    assert_eq!(leased(bench(&format!("{matrix}gpus: 3\n")), &[]), [3]);
    let visible = bench(&matrix).variable("CUDA_VISIBLE_DEVICES", "0,3");
    assert_eq!(leased(visible, &[]), [3]);
    bench(&matrix)
        .run(&["--gpus", "0"])
        .exits(4)
        .says("GPU 0 is used by process");
    bench(&matrix)
        .run(&["--gpus", "4-7"])
        .exits(4)
        .says("`--gpus` names GPU 4, but this host has GPUs 0 to 3");
}

/// A GPU that is cut into three instances beside a whole one: an instance is a device, idle ones are leased first, somebody on another
/// instance is no neighbour, and an engine is told the instance by its UUID.
#[test]
fn instances_of_a_gpu_are_devices() {
    let own = std::process::id();
    let stub = Stub::of(&format!(
        "gpus 2\ninstances 3 gpu=0\nprocess gpu=0 instance=0 {own} 300\nprocess gpu=0 instance=1 engine 4000\n"
    ));
    let matrix = sims(
        &[("a", "vllm", "")],
        "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 8, warmup: 0 }\n",
    )
    .replace("as: a,", "as: a, devices: gpu, env: { GIVEN: \"{devices}\" },");
    let leased = |flags: &[&str]| {
        let bench = Bench::of(&matrix).gpus(&stub);
        bench.run(flags).exits(0);
        let run = bench.finished();
        let summary = summary(&run, "a", "random-1k-1k");
        let codes: Vec<&str> = summary
            .validity
            .iter()
            .flat_map(|validity| &validity.reasons)
            .map(|reason| reason.code.name())
            .collect();
        assert!(
            !codes.contains(&"gpu-shared") && !codes.contains(&"telemetry-gap"),
            "{codes:?}"
        );
        let actual = summary.telemetry.as_ref().expect("it was watched");
        // What the whole GPU takes is not what an instance takes; the simulated engine tells of itself.
        let source = match summary.engine.devices == [3] {
            true => EnergySource::Counter,
            false => EnergySource::Engine,
        };
        assert_eq!(actual.energy.as_ref().map(|energy| energy.source), Some(source));
        let line = summary.engine.exact_command.clone().unwrap_or_default();
        (summary.engine.devices.clone(), line, run.machine.clone())
    };
    let (devices, line, machine) = leased(&[]);
    assert_eq!(devices, [1], "the first one is busy");
    assert!(
        line.contains("MIG-57b00000-0000-4000-8001-000000000000"),
        "{line}"
    );
    assert_eq!(machine.gpus.len(), 4);
    assert_eq!(machine.gpus[1], "NVIDIA Stub MIG 1g.10gb");
    assert_eq!(leased(&["--gpus", "0:2"]).0, [2]);
    assert_eq!(
        leased(&["--gpus", "GPU-57b00000-0000-4000-8000-000000000001"]).0,
        [3]
    );
    let bench = Bench::of(&matrix).gpus(&stub);
    bench
        .run(&["--gpus", "0:0"])
        .exits(4)
        .says("GPU 0 is used by process");
    // An engine sees one instance at a time.
    let pair = Bench::of(&matrix.replace("- m: {", "- m: { tp: 2,")).gpus(&stub);
    pair.run(&["--gpus", "0:1,0:2"])
        .exits(4)
        .says("GPU instances (MIG) cannot be combined");
}
