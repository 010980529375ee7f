//! A real engine on CPU as a process group that ends with the test; `tests/engines/cpu.sh` installs both engines.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use matrix::cli::env_variable;
use serde_json::Value;

use crate::harness::{Desk, repository};
use crate::shared_memory;

/// How often an engine that loads is asked whether it is ready, and the pause between; together 600 s.
const START_CHECKS: (usize, Duration) = (3000, Duration::from_millis(200));

/// Loads of queries with documents: one and several requests, lengths that are exact and that are drawn.
pub const PAIRS: [&[&str]; 3] = [&pairs("1", "1"), &pairs("1", "0.3"), &pairs("6", "0.3")];

const fn pairs(prompts: &'static str, ratio: &'static str) -> [&'static str; 12] {
    [
        "--dataset-name",
        "random-rerank",
        "--rerank-query-len",
        "9",
        "--rerank-documents",
        "4",
        "--rerank-document-len",
        "30",
        "--num-prompts",
        prompts,
        "--rerank-range-ratio",
        ratio,
    ]
}

/// The folder of the engines; `None` where the program is not installed, which is printed, or fails the test if engines are
/// required.
pub fn folder(program: &str) -> Option<PathBuf> {
    let engines =
        env_variable("MATRIX_ENGINES").map_or_else(|| repository().join("target/engines"), PathBuf::from);
    if engines.join("venv/bin").join(program).exists() {
        return Some(engines);
    }
    assert!(
        env_variable("MATRIX_REQUIRE_ENGINES").is_none(),
        "{program} is not installed in {}",
        engines.display()
    );
    crate::skip::skip(&format!(
        "needs {program} on CPU; install it with tests/engines/cpu.sh and set MATRIX_ENGINES"
    ));
    None
}

/// The tiny model of the engines.
pub fn tiny_model(engines: &Path) -> PathBuf {
    engines.join("models/tiny-qwen3")
}

/// Makes a cross-encoder of the tiny model.
pub fn cross_encoder(engines: &Path, out: &Path) {
    let made = Command::new(engines.join("tools/bin/python"))
        .arg(repository().join("tests/engines/cross_encoder.py"))
        .args([&tiny_model(engines), out])
        .status();
    assert!(made.expect("python runs").success());
}

/// An engine with all its processes.
pub struct RealEngine {
    child: Child,
    pub port: String,
    /// Its turn at the host's shared memory.
    _turn: File,
}

impl RealEngine {
    /// vLLM with a model of at most 2048 tokens, named `tiny`.
    pub fn vllm(engines: &Path, model: &Path, log: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(engines.join("venv/bin/vllm"));
        command
            .arg("serve")
            .arg(model)
            .args(["--max-model-len", "2048", "--enforce-eager"])
            .args(more)
            .env("VLLM_CPU_KVCACHE_SPACE", "1")
            .env("VLLM_NO_USAGE_STATS", "1")
            .env("VLLM_SERVER_DEV_MODE", "1");
        Self::start(command, log)
    }

    /// SGLang with metrics, with a model of at most 2048 tokens, named `tiny`.
    pub fn sglang(engines: &Path, model: &Path, log: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(engines.join("venv/bin/python"));
        command
            .args(["-m", "sglang.launch_server", "--model-path"])
            .arg(model)
            .args(["--device", "cpu", "--attention-backend", "torch_native"])
            .args(["--sampling-backend", "pytorch", "--disable-overlap-schedule"])
            .args(["--max-total-tokens", "65536", "--mem-fraction-static", "0.2"])
            .args(["--context-length", "2048", "--enable-metrics"])
            .args(more);
        Self::start(command, log)
    }

    /// Starts it and waits until it is ready.
    fn start(mut command: Command, log: &Path) -> Self {
        let turn = shared_memory::use_it();
        let port = {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
            free.local_addr().expect("it has one").port().to_string()
        };
        let file = File::create(log).expect("a file can be made");
        let child = command
            .args([
                "--served-model-name",
                "tiny",
                "--host",
                "127.0.0.1",
                "--port",
                &port,
            ])
            .env("HF_HUB_OFFLINE", "1")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a file has several handles"))
            .stderr(file)
            .spawn()
            .expect("the engine starts");
        let mut engine = Self {
            child,
            port,
            _turn: turn,
        };
        let (checks, pause) = START_CHECKS;
        for _ in 0..checks {
            let page = engine.get("/health");
            if page.is_some_and(|page| page.starts_with("HTTP/1.1 200")) {
                return engine;
            }
            if engine.child.try_wait().expect("it is our child").is_some() {
                break;
            }
            std::thread::sleep(pause);
        }
        let log = std::fs::read_to_string(log).unwrap_or_default();
        panic!("the engine is not ready: {log}");
    }

    /// The response to a GET, if it can be reached.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        Some(page)
    }

    /// The sums of counters over their labels.
    pub fn counters<const N: usize>(&self, names: [&str; N]) -> [f64; N] {
        let page = self.get("/metrics").expect("the engine has metrics");
        names.map(|name| {
            let lines = page.lines().filter(|line| line.split('{').next() == Some(name));
            lines
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum()
        })
    }

    /// What it has counted since `before`, once that is complete; it counts a moment after it answers.
    pub fn counted_since<const N: usize>(
        &self,
        names: [&str; N],
        before: [f64; N],
        is_complete: impl Fn([f64; N]) -> bool,
    ) -> [f64; N] {
        let mut counted = [0.0; N];
        for _ in 0..100 {
            let now = self.counters(names);
            counted = std::array::from_fn(|place| now[place] - before[place]);
            if is_complete(counted) {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        counted
    }

    /// Requires that a bench with these flags reports the prompt and output tokens that these counters grow by; returns its
    /// figures.
    pub fn counts_alike(&self, engines: &Path, counters: [&str; 2], flags: &[&str]) -> Value {
        let desk = Desk::new();
        let tokenizer = tiny_model(engines).display().to_string();
        let common = [
            "--host",
            "127.0.0.1",
            "--port",
            &self.port,
            "--tokenizer",
            &tokenizer,
            "--warmup-requests",
            "0",
            "--disable-tqdm",
            "--output-file",
            "out.jsonl",
        ];
        let before = self.counters(counters);
        desk.call(&[&common[..], flags].concat()).exits(0);
        let line = desk.lines().pop().expect("a line was appended");
        let figures = line["matrix"]["figures"].clone();
        let figure = |name: &str| figures[name].as_f64().unwrap_or_default();
        let ours = [figure("reported_input_tokens"), figure("output_tokens")];
        let counted = self.counted_since(counters, before, |counted| counted == ours);
        assert_eq!(counted, ours, "{flags:?}");
        assert!(ours[0] > 0.0, "{flags:?}: {figures}");
        figures
    }
}

impl Drop for RealEngine {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
