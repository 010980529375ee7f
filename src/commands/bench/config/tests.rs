use clap::Parser;
use serde_json::Value;

use super::*;
use crate::cli::{Cli, Command};
use crate::config::dataset::Dataset;
use crate::config::dataset::generated_shared_prefix::{GroupDistribution, SharedPrefix};
use crate::config::lora::AdapterDistribution;
use crate::loadgen::dataset::Content;
use crate::loadgen::protocol::{self, RequestParams};

fn config_in(environment: &Environment, args: &[&str]) -> Result<BenchConfig, Vec<String>> {
    let argv = ["matrix", "bench"].iter().chain(args);
    match Cli::try_parse_from(argv).unwrap().command {
        Command::Bench(args) => BenchConfig::from_args(&args, environment),
        _ => panic!("`bench` is a command"),
    }
}

fn config(args: &[&str]) -> Result<BenchConfig, Vec<String>> {
    config_in(&Environment::default(), args)
}

fn assert_refused(args: &[&str], why: &str) {
    let errors = config(args).unwrap_err();
    assert!(
        errors.iter().any(|line| line.contains(why)),
        "{args:?}: {errors:?}"
    );
}

/// The body of a request for 5 tokens.
fn request_body(config: &BenchConfig) -> Value {
    let lora = config.scenario.lora.as_ref();
    let ask = RequestParams {
        lora: lora.map(|lora| lora.names[0].as_str()),
        ..RequestParams::without_extras("m", 5, config.scenario.stop_at_eos, &config.scenario.body)
    };
    let body = protocol::encode(&config.dialect, &Content::Text("x".to_owned().into()), &ask).unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn each_backend_has_its_protocol_its_port_and_its_path() {
    for (backend, port, path) in [
        ("sglang", 30_000, "/generate"),
        ("sglang-native", 30_000, "/generate"),
        ("sglang-oai", 30_000, "/v1/completions"),
        ("sglang-oai-chat", 30_000, "/v1/chat/completions"),
        ("sglang-embedding", 30_000, "/v1/embeddings"),
        ("vllm", 8000, "/v1/completions"),
        ("vllm-chat", 8000, "/v1/chat/completions"),
        ("vllm-embedding", 8000, "/v1/embeddings"),
        ("vllm-messages", 8000, "/v1/messages"),
        ("vllm-responses", 8000, "/v1/responses"),
        ("sglang-messages", 30_000, "/v1/messages"),
        ("sglang-responses", 30_000, "/v1/responses"),
        ("anthropic", 8000, "/v1/messages"),
        ("lmdeploy", 23_333, "/v1/completions"),
        ("lmdeploy-chat", 23_333, "/v1/chat/completions"),
        ("trt", 8000, "/v2/models/ensemble/generate_stream"),
        ("truss", 8080, "/v1/models/model:predict"),
    ] {
        let config = config(&["--backend", backend, "--model", "m"]).unwrap();
        assert_eq!(
            (config.address.port, protocol::path(&config.dialect)),
            (port, path),
            "{backend}"
        );
        assert_eq!(config.backend.name(), backend);
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_reason_and_all_at_once() {
    assert_refused(&["--backend", "gserver"], "`gserver` is not implemented");
    assert_refused(&["--backend", "trt"], "give `--model`");
    assert_refused(
        &["--backend", "vllm", "--dataset-name", "mmmu"],
        "has images, which the backend `vllm` does not accept",
    );
    assert_refused(
        &["--backend", "vllm-chat", "--return-logprob"],
        "`--return-logprob` has no effect",
    );
    assert_refused(
        &["--lora-name", "a", "--lora-request-distribution", "distinct"],
        "only one adapter",
    );
    assert_refused(&["--lora-zipf-alpha", "1"], "above 1");
    assert_refused(
        &["--lora-request-distribution", "skewed"],
        "without `--lora-name`",
    );
    assert_refused(
        &["--backend", "vllm", "--tokenize-prompt"],
        "needs the backend `sglang`",
    );
    assert_refused(
        &["--goodput", "ttft:-1"],
        "`--goodput ttft:-1` is not an SLO target",
    );
    for backend in ["vllm-embedding", "vllm-rerank"] {
        for pair in ["ttft:500", "tpot:50"] {
            assert_refused(
                &["--backend", backend, "--goodput", "e2el:900", pair],
                &format!("`--goodput {pair}` has no meaning with the backend `{backend}`"),
            );
        }
    }
    assert_refused(&["--extra-request-body", "[1]"], "not a JSON object");
    assert_refused(&["--profile-by-stage"], "without `--profile`");
    assert_refused(
        &["--rules", "classic", "--backend", "vllm-chat"],
        "does not have the backend",
    );
    assert_refused(
        &["--rules", "classic", "--dataset-name", "random"],
        "--random-input-len",
    );
    assert_refused(
        &["--dataset-name", "random", "--random-range-ratio", "2"],
        "`--random-range-ratio`",
    );
    assert_refused(&["--multi"], "`--rules classic`");
    assert_refused(&["--request-rate-range", "1,2"], "without `--multi`");
    assert_refused(
        &["--rules", "classic", "--multi", "--request-rate", "4"],
        "no effect with `--multi`",
    );
    assert_refused(
        &["--rules", "classic", "--goodput", "ttft:1"],
        "`--goodput` has no effect",
    );
    assert_refused(&["--rules", "classic", "--output-details"], "a CSV row");
    assert_refused(&["--flush-cache-timeout", "9"], "without `--flush-cache`");
    assert_refused(
        &[
            "--backend",
            "vllm-chat",
            "--dataset-name",
            "image",
            "--image-count",
            "4294967295",
        ],
        "`--image-count`: the images would take up to",
    );
    assert_refused(&["--pd-separated"], "without `--profile`");
    assert_refused(
        &["--profile-decode-url", "http://h:1"],
        "without `--pd-separated`",
    );
    let both = [
        "--pd-separated",
        "--profile",
        "--profile-prefill-url",
        "http://h:1",
        "--profile-decode-url",
        "http://h:2",
    ];
    assert_refused(&both, "exclude each other");
    assert_refused(&["--header", "novalue"], "no name or no value");
    assert_refused(&["--base-url", "host:1"], "must begin with");
    for other in ["http://h:1", "http://H:1/"] {
        assert_refused(&["--base-url", "http://h:1", other], "names `http://");
    }
    assert_refused(
        &["--routing-key-header", "Host"],
        "the client uses this header for another purpose",
    );
    assert_refused(
        &[
            "--backend",
            "vllm-chat",
            "--dataset-name",
            "random-ids",
            "--check-answers",
        ],
        "no request sets a condition for its answer",
    );
    for (backend, dataset) in [
        ("vllm-chat", "structured"),
        ("vllm-transcription", "random-audio"),
    ] {
        assert_refused(
            &[
                "--backend",
                backend,
                "--dataset-name",
                dataset,
                "--dataset-path",
                "x",
            ],
            &format!("`--dataset-path` has no effect on `{dataset}`"),
        );
    }
    let all = config(&[
        "--backend",
        "trt",
        "--goodput",
        "x:1",
        "--print-requests",
        "--num-prompts",
        "0",
    ])
    .unwrap_err();
    assert_eq!(all.len(), 4, "{all:?}");
}

#[test]
fn a_key_of_the_environment_is_a_bearer_or_goes_as_it_is_and_a_header_wins() {
    let bearer = Environment {
        bearer: Some("a".to_owned()),
        key: Some("b".to_owned()),
        ..Environment::default()
    };
    let sent = |environment: &Environment, args: &[&str]| {
        let config = config_in(environment, args).unwrap();
        let headers: Vec<String> = config
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        headers
    };
    assert_eq!(sent(&bearer, &[]), ["Authorization: Bearer a"]);
    let key = Environment {
        bearer: None,
        ..bearer.clone()
    };
    assert_eq!(sent(&key, &[]), ["Authorization: b"]);
    assert_eq!(
        sent(&bearer, &["--header", "authorization=c=d", "X=1"]),
        ["authorization: c=d", "X: 1"]
    );
    assert!(sent(&bearer, &["--backend", "trt", "--model", "m"]).is_empty());
    let anthropic = Environment {
        anthropic: Some("k".to_owned()),
        ..bearer.clone()
    };
    assert_eq!(sent(&anthropic, &["--backend", "anthropic"]), ["x-api-key: k"]);
    assert!(sent(&bearer, &["--backend", "anthropic"]).is_empty());
    assert_eq!(
        sent(&anthropic, &["--backend", "vllm-messages"]),
        ["Authorization: Bearer a"]
    );
    assert!(
        !format!(
            "{:?}",
            config_in(&bearer, &["--header", "X=hush"]).unwrap().headers
        )
        .contains("hush")
    );
}

#[test]
fn without_flags_bodies_are_those_of_the_python_tool() {
    let native = config(&[]).unwrap();
    assert_eq!(
        request_body(&native),
        json!({"text": "x", "sampling_params": {"temperature": 0.0, "max_new_tokens": 5, "ignore_eos": true}, "stream": true,
               "lora_path": null, "return_logprob": false, "return_routed_experts": false, "logprob_start_len": -1})
    );
    let classic = config(&["--rules", "classic"]).unwrap();
    assert_eq!(
        request_body(&classic),
        json!({"text": "x", "sampling_params": {"temperature": 0.0, "max_new_tokens": 5, "ignore_eos": true}, "stream": true})
    );
    let chat = config(&[
        "--backend",
        "vllm-chat",
        "--disable-stream",
        "--disable-ignore-eos",
    ])
    .unwrap();
    assert_eq!(
        request_body(&chat),
        json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 5, "stream": false,
               "temperature": 0.0, "ignore_eos": false})
    );
}

#[test]
fn sampling_goes_where_each_protocol_wants_it() {
    let args = ["--temperature", "0.5", "--top-p", "0.9"];
    let native = request_body(&config(&args).unwrap());
    assert_eq!(
        native["sampling_params"],
        json!({"temperature": 0.5, "max_new_tokens": 5, "ignore_eos": true, "top_p": 0.9})
    );
    let vllm = request_body(&config(&[&["--backend", "vllm"], &args[..]].concat()).unwrap());
    assert_eq!((&vllm["temperature"], &vllm["top_p"]), (&json!(0.5), &json!(0.9)));
    let extra = [
        "--backend",
        "vllm",
        "--temperature",
        "0.5",
        "--extra-request-body",
        r#"{"temperature": 0.7, "best_of": null}"#,
    ];
    let body = request_body(&config(&extra).unwrap());
    assert_eq!((&body["temperature"], body.get("best_of")), (&json!(0.7), None));
}

#[test]
fn adapters_and_logprobs_stand_where_the_python_tool_puts_them() {
    let native = request_body(
        &config(&[
            "--lora-name",
            "a",
            "--return-logprob",
            "--top-logprobs-num",
            "2",
            "--token-ids-logprob",
            "7",
            "8",
            "--logprob-start-len",
            "0",
            "--extra-request-body",
            r#"{"top_logprobs_num": 9}"#,
        ])
        .unwrap(),
    );
    assert_eq!(native["lora_path"], "a");
    assert_eq!(native["return_logprob"], true);
    assert_eq!(native["top_logprobs_num"], 2);
    assert_eq!(native["token_ids_logprob"], json!([7, 8]));
    assert_eq!(native["logprob_start_len"], 0);
    let vllm = request_body(
        &config(&[
            "--backend",
            "vllm",
            "--lora-name",
            "a",
            "--return-logprob",
            "--top-logprobs-num",
            "2",
            "--extra-request-body",
            r#"{"model": "mine"}"#,
        ])
        .unwrap(),
    );
    assert_eq!(
        (&vllm["model"], &vllm["lora_path"], &vllm["logprobs"]),
        (&json!("a"), &json!("a"), &json!(2))
    );
}

#[test]
fn flags_of_a_data_set_reach_it_and_no_other() {
    let gsp = ["--dataset-name", "generated-shared-prefix"];
    let prefix = |more: &[&str]| {
        let config = config(&[&gsp, more].concat()).unwrap();
        let workload = config.scenario.workload;
        let Dataset::GeneratedSharedPrefix(shared) = workload.dataset else {
            panic!("another data set was asked for");
        };
        (workload.prompts, shared.output_len, shared.prefix())
    };
    assert_eq!(prefix(&[]), (1024, None, SharedPrefix::default()));
    let (prompts, output, given) = prefix(&[
        "--gsp-num-groups",
        "3",
        "--gsp-prompts-per-group",
        "5",
        "--gsp-system-prompt-len",
        "9",
        "--gsp-question-len",
        "8",
        "--gsp-output-len",
        "7",
        "--gsp-range-ratio",
        "0.5",
        "--gsp-fast-prepare",
        "--gsp-send-routing-key",
        "--gsp-ordered",
        "--gsp-group-distribution",
        "zipf",
        "--gsp-zipf-alpha",
        "1.2",
    ]);
    assert_eq!((prompts, output), (15, Some(7)));
    let asked = SharedPrefix {
        groups: 3,
        prompts_per_group: 5,
        system_len: 9,
        question_len: 8,
        range_ratio: 0.5,
        turns: 1,
        popularity: GroupDistribution::Zipf { alpha: 1.2 },
        ordered: true,
        uncounted: true,
        routing_key: true,
    };
    assert_eq!(given, asked);
    let refused_there = |more: &[&str], why| assert_refused(&[&gsp, more].concat(), why);
    refused_there(&["--gsp-group-distribution", "zipf"], "needs `--gsp-zipf-alpha`");
    refused_there(&["--gsp-zipf-alpha", "1"], "no effect on uniform groups");
    refused_there(&["--gsp-num-turns", "2"], "use a chat backend");
    refused_there(&["--gsp-num-groups", "0"], "must be at least 1");
    refused_there(&["--use-trace-timestamps"], "have no timestamps");
    assert_refused(
        &["--gsp-ordered"],
        "belong to the data set `generated-shared-prefix`",
    );
    assert_refused(
        &["--dataset-offset", "1"],
        "belong to the data set `agentic-trace`",
    );
    assert_refused(&["--dataset-name", "openai"], "consists of chat messages");
    let mooncake = ["--dataset-name", "mooncake"];
    assert_refused(
        &[&mooncake[..], &["--backend", "vllm-chat"]].concat(),
        "with an applied chat template",
    );
    assert_refused(
        &[&mooncake[..], &["--request-rate", "2"]].concat(),
        "their own timestamps",
    );
    let config = config(
        &[
            &mooncake[..],
            &[
                "--mooncake-slowdown-factor",
                "2",
                "--mooncake-workload",
                "toolagent",
            ],
        ]
        .concat(),
    );
    let config = config.unwrap();
    assert_eq!(config.requested_load.rate, Traffic::Trace);
    let Dataset::Mooncake(mooncake) = config.scenario.workload.dataset else {
        panic!("another data set was asked for");
    };
    assert_eq!(mooncake.replay().slowdown, 2.0);
    assert_eq!(mooncake.replay().trace.file(), "toolagent_trace.jsonl");
}

#[test]
fn adapters_are_dealt_as_asked() {
    let dealt = |more: &[&str]| {
        let config = config(&[&["--lora-name", "a", "b"], more].concat()).unwrap();
        config.scenario.lora.unwrap().distribution
    };
    assert_eq!(dealt(&[]), AdapterDistribution::Uniform);
    assert_eq!(
        dealt(&["--lora-request-distribution", "distinct"]),
        AdapterDistribution::Distinct
    );
    let skewed = ["--lora-request-distribution", "skewed"];
    assert_eq!(dealt(&skewed), AdapterDistribution::Skewed { alpha: 1.5 });
    assert_eq!(
        dealt(&[&skewed[..], &["--lora-zipf-alpha", "2"]].concat()),
        AdapterDistribution::Skewed { alpha: 2.0 }
    );
}

#[test]
fn a_flush_is_waited_for_as_long_as_the_flag_says() {
    let limit = |args: &[&str]| {
        let args = [&["--flush-cache"], args].concat();
        let config = config_in(&Environment::default(), &args).unwrap();
        config.cache_reset_limit.as_secs_f64()
    };
    assert_eq!(limit(&["--backend", "vllm"]), 60.0);
    assert_eq!(limit(&["--backend", "vllm", "--flush-cache-timeout", "0.5"]), 0.5);
    // The server waits that long itself.
    assert_eq!(limit(&["--flush-cache-timeout", "7"]), 12.0);
    assert!(limit(&["--flush-cache-timeout", "1e300"]) > 1e9);
}

#[test]
fn caches_are_emptied_by_each_backends_own_path() {
    let flush = |environment: &Environment, args: &[&str]| {
        config_in(environment, args)
            .unwrap()
            .cache_reset
            .map(|reset| reset.path)
    };
    let nothing = Environment::default();
    assert_eq!(flush(&nothing, &[]), None);
    assert_eq!(
        flush(&nothing, &["--flush-cache"]).as_deref(),
        Some("/flush_cache?timeout=60.0")
    );
    assert_eq!(
        flush(&nothing, &["--flush-cache", "--backend", "vllm-chat"]).as_deref(),
        Some("/reset_prefix_cache")
    );
    assert_eq!(
        flush(&nothing, &["--flush-cache", "--backend", "lmdeploy"]).as_deref(),
        Some("/flush_cache")
    );
    let ci = Environment {
        in_ci: Some("True".to_owned()),
        ..nothing
    };
    assert!(flush(&ci, &[]).is_some());
    assert_eq!(flush(&ci, &["--backend", "vllm"]), None);
}

#[test]
fn each_profile_has_its_own_defaults() {
    let current = config(&[]).unwrap();
    assert_eq!(
        (
            current.scenario.seed,
            current.ready_timeout_s,
            current.scenario.limits.warmup
        ),
        (42, 60, 1)
    );
    assert_eq!(current.output.name_suffix, "1000_sharegpt.jsonl");
    let classic = config(&[
        "--rules",
        "classic",
        "--dataset-name",
        "random",
        "--random-input-len",
        "8",
        "--random-output-len",
        "4",
    ])
    .unwrap();
    assert_eq!(
        (
            classic.scenario.seed,
            classic.ready_timeout_s,
            classic.scenario.limits.warmup
        ),
        (1, 0, 1)
    );
    assert_eq!(classic.output.name_suffix, "1000_8_4.jsonl");
    let ids = config(&["--dataset-name", "random-ids", "--max-concurrency", "0"]).unwrap();
    assert_eq!(
        (
            ids.scenario.workload.facts().input_len(),
            ids.scenario.arrival.concurrency
        ),
        (Some(1024), None)
    );
}

#[test]
fn too_many_documents_are_said_of_the_flag_that_was_given() {
    let rerank = ["--backend", "vllm-rerank", "--dataset-name", "random-rerank"];
    for (flag, value) in [
        ("--rerank-documents", "1000000000"),
        ("--rerank-document-len", "1000000000"),
        ("--num-prompts", "1000000000"),
    ] {
        let why = format!("`{flag}`: the prompts would have up to");
        assert_refused(&[&rerank[..], &[flag, value]].concat(), &why);
    }
}

/// Source: docs/bench-serving.md 9 and 12.4.
#[test]
fn the_file_is_named_after_the_load() {
    let image = ["--backend", "vllm-chat", "--dataset-name", "image"];
    let drawn = ["--image-count", "3", "--image-resolution", "random:2x3-5x7"];
    for (args, rest) in [
        (&image[..], "1000_1024_1024_1imgs_1080p.jsonl"),
        (
            &[&image[..], &drawn, &["--random-output-len", "8"]].concat()[..],
            "1000_1024_8_3imgs_random:2x3-5x7.jsonl",
        ),
        (&["--dataset-name", "random-ids"], "1000_1024_1024.jsonl"),
        (&["--rules", "classic"], "1000_sharegpt.csv"),
    ] {
        assert_eq!(config(args).unwrap().output.name_suffix, rest);
    }
}

#[test]
fn of_a_target_that_is_given_twice_the_last_counts() {
    let slo = config(&["--goodput", "ttft:500", "tpot:50", "ttft:250"])
        .unwrap()
        .requested_load
        .slo
        .unwrap();
    let ms = |limit: Option<HumanDuration>| limit.map(|limit| limit.duration().as_millis());
    assert_eq!(
        (ms(slo.ttft), ms(slo.tpot), ms(slo.e2e)),
        (Some(250), Some(50), None)
    );
}

#[test]
fn the_profiler_is_told_what_the_python_tool_tells_it() {
    let config = config(&[
        "--profile",
        "--profile-by-stage",
        "--profile-start-step",
        "3",
        "--profile-output-dir",
        "/x",
    ])
    .unwrap();
    let profiler = config.profiler.unwrap();
    assert!(profiler.is_stopped);
    assert_eq!(
        Value::Object(profiler.start),
        json!({"activities": ["CPU", "GPU"], "num_steps": 5, "profile_by_stage": true, "profile_stages": null,
               "output_dir": null, "profile_prefix": null})
    );
    assert_eq!(Value::Object(profiler.both), json!({"start_step": "3"}));
    assert_eq!(profiler.folder, PathBuf::from("/x"));
}
