//! A daemon that is away or hangs while its containers live on: nothing is measured beside an engine that could not be stopped, no good
//! cell is lost, and nobody is told that all is well who could not look.

use std::time::Duration;

use matrix::results::record::cell::{FailureClass, MeasurementStatus};

use crate::chaos::OwnDaemon;
use crate::daemon::{Daemon, begin, end, make_image, until, until_measuring};
use crate::gate::Gate;
use crate::harness::{Bench, summary};

const STEADY: &str = "--ttft, 10ms, --itl, 10ms";

/// A bench with two engines, one after the other.
fn two(daemon: &Daemon, name: &str, tokens: u32) -> Bench {
    let scenario =
        format!("  - random-1k-1k: {{ prompts: 2, input_len: 16, output_len: {tokens}, warmup: 0 }}\n");
    let bench = daemon.bench(name, &[], "", &scenario);
    bench.rewrite(&format!(
        "name: {name}\nengines:\n  - box: {{ as: first{name}, args: [{STEADY}] }}\n  - box: {{ as: {name}, args: [{STEADY}] }}\n\
         models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{scenario}datasets: {{ sharegpt: data/conversations.json }}\n"
    ));
    bench
}

/// Waits until the journal of a run has so many lines that hold a text.
fn until_journal(bench: &Bench, text: &str, count: usize) {
    until_within(text, Duration::from_secs(120), || {
        let journal = std::fs::read_to_string(bench.run_folder().join("journal.jsonl")).unwrap_or_default();
        journal.lines().filter(|line| line.contains(text)).count() >= count
    });
}

fn until_within(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let pause = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    while !is_so() {
        assert!(waited < limit, "{what} does not come within {limit:?}");
        std::thread::sleep(pause);
        waited += pause;
    }
}

fn first_process(daemon: &Daemon, bench: &Bench) -> i64 {
    let ids = daemon.of_run(bench);
    assert_eq!(ids.len(), 1, "one container is expected");
    daemon.inspect(&ids[0])["State"]["Pid"].as_i64().expect("it runs")
}

fn is_alive(pid: i64) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn an_engine_whose_daemon_is_away_is_ended_by_its_process_and_removed_before_the_next_start() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let gate = Gate::socket(&daemon);
    let bench = two(&gate.daemon(), "awaypid", 300);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    let pid = first_process(&daemon, &bench);
    gate.close();
    until_journal(&bench, "engine-stopped", 1);
    assert!(
        !is_alive(pid),
        "the first engine's process lives after it was stopped"
    );
    gate.open();
    let ran = end(child).exits(0);
    assert!(
        !ran.stderr.contains("but the container has not ended"),
        "{}",
        ran.stderr
    );
    let run = bench.finished();
    for name in ["firstawaypid", "awaypid"] {
        let summary = summary(&run, name, "random-1k-1k");
        assert_eq!(summary.status, MeasurementStatus::Done, "{}", ran.stderr);
    }
    assert!(daemon.of_run(&bench).is_empty(), "nothing is left");
}

#[test]
fn nothing_is_measured_beside_an_engine_that_could_not_be_stopped() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let gate = Gate::port(&daemon);
    let bench = two(&gate.daemon(), "awaytcp", 300);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    gate.close();
    until_journal(&bench, "engine-stopped", 1);
    assert_eq!(daemon.of_run(&bench).len(), 1, "nobody could stop it");
    until_journal(&bench, "no other engine is started", 1);
    gate.open();
    until_journal(&bench, "engine-started", 2);
    assert_eq!(daemon.of_run(&bench).len(), 1, "two engines at once");
    let ran = end(child).exits(0);
    assert!(
        ran.stderr.contains("no signal could be sent to the container"),
        "{}",
        ran.stderr
    );
    let run = bench.finished();
    let first = summary(&run, "firstawaytcp", "random-1k-1k");
    assert_eq!(
        first.status,
        MeasurementStatus::Done,
        "its answers came all the time"
    );
    let second = summary(&run, "awaytcp", "random-1k-1k");
    assert_eq!(second.status, MeasurementStatus::Done);
    assert_eq!(second.retries[0].class, FailureClass::Infrastructure);
    assert!(daemon.of_run(&bench).is_empty(), "nothing is left");
}

#[test]
fn an_engine_that_could_not_be_stopped_to_the_end_is_named_last_and_fails_the_run() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let gate = Gate::port(&daemon);
    let scenario = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 300, warmup: 0 }\n";
    let bench = gate.daemon().bench("awayend", &[], STEADY, scenario);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    gate.close();
    let ran = end(child).exits(3);
    let ids = daemon.of_run(&bench);
    assert_eq!(ids.len(), 1, "nobody could stop it");
    let name = daemon.inspect(&ids[0])["Name"]
        .as_str()
        .expect("it has a name")
        .replace('/', "");
    daemon.docker(&["rm", "-f", &ids[0]]);
    let last = ran.stderr.lines().next_back().unwrap_or_default();
    assert!(
        last.contains(&format!("container {name} may still be running"))
            && last.contains(&format!("docker rm -f {name}")),
        "{}",
        ran.stderr
    );
    let run = bench.finished();
    assert_eq!(
        summary(&run, "awayend", "random-1k-1k").status,
        MeasurementStatus::Done
    );
}

#[test]
fn a_daemon_that_is_away_for_long_costs_no_cell_whose_engine_lives() {
    if Daemon::or_skip().is_none() {
        return;
    }
    let own = OwnDaemon::with("\"live-restore\": true");
    make_image(&own.daemon.host);
    let scenario = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 5000, warmup: 0 }\n";
    let bench = own.daemon.bench("restore", &[], STEADY, scenario);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    own.script(&["halt", &own.dir(), "KILL"]);
    // Longer than a container is believed to live of which nothing is seen.
    std::thread::sleep(Duration::from_secs(33));
    own.script(&["start", &own.dir()]);
    let ran = end(child).exits(0);
    let run = bench.finished();
    let summary = summary(&run, "restore", "random-1k-1k");
    assert_eq!(summary.status, MeasurementStatus::Done, "{}", ran.stderr);
    assert_eq!(summary.retries, [], "{}", ran.stderr);
    assert!(
        summary
            .warnings
            .iter()
            .any(|warning| warning.contains("container daemon did not respond")),
        "{:?}",
        summary.warnings
    );
    until("an empty daemon", || {
        own.daemon.containers("label=matrix.run").is_empty()
    });
}

#[test]
fn a_second_signal_while_the_daemon_hangs_names_the_container_that_it_could_not_remove() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let gate = Gate::port(&daemon);
    let scenario = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 3000, warmup: 0 }\n";
    let bench = gate.daemon().bench("hung", &[], STEADY, scenario);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    gate.hang(true);
    let pid = rustix::process::Pid::from_child(&child);
    for times in 1..=2 {
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
        until_journal(&bench, "\"stopping\"", times);
        std::thread::sleep(Duration::from_millis(300));
    }
    let ran = end(child).exits(130);
    gate.hang(false);
    let last = ran.stderr.lines().next_back().unwrap_or_default();
    assert!(
        last.contains("container matrix-hung-1-")
            && last.contains("may still be running")
            && last.contains("docker rm -f"),
        "{}",
        ran.stderr
    );
    // What stood in the queue of the daemon removes it.
    until("its removal", || daemon.of_run(&bench).is_empty());
}
