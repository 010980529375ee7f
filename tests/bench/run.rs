//! Flags in, block and line out.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::Duration;

use matrix::base::clock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Desk, Sim, data};
use crate::nvml::Stub;
use crate::recorder::Recorder;

const CURRENT: &[&str] = &[
    "Serving Benchmark Result",
    "Backend",
    "Traffic request rate",
    "Max request concurrency",
    "Successful requests",
    "Benchmark duration (s)",
    "Total input tokens",
    "Total input text tokens",
    "Total generated tokens",
    "Total generated tokens (retokenized)",
    "Request throughput (req/s)",
    "Input token throughput (tok/s)",
    "Output token throughput (tok/s)",
    "Peak output token throughput (tok/s)",
    "Peak concurrent requests",
    "Total token throughput (tok/s)",
    "Concurrency",
    "End-to-End Latency",
    "Mean E2E Latency (ms)",
    "Median E2E Latency (ms)",
    "P90 E2E Latency (ms)",
    "P95 E2E Latency (ms)",
    "P99 E2E Latency (ms)",
    "Time to First Token",
    "Mean TTFT (ms)",
    "Median TTFT (ms)",
    "P90 TTFT (ms)",
    "P95 TTFT (ms)",
    "P99 TTFT (ms)",
    "Time per Output Token (excl. 1st token)",
    "Mean TPOT (ms)",
    "Median TPOT (ms)",
    "P90 TPOT (ms)",
    "P95 TPOT (ms)",
    "P99 TPOT (ms)",
    "Inter-Token Latency",
    "Mean ITL (ms)",
    "Median ITL (ms)",
    "P90 ITL (ms)",
    "P95 ITL (ms)",
    "P99 ITL (ms)",
    "Max ITL (ms)",
    "",
];

const CLASSIC: &[&str] = &[
    "Serving Benchmark Result",
    "Backend",
    "Traffic request rate",
    "Successful requests",
    "Benchmark duration (s)",
    "Total input tokens",
    "Total generated tokens",
    "Total generated tokens (retokenized)",
    "Request throughput (req/s)",
    "Input token throughput (tok/s)",
    "Output token throughput (tok/s)",
    "End-to-End Latency",
    "Mean E2E Latency (ms)",
    "Median E2E Latency (ms)",
    "Time to First Token",
    "Mean TTFT (ms)",
    "Median TTFT (ms)",
    "P99 TTFT (ms)",
    "Time per Output Token (excl. 1st token)",
    "Mean TPOT (ms)",
    "Median TPOT (ms)",
    "P99 TPOT (ms)",
    "Inter-token Latency",
    "Mean ITL (ms)",
    "Median ITL (ms)",
    "P99 ITL (ms)",
    "",
];

#[test]
fn every_backend_that_the_simulated_engine_speaks_gives_the_current_block() {
    for (dialect, backends) in [
        (
            "sglang",
            &["sglang", "sglang-native", "sglang-oai", "sglang-oai-chat"][..],
        ),
        ("vllm", &["vllm", "vllm-chat"]),
        ("lmdeploy", &["lmdeploy", "lmdeploy-chat"]),
    ] {
        let sim = Sim::start(dialect, &[]);
        for backend in backends {
            let desk = Desk::new();
            let ran = desk.random(backend, sim.port, &[]).exits(0);
            assert_eq!(ran.labels(), CURRENT, "{backend}");
            assert_eq!(ran.value("Backend"), *backend);
            assert_eq!(ran.value("Successful requests"), "10");
            assert_eq!(ran.value("Total input tokens"), "320");
            assert_eq!(ran.value("Total generated tokens"), "80", "{backend}");
            let head: Vec<&str> = ran.stdout.lines().take_while(|line| !line.is_empty()).collect();
            assert!(
                head[0].starts_with("Waiting up to 60s for http://127.0.0.1:"),
                "{head:?}"
            );
            assert!(head[1].starts_with("Server ready in "), "{head:?}");
            assert_eq!(
                head[2..],
                [
                    "#Input tokens: 320",
                    "#Output tokens: 80",
                    "Starting warmup with 1 sequences...",
                    "Warmup completed with 1 sequences. Starting main benchmark run...",
                ]
            );
            assert!(ran.stderr.contains("100%|██████████| 10/10 ["), "{}", ran.stderr);
        }
    }
}

#[test]
fn every_backend_of_the_classic_rules_gives_the_classic_block() {
    for (dialect, backends) in [
        ("sglang", &["sglang", "sglang-native", "sglang-oai"][..]),
        ("vllm", &["vllm"]),
        ("lmdeploy", &["lmdeploy"]),
    ] {
        let sim = Sim::start(dialect, &[]);
        for backend in backends {
            let ran = Desk::new()
                .random(backend, sim.port, &["--rules", "classic"])
                .exits(0);
            assert_eq!(ran.labels(), CLASSIC, "{backend}");
            let head: Vec<&str> = ran.stdout.lines().take(4).collect();
            assert_eq!(
                head,
                [
                    "#Input tokens: 320",
                    "#Output tokens: 80",
                    "Starting initial single prompt test run...",
                    "Initial test run completed. Starting main benchmark run...",
                ]
            );
            assert!(ran.stdout.contains("\nwarmup time: "), "{}", ran.stdout);
        }
    }
}

#[test]
fn lines_are_appended_with_the_keys_of_the_python_tool() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let more = [
        "--tag",
        "mine",
        "--goodput",
        "ttft:60000",
        "e2el:60000",
        "--max-concurrency",
        "4",
        "--flush-cache",
    ];
    let ran = desk.random("vllm", sim.port, &more).exits(0);
    assert_eq!(ran.value("Max request concurrency"), "4");
    assert_eq!(ran.value("SLOs (ms)"), "ttft:60000 e2el:60000");
    assert_eq!(ran.value("E2EL SLO attainment (%)"), "100.00");
    desk.random(
        "vllm",
        sim.port,
        &["--output-details", "--disable-tqdm", "--vllm-json", "vllm.json"],
    )
    .exits(0);
    let lines = desk.lines();
    assert_eq!(lines.len(), 2);
    let first: Vec<&str> = lines[0].keys().take(11).map(String::as_str).collect();
    assert_eq!(
        first,
        [
            "tag",
            "backend",
            "dataset_name",
            "request_rate",
            "max_concurrency",
            "sharegpt_output_len",
            "random_input_len",
            "random_output_len",
            "random_range_ratio",
            "server_info",
            "duration"
        ]
    );
    assert_eq!(
        (&lines[0]["tag"], &lines[0]["max_concurrency"]),
        (&Value::from("mine"), &Value::from(4))
    );
    assert_eq!(lines[0]["slo_attainment"], Value::from(1.0));
    assert_eq!(lines[0]["request_rate"], "inf");
    assert_eq!(lines[0]["completed"], 10);
    let ours = &lines[0]["matrix"];
    assert_eq!(
        (&ours["ending"], &ours["seed"], &ours["faults"]),
        (&"done".into(), &42.into(), &"mended".into())
    );
    assert_eq!(lines[1]["matrix"]["prompts_hash"], ours["prompts_hash"]);
    for key in [
        "input_lens",
        "output_lens",
        "ttfts",
        "itls",
        "generated_texts",
        "errors",
    ] {
        assert_eq!(lines[1][key].as_array().map(Vec::len), Some(10), "{key}");
    }
    assert!(!lines[0].contains_key("ttfts"));
    let vllm = std::fs::read_to_string(desk.path().join("vllm.json")).expect("the file is there");
    let vllm: Value = serde_json::from_str(&vllm).expect("it is strict JSON");
    assert_eq!(
        (&vllm["completed"], &vllm["failed"], &vllm["model_id"]),
        (&10.into(), &0.into(), &"m".into())
    );
    assert_eq!(vllm["latencies"].as_array().map(Vec::len), Some(10));
}

#[test]
fn the_file_is_named_after_the_load_and_infinity_is_written_on_request() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let port = sim.port.to_string();
    let tokenizer = data("tokenizer.json");
    let args = [
        "--backend=vllm",
        "--host",
        "localhost",
        "--port",
        &port,
        "--tokenizer",
        &tokenizer,
        "--dataset-name",
        "random-ids",
        "--num-prompt",
        "3",
        "--random-input",
        "8",
        "--random-output",
        "4",
        "--warmup-requests",
        "0",
        "--compat-json",
    ];
    let ran = desk
        .call(&args)
        .exits(0)
        .shows("Starting warmup with 0 sequences...");
    assert_eq!(ran.value("Successful requests"), "3");
    let files: Vec<String> = std::fs::read_dir(desk.path())
        .expect("the folder can be read")
        .map(|entry| entry.expect("it can").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "cache")
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(
        files[0].starts_with("vllm_") && files[0].ends_with("_3_8_4.jsonl"),
        "{files:?}"
    );
    let text = std::fs::read_to_string(desk.path().join(&files[0])).expect("it can be read");
    assert!(text.contains(r#""request_rate": Infinity, "#), "{text}");
}

#[test]
fn sharegpt_is_sent_with_its_own_lengths_and_at_a_rate() {
    let (sim, desk) = (Sim::start("sglang", &[]), Desk::new());
    let (port, tokenizer, file) = (
        sim.port.to_string(),
        data("tokenizer.json"),
        data("conversations.json"),
    );
    let args = [
        "--port",
        &port,
        "--tokenizer",
        &tokenizer,
        "--dataset-path",
        &file,
        "--num-prompts",
        "8",
        "--request-rate",
        "400",
        "--sharegpt-output-len",
        "5",
        "--seed",
        "7",
        "--output-file",
        "out.jsonl",
        "--cache-report",
    ];
    let ran = desk.call(&args).exits(0).shows("#Output tokens: 40\n");
    assert_eq!(ran.value("Traffic request rate"), "400.0");
    assert!(ran.stdout.contains("Cache Hit Details") && ran.stdout.contains("Total cached tokens:"));
    let line = &desk.lines()[0];
    assert_eq!(
        (&line["request_rate"], &line["sharegpt_output_len"]),
        (&400.0.into(), &5.into())
    );
    assert_eq!(line["server_info"]["simulated"], true);
    assert!(line["cache_report"]["total_prompt_tokens"].as_u64() > Some(0));
}

#[test]
fn answers_that_do_not_stream_have_no_gaps() {
    for (dialect, backend) in [("sglang", "sglang"), ("vllm", "vllm"), ("vllm", "vllm-chat")] {
        let (sim, desk) = (Sim::start(dialect, &[]), Desk::new());
        let ran = desk.random(backend, sim.port, &["--disable-stream"]).exits(0);
        assert_eq!(ran.value("Successful requests"), "10", "{backend}");
        assert_eq!(ran.value("Total generated tokens"), "80", "{backend}");
        assert_eq!(ran.value("Mean ITL (ms)"), "–", "{backend}");
        let copied = desk
            .random(backend, sim.port, &["--disable-stream", "--compat-figures"])
            .exits(0);
        assert_eq!(copied.value("Mean ITL (ms)"), "0.00", "{backend}");
    }
}

#[test]
fn failures_are_printed_after_the_block_and_counted_as_failures() {
    let (sim, desk) = (Sim::start("sglang", &["--error-event-every", "3"]), Desk::new());
    let ran = desk
        .random("sglang", sim.port, &[])
        .exits(3)
        .says("of 10 requests failed:\n")
        .says("× error-event, such as: ")
        .says("note: bench_serving would count 10 requests as successful instead of");
    let failed = desk.lines()[0]["matrix"]["failures"]["error-event"]
        .as_u64()
        .expect("some failed");
    assert_eq!(ran.value("Successful requests"), (10 - failed).to_string());
    // The next number is one that the fault takes.
    let more = ["--compat-figures", "--warmup-requests", "0"];
    let copied = desk.random("sglang", sim.port, &more).exits(0);
    assert_eq!(copied.value("Successful requests"), "10");
}

#[test]
fn output_tokens_are_those_that_came_and_not_those_that_were_asked_for() {
    let (sim, desk) = (Sim::start("sglang", &["--early-end", "50%"]), Desk::new());
    let ran = desk
        .random("sglang-oai", sim.port, &[])
        .exits(0)
        .says("note: the number of generated tokens is 40, as counted by the server");
    assert_ne!(ran.value("Total generated tokens"), "80");
    let copied = desk
        .random("sglang-oai", sim.port, &["--compat-figures"])
        .exits(0);
    assert_eq!(copied.value("Total generated tokens"), "80");
}

#[test]
fn a_load_that_fails_entirely_is_told_and_is_no_success() {
    let (sim, desk) = (Sim::start("vllm", &["--http-error-every", "1"]), Desk::new());
    desk.random("vllm", sim.port, &[]).exits(3).says(
        "Warmup failed - Please make sure benchmark arguments are correctly specified. Error: status: ",
    );
    assert!(!desk.path().join("out.jsonl").exists());
    let ran = desk
        .random("vllm", sim.port, &["--warmup-requests", "0"])
        .exits(3)
        .says("10 of 10 requests failed:\n  10 × status, such as: Internal Server Error: ");
    assert_eq!(ran.value("Successful requests"), "0");
    assert_eq!(ran.value("Mean TTFT (ms)"), "–");
    assert_eq!(desk.lines()[0]["mean_e2e_latency_ms"], Value::Null);
}

#[test]
fn nobody_at_the_port_is_said_before_anything_is_sent() {
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        free.local_addr().expect("it has one").port()
    };
    let desk = Desk::new();
    desk.random("vllm", port, &["--ready-check-timeout-sec", "1"])
        .exits(4)
        .shows("Server did not become ready within 1s timeout.\n")
        .shows(&format!(
            "Server at http://127.0.0.1:{port}/v1/models is not ready. Exiting.\n"
        ))
        .says("Connection refused");
    desk.random("vllm", port, &["--ready-check-timeout-sec", "0"])
        .exits(4)
        .shows("Failed to fetch model from ")
        .shows("Please specify the correct host and port using `--host` and `--port`.\n");
}

#[test]
fn what_is_not_supported_is_refused_and_nothing_is_sent() {
    let desk = Desk::new();
    for (args, why) in [
        (&["--backend", "gserver"][..], "`gserver` is not implemented"),
        (&["--rust-client"], "`--rust-client` is not supported"),
        (&["--print-requests"], "needs the backend `sglang-oai-chat`"),
        (
            &["--gsp-num-groups", "3"],
            "belong to the data set `generated-shared-prefix`",
        ),
        (&["--pd-separated"], "without `--profile`"),
        (&["--backend", "none"], "invalid value 'none'"),
        (&["--random", "3"], "--random"),
    ] {
        let ran = desk.call(args).exits(2).says(why);
        assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    }
}

#[test]
fn a_tokenizer_or_a_file_that_is_missing_is_named() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    desk.random("vllm", sim.port, &["--dataset-path", "nowhere.json"])
        .exits(2)
        .says("there is no file `nowhere.json`")
        .says("`--dataset-path`");
    let port = sim.port.to_string();
    // The simulated model has a name of its own.
    desk.call(&["--backend", "vllm", "--port", &port, "--hf-home", "none"])
        .exits(4)
        .says("the server simulates the model `m`, which has no tokenizer")
        .says("`--tokenizer`");
    let given = [
        "--backend",
        "vllm",
        "--port",
        &port,
        "--hf-home",
        "none",
        "--tokenizer",
        "none/m",
    ];
    desk.call(&given).exits(4).says("no tokenizer found for `none/m`");
    let tokenizer = data("tokenizer.json");
    let random = ["--dataset-name", "random", "--tokenizer", &tokenizer];
    desk.call(&[&given[..6], &random].concat())
        .exits(4)
        .says("the data set `random-ids`, which needs no file");
}

#[test]
fn one_signal_shows_what_was_measured() {
    let (sim, desk) = (
        Sim::start("vllm", &["--ttft", "20ms", "--itl", "20ms"]),
        Desk::new(),
    );
    let (port, tokenizer) = (sim.port.to_string(), data("tokenizer.json"));
    let args = [
        "--backend",
        "vllm",
        "--port",
        &port,
        "--tokenizer",
        &tokenizer,
        "--dataset-name",
        "random-ids",
        "--num-prompts",
        "4",
        "--random-input-len",
        "8",
        "--random-output-len",
        "3000",
        "--random-range-ratio",
        "1",
        "--output-file",
        "out.jsonl",
    ];
    let mut child = desk
        .command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut out = child.stdout.take().expect("stdout is piped");
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("Starting main benchmark run...") {
        let mut byte = [0; 64];
        let length = out.read(&mut byte).expect("it prints");
        assert_ne!(length, 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&byte[..length]);
    }
    // The pause before the measurement is one second.
    std::thread::sleep(Duration::from_millis(1600));
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("process ids are small")).expect("it has an id");
    kill_process(pid, Signal::INT).expect("it lives");
    // `timeout` sends its signal to the process and to its group.
    kill_process(pid, Signal::INT).expect("it lives");
    out.read_to_end(&mut seen).expect("it ends");
    let mut said = String::new();
    child
        .stderr
        .take()
        .expect("stderr is piped")
        .read_to_string(&mut said)
        .expect("it ends");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{said}");
    assert!(
        said.contains("4 × cancelled") && said.contains("stopped early"),
        "{said}"
    );
    let shown = String::from_utf8_lossy(&seen).into_owned();
    assert!(
        shown.contains("Successful requests:                     0"),
        "{shown}"
    );
    assert_eq!(desk.lines()[0]["matrix"]["ending"], "interrupted");
}

/// Starts a load of four requests on a server at `url`, whose answers before the load it does not need.
fn spawn_on_silent_server(desk: &Desk, url: &str, more: &[&str]) -> Child {
    let tokenizer = data("tokenizer.json");
    let args = [
        "--backend",
        "vllm",
        "--base-url",
        url,
        "--model",
        "m",
        "--tokenizer",
        &tokenizer,
        "--dataset-name",
        "random-ids",
        "--num-prompts",
        "4",
        "--random-input-len",
        "8",
        "--random-output-len",
        "8",
        "--output-file",
        "out.jsonl",
        "--ready-check-timeout-sec",
        "0",
        "--warmup-requests",
        "0",
    ];
    desk.command(&[&args[..], more].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs")
}

fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id()).expect("process ids are small");
    kill_process(Pid::from_raw(pid).expect("it has an id"), Signal::INT).expect("it lives");
}

/// Nor does its port make handshakes.
#[test]
fn a_signal_ends_a_load_on_a_server_that_never_answers_within_seconds() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = silent.local_addr().expect("it has one").port();
    let desk = Desk::new();
    // The limit of an answer about the server itself is 10 seconds, that of a handshake for it 5 seconds.
    let most = Duration::from_secs(4);
    for (scheme, more) in [("http", &[][..]), ("https", &["--insecure"][..])] {
        let child = spawn_on_silent_server(&desk, &format!("{scheme}://127.0.0.1:{port}"), more);
        // Four connections: the load has begun.
        let held: Vec<_> = (0..4).map(|_| silent.accept().expect("it connects")).collect();
        let began = clock::now();
        interrupt(&child);
        let ended = child.wait_with_output().expect("it ends");
        let (took, said) = (clock::now().since(began), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(ended.status.code(), Some(130), "{said}");
        assert!(took < most, "{scheme}: {took:?}\n{said}");
        assert!(said.contains("requests in flight are cancelled"), "{said}");
        assert!(said.contains("4 × cancelled"), "{said}");
        drop(held);
    }
}

#[test]
fn a_second_signal_soon_after_the_first_ends_at_once() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = server.local_addr().expect("it has one").port();
    let (loading, load) = std::sync::mpsc::channel();
    // It starts a profile, and never answers that it has stopped it.
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = server.accept() {
            let mut head = [0; 4096];
            let length = stream.read(&mut head).unwrap_or(0);
            match head[..length].starts_with(b"POST /start_profile") {
                true => {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                    stream.write_all(answer).expect("it can be answered");
                }
                false => held.push(stream),
            }
            if held.len() == 4 {
                let _ = loading.send(());
            }
        }
    });
    let desk = Desk::new();
    let mut child = spawn_on_silent_server(&desk, &format!("http://127.0.0.1:{port}"), &["--profile"]);
    load.recv_timeout(Duration::from_secs(60))
        .expect("the load begins");
    interrupt(&child);
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
    let mut said = String::new();
    while !said.contains("a second signal ends at once") {
        assert_ne!(stderr.read_line(&mut said).expect("it can be read"), 0, "{said}");
    }
    // A script that repeats its signal.
    std::thread::sleep(Duration::from_millis(50));
    interrupt(&child);
    let deadline = clock::now().plus(Duration::from_secs(60));
    let ended = loop {
        match child.try_wait().expect("it can be asked") {
            Some(ended) => break ended,
            None if clock::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            None => {
                child.kill().expect("it lives");
                panic!("the second signal was ignored: {said}");
            }
        }
    };
    assert_eq!(ended.code(), Some(130), "{said}");
}

#[test]
fn keys_and_headers_are_sent_with_all_requests() {
    // Answers everything alike, and hands back what was sent.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has one").port().to_string();
    let server = std::thread::spawn(move || {
        let mut heads = Vec::new();
        for _ in 0..4 {
            let (mut stream, _) = listener.accept().expect("somebody calls");
            let mut head = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                let length = stream.read(&mut buffer).expect("it can be read");
                head.extend_from_slice(&buffer[..length]);
                let text = String::from_utf8_lossy(&head);
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
                let is_get = text.starts_with("GET");
                if body.is_some_and(|body| is_get || body.ends_with('}')) {
                    break;
                }
            }
            let answer = r#"{"data":[{"id":"m"}],"choices":[{"text":"a","finish_reason":"length"}]}"#;
            let reply = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
                answer.len()
            );
            stream.write_all(reply.as_bytes()).expect("it can be answered");
            heads.push(String::from_utf8_lossy(&head).into_owned());
        }
        heads
    });
    let (desk, tokenizer) = (Desk::new(), data("tokenizer.json"));
    let args = [
        "--backend",
        "vllm",
        "--base-url",
        &format!("http://127.0.0.1:{port}/"),
        "--tokenizer",
        &tokenizer,
        "--dataset-name",
        "random-ids",
        "--num-prompts",
        "1",
        "--random-input-len",
        "4",
        "--random-output-len",
        "1",
        "--warmup-requests",
        "0",
        "--header",
        "X-Mine=a=b",
    ];
    let output = desk
        .command(&args)
        .env("OPENAI_API_KEY", "hush")
        .output()
        .expect("the binary runs");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let heads = server.join().expect("the server ends");
    let lower: Vec<String> = heads.iter().map(|head| head.to_lowercase()).collect();
    for header in ["authorization: bearer hush", "x-mine: a=b"] {
        assert!(lower.iter().all(|head| head.contains(header)), "{heads:?}");
    }
    assert!(
        lower[0].starts_with("get /v1/models ") && lower[1].starts_with("get /v1/models "),
        "{heads:?}"
    );
    assert!(lower[2].starts_with("post /v1/completions "), "{heads:?}");
    let all = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!all.contains("hush"), "{all}");
}

#[test]
fn the_profiler_and_the_cache_are_asked_between_warm_up_and_measurement() {
    let (recorder, desk) = (Recorder::start(), Desk::new());
    let more = [
        "--profile",
        "--profile-by-stage",
        "--profile-output-dir",
        "/traces",
        "--flush-cache",
        "--num-prompts",
        "2",
        // One after the other: those sent at once may arrive in any order.
        "--max-concurrency",
        "1",
    ];
    desk.random("sglang", recorder.port, &more)
        .exits(0)
        .shows("Starting profiler...\nasync_request_profile api_url='http://127.0.0.1:")
        .shows("\nProfiler started\n")
        .shows("Stopping profiler...\nProfiler stopped\n");
    let heard = recorder.take();
    let paths: Vec<&str> = heard.iter().map(|heard| heard.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/generate",
            "/flush_cache?timeout=60.0",
            "/start_profile",
            "/generate",
            "/generate",
            "/stop_profile"
        ]
    );
    let start = &heard[2].body;
    assert_eq!(
        (&start["num_steps"], &start["profile_by_stage"]),
        (&5.into(), &true.into())
    );
    assert!(
        start["output_dir"]
            .as_str()
            .is_some_and(|folder| folder.starts_with("/traces/")),
        "{start}"
    );
    let warm = &heard[0].body["sampling_params"]["max_new_tokens"];
    assert_eq!(
        (warm, &heard[0].body["text"]),
        (&8.into(), &heard[3].body["text"])
    );
}

#[test]
fn a_warm_up_asks_for_32_tokens_at_most_and_the_classic_one_for_all() {
    for (rules, asked) in [("current", 32), ("classic", 40)] {
        let (recorder, desk) = (Recorder::start(), Desk::new());
        let more = [
            "--rules",
            rules,
            "--random-output-len",
            "40",
            "--num-prompts",
            "2",
            "--model",
            "m",
        ];
        desk.random("vllm", recorder.port, &more).exits(0);
        let heard = recorder.take();
        let lengths: Vec<&Value> = heard.iter().map(|heard| &heard.body["max_tokens"]).collect();
        assert_eq!(lengths, [&Value::from(asked), &40.into(), &40.into()], "{rules}");
    }
}

/// A server that somebody else started on this host: what its GPU took, and who else was on it.
#[test]
fn the_server_s_gpu_and_the_host_are_watched_meanwhile() {
    // Long enough for a few samples, however busy the machine is.
    let sim = Sim::start("vllm", &["--step=60ms"]);
    let stub = Stub::of(&format!(
        "gpus 2\npower gpu=0 50\npower gpu=1 200\nprocess gpu=1 {} 300\nprocess gpu=1 {} 200\n",
        sim.pid(),
        std::process::id()
    ));
    let desk = Desk::gpus(&stub);
    let ran = desk.random("vllm", sim.port, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for part in [
        "note: GPU 1 used ",
        ": 200 W on average, 200 W at most; ",
        "note: invalid (gpu-shared): GPU 1: process ",
    ] {
        assert!(ran.stderr.contains(part), "`{part}` is not in:\n{}", ran.stderr);
    }
    assert!(
        !ran.stderr.contains("GPU 0"),
        "the server is not on it: {}",
        ran.stderr
    );
    let line = &desk.lines()[0]["matrix"];
    let telemetry = &line["telemetry"];
    assert_eq!(telemetry["gpus"][0]["device"], 1);
    let host = &telemetry["host"];
    assert!(
        host["engine_cpus"].is_f64() && host["client_cpus"].is_f64(),
        "{telemetry}"
    );
    let figure = |name: &str| line["figures"][name].as_f64().expect("it is known");
    assert!((figure("mean_power_w") - 200.0).abs() < 1.0);
    let tokens = figure("output_efficiency_tok_j") * figure("energy_j");
    assert!((tokens - figure("output_tokens")).abs() < 0.5, "{tokens}");
}

/// A server that refuses is up: no waiting changes that.
#[test]
fn a_server_that_refuses_is_not_waited_for() {
    let desk = Desk::new();
    let sim = Sim::start("vllm", &[]);
    let base = format!("http://127.0.0.1:{}", sim.port);
    let wait = ["--ready-check-timeout-sec", "5"];
    desk.random(
        "vllm",
        sim.port,
        &[&wait[..], &["--base-url", &format!("{base}/v1")]].concat(),
    )
    .exits(4)
    .says(&format!("did you mean `--base-url {base}`?"));
    let locked = Sim::start("vllm", &["--api-key", "k"]);
    desk.random("vllm", locked.port, &wait)
        .exits(4)
        .says("the server requires a key: set `OPENAI_API_KEY`");
}

/// A point that is too short for its target is refused, with the length that it needs.
#[test]
fn a_search_whose_points_can_show_nothing_is_refused() {
    let desk = Desk::new();
    let search = ["--search", "rate", "--search-from", "8", "--search-seconds", "1"];
    let more = [&search[..], &["--goodput", "ttft:5000", "--disable-tqdm"]].concat();
    desk.random("vllm", 9, &more)
        .exits(2)
        .says("the search measures for only 1 s at 8 req/s, but to show that 99 % of requests meet the SLO")
        .says("it needs 805 requests, which take 101 s");
}

/// The prompts of this load take minutes.
#[test]
fn a_signal_while_prompts_are_prepared_ends_the_command() {
    let desk = Desk::new();
    let more = [
        "--dataset-name",
        "random-ids",
        "--dataset-path",
        "",
        "--num-prompts",
        "1000000",
        "--random-input-len",
        "2000",
        "--model",
        "m",
        "--ready-check-timeout-sec",
        "0",
    ];
    let mut child = desk
        .random_command("vllm", 9, &more)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    std::thread::sleep(Duration::from_secs(3));
    assert!(
        child.try_wait().expect("it can be asked").is_none(),
        "it prepares prompts"
    );
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("process ids are small")).expect("it has an id");
    kill_process(pid, Signal::INT).expect("it lives");
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait()));
    // It takes about a second; a busy machine may need more.
    let ended = ended.recv_timeout(Duration::from_secs(30));
    let Ok(status) = ended else {
        let _ = kill_process(pid, Signal::KILL);
        panic!("it goes on");
    };
    assert_eq!(status.expect("it ends").code(), Some(130));
}
