//! Cases of the protocols besides completions and chat.

use serde_json::{Value, json};

use super::batch::Batch;

pub(super) fn add_responses(batch: &mut Batch, seed: &str) {
    let responses = ["--backend", "openai-responses", "--endpoint", "/v1/responses"];
    let few = ["--num-prompts", "5", "--seed", seed, "--input-len", "20"];
    let mut add = |more: &[&str]| batch.add(&[&responses[..], &few, more].concat());
    add(&["--output-len", "7", "--save-detailed"]);
    add(&[
        "--random-output-len",
        "5",
        "--temperature",
        "0",
        "--top-p",
        "0.9",
        "--ignore-eos",
        "--extra-body",
        r#"{"store": true, "metadata": null}"#,
        "--percentile-metrics",
        "ttft,tpot,itl,e2el",
    ]);
    add(&["--output-len", "4", "--num-warmups", "2", "--header", "X-Mine=1"]);
}

pub(super) fn add_rerank(batch: &mut Batch, seed: &str) {
    let few = ["--seed", seed, "--dataset-name", "random-rerank"];
    let mut add = |more: &[&str]| batch.add(&[&few[..], more].concat());
    let rerank = ["--backend", "vllm-rerank", "--endpoint", "/v1/rerank"];
    for more in [
        &[
            "--num-prompts",
            "7",
            "--random-batch-size",
            "3",
            "--input-len",
            "40",
        ][..],
        &[
            "--num-prompts",
            "4",
            "--random-input-len",
            "33",
            "--save-detailed",
        ],
        &[
            "--num-prompts",
            "9",
            "--random-batch-size",
            "4",
            "--input-len",
            "50",
            "--random-range-ratio",
            "0.4",
            "--ready-check-timeout-sec",
            "30",
        ],
        &[
            "--num-prompts",
            "9",
            "--random-batch-size",
            "4",
            "--input-len",
            "20",
            "--no-reranker",
            "--random-range-ratio",
            r#"{"input": 0.3, "output": 0.6}"#,
        ],
    ] {
        add(&[&rerank[..], more].concat());
    }
    let embeddings = ["--backend", "openai-embeddings", "--endpoint", "/v1/embeddings"];
    let lists = [
        "--num-prompts",
        "8",
        "--random-batch-size",
        "3",
        "--input-len",
        "16",
    ];
    add(&[&embeddings[..], &lists, &["--no-reranker"]].concat());
}

pub(super) fn add_embeddings(batch: &mut Batch, seed: &str) {
    let few = ["--num-prompts", "5", "--seed", seed, "--input-len", "10"];
    let mut add = |more: &[&str]| batch.add(&[&few[..], more].concat());
    add(&[
        "--backend",
        "openai-embeddings-chat",
        "--endpoint",
        "/v1/embeddings",
        "--extra-body",
        r#"{"dimensions": 8}"#,
    ]);
    let infinity = ["--backend", "infinity-embeddings", "--endpoint", "/v1/embeddings"];
    let pooling = ["--backend", "vllm-pooling", "--endpoint", "/pooling"];
    for backend in [infinity, pooling] {
        add(&[&backend[..], &["--save-detailed"]].concat());
        add(&[&backend[..], &["--random-batch-size", "2"]].concat());
    }
}

/// Recordings of one and of two channels, in files with and without other chunks, named by their whole paths.
pub(super) fn add_audio(batch: &mut Batch, seed: &str) {
    let file = |name: &str, channels: u16, more: &[u8]| {
        let samples: Vec<u8> = (0..800_u16 * channels)
            .flat_map(|at| at.wrapping_mul(77).to_le_bytes())
            .collect();
        let length = |bytes: usize| u32::try_from(bytes).expect("a short file").to_le_bytes();
        let head = [
            &b"WAVE"[..],
            more,
            b"fmt \x10\0\0\0\x01\0",
            &channels.to_le_bytes(),
            &8000_u32.to_le_bytes(),
            &(16_000 * u32::from(channels)).to_le_bytes(),
            &(2 * channels).to_le_bytes(),
            b"\x10\0data",
            &length(samples.len()),
        ]
        .concat();
        let bytes = [&b"RIFF"[..], &length(head.len() + samples.len()), &head, &samples].concat();
        let path = batch.desk.path().join(name);
        std::fs::write(&path, bytes).expect("a file can be written");
        path.display().to_string()
    };
    let (mono, stereo) = (
        file("mono.wav", 1, b""),
        file("stereo.wav", 2, b"LIST\x04\0\0\0abcd"),
    );
    let rows: Vec<Value> = (0..5)
        .map(|at| json!({"prompt": format!("Transcribe {at}."), "audio": if at % 2 == 0 { &mono } else { &stereo }, "output_tokens": at + 4}))
        .collect();
    let path = batch.lines("audio.jsonl", &rows);
    let mut add = |more: &[&str]| {
        let args = [
            "--backend",
            "openai-audio",
            "--endpoint",
            "/v1/audio/transcriptions",
        ];
        let data = [
            "--dataset-name",
            "custom_audio",
            "--dataset-path",
            &path,
            "--seed",
            seed,
        ];
        batch.add(&[&args[..], &data, more].concat());
    };
    add(&["--num-prompts", "4", "--custom-output-len", "5"]);
    add(&["--num-prompts", "8", "--custom-output-len", "-1"]);
    add(&["--num-prompts", "0", "--disable-shuffle", "--output-len", "9"]);
    add(&[
        "--num-prompts",
        "3",
        "--no-oversample",
        "--ignore-eos",
        "--num-warmups",
        "1",
    ]);
    add(&[
        "--num-prompts",
        "2",
        "--ready-check-timeout-sec",
        "10",
        "--extra-body",
        r#"{"language": "de"}"#,
    ]);
}
