//! The real `vllm bench serve` beside `matrix bench --like vllm`: the same arguments, the same requests one by one, the same
//! block, the same result file.
//!
//! `tests/engines/cpu.sh` installs vLLM; `MATRIX_ENGINES` says where it lies. Without it the test is skipped by name, and where
//! `MATRIX_REQUIRE_ENGINES` is set, as CI does, that is a failure. `MATRIX_VLLM_SEEDS` sets how many seeds are compared; `tests/peers.sh` sets
//! three.

mod backends;
mod batch;
mod cases;
mod facts;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use matrix::cli::env_variable;

use self::batch::Batch;
use crate::harness::{Desk, Ran, repository};
use crate::recorder::Recorder;

const MISSING: &str = "needs vLLM on CPU; install it with tests/engines/cpu.sh and set MATRIX_ENGINES";

/// The Python of the environment with vLLM, where it is installed.
fn python() -> Option<PathBuf> {
    let engines =
        env_variable("MATRIX_ENGINES").map_or_else(|| repository().join("target/engines"), PathBuf::from);
    let python = engines.join("venv/bin/python");
    if engines.join("venv/bin/vllm").exists() {
        return Some(python);
    }
    assert!(
        env_variable("MATRIX_REQUIRE_ENGINES").is_none(),
        "vLLM is not installed in {}",
        engines.display()
    );
    crate::skip::skip(MISSING);
    None
}

/// The seeds: one, or as many as the long form compares.
fn seeds() -> Vec<&'static str> {
    let count = env_variable("MATRIX_VLLM_SEEDS").and_then(|count| count.parse().ok());
    ["0", "42", "20251"]
        .into_iter()
        .take(count.unwrap_or(1))
        .collect()
}

#[test]
fn requests_blocks_and_result_files_are_those_of_vllm_bench_serve() {
    let Some(python) = python() else {
        return;
    };
    let mut batch = Batch::new(Recorder::start());
    for seed in seeds() {
        cases::add_random(&mut batch, seed);
        cases::add_files(&mut batch, seed);
        cases::add_generated(&mut batch, seed);
        cases::add_speed_bench(&mut batch, seed);
        cases::add_options(&mut batch, seed);
        cases::add_bare(&mut batch, seed);
        backends::add_responses(&mut batch, seed);
        backends::add_rerank(&mut batch, seed);
        backends::add_embeddings(&mut batch, seed);
    }
    let named = |arg: &String| {
        let name = arg.split('=').next().unwrap_or_default().replace('_', "-");
        arg.starts_with("--").then_some(name)
    };
    let compared: BTreeSet<String> = batch.cases.iter().flatten().filter_map(named).collect();
    let cases = batch.cases.len();
    let known = batch.compare(&python);
    let compared = compared.iter().filter(|flag| known.contains_key(*flag)).count();
    assert!(compared >= 40, "{compared} flags are compared");
    let help = Command::new(crate::binary::matrix())
        .args(["bench", "--like", "vllm", "--help"])
        .output()
        .expect("the binary runs");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for (flag, has_value) in &known {
        let line = help.lines().find(|line| {
            // A flag begins its line, after its short form if it has one.
            let mut words = line.split_whitespace().filter(|word| *word != "-h,");
            line.starts_with(' ') && words.next() == Some(flag.as_str())
        });
        let line = line.unwrap_or_else(|| panic!("`{flag}` of vLLM is unknown"));
        assert_eq!(line.contains('<'), *has_value, "{line}");
    }
    println!("{cases} cases, {compared} of {} flags compared", known.len());
}

#[test]
fn transcriptions_are_those_of_vllm_bench_serve() {
    let Some(python) = python() else {
        return;
    };
    let mut batch = Batch::new(Recorder::start());
    for seed in seeds() {
        backends::add_audio(&mut batch, seed);
    }
    batch.compare(&python);
}

#[test]
fn what_cannot_be_sent_is_refused_with_what_to_use() {
    let desk = Desk::new();
    for (args, why) in [
        (
            &["--hf-name", "a/b", "--plot_timeline"][..],
            "`--dataset-name custom`",
        ),
        (
            &["--backend", "vllm-rerank", "--endpoint", "/v1/rerank"],
            "use `--dataset-name random-rerank`",
        ),
        (
            &[
                "--backend",
                "openai-chat",
                "--endpoint",
                "/v1/chat/completions",
                "--dataset-name",
                "random-rerank",
            ],
            "use `vllm-rerank`",
        ),
        (
            &["--backend", "vllm-pooling", "--endpoint", "/v1/embeddings"],
            "write `--endpoint /pooling`",
        ),
        (
            &["--dataset-name", "custom_audio", "--dataset-path", "f.jsonl"],
            "only `openai-audio` sends them",
        ),
        (
            &[
                "--backend",
                "openai-audio",
                "--endpoint",
                "/v1/audio/transcriptions",
            ],
            "only `custom_audio` has recordings",
        ),
        (
            &["--backend", "openai-audio"],
            "write `--endpoint /v1/audio/transcriptions`",
        ),
        (
            &[
                "--backend",
                "openai-audio",
                "--endpoint",
                "/v1/audio/transcriptions",
                "--temperature",
                "0.5",
            ],
            "`--extra-body`",
        ),
        (
            &[
                "--dataset-name",
                "random-rerank",
                "--no-reranker",
                "--backend",
                "openai-embeddings",
                "--endpoint",
                "/v1/embeddings",
            ],
            "batch size of at least 2",
        ),
        (&["--backend", "tgi"], "there is no backend `tgi`"),
        (
            &["--backend", "openai-chat"],
            "write `--endpoint /v1/chat/completions`",
        ),
        (&["--dataset-name", "random-mm"], "`--dataset-name image`"),
        (&["--dataset-name", "sharegpt"], "`sharegpt` is read from a file"),
        (&["--dataset-path", "f"], "`random` is not read from a file"),
        (&["--max-concurrency", "0"], "write at least 1"),
        (&["--num-prompts", "-1"], "write at least 1"),
        (&["--ramp-up-strategy", "linear"], "give both"),
        (
            &[
                "--ramp-up-strategy",
                "linear",
                "--ramp-up-start-rps",
                "0",
                "--ramp-up-end-rps",
                "4",
            ],
            "at least 1",
        ),
        (&["--burstiness", "0"], "above 0"),
        (&["--goodput", "itl:5"], "is not a target"),
        (&["--percentile-metrics", "ttfts"], "does not accept `ttfts`"),
        (&["--metric-percentiles", "101"], "from 0 to 100"),
        (&["--random-range-ratio", "1"], "below 1"),
        (&["--self-timed"], "has no timestamps"),
        (&["--random-batch-size", "2"], "only `openai-embeddings`"),
        (&["--header", "secret"], "without `=`"),
        (&["--extra-body", "[]"], "JSON object"),
        (&["--tokenizer-mode", "mistral"], "use `--tokenizer-mode hf`"),
        (&["--skip-tokenizer-init"], "`--tokenizer`"),
    ] {
        let output = Command::new(crate::binary::matrix())
            .args(["bench", "--like", "vllm", "--port", "1"])
            .args(args)
            .current_dir(desk.path())
            .stdin(Stdio::null())
            .output();
        let ran = Ran::from(output.expect("the binary runs")).exits(2);
        assert!(ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    }
}
