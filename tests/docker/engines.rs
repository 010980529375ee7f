//! Engines that nobody here wrote, in containers: SGLang, vLLM and llama-server by their shipped recipes, with a matrix that
//! differs from `matrices/qwen3.yaml` only in image, model and what a machine without GPUs needs.
//!
//! `tests/docker/engines.sh` makes their images out of what `tests/engines/cpu.sh` installed; `MATRIX_ENGINES` says where that lies.
//! Without it the tests are skipped by name, and where `MATRIX_REQUIRE_ENGINES` is set, as CI does, that is a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use matrix::cli::env_variable;
use matrix::results::record::cell::MeasurementStatus;

use crate::daemon::{Daemon, folder};
use crate::harness::{Bench, repository, summary};
use crate::shared_memory;

const SCENARIOS: [&str; 4] = ["sharegpt", "random-1k-1k", "random-2k-6k", "random-6k-2k"];

/// The folder of the engines, with their images made; `None`, said aloud, where the test is to be skipped.
#[track_caller]
fn engines(daemon: &Daemon) -> Option<PathBuf> {
    static IMAGES_MADE: OnceLock<()> = OnceLock::new();
    let folder =
        env_variable("MATRIX_ENGINES").map_or_else(|| repository().join("target/engines"), PathBuf::from);
    if !folder.join("venv/bin/vllm").exists() {
        assert!(
            env_variable("MATRIX_REQUIRE_ENGINES").is_none(),
            "no engines are installed in {}",
            folder.display()
        );
        crate::skip::skip(
            "needs engines on CPU; install them with tests/engines/cpu.sh and set MATRIX_ENGINES",
        );
        return None;
    }
    IMAGES_MADE.get_or_init(|| {
        let made = Command::new(repository().join("tests/docker/engines.sh"))
            .arg(&folder)
            .env("DOCKER_HOST", &daemon.host)
            .output()
            .expect("the script runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    });
    Some(folder)
}

/// A hub cache with the tiny model under a name, as `huggingface_hub` lays it out, and the GGUF file beside it.
fn hub(engines: &Path, home: &Path) {
    let repository = home.join("hub/models--tiny--qwen3");
    let snapshot = repository.join("snapshots/0123456789abcdef0123456789abcdef01234567");
    fs::create_dir_all(&snapshot).expect("a folder can be made");
    fs::create_dir_all(repository.join("refs")).expect("a folder can be made");
    fs::write(
        repository.join("refs/main"),
        "0123456789abcdef0123456789abcdef01234567",
    )
    .expect("a file can be written");
    let model = engines.join("models/tiny-qwen3");
    for file in fs::read_dir(&model).expect("the model is installed").flatten() {
        fs::copy(file.path(), snapshot.join(file.file_name())).expect("a file can be copied");
    }
    fs::copy(
        engines.join("models/tiny-qwen3.gguf"),
        home.join("tiny-qwen3.gguf"),
    )
    .expect("a file can be copied");
}

/// Runs the four workloads, scaled down, on one engine; nothing may be left.
fn runs(name: &str, entry: &str, model: &str) {
    let Some(daemon) = Daemon::or_skip() else { return };
    let Some(engines) = engines(&daemon) else { return };
    let matrix = format!(
        r#"
name: {name}
profile: classic
engines:
  - {entry}
models:
  - tiny/qwen3: {{ tp: 1, tokenizer: hf/hub/models--tiny--qwen3/snapshots/0123456789abcdef0123456789abcdef01234567{model} }}
scenarios:
  - sharegpt: {{ prompts: 8 }}
  - random-1k-1k: {{ prompts: 4, input_len: 64, output_len: 32 }}
  - random-2k-6k: {{ prompts: 2, input_len: 32, output_len: 64 }}
  - random-6k-2k: {{ prompts: 2, input_len: 128, output_len: 16 }}
datasets: {{ sharegpt: data/conversations.json }}
"#
    );
    let bench = Bench::of(&matrix).variable("DOCKER_HOST", &daemon.host);
    let home = folder(&bench).join("matrices/hf");
    hub(&engines, &home);
    let bench = bench.variable("HF_HOME", &home.display().to_string());
    let _turn = shared_memory::look();
    let before = names_in_shared_memory();
    let ran = bench.run(&[]).exits(0);
    assert!(!ran.stdout.contains("simulated"), "{}", ran.stdout);
    let run = bench.finished();
    for scenario in SCENARIOS {
        let summary = summary(&run, name, scenario);
        assert_eq!(summary.status, MeasurementStatus::Done, "{scenario}");
        assert!(summary.failures.is_empty(), "{scenario}: {:?}", summary.failures);
        let command = summary.engine.command.clone().unwrap_or_default();
        for flag in ["--runtime nvidia", "--gpus all", "--ipc=host", "--net host"] {
            assert!(command.contains(flag), "{flag} is not in {command}");
        }
        assert!(
            summary.engine.image_digest.is_some(),
            "the image is known by its digest"
        );
    }
    for measurement in run.plan.starts.iter().flat_map(|start| &start.cells) {
        for request in run.read_requests(measurement).expect("requests are kept") {
            let completion = request.usage.and_then(|usage| usage.completion);
            assert_eq!(completion, Some(request.requested_tokens), "{}", measurement.cell);
        }
    }
    let report = fs::read_to_string(bench.run_folder().join("report.md")).expect("tables are written");
    for scenario in SCENARIOS {
        assert!(report.contains(scenario), "{scenario} is not in:\n{report}");
    }
    assert!(daemon.of_run(&bench).is_empty(), "nothing is left");
    assert_eq!(names_in_shared_memory(), before, "nothing is left in /dev/shm");
}

/// What lies in the host's shared memory.
fn names_in_shared_memory() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir("/dev/shm")
        .expect("there is shared memory")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn real_llama_server_runs_the_four_workloads() {
    runs(
        "llama.cpp",
        "llama.cpp: { version: 0.7.0, devices: none, image: \"matrix-test/llama-server:1\", args: [-c, 8192] }",
        ", checkpoint: /models/tiny-qwen3.gguf",
    );
}

#[test]
fn real_vllm_runs_the_four_workloads() {
    runs(
        "vllm",
        "vllm: { version: 0.32.0, devices: none, image: \"matrix-test/vllm:1\", args: [--max-model-len, 2048, --enforce-eager], \
         env: { VLLM_LOGGING_LEVEL: ERROR, TRANSFORMERS_OFFLINE: \"1\", HF_HUB_OFFLINE: \"1\", VLLM_CPU_KVCACHE_SPACE: \"1\" } }",
        "",
    );
}

#[test]
fn real_sglang_runs_the_four_workloads() {
    runs(
        "sglang",
        "sglang: { version: 0.5.23, devices: none, image: \"matrix-test/sglang:1\", \
         args: [--device, cpu, --attention-backend, torch_native, --sampling-backend, pytorch, --disable-overlap-schedule, \
         --max-total-tokens, 16384, --mem-fraction-static, 0.2, --context-length, 2048], \
         env: { TRANSFORMERS_OFFLINE: \"1\", HF_HUB_OFFLINE: \"1\" } }",
        "",
    );
}

/// Five starts of an engine, each with a search for the highest rate: what one finds lies within what the others find.
fn searches_agree(name: &str, entry: &str, model: &str, slo: &str) -> Vec<String> {
    let Some(daemon) = Daemon::or_skip() else {
        return Vec::new();
    };
    let Some(engines) = engines(&daemon) else {
        return Vec::new();
    };
    let matrix = format!(
        r#"
name: {name}-capacity
engines:
  - {entry}
models:
  - tiny/qwen3: {{ tp: 1, tokenizer: hf/hub/models--tiny--qwen3/snapshots/0123456789abcdef0123456789abcdef01234567{model} }}
scenarios:
  - rate: {{ dataset: random-ids, range_ratio: 1, prompts: 15000, input_len: 64, output_len: 32, slo: {slo}, search: {{ by: rate, from: 5, to: 200, target: 0.8, duration: 20s, resolution: 0.2 }} }}
repeats: {{ starts: 5 }}
# llama.cpp splits some texts of random ids into other tokens than the model's own tokenizer.
validity: {{ prompt_tokens: 1 }}
"#
    );
    let bench = Bench::of(&matrix).variable("DOCKER_HOST", &daemon.host);
    let home = folder(&bench).join("matrices/hf");
    hub(&engines, &home);
    let bench = bench.variable("HF_HOME", &home.display().to_string());
    let _turn = shared_memory::look();
    // The engine and its client share two processors, which makes the measurements invalid beyond the capacity (`client-late`).
    let ran = bench.run(&[]);
    assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
    let run = bench.finished();
    let records: Vec<_> = run
        .summaries
        .iter()
        .map(|summary| summary.search.as_ref().expect("the search is recorded"))
        .collect();
    let found: Vec<String> = records.iter().map(|record| record.describe()).collect();
    let capacities: Vec<_> = records.iter().filter_map(|record| record.capacity).collect();
    assert_eq!(capacities.len(), 5, "{found:#?}\n{}", ran.stderr);
    for one in &capacities {
        for other in &capacities {
            assert!(one.low <= other.high && other.low <= one.high, "{found:#?}");
        }
    }
    found
}

#[test]
#[ignore = "a long form; tests/capacity.sh runs it"]
fn searches_of_real_llama_server_agree() {
    let found = searches_agree(
        "llama.cpp",
        "llama.cpp: { version: 0.7.0, devices: none, image: \"matrix-test/llama-server:1\", args: [-c, 8192] }",
        ", checkpoint: /models/tiny-qwen3.gguf",
        "{ ttft: 200ms }",
    );
    println!("{found:#?}");
}

#[test]
#[ignore = "a long form; tests/capacity.sh runs it"]
fn searches_of_real_vllm_agree() {
    let found = searches_agree(
        "vllm",
        "vllm: { version: 0.32.0, devices: none, image: \"matrix-test/vllm:1\", args: [--max-model-len, 2048, --enforce-eager], \
         env: { VLLM_LOGGING_LEVEL: ERROR, TRANSFORMERS_OFFLINE: \"1\", HF_HUB_OFFLINE: \"1\", VLLM_CPU_KVCACHE_SPACE: \"1\" } }",
        "",
        "{ ttft: 2s }",
    );
    println!("{found:#?}");
}

/// The same weights in 32 and in 8 bits, by the same llama-server.
#[test]
fn two_quantisations_of_llama_server_are_an_upgrade() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let Some(engines) = engines(&daemon) else { return };
    let matrix = r#"
name: quantised
engines:
  - llama.cpp: { version: 0.7.0, devices: none, image: "matrix-test/llama-server:1", args: [-c, 8192] }
models:
  - tiny/qwen3: { tokenizer: hf/hub/models--tiny--qwen3/snapshots/0123456789abcdef0123456789abcdef01234567, checkpoint: /models/tiny-qwen3.gguf }
scenarios:
  - short: { dataset: random-ids, range_ratio: 1, prompts: 24, input_len: 32, output_len: 32, concurrency: 2 }
axes:
  args: { f32: [-m, /models/tiny-qwen3.gguf], q8: [-m, /models/tiny-qwen3-q8.gguf] }
quality: { controls: 2, tasks: [arithmetic: { items: 8, max_tokens: 8 }] }
"#;
    let bench = Bench::of(matrix).variable("DOCKER_HOST", &daemon.host);
    let home = folder(&bench).join("matrices/hf");
    hub(&engines, &home);
    let made = Command::new(engines.join("tools/bin/python"))
        .arg(repository().join("tests/docker/quantize.py"))
        .args([engines.join("models/tiny-qwen3"), home.join("tiny-qwen3-q8.gguf")])
        .output()
        .expect("the script runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let bench = bench.variable("HF_HOME", &home.display().to_string());
    let matrix = bench.matrix();
    let matrix = matrix.to_str().expect("a text");
    let sides = [
        "--from",
        "args=f32",
        "--to",
        "args=q8",
        "--no-calibration",
        "--floor",
        "20%",
        "--starts",
        "3",
    ];
    let ran = bench.call(&[&["upgrade", matrix], &sides[..]].concat());
    assert!(
        ran.stdout.starts_with("May I upgrade llama.cpp from f32 to q8? "),
        "{}\n{}",
        ran.stdout,
        ran.stderr
    );
    let text = fs::read_to_string(bench.run_folder().join("upgrade.json")).expect("there is a page");
    let page: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let changes = page["changes"].as_array().expect("a list");
    assert!(changes.iter().any(|change| change["what"] == "-m"), "{changes:?}");
    // The same program: nothing about its flags has changed, and both help texts were read.
    let is_about_flags =
        |change: &&serde_json::Value| change["kind"].as_str().is_some_and(|kind| kind.contains("flag"));
    assert_eq!(changes.iter().find(is_about_flags), None);
    let flags = &page["upgrade"]["builds"][1]["flags"]["known"];
    assert!(flags["--ctx-size"].is_string(), "{flags}");
    let row = &page["speed"]["rows"][0];
    assert!(row["verdict"].is_string(), "{row}");
    let answers = &page["answers"][0];
    // Weights drawn at random answer nothing right, so that nothing can get worse.
    let why = answers["comparison"]["result"]["not-compared"].as_str();
    assert!(
        why.is_some_and(|why| why.contains("answers 0.0 % of 8 items correctly")),
        "{answers}"
    );
    assert!(daemon.of_run(&bench).is_empty(), "nothing is left");
}

/// Slots, threads, batch and context of a real llama-server: the engine of the matrix serves one request at a time, and
/// the search finds that more slots serve a load of four users faster.
#[test]
fn the_flags_of_real_llama_server_are_searched_and_confirmed() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let Some(engines) = engines(&daemon) else { return };
    let matrix = r#"
name: flags
engines:
  - llama.cpp: { version: 0.7.0, devices: none, image: "matrix-test/llama-server:1", args: [--ctx-size, 8192, --parallel, 1] }
models:
  - tiny/qwen3: { tokenizer: hf/hub/models--tiny--qwen3/snapshots/0123456789abcdef0123456789abcdef01234567, checkpoint: /models/tiny-qwen3.gguf }
scenarios:
  - users: { dataset: random-ids, range_ratio: 1, prompts: 16, input_len: 32, output_len: 16, concurrency: 4 }
# llama.cpp splits some texts of random ids into other tokens than the model's own tokenizer; it shares two processors with the client.
validity: { prompt_tokens: 1, window: 100ms, send_lag: 10s, client_cpu: 1.0 }
tune:
  objective: throughput
  budget: 10 gpu-min
  space:
    --threads: [1, 2]
    --batch-size: [256, 2048]
    --ctx-size: [4096, 8192]
    --no-such-flag: [1, 2]
"#;
    let bench = Bench::of(matrix).variable("DOCKER_HOST", &daemon.host);
    let home = folder(&bench).join("matrices/hf");
    hub(&engines, &home);
    let bench = bench.variable("HF_HOME", &home.display().to_string());
    let matrix = bench.matrix();
    let matrix = matrix.to_str().expect("a text");
    let ran = bench.call(&["tune", matrix, "--no-calibration", "--floor", "10%"]);
    assert!(
        ran.stdout
            .starts_with("Best flags of llama.cpp for output throughput? "),
        "{}\n{}",
        ran.stdout,
        ran.stderr
    );
    assert!(
        ran.stderr
            .contains("`--no-such-flag` is left out of the search space"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stdout.contains("simulated engine"), "{}", ran.stdout);
    let folders = fs::read_dir(bench.results()).expect("there are results");
    let record = folders
        .filter_map(|folder| fs::read_to_string(folder.expect("a folder").path().join("tune.json")).ok())
        .next()
        .expect("there is a record");
    let record: serde_json::Value = serde_json::from_str(&record).expect("it is JSON");
    let kind = record["result"]["kind"].as_str().expect("a kind");
    // On a host that pauses, five starts of a side may differ too much for a verdict, which ends with 3.
    let expected = match kind {
        "confirmed" | "no-better" | "default-is-best" => 0,
        _ => 3,
    };
    assert_eq!(ran.code, Some(expected), "{}\n{}", ran.stdout, ran.stderr);
    assert!(
        record["trials"].as_array().expect("a list").len() >= 4,
        "{record:#}"
    );
    // A test with containers runs alone.
    assert!(
        daemon.containers("label=matrix.run").is_empty(),
        "nothing is left"
    );
}
