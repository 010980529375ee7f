//! Rates one after another under the classic rules, and profilers of workers that run apart.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::harness::{Desk, Sim, data};
use crate::recorder::Recorder;

#[test]
fn classic_rates_are_measured_one_after_another_into_rows_of_csv() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let more = [
        "--rules",
        "classic",
        "--multi",
        "--request-rate-range",
        "100,301,100",
        "--output-file",
        "out.csv",
    ];
    let ran = desk.random("vllm", sim.port, &more).exits(0);
    assert_eq!(
        ran.stdout
            .matches("Starting initial single prompt test run...")
            .count(),
        3
    );
    let text = std::fs::read_to_string(desk.path().join("out.csv")).expect("the file is there");
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(
        lines[0].starts_with("backend,dataset_name,sharegpt_output_len,")
            && lines[0].ends_with(",mean_itl_ms"),
        "{text}"
    );
    for (line, rate) in lines[1..4].iter().zip(["100.0", "200.0", "300.0"]) {
        let start = format!("vllm,random,,32,8,1.0,{rate},10,320,80,");
        assert!(line.starts_with(&start), "{line}");
        assert_eq!(line.split(',').count(), 18, "{line}");
        assert!(
            line.split(',')
                .all(|cell| !cell.is_empty() || line.starts_with("vllm,random,,")),
            "{line}"
        );
    }
    // A second bench goes on below the same header.
    let more = ["--rules", "classic", "--output-file", "out.csv"];
    desk.random("vllm", sim.port, &more).exits(0);
    let text = std::fs::read_to_string(desk.path().join("out.csv")).expect("the file is there");
    assert_eq!(text.matches("backend,").count(), 1);
    assert!(
        text.lines()
            .last()
            .is_some_and(|line| line.contains(",inf,10,320,80,")),
        "{text}"
    );
}

#[test]
fn classic_rules_write_csv_only_into_a_file_that_is_called_so() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    desk.random("vllm", sim.port, &["--rules", "classic"]).exits(0);
    assert_eq!(desk.lines()[0]["completed"], 10);
    let kept = [
        "--rules",
        "classic",
        "--compat-figures",
        "--output-file",
        "kept.jsonl",
    ];
    desk.random("vllm", sim.port, &kept).exits(0);
    let text = std::fs::read_to_string(desk.path().join("kept.jsonl")).expect("the file is there");
    assert!(text.starts_with("backend,dataset_name,"), "{text}");
}

#[test]
fn profilers_of_workers_are_asked_at_their_own_addresses() {
    let (recorder, worker, desk) = (Recorder::start(), Recorder::start(), Desk::new());
    let url = format!("http://127.0.0.1:{}", worker.port);
    let more = [
        "--num-prompts",
        "2",
        "--profile",
        "--profile-num-steps",
        "3",
        "--pd-separated",
        "--profile-decode-url",
        &url,
    ];
    desk.random("sglang", recorder.port, &more)
        .exits(0)
        .shows(&format!("Profiler started for Decode-0 worker at {url}\n"))
        .shows(&format!(
            "async_request_profile api_url='{url}/start_profile' body={{'activities': ['CPU', 'GPU'], 'num_steps': 3, "
        ))
        .shows(&format!("Profiler stopped for Decode-0 worker at {url}\n"));
    let asked = |recorder: &Recorder| -> Vec<String> {
        recorder.take().into_iter().map(|heard| heard.path).collect()
    };
    assert_eq!(asked(&worker), ["/start_profile", "/stop_profile"]);
    assert!(asked(&recorder).iter().all(|path| path == "/generate"));
}

#[test]
fn without_a_worker_nobody_profiles_and_that_is_said() {
    let (recorder, desk) = (Recorder::start(), Desk::new());
    let more = ["--num-prompts", "2", "--profile", "--pd-separated"];
    desk.random("sglang", recorder.port, &more)
        .exits(0)
        .shows("Warning: PD separated mode requires --profile-prefill-url or --profile-decode-url\n")
        .shows("Skipping profiler start. Please specify worker URLs for profiling.\n");
}

#[test]
fn each_request_gets_a_line_when_it_begins_and_one_when_it_ends() {
    let (sim, desk) = (Sim::start("sglang", &[]), Desk::new());
    let more = ["--num-prompts", "2", "--print-requests", "--max-concurrency", "1"];
    let ran = desk.random("sglang-oai-chat", sim.port, &more).exits(0);
    let lines: Vec<&str> = ran
        .stdout
        .lines()
        .filter(|line| line.starts_with("rid="))
        .collect();
    // One request warms up, and with one at a time each ends before the next begins.
    assert_eq!(lines.len(), 6, "{}", ran.stdout);
    for pair in lines.chunks(2) {
        let id = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        assert_eq!(id(pair[0]), id(pair[1]));
        let begun = " message=\"request start\" request_func_input=\"RequestFuncInput(prompt='...', api_url='http://127.0.0.1:";
        assert!(pair[0].contains(begun), "{}", pair[0]);
        assert!(
            pair[0].ends_with(
                "lora_name=None, image_data=None, extra_request_body={}, timestamp=None, routing_key=None)\""
            ),
            "{}",
            pair[0]
        );
        let ended = " message=\"request end\" output=\"RequestFuncOutput(generated_text='...', success=True, latency=0.";
        assert!(pair[1].contains(ended), "{}", pair[1]);
    }
    // Nothing is said of pictures where there are none.
    assert!(!ran.stderr.contains("represent images"), "{}", ran.stderr);
    let place = |text: &str| ran.stdout.find(text).expect("it is printed");
    assert!(place("Starting warmup") < place("rid=") && place("rid=") < place("Warmup completed"));
}

#[test]
fn the_load_is_drawn_over_time_before_the_block() {
    // Slow enough that all ten are under way together on a busy machine.
    let (sim, desk) = (
        Sim::start("vllm", &["--ttft", "200ms", "--itl", "1ms"]),
        Desk::new(),
    );
    let ran = desk.random("vllm", sim.port, &["--plot-throughput"]).exits(0);
    let place = |text: &str| ran.stdout.find(text).expect("it is printed");
    assert!(place("Output tokens per second") < place("Concurrent requests per second"));
    assert!(place("Concurrent requests per second") < place("Serving Benchmark Result"));
    // All ten begin at once and ask for eight tokens each within the first second.
    assert!(ran.stdout.contains("\n80 │█\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\n10 │█\n"), "{}", ran.stdout);
}

#[test]
fn the_error_of_a_calibrated_client_is_told_beside_the_block_and_not_in_it() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let note = "note: the client's own error at ";
    assert!(!desk.random("vllm", sim.port, &[]).exits(0).stderr.contains(note));
    let mut calibrate = Command::new(crate::binary::matrix());
    let kept = calibrate
        .args(["calibrate", "--streams", "4", "--tokens", "3"])
        .env("MATRIX_CACHE", desk.path().join("cache"))
        .output()
        .expect("the binary runs");
    assert!(kept.status.success(), "{kept:?}");
    let ran = desk
        .random("vllm", sim.port, &["--max-concurrency", "2"])
        .exits(0);
    assert!(!ran.stdout.contains("own error"), "{}", ran.stdout);
    let ran = ran.says(&format!("{note}4 streams is at most "));
    assert!(!ran.stderr.contains(" requests ran at once"), "{}", ran.stderr);
    desk.random("vllm", sim.port, &[])
        .exits(0)
        .says(" requests ran at once, so calibrate more streams");
    // Of another machine it says nothing.
    let path = desk.path().join("cache/calibration.json");
    let mut other: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).expect("it is kept")).expect("it is JSON");
    other["machine"] = "another".into();
    std::fs::write(&path, other.to_string()).expect("a file can be written");
    assert!(!desk.random("vllm", sim.port, &[]).exits(0).stderr.contains(note));
}

#[test]
fn a_long_conversation_with_a_server_that_is_gone_ends_in_failures() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.local_addr().expect("it listens").port().to_string()
    };
    let (desk, tokenizer) = (Desk::new(), data("tokenizer.json"));
    let args = [
        "--backend",
        "vllm-chat",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--model",
        "m",
        "--ready-check-timeout-sec",
        "0",
        "--warmup-requests",
        "0",
        "--tokenizer",
        &tokenizer,
        "--dataset-name",
        "generated-shared-prefix",
        "--gsp-num-groups",
        "1",
        "--gsp-prompts-per-group",
        "1",
        "--gsp-system-prompt-len",
        "2",
        "--gsp-question-len",
        "1",
        "--gsp-output-len",
        "4",
        "--gsp-num-turns",
        "1000",
    ];
    let ran = desk.call(&args).exits(3);
    assert!(ran.stderr.contains("1000 requests failed"), "{}", ran.stderr);
}

#[test]
fn a_client_that_was_stopped_says_so() {
    let (sim, desk) = (
        Sim::start("vllm", &["--ttft", "10ms", "--itl", "10ms"]),
        Desk::new(),
    );
    let (port, tokenizer, conversations) = (
        sim.port.to_string(),
        data("tokenizer.json"),
        data("conversations.json"),
    );
    let mut command = desk.command(&[
        "--backend",
        "vllm",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--tokenizer",
        &tokenizer,
        "--dataset-name",
        "random",
        "--dataset-path",
        &conversations,
        "--num-prompts",
        "4",
        "--random-input-len",
        "8",
        "--random-output-len",
        "200",
        "--random-range-ratio",
        "1",
        "--warmup-requests",
        "0",
    ]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let pid = child.id().to_string();
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.expect("`kill` runs").success());
    };
    // The load takes two seconds from the moment of its first connection.
    while !is_connected(sim.port) {
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(500));
    signal("-STOP");
    sleep(Duration::from_millis(500));
    signal("-CONT");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("the client was stopped, or had no processor, once"),
        "{said}"
    );
}

/// Whether a stream to that port is under way: four of them, when the load has begun.
fn is_connected(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux tells it");
    let local = format!("0100007F:{port:04X}");
    let established = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(2) == Some(&local.as_str()) && words.get(3) == Some(&"01")
    };
    table.lines().filter(established).count() >= 4
}
