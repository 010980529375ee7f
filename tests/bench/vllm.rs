//! A real engine: vLLM on CPU, installed by `tests/engines/cpu.sh`; `MATRIX_ENGINES` says where it lies. Without it the test
//! is skipped by name, and where `MATRIX_REQUIRE_ENGINES` is set, as CI does, that is a failure.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use matrix::cli::env_variable;

use crate::harness::{Desk, data, repository};

/// vLLM with all its processes.
struct Vllm {
    child: Child,
    port: String,
}

impl Vllm {
    fn start(engines: &Path, log: &Path, more: &[&str]) -> Self {
        let more = [&["--max-model-len", "2048"][..], more].concat();
        Self::serve(engines, &engines.join("models/tiny-qwen3"), log, &more)
    }

    fn serve(engines: &Path, model: &Path, log: &Path, more: &[&str]) -> Self {
        let port = {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
            free.local_addr().expect("it has one").port().to_string()
        };
        let log = std::fs::File::create(log).expect("a file can be made");
        let child = Command::new(engines.join("venv/bin/vllm"))
            .arg("serve")
            .arg(model)
            .args([
                "--served-model-name",
                "tiny",
                "--host",
                "127.0.0.1",
                "--port",
                &port,
            ])
            .arg("--enforce-eager")
            .args(more)
            .env("VLLM_CPU_KVCACHE_SPACE", "1")
            .env("VLLM_NO_USAGE_STATS", "1")
            .env("VLLM_SERVER_DEV_MODE", "1")
            .env("HF_HUB_OFFLINE", "1")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file has several handles"))
            .stderr(log)
            .spawn()
            .expect("vLLM starts");
        Self { child, port }
    }

    /// Prompt and output tokens that it has counted since it started.
    fn counters(&self) -> [f64; 2] {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).expect("vLLM listens");
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("it answers");
        ["vllm:prompt_tokens_total{", "vllm:generation_tokens_total{"].map(|name| {
            let lines = page.lines().filter(|line| line.starts_with(name));
            lines
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum()
        })
    }

    /// What it has counted since `before`, once that is `expected`; it counts a moment after it answers.
    fn counted_since(&self, before: [f64; 2], expected: [f64; 2]) -> [f64; 2] {
        let mut counted = [0.0; 2];
        for _ in 0..100 {
            let now = self.counters();
            counted = [now[0] - before[0], now[1] - before[1]];
            if counted == expected {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        counted
    }
}

/// The folder of the engines; `None` where vLLM is not installed, which is printed, or fails the test if vLLM is required.
fn engines() -> Option<PathBuf> {
    let engines =
        env_variable("MATRIX_ENGINES").map_or_else(|| repository().join("target/engines"), PathBuf::from);
    if engines.join("venv/bin/vllm").exists() {
        return Some(engines);
    }
    assert!(
        env_variable("MATRIX_REQUIRE_ENGINES").is_none(),
        "vLLM is not installed in {}",
        engines.display()
    );
    crate::skip::skip("needs vLLM on CPU; install it with tests/engines/cpu.sh and set MATRIX_ENGINES");
    None
}

/// Requires that a bench with these flags counts the tokens that vLLM counts; returns prompt and output tokens.
fn counts_as_vllm(vllm: &Vllm, engines: &Path, flags: &[&str]) -> [f64; 2] {
    let desk = Desk::new();
    let tokenizer = engines.join("models/tiny-qwen3").display().to_string();
    let common = [
        "--host",
        "127.0.0.1",
        "--port",
        &vllm.port,
        "--tokenizer",
        &tokenizer,
        "--warmup-requests",
        "0",
        "--disable-tqdm",
        "--output-file",
        "out.jsonl",
        "--ready-check-timeout-sec",
        "300",
    ];
    // The first bench waits until vLLM is ready.
    desk.call(&[&common[..], flags].concat()).exits(0);
    let before = vllm.counters();
    desk.call(&[&common[..], flags].concat()).exits(0);
    let line = desk.lines().pop().expect("a line was appended");
    let figures = &line["matrix"]["figures"];
    let figure = |name: &str| figures[name].as_f64().unwrap_or_default();
    let ours = [figure("reported_input_tokens"), figure("output_tokens")];
    assert_eq!(vllm.counted_since(before, ours), ours, "{flags:?}");
    assert!(ours[0] > 0.0, "{flags:?}: {figures}");
    ours
}

impl Drop for Vllm {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
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
            "--ready-check-timeout-sec",
            "300",
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

/// A Whisper with drawn weights, made by a script of this repository.
fn tiny_whisper(engines: &Path, folder: &Path) -> PathBuf {
    let model = folder.join("tiny-whisper");
    let made = Command::new(engines.join("venv/bin/python"))
        .arg(repository().join("tests/engines/tiny_whisper.py"))
        .arg(&model)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .status()
        .expect("Python runs");
    assert!(made.success());
    model
}

/// A bench of these recordings: its figures, and the tokens that vLLM counted meanwhile.
fn transcribed(vllm: &Vllm, model: &Path, flags: &[&str]) -> (serde_json::Value, [f64; 2]) {
    let desk = Desk::new();
    let tokenizer = model.display().to_string();
    let common = [
        "--backend",
        "vllm-transcription",
        "--host",
        "127.0.0.1",
        "--port",
        &vllm.port,
        "--tokenizer",
        &tokenizer,
        "--dataset-name",
        "random-audio",
        "--warmup-requests",
        "0",
        "--disable-tqdm",
        "--output-file",
        "out.jsonl",
        "--ready-check-timeout-sec",
        "300",
        "--extra-request-body",
        r#"{"language": "en"}"#,
    ];
    let args = [&common[..], flags].concat();
    // The first bench waits until vLLM is ready.
    desk.call(&args).exits(0);
    let before = vllm.counters();
    desk.call(&args).exits(0);
    let figures = desk.lines().pop().expect("a line was appended")["matrix"]["figures"].clone();
    let output = figures["output_tokens"].as_f64().unwrap_or_default();
    // Of a recording, vLLM's counter has only the four tokens before the answer, once for each piece of 30 s.
    let pieces = |seconds: f64| (seconds / 30.0).ceil();
    let flag = |name: &str| {
        flags
            .iter()
            .position(|flag| *flag == name)
            .map(|at| flags[at + 1])
    };
    let number = |name: &str| flag(name).expect("it is given").parse::<f64>().expect("a number");
    let prompt = 4.0 * number("--num-prompts") * pieces(number("--audio-seconds"));
    (figures, vllm.counted_since(before, [prompt, output]))
}

/// vLLM reports a prompt token for each 10 ms of a recording, which its own counter does not have, and four for the beginning
/// of the answer, which it has. Output tokens are the same in both.
#[test]
fn the_tokens_of_every_transcription_are_those_that_real_vllm_counts() {
    let Some(engines) = engines() else {
        return;
    };
    let desk = Desk::new();
    let model = tiny_whisper(&engines, desk.path());
    let vllm = Vllm::serve(&engines, &model, &desk.path().join("vllm.log"), &[]);
    for (seconds, pieces, more) in [
        ("1", 1.0, &["--seed", "1"][..]),
        ("3.5", 1.0, &["--seed", "2"]),
        ("3.5", 1.0, &["--audio-content", "noise", "--seed", "3"]),
        // A longer one is transcribed in two pieces, each with the limit of tokens.
        ("40", 2.0, &["--seed", "4"]),
    ] {
        let single = [
            "--num-prompts",
            "1",
            "--audio-seconds",
            seconds,
            "--audio-output-len",
            "7",
        ];
        let (figures, counted) = transcribed(&vllm, &model, &[&single[..], more].concat());
        let figure = |name: &str| figures[name].as_f64();
        let seconds: f64 = seconds.parse().expect("a number");
        assert_eq!(figure("audio_s"), Some(seconds));
        assert_eq!(
            figure("reported_input_tokens"),
            Some(4.0 + 100.0 * seconds),
            "{figures}"
        );
        assert_eq!(figure("input_tokens"), figure("reported_input_tokens"));
        assert_eq!(counted[0], 4.0 * pieces, "{figures}");
        assert_eq!(figure("reported_output_tokens"), Some(counted[1]), "{figures}");
        assert!(counted[1] >= pieces && counted[1] <= 7.0 * pieces, "{counted:?}");
        assert!(figure("audio_throughput_x") > Some(0.0) && figure("mean_ttft_ms") > Some(0.0));
    }
    let many = [
        "--num-prompts",
        "6",
        "--audio-seconds",
        "2",
        "--audio-range-ratio",
        "0.5",
        "--max-concurrency",
        "3",
    ];
    let (figures, counted) = transcribed(&vllm, &model, &many);
    assert_eq!(
        figures["reported_output_tokens"].as_f64(),
        Some(counted[1]),
        "{figures}"
    );
    // Without a stream vLLM reports seconds instead of tokens.
    let single = [
        "--num-prompts",
        "1",
        "--audio-seconds",
        "2",
        "--audio-output-len",
        "7",
    ];
    let desk = transcribed(&vllm, &model, &[&single[..], &["--disable-stream"]].concat()).0;
    assert_eq!(
        (&desk["input_tokens"], &desk["reported_output_tokens"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert_eq!(desk["audio_s"].as_f64(), Some(2.0));
}
