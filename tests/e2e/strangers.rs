//! What others have on the same host is neither touched nor measured.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use matrix::results::record::cell::Phase;
use rustix::process::{Pid, Signal, kill_process};

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
        .says("another process answers on port ")
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
    ran.says("a process still responds on this port after the engine was stopped");
    let run = bench.finished();
    let summary = &run.summaries[0];
    let (phase, reason, _) = failure(summary);
    assert_eq!(phase, Phase::Measure, "{reason}");
    assert!(summary.listener_unverified.is_some());
    let lines = fs::read_to_string(bench.run_folder().join("results.jsonl")).expect("there are results");
    assert_eq!(lines.lines().count(), 1, "one line for the one cell");
    bench.leaves_no_process();
}

/// A matrix whose engine has a child without marks in a session of its own.
fn with_bare_child(child: &str) -> String {
    let command = format!(
        "command: [sh, -c, 'env -i setsid {child} & exec \"$@\"', sh, \"{{matrix}}\", sim, --model, \"{{served}}\", --port, \"{{port}}\"]"
    );
    sims(&[("a", "vllm", "--itl, 10ms, --ttft, 10ms")], SOME_SECONDS)
        .replace("--preset, fast, ", "")
        .replace("as: a,", &format!("as: a, {command},"))
}

/// The live processes whose command line ends with these words.
fn running(words: &[&str]) -> Vec<i32> {
    let wanted = words.join("\0") + "\0";
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    let is_it =
        |folder: &Path| fs::read_to_string(folder.join("cmdline")).is_ok_and(|line| line.ends_with(&wanted));
    let pids = entries.filter(|entry| is_it(&entry.path()));
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Begins a run and waits until its engine has its bare child, and a cell is measured.
fn begin_with(bench: &Bench, bare: &[&str]) -> Child {
    let child = bench.begin(&["run", "matrices/m.yaml", "--no-calibration"]);
    bench.until_journal("cell-began");
    bench.until("the bare child", || running(bare).len() == 1);
    child
}

fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("it is a process id");
    kill_process(pid, Signal::KILL).expect("it lives");
}

/// The folders of cgroups that a process made for its starts.
fn cgroups(of: u32) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&format!("matrix-{of}-")) {
                found.push(name);
            }
            folders.push(entry.path());
        }
    }
    found
}

/// Seconds that no other process of the host sleeps for.
fn seconds(number: u32) -> String {
    format!("{number}.{}", std::process::id())
}

#[test]
fn a_process_without_marks_ends_with_its_engine() {
    let seconds = seconds(4231);
    let bench = Bench::of(&with_bare_child(&format!("sleep {seconds}")));
    let child = begin_with(&bench, &["sleep", &seconds]);
    let id = child.id();
    Ran::from(child.wait_with_output().expect("it ends")).exits(0);
    assert_eq!(running(&["sleep", &seconds]), [] as [i32; 0]);
    assert_eq!(cgroups(id), [] as [String; 0]);
    bench.leaves_no_process();
}

#[test]
fn a_process_without_marks_is_ended_by_the_shim_when_the_run_is_killed() {
    // It ignores SIGTERM.
    let seconds = seconds(4232);
    let bench = Bench::of(&with_bare_child(&format!(
        "sh -c \"trap : TERM; while :; do sleep {seconds}; done\""
    )));
    let mut child = begin_with(&bench, &["sleep", &seconds]);
    let id = child.id();
    child.kill().expect("it lives");
    child.wait().expect("it ended");
    bench.until("the end of everything", || {
        running(&["sleep", &seconds]).is_empty() && bench.survivors().is_empty() && cgroups(id).is_empty()
    });
    let cleaned = bench.call(&["clean"]).exits(0);
    assert!(!cleaned.stdout.contains(&seconds), "{}", cleaned.stdout);
}

#[test]
fn a_process_without_marks_is_found_when_the_run_and_its_shim_were_killed() {
    let seconds = seconds(4233);
    let bench = Bench::of(&with_bare_child(&format!("sleep {seconds}")));
    let mut child = begin_with(&bench, &["sleep", &seconds]);
    let id = child.id();
    let run = id.to_string();
    let folder = bench.path().display().to_string();
    let shims = bench.survivors();
    let shim = shims
        .iter()
        .find(|process| process.contains(" __shim "))
        .unwrap_or_else(|| panic!("{shims:?} in {folder}"));
    assert!(shim.contains(&format!("__shim {run} ")), "{shim}");
    let (shim, _) = shim.split_once(':').expect("an id stands first");
    // Stopped, they cannot act on each other's end.
    for pid in [id.to_string(), shim.to_owned()] {
        let pid = Pid::from_raw(pid.parse().expect("it is a number")).expect("it is a process id");
        kill_process(pid, Signal::STOP).expect("it lives");
    }
    kill(shim.parse().expect("it is a number"));
    child.kill().expect("it lives");
    child.wait().expect("it ended");
    assert_eq!(
        running(&["sleep", &seconds]).len(),
        1,
        "only the record of the start knows it"
    );
    bench
        .call(&["clean"])
        .exits(0)
        .shows(&format!("`sleep {seconds}`"));
    assert_eq!(running(&["sleep", &seconds]), [] as [i32; 0]);
    assert_eq!(cgroups(id), [] as [String; 0]);
    bench.leaves_no_process();
}

#[test]
fn shared_memory_of_a_killed_run_is_freed_by_clean() {
    let args = "--itl, 10ms, --ttft, 10ms, --leave-shm, 1MiB";
    let bench = Bench::of(&sims(&[("a", "vllm", args)], SOME_SECONDS).replace("--preset, fast, ", ""));
    let mut child = bench.begin(&["run", "matrices/m.yaml", "--no-calibration"]);
    bench.until_journal("cell-began");
    let port = port(&bench);
    let other = Shared::put("of-others", 0o600);
    child.kill().expect("it lives");
    child.wait().expect("it ended");
    bench.until("the end of the engine", || bench.survivors().is_empty());
    // The shim frees it; where that was killed too, what is recorded of the start tells it.
    bench.call(&["clean"]).exits(0);
    assert_eq!(left_by_sim(&port), [] as [PathBuf; 0]);
    assert!(other.0.exists(), "what others have stays");
}

#[test]
fn shared_memory_of_an_engine_that_dies_while_it_starts_is_freed() {
    let name = format!("matrix-test-dying-{}", std::process::id());
    // It dies between two looks that come at regular intervals.
    let command = format!(
        "command: [sh, -c, 'umask 077; sleep 0.1; exec 7<>/dev/shm/{name}-$$; echo made >&7; sleep 0.3; kill -9 $$', sh]"
    );
    let bench =
        Bench::of(&sims(&[("a", "vllm", "")], SOME_SECONDS).replace("as: a,", &format!("as: a, {command},")));
    let ran = bench.run(&[]).exits(3);
    let entries = fs::read_dir("/dev/shm").expect("it is there").flatten();
    let left: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.display().to_string().contains(&name))
        .collect();
    for path in &left {
        fs::remove_file(path).expect("it can be removed");
    }
    assert_eq!(left, [] as [PathBuf; 0], "{}", ran.stderr);
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
    let [Shared(dataset), _] = &others;
    let name = dataset.file_name().expect("it has a name").to_string_lossy();
    ran.says("1.0 MB that the engine left in /dev/shm are freed (1 file)")
        .says("was not removed, because it may not belong to the engine")
        .says(&name);
    bench.leaves_no_process();
}

/// Somebody who can write to the cache turns what is kept there elsewhere.
#[test]
fn a_folder_of_the_cache_that_is_a_link_is_not_written_through() {
    let bench = Bench::of(&sims(&[("one", "vllm", "")], SOME_SECONDS));
    let (cache, private) = (bench.path().join("cache"), bench.path().join("private"));
    fs::create_dir_all(&cache).expect("a folder can be made");
    fs::create_dir(&private).expect("a folder can be made");
    for name in ["help", "prompts"] {
        std::os::unix::fs::symlink(&private, cache.join(name)).expect("a link can be made");
    }
    bench
        .run(&[])
        .exits(0)
        .says("belongs to another user, or other users can write to it");
    let written: Vec<_> = fs::read_dir(&private).expect("it can be read").collect();
    assert!(written.is_empty(), "{written:?}");
}

/// Somebody who can write to a results folder puts links where files are written.
#[test]
fn a_file_of_a_run_that_is_a_link_is_not_written_through() {
    let bench = Bench::of(&sims(&[("one", "vllm", "")], SOME_SECONDS));
    bench.run(&[]).exits(0);
    let run = bench.run_folder();
    let precious = bench.path().join("precious");
    for name in ["lock", "journal.jsonl", "matrix.log", "results.jsonl"] {
        fs::write(&precious, "of somebody else").expect("it can be written");
        let path = run.join(name);
        let before = fs::read(&path).expect("the run wrote it");
        fs::remove_file(&path).expect("it can be removed");
        std::os::unix::fs::symlink(&precious, &path).expect("a link can be made");
        let ran = bench.run(&["--resume"]);
        assert_eq!(
            fs::read_to_string(&precious).expect("it is there"),
            "of somebody else",
            "{name}: {}",
            ran.stderr
        );
        if ran.code != Some(0) {
            ran.says("is a symbolic link").says(name);
        }
        let _ = fs::remove_file(&path);
        fs::write(&path, before).expect("it can be written");
    }
    let nightly = bench.path().join("results/nightly");
    fs::create_dir_all(&nightly).expect("a folder can be made");
    std::os::unix::fs::symlink(&precious, nightly.join("lock")).expect("a link can be made");
    let ran = bench.call(&["nightly", "matrices/m.yaml", "--no-calibration"]);
    ran.says("is a symbolic link").says("nightly/lock");
    assert_eq!(
        fs::read_to_string(&precious).expect("it is there"),
        "of somebody else"
    );
}

/// As with `LimitFSIZE` of a service: a limit on the size of files is a full disk and not the end without a word.
#[test]
fn a_limit_on_the_size_of_files_is_told_as_a_full_disk_is() {
    let bench = Bench::of(&sims(&[("one", "vllm", "")], SOME_SECONDS));
    let limited = |blocks: &str, args: &[&str]| {
        let limit = format!("ulimit -f {blocks}; exec \"$@\"");
        let mut command = bench.wrapped(&["bash", "-c", &limit, "bash"], args);
        Ran::from(command.output().expect("the binary runs"))
    };
    limited("4", &["run", "matrices/m.yaml", "--no-calibration"])
        .exits(6)
        .says("File too large");
    bench.leaves_no_process();
    let log = bench.path().join("x.log");
    let report = include_str!("../fixtures/import/layouts.log");
    fs::write(&log, report).expect("a file can be written");
    for blocks in ["0", "2"] {
        limited(blocks, &["import", "x.log", "--name", "q"])
            .exits(6)
            .says("File too large");
    }
    bench.call(&["import", "x.log", "--name", "q"]).exits(0);
}

#[test]
fn a_matrix_without_an_end_is_refused() {
    let bench = Bench::of(&sims(&[("one", "vllm", "")], SOME_SECONDS));
    bench
        .call(&["check", "/dev/zero"])
        .exits(2)
        .says("larger than 64 MiB");
}
