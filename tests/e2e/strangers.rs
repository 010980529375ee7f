//! What others have on the same host is neither touched nor measured.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use matrix::results::record::cell::Phase;

use crate::harness::{Bench, Ran, failure, sims};

/// A cell that takes some seconds.
const SOME_SECONDS: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 300, warmup: 0 }\n";

/// A file of another program in shared memory, gone at the end.
struct Shared(PathBuf);

impl Shared {
    fn put(name: &str, mode: u32) -> Self {
        let path = Path::new("/dev/shm").join(format!("matrix-test-{name}-{}", std::process::id()));
        let file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path);
        let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, &[7; 100_000]));
        written.expect("a file can be written");
        Self(path)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The port of the engine that the journal tells of.
fn port(bench: &Bench) -> String {
    let journal = bench.journal();
    let (_, after) = journal.split_once("\"port\":").expect("an engine was started");
    after.chars().take_while(char::is_ascii_digit).collect()
}

fn left_by_sim(port: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.display()
                .to_string()
                .contains(&format!("matrix-sim-{port}-"))
        })
        .collect()
}

#[test]
fn a_stranger_on_the_port_is_not_measured_as_the_engine() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = free.local_addr().expect("it has an address").port();
    drop(free);
    // The engine listens later than the stranger, as one that loads for minutes does.
    let command = "command: [sh, -c, 'sleep 60; exec \"$@\"', sh, \"{matrix}\", sim, --port, \"{port}\"]";
    let matrix = sims(&[("a", "vllm", "")], SOME_SECONDS).replace("--preset, fast", "");
    let bench = Bench::of(&matrix.replace("as: a,", &format!("as: a, port: {port}, {command},")));
    let child = bench.begin(&["run", "matrices/m.yaml", "--no-calibration"]);
    bench.until_journal("engine-started");
    let mut stranger = bench.begin(&[
        "sim",
        "--dialect",
        "vllm",
        "--model",
        "m",
        "--port",
        &port.to_string(),
    ]);
    let ran = Ran::from(child.wait_with_output().expect("it ends"));
    let lives = stranger.try_wait().expect("it can be asked").is_none();
    stranger.kill().expect("it can be killed");
    stranger.wait().expect("it ended");
    let id = stranger.id();
    ran.exits(3)
        .says("is answered by another process")
        .says(&format!("process {id} `"));
    assert!(lives, "the stranger is left alone");
    bench.leaves_no_process();
}

/// A `matrix run` of the user nobody in a bench's folder, to which everything is copied that a run reads.
fn begin_as_nobody(bench: &Bench) -> Child {
    let script = "cp \"$1\" matrix && mkdir -p results cache \
        && for link in matrices/data engines; do cp -rL $link copy && rm $link && mv copy $link; done \
        && chmod -R a+rwX . \
        && exec setpriv --reuid 65534 --regid 65534 --clear-groups ./matrix run matrices/m.yaml --no-calibration";
    let variables = bench.command(&[]);
    let variables = variables.get_envs();
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh", &crate::binary::matrix()])
        .current_dir(bench.path())
        .envs(variables.filter_map(|(name, value)| Some((name, value?))))
        .env("HOME", bench.path())
        .env("DOCKER_HOST", "unix:///nowhere/docker.sock")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().expect("a shell runs")
}

#[test]
fn a_server_that_cannot_be_seen_and_answers_after_the_stop_fails_the_cell() {
    if !rustix::process::geteuid().is_root() {
        crate::skip::skip("a server of another user needs root");
        return;
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = free.local_addr().expect("it has an address").port();
    drop(free);
    // The engine never listens: a server of another user answers in its place, and nobody may not see whose it is.
    let scenario = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 20, warmup: 0 }\n";
    let matrix = sims(&[("a", "vllm", "")], scenario).replace("--preset, fast", "");
    let command = format!("as: a, port: {port}, command: [sh, -c, \"sleep 90\", sh],");
    let bench = Bench::of(&matrix.replace("as: a,", &command));
    let child = begin_as_nobody(&bench);
    bench.until_journal("engine-started");
    let mut server = bench.begin(&[
        "sim",
        "--dialect",
        "vllm",
        "--model",
        "m",
        "--port",
        &port.to_string(),
    ]);
    let ran = Ran::from(child.wait_with_output().expect("it ends"));
    server.kill().expect("it lives");
    server.wait().expect("it ended");
    let ran = ran.exits(3);
    ran.says("which still answers after the engine was stopped");
    let run = bench.finished();
    let summary = &run.summaries[0];
    let (phase, reason, _) = failure(summary);
    assert_eq!(phase, Phase::Measure, "{reason}");
    assert!(summary.listener_unverified.is_some());
    let lines = fs::read_to_string(bench.run_folder().join("results.jsonl")).expect("there are results");
    assert_eq!(lines.lines().count(), 1, "one line for the one cell");
    bench.leaves_no_process();
}

#[test]
fn shared_memory_of_others_stays_and_that_of_the_engine_is_freed() {
    let bench = Bench::of(
        &sims(
            &[("a", "vllm", "--itl, 10ms, --ttft, 10ms, --leave-shm, 1MiB")],
            SOME_SECONDS,
        )
        .replace("--preset, fast, ", ""),
    );
    let child = bench.begin(&["run", "matrices/m.yaml", "--no-calibration"]);
    bench.until_journal("engine-started");
    let others = [Shared::put("dataset", 0o600), Shared::put("segment", 0o644)];
    let ran = Ran::from(child.wait_with_output().expect("it ends")).exits(0);
    for other in &others {
        assert!(
            other.0.exists(),
            "{} was removed:\n{}",
            other.0.display(),
            ran.stderr
        );
    }
    assert_eq!(
        left_by_sim(&port(&bench)),
        [] as [PathBuf; 0],
        "what the engine left is freed"
    );
    let ran = ran.says("1.0 MB that it left in /dev/shm are freed (1 file)");
    ran.says("not seen with it and stay");
    bench.leaves_no_process();
}
