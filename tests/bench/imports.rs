//! What the real Python tools write, imported: `sglang.bench_serving` and `vllm bench serve` against the simulated engine.
//!
//! Both are installed by `tests/engines/`; `MATRIX_PEERS` and `MATRIX_ENGINES` say where they lie. Without one its test is skipped by
//! name, and where `MATRIX_REQUIRE_PEERS` or `MATRIX_REQUIRE_ENGINES` is set, as CI does, that is a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use matrix::cli::env_variable;

use crate::harness::{Desk, Ran, Sim, data, repository};
use crate::python::{MISSING, peer, tokenizer};

fn matrix(desk: &Desk, args: &[&str]) -> Ran {
    let mut command = Command::new(crate::binary::matrix());
    command.args(args).current_dir(desk.path());
    Ran::from(command.output().expect("the binary runs")).exits(0)
}

/// The summaries of a run, by the file that they were read from.
fn summary(desk: &Desk, run: &str, file: &str) -> Value {
    let cells = desk.path().join("results").join(run).join("cells");
    fs::read_dir(cells)
        .expect("a run has cells")
        .map(|entry| entry.expect("it can be listed").path().join("summary.json"))
        .map(|path| fs::read_to_string(path).expect("a summary can be read"))
        .map(|text| serde_json::from_str::<Value>(&text).expect("a summary is JSON"))
        .find(|summary| summary["imported"]["file"] == file)
        .unwrap_or_else(|| panic!("no cell of {file}"))
}

/// The lines of the first block of a text, without spaces at their ends.
fn block(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim_end);
    let mut inside = lines
        .skip_while(|line| !line.contains(" Serving Benchmark Result "))
        .map(str::to_owned);
    let mut block: Vec<String> = inside.next().into_iter().collect();
    for line in inside {
        let is_last = line == "=".repeat(50);
        block.push(line);
        if is_last {
            break;
        }
    }
    block
}

/// A program with these arguments, in its own home.
fn run(tool: &Path, desk: &Desk, args: &[&str]) -> Ran {
    let mut command = Command::new(tool);
    command
        .args(args)
        .current_dir(desk.path())
        .env("HOME", desk.path())
        .env("HF_HUB_OFFLINE", "1")
        .env("VLLM_NO_USAGE_STATS", "1")
        .env_remove("OPENAI_API_KEY")
        .env_remove("API_KEY")
        .env_remove("SGLANG_IS_IN_CI")
        .stdin(Stdio::null());
    Ran::from(command.output().expect("the tool runs")).exits(0)
}

#[test]
fn line_and_block_of_the_python_tool_are_imported_alike_and_drawn_again() {
    let Some(tool) = peer() else {
        crate::skip::skip(MISSING);
        return;
    };
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let (port, words) = (sim.port.to_string(), tokenizer(desk.path()));
    let file = data("conversations.json");
    let args = [
        "--backend",
        "vllm",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--model",
        "m",
        "--tokenizer",
        &words,
        "--dataset-name",
        "random",
        "--dataset-path",
        &file,
        "--num-prompts",
        "12",
        "--random-input-len",
        "32",
        "--random-output-len",
        "8",
        "--random-range-ratio",
        "1.0",
        "--max-concurrency",
        "4",
        "--seed",
        "1",
        "--goodput",
        "ttft:500",
        "tpot:50",
        "--output-file",
        "theirs.jsonl",
    ];
    let theirs = run(&tool, &desk, &args);
    fs::write(desk.path().join("theirs.log"), &theirs.stdout).expect("a file can be written");
    let both = matrix(&desk, &["import", "theirs.jsonl", "theirs.log", "--name", "both"]);
    assert!(both.stdout.starts_with("imported 1 cell"), "{}", both.stdout);
    matrix(&desk, &["import", "theirs.jsonl", "--name", "line"]);
    let actual = matrix(&desk, &["import", "theirs.log", "--name", "p"]);
    // The simulated engine counts its words otherwise than this tokenizer; nothing else contradicts itself.
    let is_recount = |line: &str| line.contains("output tokens are counted in the texts");
    assert!(actual.stderr.lines().all(is_recount), "{}", actual.stderr);
    let (line, log) = (
        summary(&desk, "line", "theirs.jsonl"),
        summary(&desk, "p", "theirs.log"),
    );
    let (line, log) = (&line["figures"]["current"], &log["figures"]["current"]);
    let mut alike = 0;
    for (name, printed) in log.as_object().expect("figures by name") {
        let (Some(exact), Some(printed)) = (line[name].as_f64(), printed.as_f64()) else {
            continue;
        };
        let half = if name.ends_with("_share") { 5.1e-5 } else { 5.1e-3 };
        assert!(
            (exact - printed).abs() <= half,
            "{name}: {exact} in the line, {printed} in the block"
        );
        alike += 1;
    }
    assert!(alike > 30, "{alike} figures are in both");
    let drawn = matrix(&desk, &["report", "results/p", "--out", "out"]);
    assert_eq!(drawn.stderr, "");
    let reports: Vec<PathBuf> = fs::read_dir(desk.path().join("out"))
        .expect("reports are there")
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    let mine = reports
        .iter()
        .find(|path| path.ends_with("engine-vllm.md"))
        .expect("the engine's report");
    let text = fs::read_to_string(mine).expect("it can be read");
    assert_eq!(block(&text), block(&theirs.stdout));
}

#[test]
fn the_object_of_a_real_vllm_bench_serve_is_imported() {
    let engines =
        env_variable("MATRIX_ENGINES").map_or_else(|| repository().join("target/engines"), PathBuf::from);
    let vllm = engines.join("venv/bin/vllm");
    if !vllm.exists() {
        assert!(
            env_variable("MATRIX_REQUIRE_ENGINES").is_none(),
            "vLLM is not installed in {}",
            engines.display()
        );
        crate::skip::skip("needs vLLM on CPU; install it with tests/engines/cpu.sh and set MATRIX_ENGINES");
        return;
    }
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let url = format!("http://127.0.0.1:{}", sim.port);
    let words = engines.join("models/tiny-qwen3").display().to_string();
    let args = [
        "bench",
        "serve",
        "--backend",
        "openai",
        "--base-url",
        &url,
        "--model",
        "m",
        "--tokenizer",
        &words,
        "--dataset-name",
        "random",
        "--random-input-len",
        "32",
        "--random-output-len",
        "8",
        "--num-prompts",
        "12",
        "--ignore-eos",
        "--save-result",
        "--result-dir",
        ".",
        "--result-filename",
        "theirs.json",
    ];
    let theirs = run(&vllm, &desk, &args);
    fs::write(desk.path().join("theirs.log"), &theirs.stdout).expect("a file can be written");
    let both = matrix(&desk, &["import", "theirs.json", "theirs.log", "--name", "both"]);
    assert!(both.stdout.starts_with("imported 1 cell"), "{}", both.stdout);
    matrix(&desk, &["import", "theirs.json", "--name", "object"]);
    matrix(&desk, &["import", "theirs.log", "--name", "log"]);
    let (object, log) = (
        summary(&desk, "object", "theirs.json"),
        summary(&desk, "log", "theirs.log"),
    );
    for summary in [&object, &log] {
        assert_eq!(summary["imported"]["tool"], "vllm-bench");
        let figures = &summary["figures"]["current"];
        assert_eq!(figures["completed_requests"], 12.0);
        assert_eq!(figures["output_tokens"], 96.0);
        assert!(
            figures["mean_ttft_ms"].as_f64().is_some_and(|ms| ms > 0.0),
            "{figures}"
        );
    }
    let text = fs::read_to_string(desk.path().join("theirs.json")).expect("vLLM wrote it");
    let theirs: Value = serde_json::from_str(&text).expect("vLLM writes JSON");
    for (theirs_key, ours) in [
        ("duration", "duration_s"),
        ("output_throughput", "output_throughput_tok_s"),
        ("p99_tpot_ms", "p99_tpot_ms"),
        ("std_itl_ms", "std_itl_ms"),
    ] {
        assert_eq!(
            theirs[theirs_key], object["figures"]["current"][ours],
            "{theirs_key}"
        );
    }
}
