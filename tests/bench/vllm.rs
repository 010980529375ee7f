//! A real engine: vLLM on CPU, installed by `tests/engines/cpu.sh`; `MATRIX_ENGINES` says where it lies. Without it the test
//! is skipped by name, and where `MATRIX_REQUIRE_ENGINES` is set, as CI does, that is a failure.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use crate::harness::{Desk, data};
use crate::real_engine::{self, PAIRS, RealEngine, cross_encoder, tiny_model};

/// Prompt and output tokens of vLLM's metrics.
const COUNTERS: [&str; 2] = ["vllm:prompt_tokens_total", "vllm:generation_tokens_total"];

/// vLLM with all its processes.
struct Vllm(RealEngine);

impl Vllm {
    fn start(engines: &Path, log: &Path, more: &[&str]) -> Self {
        Self(RealEngine::vllm(engines, &tiny_model(engines), log, more))
    }
}

impl Deref for Vllm {
    type Target = RealEngine;

    fn deref(&self) -> &RealEngine {
        &self.0
    }
}

/// The folder of the engines, if vLLM is installed.
fn engines() -> Option<PathBuf> {
    real_engine::folder("vllm")
}

/// Requires that a bench with these flags counts the tokens that vLLM counts; returns prompt and output tokens.
fn counts_as_vllm(vllm: &Vllm, engines: &Path, flags: &[&str]) -> [f64; 2] {
    let figures = vllm.counts_alike(engines, COUNTERS, flags);
    ["reported_input_tokens", "output_tokens"].map(|name| figures[name].as_f64().unwrap_or_default())
}

#[test]
fn a_bench_of_real_vllm_prints_the_block_and_appends_the_line() {
    let Some(engines) = engines() else {
        return;
    };
    let desk = Desk::new();
    let vllm = Vllm::start(&engines, &desk.path().join("vllm.log"), &[]);
    let (tokenizer, file) = (
        engines.join("models/tiny-qwen3").display().to_string(),
        data("conversations.json"),
    );
    for (backend, more) in [
        ("vllm", &["--flush-cache"][..]),
        (
            "vllm",
            &[
                "--extra-request-body",
                r#"{"stream_options": {"include_usage": true}}"#,
            ],
        ),
        ("vllm-chat", &[]),
        ("vllm-chat", &["--disable-stream"]),
    ] {
        let args = [
            "--backend",
            backend,
            "--host",
            "127.0.0.1",
            "--port",
            &vllm.port,
            "--tokenizer",
            &tokenizer,
            "--dataset-name",
            "random",
            "--dataset-path",
            &file,
            "--num-prompt",
            "6",
            "--random-input",
            "40",
            "--random-output",
            "12",
            "--random-range-ratio",
            "1",
            "--max-concurrency",
            "3",
            "--output-file",
            "out.jsonl",
            "--output-details",
        ];
        let ran = desk.call(&[&args[..], more].concat()).exits(0);
        assert_eq!(ran.value("Successful requests"), "6", "{backend} {more:?}");
        assert_eq!(ran.value("Total input tokens"), "240", "{backend} {more:?}");
        assert_eq!(
            ran.value("Total generated tokens"),
            "72",
            "{backend} {more:?}: {}",
            ran.stderr
        );
        let line = desk.lines().pop().expect("a line was appended");
        assert_eq!(line["completed"], 6);
        assert!(line["mean_ttft_ms"].as_f64() > Some(0.0), "{backend} {more:?}");
        let texts = line["generated_texts"].as_array().expect("a list");
        assert!(
            texts
                .iter()
                .all(|text| text.as_str().is_some_and(|text| !text.is_empty())),
            "{texts:?}"
        );
    }
    assert_eq!(desk.lines().len(), 4);
}

/// A bench of one request is compared by itself, so that errors of several cannot cancel each other.
#[test]
fn the_tokens_of_every_request_are_those_that_real_vllm_counts() {
    let Some(engines) = engines() else {
        return;
    };
    let desk = Desk::new();
    let vllm = Vllm::start(
        &engines,
        &desk.path().join("vllm.log"),
        &["--enable-prompt-tokens-details"],
    );
    let ids = |prompts: &'static str| {
        [
            "--dataset-name",
            "random-ids",
            "--random-input-len",
            "40",
            "--random-output-len",
            "12",
            "--num-prompts",
            prompts,
        ]
    };
    for backend in ["vllm", "vllm-chat", "vllm-messages", "vllm-responses"] {
        let count =
            |more: &[&str]| counts_as_vllm(&vllm, &engines, &[&["--backend", backend][..], more].concat());
        for seed in ["1", "2", "3"] {
            let exact = ["--random-range-ratio", "1", "--seed", seed];
            let streamed = count(&[&ids("1")[..], &exact].concat());
            assert_eq!(streamed[1], 12.0, "{backend}");
            let whole = count(&[&ids("1")[..], &exact, &["--disable-stream"]].concat());
            assert_eq!(streamed, whole, "{backend}");
        }
        count(
            &[
                &ids("6")[..],
                &["--random-range-ratio", "0.2", "--max-concurrency", "3"],
            ]
            .concat(),
        );
    }
    for backend in ["vllm-chat", "vllm-messages", "vllm-responses"] {
        counts_as_vllm(
            &vllm,
            &engines,
            &[
                "--backend",
                backend,
                "--dataset-name",
                "generated-shared-prefix",
                "--gsp-num-groups",
                "1",
                "--gsp-prompts-per-group",
                "2",
                "--gsp-system-prompt-len",
                "40",
                "--gsp-question-len",
                "10",
                "--gsp-output-len",
                "6",
                "--gsp-num-turns",
                "3",
            ],
        );
    }
}

#[test]
fn real_vllm_counts_the_prompts_of_embeddings_and_of_documents() {
    let Some(engines) = engines() else {
        return;
    };
    let desk = Desk::new();
    let vllm = Vllm::start(&engines, &desk.path().join("vllm.log"), &["--runner", "pooling"]);
    for prompts in ["1", "5"] {
        let embedded = counts_as_vllm(
            &vllm,
            &engines,
            &[
                "--backend",
                "vllm-embedding",
                "--dataset-name",
                "random-ids",
                "--random-input-len",
                "40",
                "--random-range-ratio",
                "1",
                "--num-prompts",
                prompts,
            ],
        );
        let ranked = counts_as_vllm(
            &vllm,
            &engines,
            &[
                "--backend",
                "vllm-rerank",
                "--dataset-name",
                "random-rerank",
                "--rerank-query-len",
                "8",
                "--rerank-documents",
                "3",
                "--rerank-document-len",
                "20",
                "--num-prompts",
                prompts,
            ],
        );
        assert_eq!([embedded[1], ranked[1]], [0.0, 0.0]);
    }
}

/// A cross-encoder reads query and document as one prompt, so that the server's count is the data set's.
#[test]
#[ignore = "a long form; tests/peers.sh runs it"]
fn real_vllm_counts_each_pair_of_query_and_document() {
    let Some(engines) = engines() else {
        return;
    };
    let desk = Desk::new();
    let (model, log) = (desk.path().join("cross-encoder"), desk.path().join("vllm.log"));
    cross_encoder(&engines, &model);
    let vllm = RealEngine::vllm(&engines, &model, &log, &["--runner", "pooling"]);
    for load in PAIRS {
        let figures = vllm.counts_alike(
            &engines,
            COUNTERS,
            &[&["--backend", "vllm-rerank"], load].concat(),
        );
        assert_eq!(
            figures["input_tokens"], figures["reported_input_tokens"],
            "{load:?}"
        );
        assert_eq!(figures["output_tokens"], 0.0);
    }
}

/// Grammars make the nonsense of a tiny model JSON; without them none of it is.
#[test]
#[ignore = "a long form; tests/peers.sh runs it"]
fn real_vllm_fulfils_schemas_and_calls_the_tools_that_it_must() {
    let Some(engines) = engines() else {
        return;
    };
    let desk = Desk::new();
    let vllm = Vllm::start(
        &engines,
        &desk.path().join("vllm.log"),
        &[
            "--enable-auto-tool-choice",
            "--tool-call-parser",
            "hermes",
            // A random model would write white space without end.
            "--structured-outputs-config.backend",
            "xgrammar",
            "--structured-outputs-config.disable_any_whitespace",
            "true",
        ],
    );
    let tokenizer = engines.join("models/tiny-qwen3").display().to_string();
    let bench = |backend: &str, more: &[&str]| {
        let common = [
            "--backend",
            backend,
            "--host",
            "127.0.0.1",
            "--port",
            &vllm.port,
            "--tokenizer",
            &tokenizer,
            "--num-prompts",
            "8",
            "--max-concurrency",
            "4",
            "--temperature",
            "1",
            "--random-output-len",
            "1000",
            "--disable-tqdm",
            "--output-file",
            "out.jsonl",
        ];
        let ran = desk.call(&[&common[..], more].concat()).exits(0);
        let line = desk.lines().pop().expect("a line was appended");
        let figures = line["matrix"]["figures"].clone();
        let count = |name: &str| figures[name].as_f64().unwrap_or_default();
        let counts = ["correct_requests", "incorrect_requests", "unchecked_requests"].map(count);
        assert_eq!(counts.iter().sum::<f64>(), 8.0, "{}", ran.stderr);
        counts
    };
    // Tokens are drawn, so that texts of a random model end; those that the limit cuts are not known to be correct.
    for backend in ["vllm-chat", "vllm", "vllm-responses"] {
        let schemas = ["--dataset-name", "structured", "--structured-properties", "3"];
        let [correct, incorrect, _] = bench(backend, &schemas);
        assert!(correct >= 1.0, "{backend}");
        assert_eq!(incorrect, 0.0, "{backend}");
    }
    // Calls may have white space without end, which the limit cuts; none of them is wrong.
    let tools = ["--dataset-name", "structured", "--structured-tools-share", "1"];
    let [_, incorrect, _] = bench("vllm-chat", &tools);
    assert_eq!(incorrect, 0.0);
    // The server does not know this field, so nothing makes it write JSON.
    let body = r#"{"guided_json": {"type": "object", "required": ["a"]}}"#;
    let free = [
        "--dataset-name",
        "random-ids",
        "--random-input-len",
        "40",
        "--check-answers",
        "--extra-request-body",
        body,
    ];
    let [correct, incorrect, _] = bench("vllm-chat", &free);
    assert_eq!(correct, 0.0);
    assert!(incorrect >= 6.0, "{incorrect}");
}
