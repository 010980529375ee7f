//! Transcriptions of real vLLM on CPU, with a Whisper of drawn weights.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Desk, repository};
use crate::real_engine::{self, RealEngine};

/// Prompt and output tokens of vLLM's metrics.
const COUNTERS: [&str; 2] = ["vllm:prompt_tokens_total", "vllm:generation_tokens_total"];

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
fn transcribed(vllm: &RealEngine, model: &Path, flags: &[&str]) -> (serde_json::Value, [f64; 2]) {
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
        "--extra-request-body",
        r#"{"language": "en"}"#,
    ];
    let args = [&common[..], flags].concat();
    let before = vllm.counters(COUNTERS);
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
    let counted = vllm.counted_since(COUNTERS, before, |counted| counted == [prompt, output]);
    (figures, counted)
}

/// vLLM reports a prompt token for each 10 ms of a recording, which its own counter does not have, and four for the beginning
/// of the answer, which it has. Output tokens are the same in both.
#[test]
#[ignore = "a long form; tests/peers.sh runs it"]
fn the_tokens_of_every_transcription_are_those_that_real_vllm_counts() {
    let Some(engines) = real_engine::folder("vllm") else {
        return;
    };
    let desk = Desk::new();
    let model = tiny_whisper(&engines, desk.path());
    let log = desk.path().join("vllm.log");
    let vllm = RealEngine::vllm(&engines, &model, &log, &["--max-model-len", "448"]);
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
