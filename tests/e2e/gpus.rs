//! Two runs at once on one host do not share its GPUs, which are pretended here.

use std::process::Stdio;

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
    while bench.survivors().len() < 2 {
        assert!(first.try_wait().expect("it can be asked").is_none(), "it goes on");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let said = bench.run(&[]).exits(4).stderr;
    let whose = format!("another run of matrix on this host (process {})", first.id());
    assert!(
        said.contains("GPU 0 belongs to") && said.contains(&whose),
        "{said}"
    );
    assert!(said.contains("help: wait until it is over"), "{said}");
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
        .says("`--gpus` names GPU 4, and this host has GPUs 0 to 3");
}
