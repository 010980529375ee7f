//! Two runs at once on one host do not share its GPUs, which are pretended here.

use std::process::Stdio;

use crate::harness::{Bench, sims};

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
