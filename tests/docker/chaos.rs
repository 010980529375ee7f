//! Everything that goes wrong while a run is under way: every cell ends in the right class, `--resume` completes the run, strangers are
//! not touched, and nothing is left. The short form runs with the other tests; `tests/docker-chaos.sh` runs the long one.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use matrix::base::clock;
use matrix::cli::env_variable;
use matrix::loadgen::dataset::rng::Python;
use matrix::results::record::cell::{FailureClass, MeasurementStatus};
use tempfile::TempDir;

use crate::daemon::{Daemon, IMAGE, begin, end, make_image, until, until_measuring};
use crate::harness::{Bench, repository, summary};

/// Some seconds of work, so that a random moment can be in any part of it.
const CELLS: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 60 }\n  - random-2k-6k: { prompts: 4, input_len: 16, output_len: 40 }\n";
const STEADY: &str = "--ttft, 10ms, --itl, 10ms";
/// Long enough to do something to the engine that comes next.
const LONG: &str = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 250, warmup: 0 }\n";

/// Long enough for a daemon to be ended under load by a script on a busy host.
const LONGER: &str = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 800, warmup: 0 }\n";

/// Says it even where the test passes.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn number(name: &str, otherwise: u64) -> u64 {
    env_variable(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

#[test]
fn killed_and_robbed_at_random_moments_a_run_is_completed_and_leaves_nothing() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let rounds = number("MATRIX_CHAOS_ROUNDS", 3);
    let seed = number(
        "MATRIX_CHAOS_SEED",
        (clock::unix_seconds() * 1e3) as u64 % 100_000,
    );
    say(&format!(
        "chaos in containers: {rounds} kills, seed {seed} (set MATRIX_CHAOS_SEED to repeat)"
    ));
    let mut draws = Python::new(seed);
    let before = shared_memory();
    let stranger = daemon.docker(&["run", "-d", "--network", "host", &IMAGE, "--preset", "fast"]);
    let port = matrix::engine::free_port().expect("a port can be had");
    let fresh = || daemon.bench_with("chaos", &[], &format!("port: {port}, args: [{STEADY}]"), CELLS);
    let mut bench = fresh();
    let mut killed = 0;
    while killed < rounds {
        let mut child = go_on(&bench);
        // Some rounds rob the run of its container instead; it must mend that by itself.
        let robs = draws.random() < 0.3;
        let wait = Duration::from_secs_f64(draws.random() * 5.0);
        if ends_within(&mut child, wait) {
            end(child).exits(0);
            complete(&daemon, &bench, seed);
            bench = fresh();
            continue;
        }
        if robs {
            let ours = match has_run(&bench) {
                true => daemon.of_run(&bench),
                false => Vec::new(),
            };
            for id in ours {
                // It may end by itself at this very moment.
                daemon.try_docker(&["kill", &id]);
            }
            assert!(
                ends_within(&mut child, Duration::from_secs(90)),
                "a robbed run mends it by itself (seed {seed})"
            );
            end(child).exits(0);
            complete(&daemon, &bench, seed);
            bench = fresh();
        } else {
            child.kill().expect("it can be killed");
            child.wait().expect("it ends");
        }
        killed += 1;
    }
    end(go_on(&bench)).exits(0);
    complete(&daemon, &bench, seed);
    assert_eq!(
        daemon.inspect(&stranger)["State"]["Running"],
        true,
        "a stranger was touched"
    );
    daemon.docker(&["rm", "-f", &stranger]);
    TcpListener::bind(("0.0.0.0", port)).expect("the port is free again");
    until("a clean /dev/shm", || shared_memory().is_subset(&before));
}

#[test]
fn a_daemon_that_is_restarted_in_mid_run_costs_another_try() {
    restarted("TERM");
}

#[test]
fn a_daemon_that_is_killed_in_mid_run_costs_another_try() {
    restarted("KILL");
}

/// A daemon of its own, for nobody else may lose theirs.
fn restarted(signal: &str) {
    if Daemon::or_skip().is_none() {
        return;
    }
    let own = OwnDaemon::up();
    make_image(&own.daemon.host);
    let name = format!("restart{}", signal.to_lowercase());
    let bench = own.daemon.bench(&name, &[], STEADY, LONGER);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    own.script(&["restart", &own.dir(), signal]);
    let ran = end(child).exits(0);
    let run = bench.finished();
    let retries: Vec<_> = run
        .summaries
        .iter()
        .flat_map(|summary| &summary.retries)
        .collect();
    assert!(!retries.is_empty(), "{}", ran.stderr);
    assert!(
        retries
            .iter()
            .all(|retry| retry.class == FailureClass::Infrastructure)
    );
    assert!(
        retries
            .iter()
            .any(|retry| retry.reason.contains("container daemon was unreachable")),
        "{retries:?}"
    );
    assert!(
        run.summaries
            .iter()
            .all(|summary| summary.status == MeasurementStatus::Done)
    );
    assert!(
        own.daemon.containers("label=matrix.run").is_empty(),
        "nothing is left"
    );
}

#[test]
fn a_flood_of_log_fills_neither_memory_nor_disk() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let megabytes = number("MATRIX_CHAOS_FLOOD_MB", 50);
    // A build without optimization reads some megabytes a second.
    let tokens = 300 + megabytes * 2;
    let bench = daemon.bench(
        "flood",
        &[],
        &format!("{STEADY}, --log-flood, {megabytes}MB"),
        &format!("  - random-1k-1k: {{ prompts: 2, input_len: 16, output_len: {tokens}, warmup: 0 }}\n"),
    );
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    let seen = daemon.inspect(&daemon.of_run(&bench)[0]);
    assert_eq!(seen["HostConfig"]["LogConfig"]["Config"]["max-size"], "64m");
    let mut peak = 0;
    while child.try_wait().expect("it can be asked").is_none() {
        peak = peak.max(peak_memory(&child));
        std::thread::sleep(Duration::from_millis(50));
    }
    end(child).exits(0);
    let run = bench.finished();
    assert_eq!(
        summary(&run, "flood", "random-1k-1k").status,
        MeasurementStatus::Done
    );
    let (disk, most) = (size(&bench.run_folder()), 110 << 20);
    say(&format!(
        "a flood of {megabytes} MB: {} MB of memory at most, {} MB on disk",
        peak >> 10,
        disk >> 20
    ));
    assert!(disk < most, "{disk} bytes on disk");
    assert!(peak < 400 << 10, "{peak} KiB of memory");
    assert!(daemon.of_run(&bench).is_empty());
    if megabytes < 1000 {
        return;
    }
    let end_of_log = fs::read_dir(bench.run_folder().join("launches"))
        .expect("there are launches")
        .flatten()
        .any(|launch| launch.path().join("engine.log.tail").exists());
    assert!(end_of_log, "the flood was longer than what is kept");
}

#[test]
fn an_image_that_goes_between_the_check_and_its_launch_fails_as_an_image() {
    let Some(daemon) = Daemon::or_skip() else { return };
    // Not another name of the same image, which would stay.
    let image = "127.0.0.1:1/matrix-gone:test";
    daemon.derive(image, "LABEL gone=1");
    let bench = after_the_first(&daemon, "gone", &format!("image: \"{image}\""));
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    daemon.docker(&["rmi", image]);
    end(child).exits(3);
    fails(
        &bench,
        "gone",
        FailureClass::Image,
        "the image that the run began with no longer exists",
    );
    daemon.derive(image, "LABEL gone=1");
    bench.run(&["--resume", "--failed"]).exits(0);
    daemon.docker(&["rmi", image]);
    assert!(daemon.of_run(&bench).is_empty());
}

#[test]
fn a_port_that_is_taken_between_the_check_and_its_launch_fails_as_written() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let port = matrix::engine::free_port().expect("a port can be had");
    let bench = after_the_first(&daemon, "late", &format!("port: {port}"));
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    let taken = TcpListener::bind(("0.0.0.0", port)).expect("it was free");
    end(child).exits(3);
    fails(
        &bench,
        "late",
        FailureClass::Spec,
        &format!("port {port} is used by another process"),
    );
    drop(taken);
    bench.run(&["--resume", "--failed"]).exits(0);
    assert!(daemon.of_run(&bench).is_empty());
}

/// A bench with an engine that keeps the run busy, and another one after it.
fn after_the_first(daemon: &Daemon, name: &str, entry: &str) -> Bench {
    let bench = daemon.bench(name, &[], "", LONG);
    bench.rewrite(&format!(
        "name: {name}\nengines:\n  - box: {{ as: first{name}, args: [{STEADY}] }}\n  - box: {{ as: {name}, {entry} }}\n\
         models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{LONG}datasets: {{ sharegpt: data/conversations.json }}\n"
    ));
    bench
}

/// The first engine's cell is done, the other one's failed so.
fn fails(bench: &Bench, name: &str, expected: FailureClass, says: &str) {
    let run = bench.finished();
    let first = summary(&run, &format!("first{name}"), "random-1k-1k");
    assert_eq!(first.status, MeasurementStatus::Done);
    match &summary(&run, name, "random-1k-1k").status {
        MeasurementStatus::Failed { class, reason, .. } => {
            assert_eq!(*class, expected, "{reason}");
            assert!(reason.contains(says), "{reason}");
        }
        other => panic!("it ended as {other:?}"),
    }
    let page = crate::daemon::post_mortem(bench);
    assert!(page.contains(&format!("- class: {}", expected.name())), "{page}");
}

/// A run, or the same run taken up again.
fn go_on(bench: &Bench) -> Child {
    let mut args = vec!["run", "matrices/m.yaml", "--no-calibration"];
    if has_run(bench) {
        args.push("--resume");
    }
    bench
        .command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs")
}

/// Whether a run has begun.
pub fn has_run(bench: &Bench) -> bool {
    let Ok(runs) = fs::read_dir(bench.results()) else {
        return false;
    };
    runs.flatten().any(|run| run.path().join("run.json").exists())
}

fn ends_within(child: &mut Child, limit: Duration) -> bool {
    let began = clock::now();
    while clock::now().since(began) < limit {
        if child.try_wait().expect("it can be asked").is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Every cell is done, and no container of the run is there, alive or dead.
fn complete(daemon: &Daemon, bench: &Bench, seed: u64) {
    let run = bench.finished();
    assert_eq!(run.summaries.len(), 2, "seed {seed}");
    for summary in &run.summaries {
        assert_eq!(summary.status, MeasurementStatus::Done, "seed {seed}");
    }
    assert!(daemon.of_run(bench).is_empty(), "seed {seed}");
}

fn shared_memory() -> BTreeSet<String> {
    let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    files
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .collect()
}

/// The most memory that a process has had, in KiB.
fn peak_memory(child: &Child) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    text.lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0)
}

fn size(folder: &std::path::Path) -> u64 {
    let entries = fs::read_dir(folder).expect("the folder can be read").flatten();
    entries
        .map(|entry| match entry.path().is_dir() {
            true => size(&entry.path()),
            false => entry.metadata().map_or(0, |about| about.len()),
        })
        .sum()
}

/// A daemon that the test may restart.
pub struct OwnDaemon {
    folder: TempDir,
    pub daemon: Daemon,
}

impl OwnDaemon {
    fn up() -> Self {
        Self::with("")
    }

    /// With further members of its configuration.
    pub fn with(config: &str) -> Self {
        // Its socket's path must stay short, whatever folder this is.
        let folder = tempfile::Builder::new()
            .prefix("matrix-own")
            .tempdir_in("/tmp")
            .expect("a folder can be made");
        let mut own = Self {
            daemon: Daemon { host: String::new() },
            folder,
        };
        own.daemon.host = own.called(&["up", &own.dir()], config);
        own
    }

    pub fn dir(&self) -> String {
        self.folder.path().display().to_string()
    }

    pub fn script(&self, args: &[&str]) -> String {
        self.called(args, "")
    }

    fn called(&self, args: &[&str], config: &str) -> String {
        let output = Command::new(repository().join("tests/docker/dockerd.sh"))
            .args(args)
            .env("MATRIX_DOCKER_CONFIG", config)
            .stdin(Stdio::null())
            .output()
            .expect("the script runs");
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for OwnDaemon {
    fn drop(&mut self) {
        let _ = Command::new(repository().join("tests/docker/dockerd.sh"))
            .args(["down", &self.dir()])
            .status();
    }
}
