//! Runs that start, measure, die and stop.

use std::fs;
use std::path::PathBuf;

use matrix::results::record::cell::{FailureClass, MeasurementStatus, Phase};
use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::{Daemon, begin, end, folder, post_mortem, until, until_measuring};
use crate::harness::{failure, summary};

const TWO: &str = "  - random-1k-1k: { prompts: 6, input_len: 32, output_len: 12 }\n  - random-2k-6k: { prompts: 4, input_len: 16, output_len: 8 }\n";
/// Long enough that whatever happens always finds it under way.
const LONG: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4000, warmup: 0 }\n";

#[test]
fn an_engine_runs_in_a_container_as_the_published_lines_start_it() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("host", &[], "", TWO);
    bench.run(&[]).exits(0);
    let run = bench.finished();
    for scenario in ["random-1k-1k", "random-2k-6k"] {
        let summary = summary(&run, "host", scenario);
        assert_eq!(summary.status, MeasurementStatus::Done);
        assert!(summary.failures.is_empty());
        let digest = summary.engine.image_digest.clone().unwrap_or_default();
        let id = daemon.docker(&["image", "inspect", "-f", "{{.Id}}", &crate::daemon::IMAGE]);
        assert_eq!(digest, id, "it came from no registry, so its id is its digest");
        let command = summary.engine.command.clone().unwrap_or_default();
        assert!(
            command.starts_with("docker run --runtime nvidia --gpus all"),
            "{command}"
        );
    }
    let log = written(&bench.run_folder());
    assert!(
        log.contains("Uvicorn running on"),
        "the log of the container is kept: {log}"
    );
    assert!(daemon.of_run(&bench).is_empty(), "nothing is left");
}

#[test]
fn a_bridge_maps_the_port_and_an_init_forwards_signals() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let more = ["network: bridge", "ipc:", "shm_size: 64MiB", "init: true"];
    let bench = daemon.bench("bridge", &more, "", TWO);
    let ran = bench.run(&[]).exits(0);
    assert!(!ran.stderr.contains("killed after"), "{}", ran.stderr);
    assert_eq!(
        summary(&bench.finished(), "bridge", "random-1k-1k").status,
        MeasurementStatus::Done
    );
    assert!(daemon.of_run(&bench).is_empty());
}

#[test]
fn a_secret_reaches_the_container_and_nothing_that_is_written() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let more = ["env: { HF_TOKEN: \"${MATRIX_TEST_TOKEN}\" }"];
    let bench = daemon
        .bench("secret", &more, "", LONG)
        .variable("MATRIX_TEST_TOKEN", "hunter2-hunter2");
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    let seen = daemon.inspect(&daemon.of_run(&bench)[0]);
    let env = seen["Config"]["Env"].to_string();
    assert!(env.contains("HF_TOKEN=hunter2-hunter2"), "{env}");
    assert!(!seen["Config"]["Labels"].to_string().contains("hunter2"));
    interrupt(&child);
    let ran = end(child).exits(130);
    assert!(!ran.stderr.contains("hunter2") && !ran.stdout.contains("hunter2"));
    assert!(!written(&folder(&bench)).contains("hunter2"));
    assert!(
        daemon.of_run(&bench).is_empty(),
        "an interrupted run leaves nothing"
    );
}

#[test]
fn a_second_interrupt_removes_the_container_at_once() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("twice", &[], "--ignore-sigterm", LONG);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    let id = daemon.of_run(&bench).remove(0);
    interrupt(&child);
    std::thread::sleep(std::time::Duration::from_millis(500));
    interrupt(&child);
    end(child).exits(130);
    assert!(
        !daemon.try_docker(&["inspect", &id]).status.success(),
        "it is gone"
    );
}

#[test]
fn an_engine_that_dies_while_loading_fails_with_its_exit_code_and_last_words() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("loading", &[], "--die-while-loading", TWO);
    bench.run(&[]).exits(3).says("exit code 1");
    let (phase, reason, tail) = failure(summary(&bench.finished(), "loading", "random-1k-1k"));
    assert_eq!(phase, Phase::Launch);
    assert!(reason.contains("exit code 1"), "{reason}");
    assert!(tail.contains("out of memory"), "{tail}");
    assert!(daemon.of_run(&bench).is_empty());
}

#[test]
fn an_engine_that_dies_under_load_is_started_again_for_the_rest() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("load", &[], "--die-after, 4requests", TWO);
    bench.run(&[]).exits(3).says("started again");
    let (phase, reason, _) = failure(summary(&bench.finished(), "load", "random-1k-1k"));
    assert_eq!(phase, Phase::Measure);
    assert!(
        reason.contains("under load") && reason.contains("exit code 1"),
        "{reason}"
    );
    assert!(daemon.of_run(&bench).is_empty());
}

#[test]
fn a_container_that_is_killed_from_outside_is_seen_dead_within_a_second_and_tried_again() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("killed", &[], "", LONG);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    let id = daemon.of_run(&bench).remove(0);
    daemon.docker(&["kill", &id]);
    let killed = matrix::base::clock::unix_seconds();
    until("the failed cell", || bench.finished().summaries.len() == 1);
    let run = bench.finished();
    let failed = summary(&run, "killed", "random-1k-1k");
    let ended: jiff::Timestamp = failed.ended.parse().expect("it is a moment");
    let seconds = ended.as_nanosecond() as f64 / 1e9 - killed;
    println!("the cell ended {seconds:.3} s after the container was killed");
    assert!(seconds < 1.0, "it took {seconds} s");
    let MeasurementStatus::Failed {
        phase, class, reason, ..
    } = &failed.status
    else {
        panic!("it ended as {:?}", failed.status);
    };
    assert_eq!((*phase, *class), (Phase::Measure, FailureClass::Infrastructure));
    assert!(reason.contains("exit code 137"), "{reason}");
    assert!(
        reason.contains("another program ended the container through the container daemon (signal 9)"),
        "{reason}"
    );
    let page = post_mortem(&bench);
    assert!(page.contains("- class: infrastructure"), "{page}");
    assert!(page.contains("- exit code: 137"), "{page}");
    assert!(page.contains("- killed for memory: no"), "{page}");
    assert!(
        page.contains("\ndocker run --runtime nvidia --gpus all"),
        "{page}"
    );
    assert!(page.contains("- image: sha256:"), "{page}");
    assert!(page.contains("Uvicorn running on"), "{page}");
    // The second try is under way, with another container.
    until("the next try", || {
        let ours = daemon.of_run(&bench);
        ours.len() == 1 && ours[0] != id
    });
    interrupt(&child);
    let ran = end(child).exits(130);
    assert!(ran.stderr.contains("retry in 1 s"), "{}", ran.stderr);
    assert!(daemon.of_run(&bench).is_empty());
}

#[test]
fn what_the_host_broke_is_measured_again_and_the_tables_say_so() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench(
        "again",
        &[],
        "--ttft, 20ms, --itl, 20ms",
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 100, warmup: 0 }\n",
    );
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    daemon.docker(&["rm", "-f", &daemon.of_run(&bench)[0]]);
    let ran = end(child).exits(0);
    let note = "retried after a failure of class infrastructure in the phase measure";
    assert!(ran.stdout.contains(note), "{}", ran.stdout);
    let run = bench.finished();
    let done = summary(&run, "again", "random-1k-1k");
    assert_eq!(done.status, MeasurementStatus::Done);
    assert_eq!(done.retries.len(), 1);
    let reason = &done.retries[0].reason;
    assert!(reason.contains("another program"), "{reason}");
    assert!(daemon.of_run(&bench).is_empty());
}

#[test]
fn a_container_that_the_kernel_kills_for_memory_is_a_matter_of_capacity() {
    let Some(daemon) = Daemon::or_skip() else { return };
    // One answer takes a third of a gigabyte to write, long after the limit was set.
    let bench = daemon.bench(
        "oom",
        &[],
        "--huge-line-every, 20, --huge-line-bytes, 300MB",
        "  - random-1k-1k: { prompts: 60, input_len: 16, output_len: 500, concurrency: 1, warmup: 0 }\n",
    );
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    let id = daemon.of_run(&bench).remove(0);
    daemon.docker(&["update", "--memory", "64m", "--memory-swap", "64m", &id]);
    let ran = end(child).exits(3);
    assert!(ran.stderr.contains("out of memory"), "{}", ran.stderr);
    let run = bench.finished();
    match &summary(&run, "oom", "random-1k-1k").status {
        MeasurementStatus::Failed { class, reason, .. } => {
            assert_eq!(*class, FailureClass::Capacity, "{reason}");
        }
        other => panic!("it ended as {other:?}"),
    }
    let page = post_mortem(&bench);
    assert!(page.contains("- class: capacity"), "{page}");
    assert!(page.contains("- killed for memory: yes"), "{page}");
    let kernel = "The kernel log cannot be read";
    assert!(page.contains("Killed process") || page.contains(kernel), "{page}");
    assert!(daemon.of_run(&bench).is_empty());
}

#[test]
fn an_engine_that_ignores_sigterm_is_killed_after_its_grace() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("stubborn", &[], "--ignore-sigterm", TWO);
    let ran = bench.run(&[]).exits(0);
    let journal = written(&bench.run_folder());
    assert!(
        journal.contains("killed after a grace period of 3s"),
        "{}",
        ran.stderr
    );
    assert!(daemon.of_run(&bench).is_empty());
}

#[test]
fn shared_memory_that_an_engine_leaves_is_freed_and_what_others_use_stays() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let file = |name: &str| PathBuf::from(format!("/dev/shm/matrix-test-{name}-{}", std::process::id()));
    let (older, newer) = (file("older"), file("newer"));
    fs::write(&older, "there before the start").expect("a file can be written");
    let bench = daemon.bench("shm", &[], "--leave-shm, 2MiB", TWO);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    fs::write(&newer, "used by another process").expect("a file can be written");
    let held = fs::File::open(&newer).expect("it can be read");
    end(child).exits(0);
    let journal = fs::read_to_string(bench.run_folder().join("journal.jsonl")).expect("it can be read");
    let (_, after) = journal.split_once("\"port\":").expect("an engine was started");
    let port: String = after.chars().take_while(char::is_ascii_digit).collect();
    let mut left: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir("/dev/shm").expect("it can be read").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        left.extend(
            name.starts_with(&format!("matrix-sim-{port}-"))
                .then(|| entry.path()),
        );
    }
    let stays = older.exists() && newer.exists();
    drop(held);
    for path in left.iter().chain([&older, &newer]) {
        fs::remove_file(path).expect("it is ours");
    }
    assert!(stays, "what is not the engine's stays");
    let is_told = journal.contains("\"shm_freed_bytes\":2097152")
        && journal.contains("2.1 MB that the engine left in /dev/shm are freed (1 file)");
    assert!(is_told && left.is_empty(), "{journal}");
}

fn interrupt(child: &std::process::Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::INT).expect("it lives");
}

/// All text below a folder.
pub fn written(folder: &std::path::Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("the folder can be read").flatten() {
        let path = entry.path();
        if path.is_symlink() {
            continue;
        }
        match path.is_dir() {
            true => text.push_str(&written(&path)),
            false => {
                let bytes = fs::read(&path).unwrap_or_default();
                let plain = zstd::decode_all(&bytes[..]).unwrap_or(bytes);
                text.push_str(&String::from_utf8_lossy(&plain));
            }
        }
    }
    text
}
