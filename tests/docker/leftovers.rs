//! What a killed run leaves is found by its labels and removed; live runs and strangers are left alone.

use std::process::Command;

use crate::daemon::{Daemon, IMAGE, begin, end, folder, until_measuring};
use crate::harness::{Bench, repository};

const LONG: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4000, warmup: 0 }\n";
const SHORT: &str = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 4 }\n";

#[test]
fn a_killed_run_is_cleaned_up_and_live_runs_and_strangers_are_not() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let stranger = daemon.docker(&[
        "run",
        "-d",
        "--label",
        "matrix.run=mine",
        &IMAGE,
        "--preset",
        "fast",
    ]);
    let live = daemon.bench("live", &[], "", LONG);
    let killed = daemon.bench("dead", &[], "", LONG);
    let (mut living, mut dying) = (begin(&live), begin(&killed));
    until_measuring(&live, &mut living);
    until_measuring(&killed, &mut dying);
    dying.kill().expect("it lives");
    dying.wait().expect("it ends");
    let cleaned = killed.call(&["clean"]).exits(0);
    // What begins beside this test may have swept it first, which is as good.
    let name = "container matrix-dead-1-";
    assert!(
        cleaned.stdout.contains(name) || cleaned.stdout.contains("no orphan found"),
        "{}",
        cleaned.stdout
    );
    assert!(daemon.of_run(&killed).is_empty(), "{}", cleaned.stdout);
    assert_eq!(daemon.of_run(&live).len(), 1, "a live run keeps its container");
    assert!(daemon.docker(&["ps", "-q", "--no-trunc"]).contains(&stranger));

    let pid = rustix::process::Pid::from_child(&living);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
    end(living).exits(130);
    assert!(daemon.of_run(&live).is_empty());
    assert!(daemon.docker(&["ps", "-q", "--no-trunc"]).contains(&stranger));
    daemon.docker(&["rm", "-f", &stranger]);
}

#[test]
fn what_is_started_from_an_image_of_an_engine_is_not_its_leftover() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("commit", &[], "", LONG);
    let mut dying = begin(&bench);
    until_measuring(&bench, &mut dying);
    let engines = daemon.of_run(&bench);
    assert_eq!(engines.len(), 1, "{engines:?}");
    let image = format!("matrix-test-commit-{}", std::process::id());
    daemon.docker(&["commit", &engines[0], &image]);
    dying.kill().expect("it lives");
    dying.wait().expect("it ends");
    // It has all labels of the engine's container.
    let copy = daemon.docker(&["create", &image]);
    bench.call(&["clean"]).exits(0);
    let left = daemon.docker(&["ps", "-aq", "--no-trunc"]);
    assert!(left.contains(&copy), "it is a person's");
    assert!(!left.contains(&engines[0]), "it is a leftover");
    daemon.docker(&["rm", "-f", &copy]);
    daemon.docker(&["rmi", &image]);
}

#[test]
fn at_a_daemon_of_another_host_an_owner_of_another_boot_is_not_dead() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let namespaces = Command::new("unshare").args(["-u", "true"]).output();
    if !namespaces.is_ok_and(|output| output.status.success()) {
        crate::skip::skip("another name of the host needs root and namespaces");
        return;
    }
    let bench = daemon.bench("elsewhere", &[], "", SHORT);
    let owner = "matrix.owner=1:1:another-boot:[1]";
    let labels = [
        "--label",
        "matrix.run=r",
        "--label",
        "matrix.start=x#1",
        "--label",
        owner,
    ];
    let left = daemon.docker(&[&["create"], &labels[..], &[&IMAGE]].concat());
    let clean = bench.command(&["clean"]);
    // A local socket that is forwarded from another host: the daemon's host has another name.
    let mut command = Command::new("unshare");
    command
        .args(["-u", "sh", "-c", "hostname another-host && exec \"$@\"", "sh"])
        .arg(clean.get_program())
        .args(clean.get_args())
        .current_dir(bench.path())
        .envs(clean.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().expect("unshare runs");
    assert!(output.status.success(), "{output:?}");
    let live = || daemon.docker(&["ps", "-aq", "--no-trunc"]).contains(&left);
    assert!(live(), "its owner may live on that host");
    bench.call(&["clean"]).exits(0);
    assert!(!live(), "on this host another boot is over");
}

#[test]
fn the_next_run_sweeps_what_a_killed_one_left_and_finishes_it() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench(
        "again",
        &[],
        "--ttft, 5ms, --itl, 5ms",
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 200, warmup: 0 }\n",
    );
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    bench.run(&["--resume"]).exits(0);
    assert!(daemon.of_run(&bench).is_empty());
}

#[test]
fn a_name_that_a_stranger_has_is_left_to_it() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("taken", &[], "", SHORT);
    let plan = bench.call(&["plan", "matrices/m.yaml"]).exits(0);
    let name = plan
        .stdout
        .split_whitespace()
        .skip_while(|word| *word != "--name")
        .nth(1)
        .expect("the line names its container")
        .to_owned();
    daemon.try_docker(&["rm", "-f", &name]);
    let stranger = daemon.docker(&["create", "--name", &name, &IMAGE]);
    bench.run(&[]).exits(0);
    assert!(daemon.of_run(&bench).is_empty());
    assert_eq!(
        daemon.inspect(&name)["Id"],
        stranger.as_str(),
        "the stranger is still there"
    );
    daemon.docker(&["rm", "-f", &stranger]);
}

#[test]
fn clean_says_that_it_could_not_look_where_the_daemon_does_not_answer() {
    let Some(daemon) = Daemon::or_skip() else { return };
    for host in [
        "unix:///no/such.sock",
        "tcp://127.0.0.1:1",
        "ssh://root@nowhere",
        "fd://",
    ] {
        let bench = daemon
            .bench("unseen", &[], "", SHORT)
            .variable("DOCKER_HOST", host);
        let cleaned = bench.call(&["clean"]).exits(4).says("cannot list the containers");
        assert!(
            !cleaned.stdout.contains("no orphan found"),
            "{host}: {}",
            cleaned.stdout
        );
    }
}

/// A job in a container with the daemon's socket, as a CI gives it to its jobs: `matrix` in the folder of a bench. Gives its container.
fn job(daemon: &Daemon, bench: &Bench, socket: &str, args: &[&str]) -> String {
    let place = folder(bench).display().to_string();
    let repository = repository().display().to_string();
    let mounts: Vec<String> = [socket, &place, &repository]
        .map(|path| format!("{path}:{path}"))
        .to_vec();
    let host = format!("DOCKER_HOST={}", daemon.host);
    let mut words = vec!["run", "-d", "--net", "host", "-w", &place, "-e", &host];
    words.extend(["-e", "MATRIX_CACHE=/tmp/cache", "--entrypoint", "/usr/bin/matrix"]);
    words.extend(mounts.iter().flat_map(|mount| ["-v", mount.as_str()]));
    words.push(&IMAGE);
    daemon.docker(&[&words[..], args].concat())
}

/// Ends a job as a CI does that cancels it.
fn cancel(daemon: &Daemon, job: &str) {
    daemon.docker(&["kill", "-s", "KILL", job]);
    daemon.docker(&["rm", "-f", job]);
}

#[test]
fn what_a_killed_job_in_a_container_left_is_found_by_a_later_one() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let Some(socket) = daemon.host.strip_prefix("unix://").map(str::to_owned) else {
        crate::skip::skip("a job in a container needs the daemon's socket");
        return;
    };
    let run = ["run", "matrices/m.yaml", "--no-calibration"];
    // What looks for it: a `matrix` of the host, and one in another container.
    for later_is_job in [false, true] {
        let bench = daemon.bench("injob", &[], "", LONG);
        let begun = job(&daemon, &bench, &socket, &run);
        bench.until_journal("\"cell-began\"");
        let clean = || {
            if !later_is_job {
                return bench.call(&["clean"]).exits(0).stdout;
            }
            let later = job(&daemon, &bench, &socket, &["clean"]);
            assert_eq!(
                daemon.docker(&["wait", &later]),
                "0",
                "{}",
                daemon.docker(&["logs", &later])
            );
            let cleaned = daemon.docker(&["logs", &later]);
            daemon.docker(&["rm", "-f", &later]);
            cleaned
        };
        // While the job lives, what it started is its own.
        clean();
        assert_eq!(
            daemon.of_run(&bench).len(),
            1,
            "{}",
            daemon.docker(&["logs", &begun])
        );
        cancel(&daemon, &begun);
        let cleaned = clean();
        // What begins beside this test may have swept it first, which is as good.
        let name = "container matrix-injob-";
        assert!(
            cleaned.contains(name) || cleaned.contains("no orphan found"),
            "{cleaned}"
        );
        assert!(daemon.of_run(&bench).is_empty(), "{cleaned}");
    }
}
