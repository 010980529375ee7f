//! What others do to a container of ours by the daemon while it is measured: it is noticed, and the engine is not blamed for it.

use std::thread;
use std::time::Duration;

use matrix::results::record::cell::{FailureClass, MeasurementStatus, MeasurementSummary};

use crate::daemon::{Daemon, begin, end, until_measuring};
use crate::harness::{Bench, summary};

const STEADY: &str = "--ttft, 10ms, --itl, 10ms";
const LONG: &str = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 800, warmup: 0 }\n";
/// One short request a second, so that an engine may be away in between and nothing breaks.
const SPARSE: &str = "  - random-1k-1k: { prompts: 12, input_len: 16, output_len: 4, rate: 1, warmup: 0 }\n";

/// Does something to the container of a run while its first cell is measured.
fn meddled(
    name: &str,
    args: &str,
    scenario: &str,
    wait: Duration,
    meddle: &[&str],
) -> Option<(Daemon, Bench, String)> {
    let daemon = Daemon::or_skip()?;
    let bench = daemon.bench(name, &[], args, scenario);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    thread::sleep(wait);
    let id = daemon.of_run(&bench).remove(0);
    let mut args = meddle.to_vec();
    args.push(&id);
    daemon.docker(&args);
    let ran = end(child);
    let said = format!("exit {:?}\n{}", ran.code, ran.stderr);
    assert!(daemon.of_run(&bench).is_empty(), "nothing is left: {said}");
    Some((daemon, bench, said))
}

/// The cell is done after a try that failed by somebody's doing.
fn is_done_again(bench: &Bench, name: &str, said: &str, reason: &str) {
    let run = bench.finished();
    let summary: &MeasurementSummary = summary(&run, name, "random-1k-1k");
    assert_eq!(summary.status, MeasurementStatus::Done, "{said}");
    let retry = summary
        .retries
        .first()
        .unwrap_or_else(|| panic!("no retry: {said}"));
    assert_eq!(retry.class, FailureClass::Infrastructure, "{said}");
    assert!(retry.reason.contains(reason), "{}", retry.reason);
    assert!(said.starts_with("exit Some(0)"), "{said}");
}

#[test]
fn a_container_that_is_restarted_in_place_is_measured_again() {
    let restart = ["restart", "-t", "1"];
    let Some((_, bench, said)) = meddled("restarted", STEADY, LONG, Duration::ZERO, &restart) else {
        return;
    };
    is_done_again(
        &bench,
        "restarted",
        &said,
        "another program ended the container through the container daemon",
    );
}

#[test]
fn a_restart_between_two_requests_is_noticed() {
    let (wait, restart) = (Duration::from_millis(2300), ["restart", "-t", "0"]);
    let Some((_, bench, said)) = meddled("quiet", STEADY, SPARSE, wait, &restart) else {
        return;
    };
    // Whether it is seen between its end and its next start, or after, is the daemon's affair.
    is_done_again(
        &bench,
        "quiet",
        &said,
        "another program ended the container through the container daemon",
    );
}

#[test]
fn an_engine_that_crashes_and_is_started_again_by_its_daemon_has_crashed() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("policy", &[], "--ttft, 10ms, --itl, 10ms, --die-after, 4s", LONG);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    let id = daemon.of_run(&bench).remove(0);
    daemon.docker(&["update", "--restart=always", &id]);
    let ran = end(child).exits(3);
    let run = bench.finished();
    match &summary(&run, "policy", "random-1k-1k").status {
        MeasurementStatus::Failed { class, reason, .. } => {
            assert_eq!(*class, FailureClass::Engine, "{reason}");
            assert!(
                reason.contains("exit code") && reason.contains("the daemon restarted the container"),
                "{reason}"
            );
        }
        other => panic!("it ended as {other:?}: {}", ran.stderr),
    }
    assert!(daemon.of_run(&bench).is_empty(), "nothing is left");
}

#[test]
fn a_container_that_is_paused_under_load_is_measured_again() {
    let Some((_, bench, said)) = meddled("paused", STEADY, LONG, Duration::ZERO, &["pause"]) else {
        return;
    };
    is_done_again(
        &bench,
        "paused",
        &said,
        "another program paused the container (`docker unpause ",
    );
}

#[test]
fn a_container_that_is_paused_while_it_loads_is_started_again() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench(
        "pausedload",
        &[],
        "--start-delay, 8s",
        "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 4 }\n",
    );
    let child = begin(&bench);
    crate::daemon::until("its container", || {
        crate::chaos::has_run(&bench) && daemon.of_run(&bench).len() == 1
    });
    let id = daemon.of_run(&bench).remove(0);
    crate::daemon::until("its start", || daemon.inspect(&id)["State"]["Running"] == true);
    daemon.docker(&["pause", &id]);
    let ran = end(child);
    let said = format!("exit {:?}\n{}", ran.code, ran.stderr);
    is_done_again(
        &bench,
        "pausedload",
        &said,
        "another program paused the container",
    );
    assert!(daemon.of_run(&bench).is_empty(), "nothing is left");
}

#[test]
fn an_engine_that_we_stop_was_stopped_by_nobody_else() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench(
        "orderly",
        &[],
        "",
        "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 4 }\n",
    );
    let ran = bench.run(&[]).exits(0);
    assert!(
        ran.stderr
            .contains("the container ended after SIGTERM from `matrix` (exit code"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("another program"), "{}", ran.stderr);
}
