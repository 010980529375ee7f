//! Five nights on the simulated engine: quiet ones, a loss on one model, its acceptance, and what is told of them.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::harness::{Bench, Ran};

/// A busy machine is no fault of the nights.
pub const LENIENT: &str =
    "validity: { send_lag: 2s, client_wait: 1, client_cpu: 1, queue_growth: 100, gap: 60s, window: 0s }\n";

/// Two models of one engine whose speed is exact, `starts` starts each; `itl` of the second in milliseconds, times a thousand.
fn matrix(starts: u32, itl: u32) -> String {
    format!(
        "name: t
engines:
  - sim: {{ variant: vllm }}
models:
  - a: {{ tokenizer: data/tokenizer.json, args: [--ttft, 10ms, --itl, 10ms] }}
  - b: {{ tokenizer: data/tokenizer.json, args: [--ttft, 10ms, --itl, {itl}us] }}
scenarios:
  - random-1k-1k: {{ prompts: 6, input_len: 16, output_len: 40, warmup: 0 }}
repeats: {{ starts: {starts}, interleave: true }}
datasets: {{ sharegpt: data/conversations.json }}
{LENIENT}"
    )
}

/// Keeps a noise of half a percent with this host for every cell of the baseline, so that three starts a side are enough.
pub fn quiet(bench: &Bench) {
    let text =
        fs::read_to_string(bench.matrix().with_file_name("m.baseline.json")).expect("there is a baseline");
    let baseline: Value = serde_json::from_str(&text).expect("it is JSON");
    let side = &baseline["side"];
    let estimate = json!({
        "at": "2026-01-01T00:00:00Z", "starts": 20, "per_start": 1, "start_share": 0.005, "between_share": 0.005,
        "difference_share": 0.0,
    });
    let figures = json!({ "mean_tpot_ms": estimate, "output_throughput_tok_s": estimate });
    let keys = side["cells"].as_object().expect("it has cells").keys();
    let cells: Map<String, Value> = keys.map(|key| (key.clone(), figures.clone())).collect();
    let noise = json!({ "machine": side["machine"], "cells": cells });
    let folder = bench.results().with_file_name("cache");
    fs::create_dir_all(&folder).expect("a folder can be made");
    fs::write(folder.join("noise.json"), noise.to_string()).expect("a file can be written");
}

/// Runs a night.
pub fn nightly(bench: &Bench, more: &[&str]) -> Ran {
    let mut args = vec!["nightly", "matrices/m.yaml", "--no-calibration"];
    args.extend(more);
    bench.call(&args)
}

/// What gates: times between tokens of requests that begin together, which a busy machine hardly moves.
pub const GATE: [&str; 2] = ["--gate", "mean_tpot_ms"];

/// The folder of the newest night's run.
pub fn newest(bench: &Bench) -> PathBuf {
    let entries = fs::read_dir(bench.results()).expect("there are results");
    let mut runs: Vec<PathBuf> = entries
        .map(|entry| entry.expect("results can be read").path())
        .filter(|path| path.join("run.json").exists() && !path.to_string_lossy().contains("-confirmation"))
        .collect();
    runs.sort_by_key(|run| {
        fs::metadata(run.join("run.json"))
            .and_then(|about| about.modified())
            .expect("it has a time")
    });
    runs.pop().expect("there is a run")
}

/// The body of the request that comes.
pub fn read_post(stream: &mut TcpStream) -> String {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece).expect("a request comes");
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .filter_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length:")
                    .map(str::to_owned)
            })
            .next()
            .and_then(|length| length.trim().parse::<usize>().ok())
            .expect("it has a length");
        if body.len() >= length {
            return body.to_owned();
        }
    }
}

/// A receiver of webhooks: what was posted, one body each.
pub fn receiver() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!(
        "http://{}/hook/secret",
        listener.local_addr().expect("it has an address")
    );
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("somebody calls");
            stream
                .set_read_timeout(Some(Duration::from_secs(5)))
                .expect("it can wait");
            let body = read_post(&mut stream);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                .expect("an answer goes");
            let _ = send.send(serde_json::from_str(&body).expect("it is JSON"));
        }
    });
    (url, receive)
}

#[test]
fn a_loss_on_one_model_is_confirmed_told_once_and_quiet_when_accepted() {
    let bench = Bench::of(&matrix(3, 10_000));
    let (url, posted) = receiver();
    let bench = bench.variable("MATRIX_WEBHOOK", &url);
    // The first night has nothing to be held against.
    nightly(&bench, &[])
        .exits(0)
        .says("there is no baseline")
        .shows("t: no baseline yet\n");
    let first = newest(&bench).display().to_string();
    bench
        .call(&[
            "baseline",
            "set",
            "matrices/m.yaml",
            &first,
            "--reason",
            "the first night",
        ])
        .exits(0)
        .shows("now has 2 of the 2 cells");
    quiet(&bench);
    bench
        .call(&["baseline", "set", "matrices/m.yaml", &first, "--reason", "again"])
        .exits(2)
        .says("already exists");
    // A pause of the host may make a start invalid; it is measured again.
    let again = [&GATE[..], &["--retry-invalid", "3"]].concat();
    nightly(&bench, &again).exits(0).shows(" 2 judged");
    assert!(posted.try_recv().is_err(), "quiet nights are not reported");

    bench.rewrite(&matrix(3, 12_000));
    let slow = nightly(&bench, &[&GATE[..], &["--junit", "junit.xml"]].concat()).exits(1);
    let alarms: Vec<&str> = slow
        .stdout
        .lines()
        .filter(|line| line.starts_with("  worse: "))
        .collect();
    assert_eq!(alarms.len(), 1, "{}", slow.stdout);
    assert!(
        alarms[0].contains("model=b") && alarms[0].contains("fresh starts"),
        "{}",
        alarms[0]
    );
    slow.says("suspected loss: ");
    let page = fs::read_to_string(newest(&bench).join("nightly.md")).expect("there is a page");
    assert!(
        page.contains("| **worse** | ") && page.contains("model=b"),
        "{page}"
    );
    let junit = fs::read_to_string(
        bench
            .results()
            .parent()
            .expect("it lies somewhere")
            .join("junit.xml"),
    )
    .expect("there is a file");
    assert!(junit.contains("tests=\"2\" failures=\"1\""), "{junit}");
    assert!(junit.contains("<failure type=\"worse\""), "{junit}");
    let message = posted
        .recv_timeout(Duration::from_secs(5))
        .expect("the loss is reported");
    let text = message["text"].as_str().expect("it has a text");
    assert!(text.contains("1 worse") && text.contains("model=b"), "{text}");

    let slower = newest(&bench).display().to_string();
    let compared = [&["compare", &first, &slower], &GATE[..]].concat();
    bench.call(&compared).exits(1).shows("worse");

    let accepted = [
        "baseline",
        "accept",
        "matrices/m.yaml",
        "--reason",
        "the model answers better now",
    ];
    bench.call(&accepted).exits(0);
    let accepted = nightly(&bench, &GATE).exits(0).shows(" 2 judged");
    assert!(!accepted.stdout.contains("  worse: "), "{}", accepted.stdout);
    let message = posted
        .recv_timeout(Duration::from_secs(5))
        .expect("its end is reported");
    assert!(
        message["text"]
            .as_str()
            .expect("it has a text")
            .contains("resolved: 1"),
        "{message}"
    );
    let shown = bench
        .call(&["baseline", "show", "matrices/m.yaml"])
        .exits(0)
        .stdout;
    assert!(
        shown.contains("the model answers better now") && shown.contains("the first night"),
        "{shown}"
    );
    bench
        .call(&["history", "t"])
        .exits(0)
        .shows("Nightly runs of t")
        .shows("baseline: ");
    bench.leaves_no_process();
}

/// The client is stopped again and again while requests fall due: what it measures then is no measurement of the engine.
#[test]
fn an_invalid_cell_raises_no_alarm_and_is_named() {
    let paced = |validity: &str| {
        format!(
            "name: t
engines:
  - sim: {{ variant: vllm }}
models:
  - a: {{ tokenizer: data/tokenizer.json, args: [--ttft, 2ms, --itl, 1ms] }}
scenarios:
  - paced: {{ dataset: random-ids, prompts: 100, input_len: 8, output_len: 4, range_ratio: 0, rate: 100, warmup: 0 }}
repeats: {{ starts: 2 }}
datasets: {{ sharegpt: data/conversations.json }}
{validity}"
        )
    };
    let bench = Bench::of(&paced(LENIENT));
    nightly(&bench, &[]).exits(0);
    bench
        .call(&[
            "baseline",
            "set",
            "matrices/m.yaml",
            "--reason",
            "the first night",
        ])
        .exits(0);
    bench.rewrite(&paced(&LENIENT.replace("send_lag: 2s", "send_lag: 10ms")));
    let mut client = bench
        .command(&["nightly", "matrices/m.yaml", "--no-calibration"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let pid = rustix::process::Pid::from_child(&client);
    while client.try_wait().expect("it can be asked").is_none() {
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it lives");
        std::thread::sleep(Duration::from_millis(120));
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it lives");
        std::thread::sleep(Duration::from_millis(80));
    }
    let night = Ran::from(client.wait_with_output().expect("it ended")).exits(3);
    assert!(
        night.stdout.contains("  invalid: ") && night.stdout.contains("client-late"),
        "{}",
        night.stdout
    );
    assert!(!night.stdout.contains("  worse: "), "{}", night.stdout);
    let page = fs::read_to_string(newest(&bench).join("nightly.md")).expect("there is a page");
    assert!(
        page.contains("| **invalid** | ") && page.contains("client-late"),
        "{page}"
    );
    bench.leaves_no_process();
}

/// One model of an engine in four versions, the third of which is the first slow one.
fn versions() -> String {
    format!(
        "name: t
engines:
  - sim: {{ variant: vllm, version: [v1, v2, v3, v4] }}
models:
  - a: {{ tokenizer: data/tokenizer.json }}
scenarios:
  - random-1k-1k: {{ prompts: 6, input_len: 16, output_len: 25, warmup: 0 }}
overrides:
  - {{ when: {{ version: v1 }}, args: [--ttft, 100ms, --itl, 20ms] }}
  - {{ when: {{ version: v2 }}, args: [--ttft, 300ms, --itl, 20ms] }}
  - {{ when: {{ version: v3 }}, args: [--ttft, 100ms, --itl, 50ms] }}
  - {{ when: {{ version: v4 }}, args: [--ttft, 100ms, --itl, 50ms] }}
repeats: {{ starts: 2 }}
datasets: {{ sharegpt: data/conversations.json }}
{LENIENT}"
    )
}

#[test]
fn the_first_bad_version_is_found_and_arms_take_turns() {
    let bench = Bench::of(&versions());
    let planned = bench.call(&["plan", "matrices/m.yaml", "--json"]).exits(0).stdout;
    let planned: Value = serde_json::from_str(&planned).expect("it is JSON");
    let starts = planned["starts"].as_array().expect("there are starts").iter();
    let order: Vec<&str> = starts
        .map(|start| start["launch"].as_str().expect("it has a name"))
        .collect();
    let back: Vec<&str> = order[..4].iter().rev().copied().collect();
    assert_eq!(order[4..], back, "two versions of one engine take turns, A B B A");
    // The second version is slow in another metric, which is fast again in the last. Times are long, so that a pause of this host is none
    // of the differences.
    let both = [&GATE[..], &["--gate", "mean_ttft_ms", "--floor", "20%"]].concat();
    let found = [
        &["bisect", "matrices/m.yaml", "--no-calibration", "--starts", "2"][..],
        // A host that pauses for seconds makes a start invalid.
        &["--retry-invalid", "3"][..],
        &both[..],
    ]
    .concat();
    bench
        .call(&found)
        .exits(1)
        .says("`--starts 2` is raised to 5")
        .shows("first bad version: v3 (last good: v2)");
    let mut runs: Vec<PathBuf> = fs::read_dir(bench.results())
        .expect("there are results")
        .map(|entry| entry.expect("results can be read").path())
        .filter(|path| path.join("run.json").exists())
        .collect();
    runs.sort();
    let ends = runs[0].display().to_string();
    let arms = ["compare", &ends, "--arms", "version=v1,v4"];
    bench
        .call(&[&arms[..], &GATE[..], &["--floor", "20%"]].concat())
        .exits(1)
        .shows("worse")
        .shows("v4");
    bench
        .call(&["bisect", "matrices/m.yaml", "--gate", "p99_ttft_ms"])
        .exits(2)
        .says("1000 requests are needed")
        .says("raise `prompts` of the scenario `random-1k-1k`");
    bench
        .call(&["compare", &ends, "--arms", "version=v1,v9"])
        .exits(2)
        .says("values of version in its cells");
    bench.leaves_no_process();
}

/// The second of three versions fails requests, and so does the third. What goes on takes each run for what it is.
#[test]
fn a_version_that_fails_requests_is_found_and_a_search_goes_on_with_its_own_runs() {
    let bench = Bench::of(&format!(
        "name: t
engines:
  - sim: {{ variant: vllm, version: [v1, v2, v3] }}
models:
  - a: {{ tokenizer: data/tokenizer.json }}
scenarios:
  - random-1k-1k: {{ prompts: 16, input_len: 16, output_len: 10, warmup: 0, error_share: 0.5 }}
overrides:
  - {{ when: {{ version: v1 }}, args: [--ttft, 10ms, --itl, 10ms] }}
  - {{ when: {{ version: v2 }}, args: [--ttft, 10ms, --itl, 6ms, --http-error-every, \"4\"] }}
  - {{ when: {{ version: v3 }}, args: [--ttft, 10ms, --itl, 6ms, --http-error-every, \"4\"] }}
datasets: {{ sharegpt: data/conversations.json }}
{LENIENT}"
    ));
    let bisect = ["bisect", "matrices/m.yaml", "--no-calibration", "--floor", "90%"];
    let found = "first bad version: v2 (last good: v1), judged by reliability";
    bench.call(&bisect).exits(1).shows("less reliable").shows(found);
    let runs = || {
        let mut runs: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(bench.results())
            .expect("there are results")
            .map(|entry| entry.expect("results can be read").path())
            .filter(|path| path.join("run.json").exists())
            .map(|path| {
                (
                    path.clone(),
                    fs::read(path.join("results.jsonl")).expect("there are results"),
                )
            })
            .collect();
        runs.sort();
        runs
    };
    let before = runs();
    assert_eq!(before.len(), 2, "the ends, and one step");
    bench
        .call(&[&bisect[..], &["--resume"]].concat())
        .exits(1)
        .shows(found);
    assert!(before == runs(), "nothing was measured again or left out");
    let step = before[1]
        .0
        .file_name()
        .expect("a run has a name")
        .to_string_lossy()
        .into_owned();
    bench
        .call(&[&bisect[..], &["--resume", &step]].concat())
        .exits(2)
        .says("measures v1 and v3");
    bench.leaves_no_process();
}

#[test]
fn noise_is_measured_kept_and_used() {
    let bench = Bench::of(&matrix(1, 10_000).replace("output_len: 40", "output_len: 30"));
    let noise = [
        &["noise", "matrices/m.yaml", "--no-calibration", "--starts", "3"],
        &GATE[..],
    ]
    .concat();
    bench
        .call(&noise)
        .exits(0)
        .shows("Noise of this machine")
        .shows("saved in ");
    let run = newest(&bench).display().to_string();
    let compared = bench
        .call(&[&["compare", &run, &run, "--format", "json"], &GATE[..]].concat())
        .exits(5)
        .says("baseline and candidate are the same measurements of the run");
    let drawn = bench.call(&["compare", &run, &run]).exits(5);
    let first = drawn.stdout.lines().next();
    assert_eq!(first, Some("2 of 2 metrics not judged"), "{}", drawn.stdout);
    let compared: Value = serde_json::from_str(&compared.stdout).expect("it is JSON");
    for row in compared["rows"].as_array().expect("there are rows") {
        assert_eq!(row["is_noise_known"], true, "{row}");
        assert_eq!(row["change_share"], 0.0, "{row}");
    }
    bench.leaves_no_process();
}

/// What a night is told to overlook is no loss in its tables either.
#[test]
fn the_floor_of_a_night_reaches_its_tables() {
    let matrix = format!(
        "name: t
engines:
  - sim: {{ as: one, variant: vllm, args: [--ttft, 10ms, --itl, 10ms] }}
  - sim: {{ as: two, variant: vllm, args: [--ttft, 10ms, --itl, 13ms] }}
models:
  - a: {{ tokenizer: data/tokenizer.json }}
scenarios:
  - random-1k-1k: {{ prompts: 6, input_len: 16, output_len: 40, warmup: 0 }}
repeats: {{ starts: 5 }}
datasets: {{ sharegpt: data/conversations.json }}
{LENIENT}"
    );
    let bench = Bench::of(&matrix);
    let actual = nightly(&bench, &["--floor", "60%"]).exits(0).stdout;
    assert!(
        actual.contains("larger than 60 %") && !actual.contains("[best]"),
        "{actual}"
    );
    let page = fs::read_to_string(newest(&bench).join("report.md")).expect("there is a report");
    assert!(page.contains("larger than 60 %"), "{page}");
    bench.leaves_no_process();
}

/// A run of `noise` is none of the matrix: nothing that takes its newest run takes that one.
#[test]
fn a_run_of_noise_is_not_the_newest_of_its_matrix() {
    let bench = Bench::of(&matrix(1, 10_000).replace("output_len: 40", "output_len: 30"));
    let measured = |command: &str, more: &[&str]| {
        let args = [&[command, "matrices/m.yaml", "--no-calibration"], more].concat();
        bench.call(&args).exits(0);
        newest(&bench)
            .file_name()
            .expect("it has a name")
            .to_string_lossy()
            .into_owned()
    };
    let own = measured("run", &[]);
    let noise = measured("noise", &[&["--starts", "2"][..], &GATE[..]].concat());
    assert_ne!(own, noise);
    bench
        .call(&["compare", "t", &own])
        .exits(5)
        .says(&format!("the same measurements of the run `{own}`"));
    bench.call(&["report", &noise]).exits(0);
    bench
        .call(&["compare", &own, &noise])
        .exits(5)
        .shows("not judged");
    bench
        .call(&["baseline", "set", "matrices/m.yaml", "--reason", "first"])
        .exits(0)
        .shows(&format!("cells of run `{own}`"))
        .says("; a verdict needs at least five starts, or three if `matrix noise` measured this host. Until then, a nightly run judges such a cell only if it suspects a loss, and only by fresh starts");
    quiet(&bench);
    let accept = |run: &str| {
        let args = ["baseline", "accept", "matrices/m.yaml", run, "--reason", "noise"];
        bench.call(&args)
    };
    accept(&own).exits(0).says(
        "; a verdict needs at least three starts. Until then, a nightly run judges such a cell only if it suspects a loss",
    );
    bench
        .run(&["--resume", &noise])
        .exits(2)
        .says("measures noise and can be resumed only by `matrix noise`");
    let journal = |run: &str| fs::read_to_string(bench.results().join(run).join("journal.jsonl"));
    let before = journal(&noise).expect("it is there");
    bench.run(&["--resume"]).exits(0);
    assert_eq!(journal(&noise).expect("it is there"), before);
    bench.leaves_no_process();
}
