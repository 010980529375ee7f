//! Ctrl-C, once and twice; and terminals that go away.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use matrix::base::clock;
use matrix::results::record::cell::Ending;

use crate::harness::{Bench, sims};

/// Long enough that a signal always finds it under way.
const LONG: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4000, warmup: 0 }\n  - random-2k-6k: { prompts: 4, input_len: 16, output_len: 4 }\n";

fn begin(bench: &Bench) -> Child {
    let child = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let began = clock::now();
    loop {
        let journal = std::fs::read_dir(bench.results())
            .ok()
            .and_then(|mut runs| runs.next())
            .and_then(Result::ok);
        let text = journal
            .and_then(|run| std::fs::read_to_string(run.path().join("journal.jsonl")).ok())
            .unwrap_or_default();
        if text.contains("cell-began") {
            break;
        }
        assert!(
            clock::now().since(began) < Duration::from_secs(30),
            "the first cell never began: {text}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    child
}

fn signal(child: &Child, signal: Signal) {
    let pid =
        Pid::from_raw(i32::try_from(child.id()).expect("process ids are small")).expect("a child has an id");
    kill_process(pid, signal).expect("the child lives");
}

#[test]
fn one_signal_saves_the_cell_and_stops_the_engine() {
    let bench =
        Bench::of(&sims(&[("a", "vllm", "--itl, 20ms, --ttft, 20ms")], LONG).replace("--preset, fast, ", ""));
    let child = begin(&bench);
    signal(&child, Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        output.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let run = bench.finished();
    assert_eq!(run.summaries.len(), 1);
    assert_eq!(run.summaries[0].ending, Ending::Interrupted);
    assert_eq!(
        run.read_requests(&run.plan.starts[0].cells[0])
            .expect("requests are kept")
            .len(),
        4
    );
    bench.leaves_no_process();
    bench.rewrite(
        &sims(
            &[("a", "vllm", "--itl, 1ms, --ttft, 1ms")],
            &LONG.replace("4000", "40"),
        )
        .replace("--preset, fast, ", ""),
    );
    bench.run(&["--resume"]).exits(0);
    assert_eq!(bench.finished().summaries.len(), 2);
}

#[test]
fn a_second_signal_kills_at_once() {
    let matrix = sims(
        &[("a", "vllm", "--itl, 20ms, --ttft, 20ms, --ignore-sigterm")],
        LONG,
    )
    .replace("--preset, fast, ", "")
    .replace("as: a,", "as: a, patience: { stop: 60s },");
    let bench = Bench::of(&matrix);
    let child = begin(&bench);
    signal(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, Signal::INT);
    let began = clock::now();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        output.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        clock::now().since(began) < Duration::from_secs(30),
        "it waited for the engine's grace"
    );
    bench.leaves_no_process();
}

#[test]
fn a_signal_while_the_engine_loads_leaves_nothing() {
    let bench = Bench::of(&sims(&[("a", "vllm", "--start-delay, 30s")], LONG));
    let child = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    while bench.survivors().len() < 2 {
        std::thread::sleep(Duration::from_millis(50));
    }
    signal(&child, Signal::TERM);
    assert_eq!(
        child.wait_with_output().expect("it ends").status.code(),
        Some(130)
    );
    bench.leaves_no_process();
    assert!(bench.finished().summaries.is_empty());
}
