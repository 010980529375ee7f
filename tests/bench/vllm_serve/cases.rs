//! The command lines that are compared.

use serde_json::{Value, json};

use super::batch::Batch;
use crate::harness::data;

pub(super) fn add_random(batch: &mut Batch, seed: &str) {
    let few = ["--num-prompts", "6", "--seed", seed];
    let mut add = |more: &[&str]| batch.add(&[&few[..], more].concat());
    add(&["--random-input-len", "40", "--random-output-len", "7"]);
    add(&[
        "--backend",
        "vllm",
        "--input-len",
        "30",
        "--output-len",
        "9",
        "--random-range-ratio",
        "0.5",
        "--save-detailed",
    ]);
    add(&[
        "--input_len=25",
        "--random_output_len",
        "5",
        "--random-prefix-len",
        "12",
        "--random-range-ratio",
        r#"{"input": 0.3, "output": 0.6}"#,
    ]);
    add(&[
        "--input-len",
        "12",
        "--output-len",
        "4",
        "--backend",
        "openai-chat",
        "--endpoint",
        "/v1/chat/completions",
        "--percentile-metrics",
        "ttft,tpot,itl,e2el,client_queue_time,e2el_including_client_queue",
        "--metric-percentiles",
        "25,50,99.9",
    ]);
    add(&[
        "--input-len",
        "10",
        "--output-len",
        "4",
        "--backend",
        "openai-embeddings",
        "--endpoint",
        "/v1/embeddings",
        "--save-detailed",
    ]);
    add(&[
        "--input-len",
        "10",
        "--backend",
        "openai-embeddings",
        "--endpoint",
        "/v1/embeddings",
        "--random-batch-size",
        "4",
        "--extra-body",
        r#"{"dimensions": 8}"#,
    ]);
}

pub(super) fn add_files(batch: &mut Batch, seed: &str) {
    let conversations = data("conversations.json");
    let few = ["--seed", seed, "--num-prompts"];
    let sharegpt = ["--dataset-name", "sharegpt", "--dataset-path", &conversations];
    batch.add(&[&few[..], &["5"], &sharegpt].concat());
    batch.add(
        &[
            &few[..],
            &["4"],
            &sharegpt,
            &["--sharegpt-output-len", "6", "--disable-shuffle", "--ignore-eos"],
        ]
        .concat(),
    );
    batch.add(
        &[
            &few[..],
            &["300"],
            &sharegpt,
            &["--no-oversample", "--output-len", "3"],
        ]
        .concat(),
    );
    batch.add(&[&few[..], &["260"], &sharegpt, &["--sharegpt-output-len", "4"]].concat());
    batch.add(
        &[
            &few[..],
            &["4"],
            &sharegpt,
            &[
                "--enable-multimodal-chat",
                "--backend",
                "openai-chat",
                "--endpoint",
                "/v1/chat/completions",
            ],
        ]
        .concat(),
    );
    let row = |row: usize| {
        let category = ["a", "b"][row % 2];
        json!({
            "prompt": format!("What is {row}?"),
            "output_tokens": row + 2,
            "category": category,
            "turns": [format!("First turn {row}"), "x"],
        })
    };
    let rows: Vec<Value> = (0..7).map(row).collect();
    let custom = batch.lines("custom.jsonl", &rows);
    let custom = ["--dataset-path", &custom];
    batch.add(&[&few[..], &["5", "--dataset-name", "custom"], &custom].concat());
    batch.add(
        &[
            &few[..],
            &[
                "9",
                "--dataset-name",
                "custom",
                "--skip-chat-template",
                "--custom-output-len",
                "-1",
            ],
            &custom,
        ]
        .concat(),
    );
    batch.add(
        &[
            &few[..],
            &[
                "0",
                "--dataset-name",
                "custom",
                "--chat-template-kwargs",
                r#"{"thinking": true}"#,
                "--output-len",
                "5",
            ],
            &custom,
        ]
        .concat(),
    );
    batch.add(
        &[
            &few[..],
            &[
                "3",
                "--dataset-name",
                "spec_bench",
                "--spec-bench-category",
                "b",
                "--spec-bench-output-len",
                "6",
            ],
            &custom,
        ]
        .concat(),
    );
}

/// A folder with a file of SPEED-Bench's layout.
pub(super) fn add_speed_bench(batch: &mut Batch, seed: &str) {
    let row = |row: usize| {
        let category = ["coding", "math"][row % 2];
        json!({"messages": [{"role": "user", "content": format!("Solve {row}.")}], "category": category})
    };
    let rows: Vec<Value> = (0..6).map(row).collect();
    batch.lines("throughput_1k.jsonl", &rows);
    let folder = batch.desk.path().display().to_string();
    let speed = [
        "--dataset-name",
        "speed_bench",
        "--dataset-path",
        &folder,
        "--speed-bench-dataset-subset",
        "throughput_1k",
        "--speed-bench-output-len",
        "6",
        "--seed",
        seed,
        "--num-prompts",
    ];
    batch.add(&[&speed[..], &["4", "--speed-bench-category", "math"]].concat());
    batch.add(&[&speed[..], &["3", "--skip-chat-template", "--output-len", "9"]].concat());
}

pub(super) fn add_generated(batch: &mut Batch, seed: &str) {
    let few = ["--seed", seed, "--num-prompts"];
    batch.add(
        &[
            &few[..],
            &[
                "7",
                "--dataset-name",
                "prefix_repetition",
                "--prefix-repetition-prefix-len",
                "9",
                "--prefix-repetition-suffix-len",
                "5",
                "--prefix-repetition-num-prefixes",
                "3",
                "--prefix-repetition-output-len",
                "4",
            ],
        ]
        .concat(),
    );
    let trace: Vec<Value> = (0..6)
        .map(|row| json!({"timestamp": row * 20, "input_length": 10 + 9 * row, "output_length": 3 + row, "hash_ids": [1, 2 + row % 2, 40 + row]}))
        .collect();
    let trace = batch.lines("trace.jsonl", &trace);
    let timed = [
        "--dataset-name",
        "timed_trace",
        "--dataset-path",
        &trace,
        "--timed-trace-sec-multiplier",
        "0.001",
    ];
    batch.add(&[&few[..], &["5"], &timed].concat());
    batch.add(
        &[
            &few[..],
            &["9"],
            &timed,
            &[
                "--no-self-timed",
                "--timed-trace-chunk-hash-size",
                "8",
                "--request-rate",
                "300",
            ],
        ]
        .concat(),
    );
    let burst = batch.desk.path().join("burst.csv");
    let text: String = (0..9)
        .map(|row| {
            format!(
                "{row}.5,{},{},{},{},API log\n",
                ["GPT-4", "ChatGPT"][usize::from(row % 4 == 3)],
                5 + row,
                row % 5,
                9 + row
            )
        })
        .collect();
    std::fs::write(
        &burst,
        format!("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n{text}"),
    )
    .expect("a file can be written");
    let burst = burst.display().to_string();
    for count in ["3", "8"] {
        batch.add(
            &[
                &few[..],
                &[count, "--dataset-name", "burstgpt", "--dataset-path", &burst],
            ]
            .concat(),
        );
    }
}

pub(super) fn add_options(batch: &mut Batch, seed: &str) {
    let few = [
        "--num-prompts",
        "4",
        "--input-len",
        "8",
        "--output-len",
        "5",
        "--seed",
        seed,
    ];
    let url = format!("http://127.0.0.1:{}", batch.recorder.port);
    let mut add = |more: &[&str]| batch.add(&[&few[..], more].concat());
    add(&[
        "--top-p",
        "0.9",
        "--top-k",
        "-1",
        "--min-p",
        "0.1",
        "--temperature",
        "0",
        "--frequency-penalty=-0.5",
        "--presence-penalty",
        "0.25",
        "--repetition-penalty",
        "1.1",
        "--logprobs",
        "2",
        "--extra-body",
        r#"{"temperature": 0.3, "stop": null, "seed": 7}"#,
    ]);
    add(&["--lora-modules", "a", "b", "c"]);
    add(&[
        "--lora-modules",
        "a",
        "b",
        "--lora-assignment",
        "round-robin",
        "--num-warmups",
        "2",
    ]);
    add(&[
        "--header",
        "X-Mine=1",
        "authorization=Basic x=y",
        "--served-model-name",
        "served",
        "--metadata",
        "version=1",
        "tp=2",
        "--label",
        "mine",
        "--result-dir",
        "deep/results",
    ]);
    add(&[
        "--request-rate",
        "200",
        "--burstiness",
        "0.5",
        "--goodput",
        "ttft:10000",
        "tpot:1000",
        "e2el:20000",
        "--result-filename",
        "result.json",
        "--append-result",
    ]);
    add(&[
        "--ramp-up-strategy",
        "linear",
        "--ramp-up-start-rps",
        "50",
        "--ramp-up-end-rps",
        "53",
    ]);
    add(&[
        "--ramp-up-strategy",
        "exponential",
        "--ramp-up-start-rps",
        "100",
        "--ramp-up-end-rps",
        "400",
        "--burstiness",
        "inf",
    ]);
    add(&[
        "--max-concurrency",
        "3",
        "--request-rate",
        "300",
        "--percentile-metrics",
        "e2el_including_client_queue,e2el",
    ]);
    add(&[
        "--ready-check-timeout-sec",
        "30",
        "--profile",
        "--trust-remote-code",
        "--no-stream",
        "--tokenizer-mode",
        "hf",
    ]);
    add(&["--num-prompt", "3", "--base-url", &url, "--host", "nowhere"]);
    // The server counts bytes, and cuts prompts.
    add(&["--model", "bytes"]);
}

/// Requests without a model, whose name is the server's, and without a file.
pub(super) fn add_bare(batch: &mut Batch, seed: &str) {
    let (port, tokenizer) = (batch.recorder.port.to_string(), batch.tokenizer.clone());
    let common = [
        "--port",
        &port,
        "--tokenizer",
        &tokenizer,
        "--seed",
        seed,
        "--request-id-prefix",
        "r",
    ];
    batch.add_bare(
        &[
            &common[..],
            &[
                "--num-prompts",
                "8",
                "--input-len",
                "8",
                "--output-len",
                "5",
                "--request-rate",
                "inf",
            ],
        ]
        .concat(),
    );
}
