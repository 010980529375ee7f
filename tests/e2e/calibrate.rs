//! The client's own error: measured by name, measured before a run, carried by every row.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Bench, Ran, sims};

#[test]
fn the_client_is_measured_and_the_result_kept_with_the_machine() {
    let bench = Bench::of("");
    let ran = bench
        .call(&["calibrate", "--streams", "1,32", "--tokens", "10", "--json"])
        .exits(0);
    let actual: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let points = actual["points"].as_array().expect("there are points");
    assert_eq!(
        (points[0]["streams"].as_u64(), points[1]["streams"].as_u64()),
        (Some(1), Some(32))
    );
    for point in points {
        for (what, bound) in [("ttft_ms", 500.0), ("itl_ms", 200.0)] {
            let p99 = point[what]["p99"].as_f64().expect("it is a number");
            assert!(p99 > 0.0 && p99 < bound, "{what} of {point}");
        }
    }
    assert!(
        actual["flood"]["events_per_s"].as_f64() > Some(1000.0),
        "{actual}"
    );
    let kept = bench.results().with_file_name("cache").join("calibration.json");
    let kept: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(kept).expect("it is kept")).expect("it is JSON");
    assert_eq!(kept, actual);
    let ran = bench
        .call(&["calibrate", "--streams", "2", "--tokens", "3"])
        .exits(0);
    assert!(
        ran.stdout.contains("Client error on") && ran.stdout.contains("TTFT p99"),
        "{}",
        ran.stdout
    );
    let ran = bench
        .call(&[
            "calibrate",
            "--streams",
            "2",
            "--tokens",
            "3",
            "--gaps",
            "8,40",
            "--json",
        ])
        .exits(0);
    let actual: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let rates: Vec<_> = actual["points"].as_array().into_iter().flatten().collect();
    let rates: Vec<_> = rates.iter().map(|point| point["events_per_s"].as_f64()).collect();
    assert_eq!(rates, [Some(50.0), Some(250.0)], "the longest first: {actual}");
    bench.leaves_no_process();
}

#[test]
fn a_calibration_that_is_killed_leaves_no_folder_once_the_next_command_cleaned() {
    let bench = Bench::of("");
    let temporary = bench.path().join("temporary");
    fs::create_dir(&temporary).expect("a folder can be made");
    let bench = bench.variable("TMPDIR", &temporary.display().to_string());
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names
    };
    let left = || {
        let mut left = names(&bench.path().join("cache"));
        left.retain(|name| name.starts_with('.'));
        left.extend(names(&temporary));
        left
    };
    for command in [&["clean"][..], &["calibrate", "--streams", "1", "--tokens", "3"]] {
        let mut child = bench.begin(&["calibrate", "--streams", "1", "--tokens", "10000"]);
        bench.until("a folder of the calibration", || !left().is_empty());
        // Right after it was made nobody can tell whether its owner lives.
        std::thread::sleep(Duration::from_millis(300));
        child.kill().expect("it lives");
        child.wait().expect("it ended");
        bench.call(command).exits(0);
        assert_eq!(left(), [] as [String; 0], "after {command:?}");
    }
    bench.leaves_no_process();
}

#[test]
fn a_point_in_which_the_client_was_stopped_is_measured_again_and_never_kept() {
    let bench = Bench::of("");
    let args = |tokens| ["calibrate", "--streams", "4", "--gaps", "20", "--tokens", tokens];
    let kept = bench.path().join("cache/calibration.json");
    let begin = |tokens| {
        let child = bench.begin(&args(tokens));
        let is_engine = |line: &String| line.contains("--truth");
        bench.until("the simulated engine", || bench.survivors().iter().any(is_engine));
        child
    };
    let pause = |child: &std::process::Child, millis: u64| {
        let id = Pid::from_raw(i32::try_from(child.id()).expect("ids are small")).expect("it has one");
        kill_process(id, Signal::STOP).expect("it lives");
        std::thread::sleep(Duration::from_millis(millis));
        kill_process(id, Signal::CONT).expect("it lives");
    };
    // A point takes 4.2 s.
    let stopped = begin("200");
    std::thread::sleep(Duration::from_secs(2));
    pause(&stopped, 600);
    Ran::from(stopped.wait_with_output().expect("it ends"))
        .exits(0)
        .says("the measurement of 4 streams is repeated: the client was stopped or got no CPU time for ");
    let before = fs::read_to_string(&kept).expect("it is kept");
    let actual: serde_json::Value = serde_json::from_str(&before).expect("it is JSON");
    for what in ["ttft_ms", "itl_ms"] {
        let p99 = actual["points"][0][what]["p99"].as_f64().expect("it is a number");
        assert!(p99 < 290.0, "{actual}");
    }
    // Each try of 1.2 s is disturbed, also where this test has no processor for a second.
    let mut disturbed = begin("50");
    while disturbed.try_wait().expect("it can be asked").is_none() {
        pause(&disturbed, 400);
        std::thread::sleep(Duration::from_millis(50));
    }
    Ran::from(disturbed.wait_with_output().expect("it ended"))
        .exits(4)
        .says("concurrent streams failed, because the client was stopped or got no CPU time for up to ")
        .says("an earlier calibration is kept");
    assert_eq!(fs::read_to_string(&kept).expect("it is kept"), before);
    bench.leaves_no_process();
}

#[test]
fn every_row_of_a_run_carries_the_error_of_its_number_of_streams() {
    let bench = Bench::of(&sims(
        &[("a", "vllm", "")],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4 }\n",
    ));
    let ran = bench.call(&["run", "matrices/m.yaml"]).exits(0);
    assert!(
        ran.stdout.contains("TTFT ±") || ran.stdout.contains("hidden columns"),
        "{}",
        ran.stdout
    );
    let folder = bench.run_folder();
    assert!(folder.join("calibration.json").is_file());
    let report = fs::read_to_string(folder.join("report.md")).expect("there is a report");
    assert!(report.contains("TTFT ±"), "{report}");
    for summary in &bench.finished().summaries {
        let client = summary.client.expect("it is recorded");
        let error = client.error.expect("the client was calibrated");
        assert!(error.ttft_ms.p99 > 0.0 && error.streams >= 1);
        assert!(
            client.send_lag.is_some() && client.cpu_share > Some(0.0) && client.loop_lag_max_ms.is_some()
        );
    }
    bench.leaves_no_process();
}

#[test]
fn a_cache_that_cannot_be_written_is_named_with_the_flag_for_another() {
    let bench = Bench::of("name: t\n").variable("MATRIX_CACHE", "/proc/nowhere");
    bench
        .call(&["calibrate", "--streams", "1"])
        .exits(4)
        .says("--cache");
}
