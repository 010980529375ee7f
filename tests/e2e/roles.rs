//! Engines whose processes have different roles, on one host: simulated prefill and decode servers behind a router.

use std::process::Command;

use matrix::results::record::cell::MeasurementStatus;

use crate::harness::{Bench, Ran, failure, summary};

/// A matrix with an engine of two decode servers, a prefill server and a router. `decode` are further arguments of the
/// decode servers.
pub fn disaggregated(decode: &str, timeouts: &str) -> String {
    format!(
        r#"
name: roles
engines:
  - sim:
      as: split
      timeouts: {timeouts}
      roles:
        prefill: {{ args: [--preset, fast, --disaggregation-mode, prefill] }}
        decode: {{ count: 2, args: [--preset, fast, --disaggregation-mode, decode{decode}] }}
        router:
          endpoint: true
          command: ["{{matrix}}", sim, --router, --port, "{{port}}"]
          for_each: {{ prefill: [--prefill, "{{url}}"], decode: [--decode, "{{url}}"] }}
models: [{{ m: {{ tokenizer: data/tokenizer.json }} }}]
scenarios:
  - load: {{ dataset: random-ids, prompts: 20, input_len: 40, output_len: 8, concurrency: 4, range_ratio: 1.0, warmup: 0 }}
"#
    )
}

#[test]
fn requests_go_to_the_router_and_every_process_is_started_and_stopped() {
    let bench = Bench::of(&disaggregated("", "{}"));
    let ran = bench.run(&[]).exits(0);
    ran.shows("20/0");
    let run = bench.finished();
    let summary = summary(&run, "split", "load");
    assert_eq!(summary.status, MeasurementStatus::Done);
    let log = bench.engine_log();
    for process in ["prefill", "decode 1", "decode 2", "router"] {
        let label = format!("[{process}] ");
        assert!(
            log.lines().any(|line| line.starts_with(&label)),
            "{process}: {log}"
        );
    }
    assert!(log.lines().all(|line| line.starts_with('[')), "{log}");
    let journal = bench.journal();
    assert!(!journal.contains("had already ended"), "{journal}");
    bench.leaves_no_process();
}

#[test]
fn the_end_of_any_process_is_that_of_the_engine_and_its_log_is_quoted() {
    let bench = Bench::of(&disaggregated(r#", --die-after, "6requests""#, "{}"));
    let ran = bench.run(&[]).exits(3);
    let run = bench.finished();
    let (_, reason, tail) = failure(summary(&run, "split", "load"));
    assert!(reason.contains("process `decode "), "{reason}");
    assert!(tail.lines().count() > 0, "{reason}");
    assert!(tail.lines().all(|line| line.starts_with("[decode ")), "{tail}");
    ran.says("process `decode ");
    bench.leaves_no_process();
}

#[test]
fn an_engine_is_not_ready_before_all_its_servers_are() {
    let bench = Bench::of(&disaggregated(r#", --hang-while-loading"#, "{ start: 3s }"));
    bench.run(&[]).exits(3);
    let run = bench.finished();
    let (_, reason, _) = failure(summary(&run, "split", "load"));
    assert!(reason.contains("3s"), "{reason}");
    assert!(reason.contains("(decode 1: http://127.0.0.1:"), "{reason}");
    bench.leaves_no_process();
}

#[test]
fn flags_of_roles_are_checked_before_anything_starts() {
    let bench = Bench::of(&disaggregated(r#", --no-such-flag"#, "{}"));
    bench
        .call(&["check", "matrices/m.yaml", "--ask-engines"])
        .exits(2)
        .says("`--no-such-flag`");
    bench.run(&[]).exits(2).says("`--no-such-flag`");
    assert!(!bench.results().exists(), "nothing was begun");
}

/// A process that serves no load is killed in the middle of the first cell.
#[test]
fn a_process_that_the_load_does_not_miss_fails_the_cell_and_the_next_has_a_new_engine() {
    let matrix = disaggregated("", "{}").replace(
        "        router:",
        "        side: { args: [--preset, fast, --start-delay, 7ms] }\n        router:",
    );
    let load = matrix
        .lines()
        .find(|line| line.contains("  - load:"))
        .expect("there is one");
    let second = load.replace("load:", "second:");
    let first = load
        .replace("load:", "first:")
        .replace("prompts: 20", "prompts: 40")
        .replace("concurrency: 4", "rate: 10, spacing: constant");
    let bench = Bench::of(&matrix.replace(load, &format!("{first}\n{second}")));
    let run = bench.begin(&["run", "matrices/m.yaml", "--no-calibration"]);
    bench.until_journal("\"cell-began\"");
    let is_side = |process: &&String| process.contains("--start-delay 7ms") && !process.contains("__");
    let processes = bench.survivors();
    let side = processes.iter().find(is_side).expect("it runs");
    let (pid, _) = side.split_once(':').expect("it begins with its pid");
    let killed = Command::new("kill").args(["-9", pid]).status();
    assert!(killed.expect("kill runs").success());
    Ran::from(run.wait_with_output().expect("it ends")).exits(3);
    let run = bench.finished();
    let (_, reason, _) = failure(summary(&run, "split", "first"));
    assert!(reason.contains("its process `side` ended (signal: 9"), "{reason}");
    assert_eq!(summary(&run, "split", "second").status, MeasurementStatus::Done);
    bench.leaves_no_process();
}
