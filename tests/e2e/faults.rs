//! Every fault that the simulated engine can be told to have: the cell ends with the right phase, class and reason, the other cells
//! finish, and the exit code fits.

use matrix::results::record::cell::{MeasurementStatus, Phase};
use matrix::results::record::request::RequestFailureClass;
use matrix::results::record::validity::ReasonCode;

use crate::harness::{Bench, failure, sims, summary};

const TWO: &str = "  - random-1k-1k: { prompts: 6, input_len: 32, output_len: 12 }\n  - random-2k-6k: { prompts: 4, input_len: 16, output_len: 8 }\n";

/// A bench with a sound engine after one with a fault.
fn beside(fault: &str) -> Bench {
    Bench::of(&sims(&[("bad", "vllm", fault), ("good", "vllm", "")], TWO))
}

/// The neighbour of a faulty engine is never touched.
fn neighbour_is_done(bench: &Bench) {
    let run = bench.finished();
    for scenario in ["random-1k-1k", "random-2k-6k"] {
        assert_eq!(summary(&run, "good", scenario).status, MeasurementStatus::Done);
    }
    bench.leaves_no_process();
}

#[test]
fn an_engine_that_dies_while_loading_fails_the_launch_with_its_last_words() {
    let bench = beside("--die-while-loading");
    let ran = bench.run(&[]).exits(3).says("exit status: 1");
    let run = bench.finished();
    // The reason is on the screen, with the file that tells the rest.
    let last = "      | torch.OutOfMemoryError";
    assert_eq!(
        ran.stderr.matches(last).count(),
        1,
        "printed once:\n{}",
        ran.stderr
    );
    let details = ran
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("      details: "));
    let details = bench.path().join(details.expect("the post-mortem is named"));
    let page = std::fs::read_to_string(details).expect("it is there");
    // The command is the one that ran, with its port.
    let journal = bench.journal();
    let (_, port) = journal.split_once("\"port\":").expect("an engine was started");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let command = format!(" --port {port} ");
    assert!(ran.stderr.contains(&command), "{command}: {}", ran.stderr);
    assert!(page.contains(&command), "{command}: {page}");
    let explained = bench
        .call(&["explain", "engine=bad,"])
        .exits(0)
        .shows("    | torch.OutOfMemoryError");
    assert!(
        explained.stdout.contains("details: results/"),
        "{}",
        explained.stdout
    );
    // The last lines count, and say what to do next.
    assert!(ran.stdout.contains("\n2 done, 2 failed\n"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("\npage: results/") && ran.stdout.contains("/report.html\n"),
        "{}",
        ran.stdout
    );
    let last = ran.stdout.lines().last().expect("it says something");
    assert!(
        last.starts_with("measure failed cells again: matrix run ") && last.ends_with(" --failed"),
        "{last}"
    );
    // The command is the one that ran, with its port.
    let line = ran
        .stderr
        .lines()
        .find(|line| line.contains("--die-while-loading"));
    let line = line.expect("the command is reported").trim();
    let port = ran.stderr.split(", port ").nth(1).expect("the port is reported");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    assert!(line.contains(&format!("--port {port}")), "{port}: {line}");
    assert!(page.contains(line), "{page}");
    for scenario in ["random-1k-1k", "random-2k-6k"] {
        let (phase, reason, tail) = failure(summary(&run, "bad", scenario));
        assert_eq!(phase, Phase::Launch);
        assert!(reason.contains("exit status: 1"), "{reason}");
        assert!(tail.contains("out of memory"), "{tail}");
    }
    neighbour_is_done(&bench);
}

#[test]
fn an_engine_that_dies_under_load_fails_the_cell_and_is_started_again_for_the_rest() {
    // The probe and the warm-up take 2 requests; the third dies with the first cell under way.
    let bench = beside("--die-after, 4requests");
    bench.run(&[]).exits(3).says("started again");
    let run = bench.finished();
    let (phase, reason, tail) = failure(summary(&run, "bad", "random-1k-1k"));
    assert_eq!(phase, Phase::Measure);
    assert!(
        reason.contains("under load") && reason.contains("exit status: 1"),
        "{reason}"
    );
    assert!(tail.contains("out of memory"), "{tail}");
    let first = &run.plan.starts[0].cells[0];
    let requests = run.read_requests(first).expect("what was recorded is kept");
    assert_eq!(requests.len(), 6, "every request that fell due leaves a record");
    neighbour_is_done(&bench);
}

#[test]
fn an_engine_that_dies_after_some_tokens_leaves_half_answers_on_record() {
    let bench = beside("--die-after, 30tokens");
    bench.run(&[]).exits(3);
    let run = bench.finished();
    let (phase, ..) = failure(summary(&run, "bad", "random-1k-1k"));
    assert_eq!(phase, Phase::Measure);
    let requests = run
        .read_requests(&run.plan.starts[0].cells[0])
        .expect("what was recorded is kept");
    let failed = requests.iter().filter(|request| !request.is_completed()).count();
    assert!(failed > 0);
    neighbour_is_done(&bench);
}

#[test]
fn an_engine_that_hangs_under_load_is_cut_and_started_again() {
    let scenarios = TWO
        .replace("output_len: 12 }", "output_len: 12, stall: 2s }")
        .replace("output_len: 8 }", "output_len: 8, stall: 2s }");
    let bench = Bench::of(&sims(
        &[("bad", "vllm", "--hang-after, 4"), ("good", "vllm", "")],
        &scenarios,
    ));
    bench.run(&[]).exits(3);
    let run = bench.finished();
    let (phase, reason, _) = failure(summary(&run, "bad", "random-1k-1k"));
    assert_eq!(phase, Phase::Measure);
    assert!(reason.contains("hangs"), "{reason}");
    neighbour_is_done(&bench);
}

#[test]
fn an_engine_that_hangs_while_loading_runs_into_the_stall_limit() {
    let matrix = sims(
        &[("bad", "vllm", "--hang-while-loading"), ("good", "vllm", "")],
        TWO,
    )
    .replace("as: bad,", "as: bad, timeouts: { stall: 1s },");
    let bench = Bench::of(&matrix);
    bench.run(&[]).exits(3);
    let (phase, reason, _) = failure(summary(&bench.finished(), "bad", "random-1k-1k"));
    assert_eq!(phase, Phase::Launch);
    assert!(reason.contains("1s"), "{reason}");
    neighbour_is_done(&bench);
}

#[test]
fn a_slow_start_within_the_limits_is_done() {
    let bench = beside("--start-delay, 2s");
    bench.run(&[]).exits(0);
    let run = bench.finished();
    let bad = summary(&run, "bad", "random-1k-1k");
    assert_eq!(bad.status, MeasurementStatus::Done);
    assert!(
        bad.phases
            .iter()
            .any(|phase| phase.phase == "launch" && phase.seconds >= 2.0),
        "{:?}",
        bad.phases
    );
    neighbour_is_done(&bench);
}

#[test]
fn a_start_beyond_the_hard_limit_fails_the_launch() {
    let matrix = sims(
        &[("bad", "vllm", "--start-delay, 60s"), ("good", "vllm", "")],
        TWO,
    )
    .replace("as: bad,", "as: bad, timeouts: { start: 1s },");
    let bench = Bench::of(&matrix);
    bench.run(&[]).exits(3);
    let (phase, reason, _) = failure(summary(&bench.finished(), "bad", "random-1k-1k"));
    assert_eq!(phase, Phase::Launch);
    assert!(reason.contains("1s"), "{reason}");
    neighbour_is_done(&bench);
}

#[test]
fn lying_health_is_found_out_by_the_first_token() {
    for lie in ["--lying-health", "--lying-health=empty"] {
        let matrix = sims(&[("bad", "vllm", lie), ("good", "vllm", "")], TWO)
            .replace("as: bad,", "as: bad, timeouts: { probe: 1s },");
        let bench = Bench::of(&matrix);
        bench.run(&[]).exits(3);
        let (phase, reason, _) = failure(summary(&bench.finished(), "bad", "random-1k-1k"));
        assert_eq!(phase, Phase::Launch, "{lie}");
        assert!(reason.contains("token"), "{lie}: {reason}");
        neighbour_is_done(&bench);
    }
}

#[test]
fn another_model_than_asked_for_is_refused() {
    let bench = beside("--wrong-model");
    bench.run(&[]).exits(3);
    let (phase, reason, _) = failure(summary(&bench.finished(), "bad", "random-1k-1k"));
    assert_eq!(phase, Phase::Launch);
    assert!(reason.contains("model"), "{reason}");
    neighbour_is_done(&bench);
}

#[test]
fn an_engine_that_refuses_connections_is_counted_by_class() {
    // One at a time, or all are connected before the engine stops listening.
    let scenarios = TWO.replace("output_len: 12 }", "output_len: 12, concurrency: 1 }");
    let bench = Bench::of(&sims(
        &[("bad", "vllm", "--refuse, 4"), ("good", "vllm", "")],
        &scenarios,
    ));
    bench.run(&[]).exits(3);
    let run = bench.finished();
    let bad = summary(&run, "bad", "random-1k-1k");
    assert!(
        bad.failures
            .get(&RequestFailureClass::Refused)
            .copied()
            .unwrap_or(0)
            > 0,
        "{:?} {:?}",
        bad.failures,
        bad.status
    );
    neighbour_is_done(&bench);
}

/// Requests that fail one by one: the cell is done, failures are counted by class, and above the bound the run says so.
fn counted(fault: &str, class: RequestFailureClass) {
    let bench = beside(fault);
    bench.run(&[]).exits(3);
    let run = bench.finished();
    let bad = summary(&run, "bad", "random-1k-1k");
    assert_eq!(bad.status, MeasurementStatus::Done, "{fault}");
    let count = bad.failures.get(&class).copied().unwrap_or(0);
    assert!(count > 0 && count < 6, "{fault}: {:?}", bad.failures);
    let validity = bad.validity.as_ref().expect("what ended is judged");
    assert!(
        validity
            .reasons
            .iter()
            .any(|reason| reason.code == ReasonCode::Errors),
        "{fault}: {validity:?}"
    );
    neighbour_is_done(&bench);
}

#[test]
fn error_events_in_the_stream_are_failures() {
    counted("--error-event-every, 4", RequestFailureClass::ErrorEvent);
}

#[test]
fn half_a_stream_is_a_failure() {
    counted("--half-stream-every, 4", RequestFailureClass::Reset);
}

#[test]
fn garbage_bytes_are_a_failure() {
    counted("--garbage-every, 4", RequestFailureClass::Garbled);
}

#[test]
fn a_huge_line_is_a_failure() {
    counted("--huge-line-every, 4", RequestFailureClass::HugeLine);
}

#[test]
fn an_error_status_is_a_failure() {
    counted("--http-error-every, 4", RequestFailureClass::Status);
}

#[test]
fn an_endless_stream_is_cut_at_its_limit() {
    counted("--endless-stream-every, 4", RequestFailureClass::Endless);
}

#[test]
fn failures_below_the_bound_leave_the_run_done() {
    let scenarios = TWO
        .replace("output_len: 12 }", "output_len: 12, error_share: 0.5 }")
        .replace("output_len: 8 }", "output_len: 8, error_share: 0.5 }");
    let bench = Bench::of(&sims(&[("bad", "vllm", "--http-error-every, 4")], &scenarios));
    bench.run(&[]).exits(0);
    let run = bench.finished();
    assert!(summary(&run, "bad", "random-1k-1k").failures[&RequestFailureClass::Status] > 0);
}

#[test]
fn a_reset_that_resets_nothing_shows_in_the_prefix_hits() {
    // Two starts' worth of the same prompts on one start: the second finds what the first left, unless the reset works.
    let scenarios = "  - random-1k-1k: { prompts: 6, input_len: 256, output_len: 8 }\n";
    let hits = |fault: &str| {
        let matrix = format!(
            "{}repeats: {{ per_start: 2 }}\n",
            sims(&[("e", "vllm", fault)], scenarios)
        );
        let bench = Bench::of(&matrix);
        bench.run(&[]).exits(if fault.is_empty() { 0 } else { 3 });
        let run = bench.finished();
        let second = run
            .summaries
            .iter()
            .find(|summary| summary.repeat == 2)
            .expect("there are two repeats");
        let proof = second.cache_reset.clone().expect("a reset was tried");
        assert_eq!(proof.success, Some(true), "{fault}");
        proof.hits_in_window.expect("the engine counts hits")
    };
    let (sound, fake) = (hits(""), hits("--fake-reset"));
    assert!(fake > 100.0 && sound < fake / 4.0, "sound {sound}, fake {fake}");
}

#[test]
fn outputs_that_end_early_are_counted() {
    let bench = beside("--early-end, 0.5");
    let ran = bench
        .run(&[])
        .exits(3)
        .says("invalid: output-short")
        .says("run ended: 2 done, 2 invalid");
    let mut rows = ran.stdout.lines().filter(|line| line.contains("bad"));
    assert!(rows.all(|row| !row.contains(" done")), "{}", ran.stdout);
    let last = ran.stdout.lines().last().expect("it says something");
    assert!(
        last.starts_with("measure invalid cells again: matrix run ") && last.ends_with(" --failed"),
        "{last}"
    );
    bench
        .run(&["--resume", "--failed"])
        .exits(3)
        .says("4 measurements, 2 of them already finished");
    let run = bench.finished();
    let requests = run
        .read_requests(&run.plan.starts[0].cells[0])
        .expect("requests are kept");
    assert!(
        requests.iter().all(|request| request.output_tokens() == Some(6)),
        "{:?}",
        requests[0]
    );
    neighbour_is_done(&bench);
}

#[test]
fn an_engine_that_refuses_the_first_request_is_not_waited_for() {
    let matrix = sims(&[("bad", "vllm", "--api-key, \"${TEST_KEY}\"")], TWO);
    let bench = Bench::of(&matrix.replace("as: bad,", "as: bad, timeouts: { probe: 10m },"));
    let bench = bench.variable("TEST_KEY", "a-key-of-the-engine");
    let ran = bench.run(&[]).exits(3).says("refuses the first request");
    let ran = ran.says("status 401").says("Bearer ${KEY}");
    assert!(!ran.stderr.contains("timeouts:"), "{}", ran.stderr);
    bench.leaves_no_process();
}

#[test]
fn an_engine_that_ignores_sigterm_is_killed_after_its_grace() {
    let matrix = sims(&[("bad", "vllm", "--ignore-sigterm")], TWO)
        .replace("as: bad,", "as: bad, timeouts: { stop: 1s },");
    let bench = Bench::of(&matrix);
    bench.run(&[]).exits(0).says("SIGKILL");
    bench.leaves_no_process();
}

#[test]
fn children_of_an_engine_are_stopped_with_it() {
    let bench = Bench::of(&sims(&[("bad", "vllm", "--leak-child")], TWO));
    bench.run(&[]).exits(0);
    bench.leaves_no_process();
}

#[test]
fn a_dead_port_is_told_in_words() {
    let bench = Bench::of(
        "name: t\nengines:\n  - attach: { url: \"http://127.0.0.1:9\", timeouts: { start: 2s } }\nmodels:\n  - m: { tokenizer: data/tokenizer.json }\nscenarios:\n  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 4, range_ratio: 0 }\n",
    );
    // Before the run, and not after the patience of a start.
    bench
        .run(&[])
        .exits(4)
        .says("the server of engine `attach` cannot be used: http://127.0.0.1:9/health: Connection refused")
        .says("start the server, or correct `url:`");
}
