//! A container that the daemon was asked for, and that is there only when whoever asked has gone.

use std::time::Duration;

use matrix::base::clock;
use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::{Daemon, begin, end};
use crate::gate::Gate;
use crate::harness::Bench;

const SHORT: &str = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 4 }\n";
/// The request for an engine's container, and that for a trial of its GPUs.
const ENGINE: &str = "/containers/create?name=";
const TRIAL: &str = "/containers/create HTTP";
/// How long the daemon takes after that.
const LATER: Duration = Duration::from_secs(1);

/// All containers of `matrix` whose owner was this process.
fn of(daemon: &Daemon, owner: u32) -> Vec<String> {
    let all = daemon.containers("label=matrix.owner");
    let is_its = |id: &String| {
        let label = daemon.inspect(id)["Config"]["Labels"]["matrix.owner"].clone();
        label
            .as_str()
            .is_some_and(|label| label.starts_with(&format!("{owner}:")))
    };
    all.into_iter().filter(is_its).collect()
}

/// A run that has asked for a container which the daemon takes its time for.
fn asking(gate: &Gate, name: &str, request: &'static str) -> (Bench, std::process::Child) {
    let bench = gate.daemon().bench(name, &[], "", SHORT);
    gate.hold(request);
    let child = begin(&bench);
    gate.until_held();
    (bench, child)
}

/// Lets the daemon make the container a while after this is called.
fn make_later<T>(gate: &Gate, meanwhile: impl FnOnce() -> T) -> T {
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(LATER);
            gate.let_go();
        });
        meanwhile()
    })
}

#[test]
fn a_container_that_a_killed_run_had_asked_for_is_waited_for_and_removed() {
    let Some(daemon) = Daemon::or_skip() else { return };
    for (name, request) in [("askedkill", ENGINE), ("askedtrial", TRIAL)] {
        let gate = Gate::socket(&daemon);
        let (bench, mut dying) = asking(&gate, name, request);
        let owner = dying.id();
        dying.kill().expect("it lives");
        dying.wait().expect("it ends");
        let cleaned = make_later(&gate, || bench.call(&["clean"]).exits(0));
        std::thread::sleep(LATER);
        assert_eq!(
            of(&daemon, owner),
            [] as [String; 0],
            "{name}: {}",
            cleaned.stdout
        );
        assert!(
            cleaned.stdout.contains("container "),
            "{name}: {}",
            cleaned.stdout
        );
        // Nothing is waited for twice.
        let again = clock::now();
        bench.call(&["clean"]).exits(0).shows("no orphan found");
        assert!(clock::now().since(again) < Duration::from_secs(8), "{name}");
    }
}

#[test]
fn a_container_that_an_interrupted_run_had_asked_for_is_gone_with_it() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let gate = Gate::socket(&daemon);
    let (_bench, child) = asking(&gate, "askedint", ENGINE);
    let owner = child.id();
    let ran = make_later(&gate, || {
        kill_process(Pid::from_child(&child), Signal::INT).expect("it lives");
        end(child).exits(130)
    });
    std::thread::sleep(LATER);
    assert_eq!(of(&daemon, owner), [] as [String; 0], "{}", ran.stderr);
}

#[test]
fn a_run_that_is_interrupted_twice_leaves_the_container_to_the_next_one_and_says_so() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let gate = Gate::socket(&daemon);
    let (bench, child) = asking(&gate, "askedtwice", ENGINE);
    let owner = child.id();
    for _ in 0..2 {
        kill_process(Pid::from_child(&child), Signal::INT).expect("it lives");
        std::thread::sleep(Duration::from_millis(300));
    }
    let ran = end(child).exits(130);
    assert!(
        ran.stderr
            .contains("has not responded to the request to create the container"),
        "{}",
        ran.stderr
    );
    let cleaned = make_later(&gate, || bench.call(&["clean"]).exits(0));
    std::thread::sleep(LATER);
    assert_eq!(of(&daemon, owner), [] as [String; 0], "{}", cleaned.stdout);
}
