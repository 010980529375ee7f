//! Cases of the protocols besides completions and chat.

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
