//! A real engine: vLLM on CPU, installed by `tests/engines/cpu.sh`; `MATRIX_ENGINES` says where it lies. Without it the test
//! is skipped by name, and where `MATRIX_REQUIRE_ENGINES` is set, as CI does, that is a failure.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use matrix::cli::env_variable;

use crate::harness::{Desk, data, repository};

/// vLLM with all its processes.
struct Vllm {
    child: Child,
    port: String,
}

impl Vllm {
    fn start(engines: &Path, log: &Path) -> Self {
        let port = {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
            free.local_addr().expect("it has one").port().to_string()
        };
        let log = std::fs::File::create(log).expect("a file can be made");
        let child = Command::new(engines.join("venv/bin/vllm"))
            .arg("serve")
            .arg(engines.join("models/tiny-qwen3"))
            .args([
                "--served-model-name",
                "tiny",
                "--host",
                "127.0.0.1",
                "--port",
                &port,
            ])
            .args(["--max-model-len", "2048", "--enforce-eager"])
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
    let engines =
        env_variable("MATRIX_ENGINES").map_or_else(|| repository().join("target/engines"), PathBuf::from);
    if !engines.join("venv/bin/vllm").exists() {
        assert!(
            env_variable("MATRIX_REQUIRE_ENGINES").is_none(),
            "vLLM is not installed in {}",
            engines.display()
        );
        crate::skip::skip("needs vLLM on CPU; install it with tests/engines/cpu.sh and set MATRIX_ENGINES");
        return;
    }
    let desk = Desk::new();
    let vllm = Vllm::start(&engines, &desk.path().join("vllm.log"));
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
