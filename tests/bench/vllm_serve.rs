//! The real `vllm bench serve` beside `matrix bench --like vllm`: the same arguments, the same requests one by one, the same
//! block, the same result file.
//!
//! `tests/engines/cpu.sh` installs vLLM; `MATRIX_ENGINES` says where it lies. Without it the test is skipped by name, and where
//! `MATRIX_REQUIRE_ENGINES` is set, as CI does, that is a failure. `MATRIX_VLLM_SEEDS` sets how many seeds are compared; `tests/peers.sh` sets
//! three.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use matrix::cli::env_variable;
use serde_json::{Map, Value, json};

use crate::harness::{Desk, Ran, data, repository};
use crate::recorder::{Heard, Recorder};

const MISSING: &str = "needs vLLM on CPU; install it with tests/engines/cpu.sh and set MATRIX_ENGINES";

/// The path by which the driver reports the end of a case.
const NEXT_CASE: &str = "/next-case";

/// Headers that every client sets in its own way.
const CLIENT_HEADERS: [&str; 6] = [
    "host",
    "user-agent",
    "accept",
    "accept-encoding",
    "content-length",
    "connection",
];

/// Lines of the block whose values do not depend on time.
const EXACT: [&str; 5] = [
    "Successful requests:",
    "Failed requests:",
    "Maximum request concurrency:",
    "Total input tokens:",
    "Total generated tokens:",
];

/// The Python of the environment with vLLM, where it is installed.
fn python() -> Option<PathBuf> {
    let engines =
        env_variable("MATRIX_ENGINES").map_or_else(|| repository().join("target/engines"), PathBuf::from);
    let python = engines.join("venv/bin/python");
    if engines.join("venv/bin/vllm").exists() {
        return Some(python);
    }
    assert!(
        env_variable("MATRIX_REQUIRE_ENGINES").is_none(),
        "vLLM is not installed in {}",
        engines.display()
    );
    crate::skip::skip(MISSING);
    None
}

/// Comparisons to come.
struct Batch {
    desk: Desk,
    recorder: Recorder,
    tokenizer: String,
    cases: Vec<Vec<String>>,
}

impl Batch {
    fn new(recorder: Recorder) -> Self {
        let desk = Desk::new();
        Self {
            tokenizer: crate::python::tokenizer(desk.path()),
            desk,
            recorder,
            cases: Vec::new(),
        }
    }

    /// Adds a case with the server, the model, the tokenizer and one request at a time.
    fn add(&mut self, args: &[&str]) {
        let (port, tokenizer) = (self.recorder.port.to_string(), self.tokenizer.clone());
        let common = ["--port", &port, "--model", "m", "--tokenizer", &tokenizer];
        let mut all: Vec<&str> = common.to_vec();
        if !args.contains(&"--max-concurrency") {
            all.extend(["--max-concurrency", "1"]);
        }
        if !args.contains(&"--request-id-prefix") {
            all.extend(["--request-id-prefix", "id-"]);
        }
        all.extend(["--disable-tqdm", "--save-result"]);
        all.extend(args);
        self.add_bare(&all);
    }

    /// Adds a case with nothing but these arguments.
    fn add_bare(&mut self, args: &[&str]) {
        self.cases
            .push(args.iter().map(|arg| (*arg).to_owned()).collect());
    }

    /// A file of JSON lines.
    fn lines(&self, name: &str, rows: &[Value]) -> String {
        let path = self.desk.path().join(name);
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(&path, text).expect("a file can be written");
        path.display().to_string()
    }

    /// A folder of a case and a tool.
    fn folder(&self, tool: &str, place: usize) -> PathBuf {
        let folder = self.desk.path().join(format!("{tool}-{place}"));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        folder
    }

    /// Runs both tools with every case and compares them. Returns the flags of vLLM's tool, each with whether it takes a value.
    fn compare(self, python: &Path) -> BTreeMap<String, bool> {
        let flags = self.desk.path().join("flags.json");
        let theirs = self.run_python(python, &flags);
        assert_eq!(theirs.len(), self.cases.len(), "the driver ran every case");
        let differences: Vec<String> = (self.cases.iter().zip(theirs).enumerate())
            .flat_map(|(place, (args, theirs))| self.differences(place, args, theirs))
            .collect();
        assert!(differences.is_empty(), "{}", differences.join("\n"));
        let known: Vec<(String, bool)> =
            serde_json::from_slice(&std::fs::read(flags).expect("the driver wrote it")).expect("it is JSON");
        known.into_iter().collect()
    }

    /// Runs the real tool and returns the requests of each case.
    fn run_python(&self, python: &Path, flags: &Path) -> Vec<Vec<Heard>> {
        let case = |(place, args): (usize, &Vec<String>)| json!({"arguments": args, "folder": self.folder("theirs", place)});
        let cases: Vec<Value> = self.cases.iter().enumerate().map(case).collect();
        let driver = repository().join("tests/bench/vllm_serve_driver.py");
        let mut child = Command::new(python)
            .arg(driver)
            .arg(self.recorder.port.to_string())
            .env("HF_HUB_OFFLINE", "1")
            .env("VLLM_NO_USAGE_STATS", "1")
            .env("VLLM_LOGGING_LEVEL", "ERROR")
            .env("PYTHONHASHSEED", "0")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("OPENAI_API_KEY", "k")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Python runs");
        let request = json!({"cases": cases, "flags": flags});
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin
            .write_all(request.to_string().as_bytes())
            .expect("the driver reads it");
        drop(stdin);
        Ran::from(child.wait_with_output().expect("the driver ends")).exits(0);
        let mut heard = self.recorder.take();
        assert_eq!(heard.pop().map(|last| last.path).as_deref(), Some(NEXT_CASE));
        heard
            .split(|request| request.path == NEXT_CASE)
            .map(<[Heard]>::to_vec)
            .collect()
    }

    /// Runs ours and describes in what it differs.
    fn differences(&self, place: usize, args: &[String], theirs: Vec<Heard>) -> Vec<String> {
        let (their_folder, folder) = (self.folder("theirs", place), self.folder("ours", place));
        if let Ok(error) = std::fs::read_to_string(their_folder.join("error")) {
            return vec![format!("vLLM's tool fails with {args:?}: {error}")];
        }
        let ran = Command::new(crate::binary::matrix())
            .args(["bench", "--like", "vllm"])
            .args(args)
            .current_dir(&folder)
            .env("OPENAI_API_KEY", "k")
            .stdin(Stdio::null())
            .output();
        let ran = Ran::from(ran.expect("the binary runs"));
        let ours = self.recorder.take();
        if ran.code != Some(0) {
            return vec![format!("ours fails with {args:?}: {}", ran.stderr)];
        }
        // Prompts are counted all at once.
        let is_counted = args_value(args, "--model") == Some("bytes");
        let is_ordered = args_value(args, "--max-concurrency") == Some("1") && !is_counted;
        let (ours, theirs) = (facts(ours, is_ordered), facts(theirs, is_ordered));
        assert!(!theirs.is_empty(), "vLLM's tool sends nothing with {args:?}");
        let printed = std::fs::read_to_string(their_folder.join("stdout")).expect("the driver wrote it");
        let results_text = |folder: &Path| {
            results(folder)
                .into_iter()
                .flat_map(|(name, lines)| [vec![name], lines].concat())
        };
        let pairs = [
            ("request", ours, theirs),
            ("line", masked_lines(&ran.stdout), masked_lines(&printed)),
            (
                "result",
                results_text(&folder).collect(),
                results_text(&their_folder).collect(),
            ),
        ];
        pairs
            .into_iter()
            .filter_map(|(what, ours, theirs)| {
                let length = ours.len().max(theirs.len());
                let differs = |at: &usize| ours.get(*at) != theirs.get(*at);
                let at = (0..length).find(differs)?;
                Some(format!(
                    "{what} {at} of {args:?}\n  ours:   {:?}\n  theirs: {:?}",
                    ours.get(at),
                    theirs.get(at)
                ))
            })
            .collect()
    }
}

fn args_value<'a>(args: &'a [String], flag: &str) -> Option<&'a str> {
    let place = args.iter().rposition(|arg| arg == flag)?;
    args.get(place + 1).map(String::as_str)
}

/// Path, headers and body of each request, in order. Requests that are sent together are sorted by their ids.
fn facts(heard: Vec<Heard>, is_ordered: bool) -> Vec<String> {
    let fact = |request: &Heard| {
        let name = |header: &String| header.split(':').next().unwrap_or_default().to_owned();
        let mut headers: Vec<&String> = request
            .headers
            .iter()
            .filter(|header| !CLIENT_HEADERS.contains(&name(header).as_str()))
            // vLLM's client names the type of a body that it does not send.
            .filter(|header| !request.body.is_null() || name(header) != "content-type")
            .collect();
        headers.sort();
        // The text has the fields in their order.
        format!("{} {headers:?} {}", request.path, request.body)
    };
    let mut facts: Vec<String> = heard.iter().map(fact).collect();
    if !is_ordered {
        facts.sort();
    }
    facts
}

/// The printed lines from the first one about the load on, with numbers that depend on time as `#`.
fn masked_lines(printed: &str) -> Vec<String> {
    let lines = printed
        .lines()
        .skip_while(|line| !line.starts_with("Starting initial"));
    let lines = lines.filter(|line| !line.starts_with("tip:") && !line.starts_with("WARNING:"));
    lines.map(masked).collect()
}

fn masked(line: &str) -> String {
    let is_exact = EXACT.iter().any(|label| line.starts_with(label));
    match line.split_once(": ") {
        Some((label, value)) if !is_exact && value.trim().parse::<f64>().is_ok() => {
            let decimals = value
                .trim()
                .split_once('.')
                .map_or(0, |(_, decimals)| decimals.len());
            format!(
                "{label}: # with {decimals} decimals at {}",
                line.len() - value.trim_start().len()
            )
        }
        _ => line.to_owned(),
    }
}

/// The result files of a folder: their names without the date, and of each result its keys in order, with types, and its values that
/// do not depend on time.
fn results(folder: &Path) -> Vec<(String, Vec<String>)> {
    let mut results = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("it is a folder") {
            let path = entry.expect("it can be read").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if !["stdout", "error"].contains(&name.as_str()) {
                let text = std::fs::read_to_string(&path).expect("it is text");
                let lines = text.split('\n').map(result).collect::<Vec<_>>().concat();
                results.push((without_date(&name), lines));
            }
        }
    }
    results.sort();
    results
}

/// Replaces a date such as `20261121-065311`.
fn without_date(name: &str) -> String {
    let is_date = |text: &str| {
        let mut characters = text.chars().enumerate();
        characters.all(|(at, character)| match at {
            8 => character == '-',
            _ => character.is_ascii_digit(),
        })
    };
    let place = (0..name.len().saturating_sub(14)).find(|at| name.get(*at..at + 15).is_some_and(is_date));
    place.map_or_else(
        || name.to_owned(),
        |at| format!("{}DATE{}", &name[..at], &name[at + 15..]),
    )
}

fn result(line: &str) -> Vec<String> {
    let object: Map<String, Value> = serde_json::from_str(line).expect("a line is an object");
    let is_timed = |key: &str| {
        key.ends_with("_ms")
            || key.ends_with("throughput")
            || [
                "date",
                "duration",
                "request_goodput",
                "ttfts",
                "itls",
                "latencies",
                "start_times",
                "queue_times",
            ]
            .contains(&key)
            || key.starts_with("max_output")
            || key.starts_with("max_concurrent_")
            || key == "rps_change_events"
    };
    let field = |(key, value): (&String, &Value)| match is_timed(key) {
        true => format!("{key}: {}", shape(value)),
        false => format!("{key}: {value}"),
    };
    object.iter().map(field).collect()
}

/// The types of a value.
fn shape(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if number.is_f64() => "float".to_owned(),
        Value::Number(_) => "int".to_owned(),
        Value::String(_) => "text".to_owned(),
        Value::Array(values) => format!("[{}]", values.iter().map(shape).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{key}: {}", shape(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// The seeds: one, or as many as the long form compares.
fn seeds() -> Vec<&'static str> {
    let count = env_variable("MATRIX_VLLM_SEEDS").and_then(|count| count.parse().ok());
    ["0", "42", "20251"]
        .into_iter()
        .take(count.unwrap_or(1))
        .collect()
}

fn add_random(batch: &mut Batch, seed: &str) {
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

fn add_files(batch: &mut Batch, seed: &str) {
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
fn add_speed_bench(batch: &mut Batch, seed: &str) {
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

fn add_generated(batch: &mut Batch, seed: &str) {
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

fn add_options(batch: &mut Batch, seed: &str) {
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
fn add_bare(batch: &mut Batch, seed: &str) {
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

#[test]
fn requests_blocks_and_result_files_are_those_of_vllm_bench_serve() {
    let Some(python) = python() else {
        return;
    };
    let mut batch = Batch::new(Recorder::start());
    for seed in seeds() {
        add_random(&mut batch, seed);
        add_files(&mut batch, seed);
        add_generated(&mut batch, seed);
        add_speed_bench(&mut batch, seed);
        add_options(&mut batch, seed);
        add_bare(&mut batch, seed);
    }
    let named = |arg: &String| {
        let name = arg.split('=').next().unwrap_or_default().replace('_', "-");
        arg.starts_with("--").then_some(name)
    };
    let compared: BTreeSet<String> = batch.cases.iter().flatten().filter_map(named).collect();
    let cases = batch.cases.len();
    let known = batch.compare(&python);
    let compared = compared.iter().filter(|flag| known.contains_key(*flag)).count();
    assert!(compared >= 40, "{compared} flags are compared");
    let help = Command::new(crate::binary::matrix())
        .args(["bench", "--like", "vllm", "--help"])
        .output()
        .expect("the binary runs");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for (flag, has_value) in &known {
        let line = help.lines().find(|line| {
            // A flag begins its line, after its short form if it has one.
            let mut words = line.split_whitespace().filter(|word| *word != "-h,");
            line.starts_with(' ') && words.next() == Some(flag.as_str())
        });
        let line = line.unwrap_or_else(|| panic!("`{flag}` of vLLM is unknown"));
        assert_eq!(line.contains('<'), *has_value, "{line}");
    }
    println!("{cases} cases, {compared} of {} flags compared", known.len());
}

#[test]
fn what_cannot_be_sent_is_refused_with_what_to_use() {
    let desk = Desk::new();
    for (args, why) in [
        (
            &["--hf-name", "a/b", "--plot_timeline"][..],
            "`--dataset-name custom`",
        ),
        (&["--backend", "vllm-rerank"], "`--backend vllm-rerank`"),
        (&["--backend", "tgi"], "there is no backend `tgi`"),
        (
            &["--backend", "openai-chat"],
            "write `--endpoint /v1/chat/completions`",
        ),
        (&["--dataset-name", "random-mm"], "`--dataset-name image`"),
        (&["--dataset-name", "sharegpt"], "needs a file"),
        (&["--dataset-path", "f"], "`random` has no file"),
        (&["--max-concurrency", "0"], "write at least 1"),
        (&["--num-prompts", "-1"], "write at least 1"),
        (&["--ramp-up-strategy", "linear"], "give both"),
        (
            &[
                "--ramp-up-strategy",
                "linear",
                "--ramp-up-start-rps",
                "0",
                "--ramp-up-end-rps",
                "4",
            ],
            "at least 1",
        ),
        (&["--burstiness", "0"], "above 0"),
        (&["--goodput", "itl:5"], "is not a target"),
        (&["--percentile-metrics", "ttfts"], "has no `ttfts`"),
        (&["--metric-percentiles", "101"], "from 0 to 100"),
        (&["--random-range-ratio", "1"], "below 1"),
        (&["--self-timed"], "has no timestamps"),
        (&["--random-batch-size", "2"], "only `openai-embeddings`"),
        (&["--header", "secret"], "without `=`"),
        (&["--extra-body", "[]"], "JSON object"),
        (&["--tokenizer-mode", "mistral"], "use `hf`"),
        (&["--skip-tokenizer-init"], "`--tokenizer`"),
    ] {
        let output = Command::new(crate::binary::matrix())
            .args(["bench", "--like", "vllm", "--port", "1"])
            .args(args)
            .current_dir(desk.path())
            .stdin(Stdio::null())
            .output();
        let ran = Ran::from(output.expect("the binary runs")).exits(2);
        assert!(ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    }
}
