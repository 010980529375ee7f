//! `kill -9` at random moments. Short here; `tests/chaos.sh` is the long form.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use matrix::base::clock;
use matrix::cli::env_variable;
use matrix::loadgen::dataset::rng::Python;
use matrix::results::record::cell::MeasurementStatus;
use matrix::results::record::event::Event;
use matrix::results::store::partial;

use crate::harness::{Bench, sims};

const SCENARIOS: &str = "  - random-1k-1k: { prompts: 6, input_len: 16, output_len: 20 }\n  - random-2k-6k: { prompts: 6, input_len: 16, output_len: 30 }\n  - random-6k-2k: { prompts: 6, input_len: 32, output_len: 10 }\n";

/// Says it even where the test passes.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The number in an environment variable.
pub fn number(name: &str, otherwise: u64) -> u64 {
    env_variable(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

#[test]
fn killed_at_random_moments_every_cell_appears_exactly_once() {
    let rounds = number("MATRIX_CHAOS_ROUNDS", 8);
    let seed = number(
        "MATRIX_CHAOS_SEED",
        (clock::unix_seconds() * 1e3) as u64 % 100_000,
    );
    say(&format!(
        "chaos: {rounds} kills, seed {seed} (set MATRIX_CHAOS_SEED to repeat)"
    ));
    let mut draws = Python::new(seed);
    let mut bench = fresh();
    let mut killed = 0;
    while killed < rounds {
        let args: &[&str] = if has_run(&bench) {
            &["run", "matrices/m.yaml", "--no-calibration", "--resume"]
        } else {
            &["run", "matrices/m.yaml", "--no-calibration"]
        };
        let mut child = bench
            .command(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let wait = Duration::from_secs_f64(draws.random() * 4.0);
        let began = clock::now();
        let ended = loop {
            if let Some(status) = child.try_wait().expect("it can be asked") {
                break Some(status);
            }
            if clock::now().since(began) >= wait {
                child.kill().expect("it can be killed");
                child.wait().expect("it ends");
                killed += 1;
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if let Some(status) = ended {
            assert_eq!(
                status.code(),
                Some(0),
                "a run that was not killed ends well (seed {seed})"
            );
            complete(&bench, seed);
            bench = fresh();
        }
    }
    if has_run(&bench) {
        bench.run(&["--resume"]).exits(0);
    } else {
        bench.run(&[]).exits(0);
    }
    complete(&bench, seed);
}

#[test]
fn what_a_killed_run_leaves_is_found_by_clean_and_strangers_are_not_touched() {
    let bench = Bench::of(&sims(
        &[("a", "vllm", "--ignore-sigterm, --leak-child")],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4000 }\n",
    ));
    let mut stranger = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .expect("sleep is there");
    let mut child = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    // The run, the shim, the engine and its child.
    while bench.survivors().len() < 4 {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    std::thread::sleep(Duration::from_millis(200));
    let left = bench.survivors();
    assert!(
        !left.is_empty(),
        "an engine that ignores SIGTERM survives the kill"
    );
    bench.call(&["clean"]).exits(0).shows("removed");
    bench.leaves_no_process();
    assert!(
        stranger.try_wait().expect("it can be asked").is_none(),
        "a stranger was touched"
    );
    stranger.kill().expect("it can be killed");
    stranger.wait().expect("it ends");
}

#[test]
fn a_load_that_is_killed_leaves_all_but_its_last_seconds_readable() {
    let bench = Bench::of(&sims(
        &[("a", "vllm", "--step, 5ms")],
        "  - random-1k-1k: { prompts: 4000, input_len: 16, output_len: 20, concurrency: 8 }\n",
    ));
    let mut child = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let kept = || {
        let cells = std::fs::read_dir(bench.results()).into_iter().flatten().flatten();
        let cells = cells.flat_map(|run| {
            std::fs::read_dir(run.path().join("cells"))
                .into_iter()
                .flatten()
                .flatten()
        });
        cells
            .map(|cell| partial::read_requests(&cell.path()).unwrap_or_default())
            .next()
            .unwrap_or_default()
    };
    bench.until("records", || kept().len() >= 40);
    let before = kept().len();
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    let records = kept();
    assert!(records.len() >= before, "{} of {before}", records.len());
    assert!(
        records
            .iter()
            .all(|record| record.is_completed() && !record.chunks.is_empty())
    );
    let run = bench.run_folder();
    let run = run.to_str().expect("it is UTF-8");
    bench.call(&["report", run]).exits(0).shows(
        "the measurement was not finished; `requests.partial.jsonl.zst` contains the requests that \
            had ended",
    );
    bench.call(&["clean"]).exits(0);
    bench.leaves_no_process();
}

fn fresh() -> Bench {
    Bench::of(&sims(
        &[("a", "vllm", "--step, 8ms"), ("b", "sglang", "--step, 8ms")],
        SCENARIOS,
    ))
}

fn has_run(bench: &Bench) -> bool {
    let Ok(runs) = std::fs::read_dir(bench.results()) else {
        return false;
    };
    runs.flatten().any(|run| run.path().join("run.json").exists())
}

/// Each of six cells with six requests is done, stands once in the results, and no finished one was measured again.
fn complete(bench: &Bench, seed: u64) {
    measured_once(bench, 6, 6, seed);
}

/// Every cell with that many requests is done, stands once in the results, and no finished one was measured again.
pub fn measured_once(bench: &Bench, cells: usize, requests: usize, seed: u64) {
    let run = bench.finished();
    assert_eq!(run.summaries.len(), cells, "seed {seed}");
    assert!(
        run.summaries
            .iter()
            .all(|summary| summary.status == MeasurementStatus::Done),
        "seed {seed}"
    );
    let lines = std::fs::read_to_string(bench.run_folder().join("results.jsonl")).expect("there are results");
    let rows: Vec<String> = lines
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).expect("lines are JSON")["matrix"]["cell"]
                .to_string()
        })
        .collect();
    let mut once = rows.clone();
    once.sort();
    once.dedup();
    assert_eq!((rows.len(), once.len()), (cells, cells), "seed {seed}: {rows:?}");
    for measurement in run.plan.starts.iter().flat_map(|start| &start.cells) {
        let done = run
            .journal
            .iter()
            .filter(|(_, event)| matches!(event, Event::CellEnded { measurement: ended, status: ending, .. } if ended == measurement && ending == "done"))
            .count();
        // A kill between the summary and the journal's line leaves the line out; it never doubles it.
        assert!(
            done <= 1,
            "seed {seed}: {} is done {done} times",
            measurement.cell
        );
        let kept = run.read_requests(measurement).expect("requests are kept");
        assert_eq!(kept.len(), requests, "seed {seed}");
    }
    let aside = std::fs::read_dir(bench.run_folder().join("cells"))
        .expect("there are cells")
        .flatten();
    // What was interrupted by a signal is set aside and measured again.
    let is_done = |path: &std::path::Path| {
        let text = std::fs::read_to_string(path.join("summary.json")).unwrap_or_default();
        let summary: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        summary["status"] == "done"
    };
    let aside: Vec<_> = aside
        .filter(|entry| entry.file_name().to_string_lossy().contains(".old-") && is_done(&entry.path()))
        .collect();
    assert!(
        aside.is_empty(),
        "seed {seed}: a finished measurement was repeated: {aside:?}"
    );
    bench.leaves_no_process();
}
