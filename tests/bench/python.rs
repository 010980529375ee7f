//! The Python tool itself beside ours: the same arguments, the same requests one by one, the same counts.
//!
//! The two run one after the other with one request at a time, so that order is a fact. `tests/engines/bench_serving_peer.sh` installs it; `MATRIX_PEERS` says where it lies. Without it the test is skipped by name,
//! and where `MATRIX_REQUIRE_PEERS` is set, as CI does, that is a failure.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value, json};

use matrix::cli::env_variable;

use crate::harness::{Desk, Ran, data, repository};
use crate::recorder::{Heard, Recorder};

pub const MISSING: &str =
    "needs the Python tool; install it with tests/engines/bench_serving_peer.sh and set MATRIX_PEERS";

/// How the lines begin in which the tools tell of the prompts.
const TOLD: [&str; 15] = [
    "#",
    "Generat",
    "Number of groups",
    "Prompts per group",
    "Number of turns",
    "Group distribution",
    "Zipf alpha",
    "Total prompts",
    "Total input tokens",
    "Total output tokens",
    "Average system",
    "Average question",
    "Loaded",
    "Traffic request rate",
    "Max request concurrency",
];

/// The tool's start script, where it is installed.
pub fn peer() -> Option<PathBuf> {
    let peers = env_variable("MATRIX_PEERS").map_or_else(|| repository().join("target/peers"), PathBuf::from);
    let tool = peers.join("bench_serving");
    if tool.exists() {
        return Some(tool);
    }
    assert!(
        env_variable("MATRIX_REQUIRE_PEERS").is_none(),
        "the Python tool is not installed in {}",
        peers.display()
    );
    None
}

/// A folder with a tokenizer as transformers wants it.
pub fn tokenizer(folder: &Path) -> String {
    let place = folder.join("tokenizer");
    std::fs::create_dir_all(&place).expect("a folder can be made");
    std::fs::copy(data("tokenizer.json"), place.join("tokenizer.json")).expect("a file can be copied");
    let settings = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": false,
        "chat_template": "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
    });
    std::fs::write(place.join("tokenizer_config.json"), settings.to_string()).expect("a file can be written");
    place.display().to_string()
}

/// One tool's requests and what it wrote.
struct Side {
    heard: Vec<Heard>,
    sums: Vec<String>,
    line: Map<String, Value>,
}

fn side(recorder: &Recorder, mut command: Command, file: &Path) -> Side {
    let ran = Ran::from(command.stdin(Stdio::null()).output().expect("the tool runs")).exits(0);
    let text = std::fs::read_to_string(file).expect("a line was appended");
    // Python writes a bare word where JSON has none.
    let line = text
        .trim_end()
        .replace("\"request_rate\": Infinity", "\"request_rate\": \"inf\"");
    let sums = ran
        .stdout
        .lines()
        .filter(|line| TOLD.iter().any(|words| line.starts_with(words)));
    Side {
        heard: recorder.take(),
        sums: sums.map(str::to_owned).collect(),
        line: serde_json::from_str(&line).expect("a line is JSON"),
    }
}

/// Comparisons to come. Nothing in them depends on time, so two are made at once.
struct Batch {
    tool: PathBuf,
    cases: Vec<(Vec<String>, String)>,
}

impl Batch {
    const fn of(tool: PathBuf) -> Self {
        Self {
            tool,
            cases: Vec::new(),
        }
    }

    /// Adds one on the shipped conversations.
    fn add(&mut self, args: &[&str]) {
        self.add_on(args, &data("conversations.json"));
    }

    /// The same on a file; an empty name is none.
    fn add_on(&mut self, args: &[&str], file: &str) {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.cases.push((args, file.to_owned()));
    }

    fn compare(self) {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((args, file)) = self.cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                compare(&self.tool, &args, file);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(work);
            scope.spawn(work);
        });
    }
}

/// Runs both with the same arguments and compares all that does not depend on time.
fn compare(tool: &Path, args: &[&str], file: &str) {
    let (recorder, desk) = (Recorder::start(), Desk::new());
    let (port, tokenizer) = (recorder.port.to_string(), tokenizer(desk.path()));
    let common = [
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--tokenizer",
        &tokenizer,
        "--dataset-path",
        file,
        "--output-details",
        "--disable-tqdm",
        "--max-concurrency",
        "1",
        "--output-file",
    ];
    let (theirs, ours) = (desk.path().join("theirs.jsonl"), desk.path().join("ours.jsonl"));
    let path = |file: &Path| file.display().to_string();
    let mut python = Command::new(tool);
    python
        .current_dir(desk.path())
        .args(args)
        .args(common)
        .arg(path(&theirs));
    python
        // Prompts that it keeps there are given to other tokenizers.
        .env("HOME", desk.path())
        .env_remove("OPENAI_API_KEY")
        .env_remove("API_KEY")
        .env_remove("SGLANG_IS_IN_CI");
    let python = side(&recorder, python, &theirs);
    let mut rust = desk.command(args);
    rust.args(common)
        .arg(path(&ours))
        .arg("--compat-figures")
        .env("OPENAI_API_KEY", "k");
    let rust = side(&recorder, rust, &ours);
    assert!(!python.heard.is_empty());
    assert_eq!(rust.heard.len(), python.heard.len(), "{args:?}");
    for (place, (ours, theirs)) in rust.heard.iter().zip(&python.heard).enumerate() {
        assert_eq!(
            (&ours.path, &ours.body),
            (&theirs.path, &theirs.body),
            "request {place} of {args:?}"
        );
    }
    assert_eq!(rust.sums, python.sums, "{args:?}");
    let keys: Vec<&String> = rust.line.keys().filter(|key| *key != "matrix").collect();
    assert_eq!(keys, python.line.keys().collect::<Vec<_>>(), "{args:?}");
    for (key, theirs) in &python.line {
        let is_timed = key.ends_with("_ms")
            || key.ends_with("throughput")
            || key.starts_with("max_c")
            || key.starts_with("max_o");
        let is_timed = is_timed || ["duration", "concurrency", "ttfts", "itls"].contains(&key.as_str());
        if !is_timed || key == "max_concurrency" {
            assert_eq!(&rust.line[key], theirs, "`{key}` of {args:?}");
        }
    }
    let gaps = |line: &Map<String, Value>| -> Vec<usize> {
        let lists = line["itls"].as_array().expect("a list of lists");
        lists
            .iter()
            .map(|list| list.as_array().map_or(0, Vec::len))
            .collect()
    };
    assert_eq!(gaps(&rust.line), gaps(&python.line), "{args:?}");
}

#[test]
fn requests_and_counts_are_those_of_the_python_tool() {
    let Some(tool) = peer() else {
        crate::skip::skip(MISSING);
        return;
    };
    let mut batch = Batch::of(tool);
    for seed in ["1", "42", "20251"] {
        let seed = ["--backend", "vllm", "--num-prompts", "12", "--seed", seed];
        let sharegpt = [&seed[..], &["--dataset-name", "sharegpt"]].concat();
        batch.add(&sharegpt);
        for dataset in ["random", "random-ids"] {
            let lengths = [
                "--random-input",
                "40",
                "--random-output",
                "12",
                "--random-range-ratio",
                "0.3",
            ];
            batch.add(&[&seed[..], &["--dataset-name", dataset], &lengths].concat());
        }
    }
    batch.compare();
}

#[test]
fn every_dialect_is_asked_as_the_python_tool_asks_it() {
    let Some(tool) = peer() else {
        crate::skip::skip(MISSING);
        return;
    };
    let mut batch = Batch::of(tool);
    let random = [
        "--dataset-name",
        "random",
        "--random-input-len",
        "24",
        "--random-output-len",
        "7",
        "--num-prompts",
        "5",
    ];
    for more in [
        &["--backend", "sglang"][..],
        &[
            "--backend",
            "sglang",
            "--dataset-name",
            "random-ids",
            "--tokenize-prompt",
            "--lora-name",
            "a",
            "--top-p",
            "0.5",
        ],
        &[
            "--backend",
            "sglang",
            "--return-logprob",
            "--top-logprobs-num",
            "2",
            "--temperature",
            "0.7",
        ],
        &[
            "--backend",
            "sglang-oai-chat",
            "--disable-ignore-eos",
            "--extra-request-body",
            r#"{"top_k": 3, "ignore_eos": true}"#,
        ],
        &["--backend", "vllm-chat", "--lora-name", "a"],
        &[
            "--backend",
            "vllm",
            "--return-logprob",
            "--top-logprobs-num",
            "3",
            "--header",
            "X-Mine=1",
        ],
        &["--backend", "trt", "--model", "m"],
        &["--backend", "trt", "--model", "m", "--disable-ignore-eos"],
        &["--backend", "truss", "--model", "m"],
        &["--backend", "vllm-embedding"],
        &[
            "--backend",
            "sglang-embedding",
            "--lora-name",
            "a",
            "--extra-request-body",
            r#"{"dimensions": 8}"#,
        ],
        &[
            "--backend",
            "lmdeploy",
            "--sharegpt-output-len",
            "6",
            "--dataset-name",
            "sharegpt",
            "--prompt-suffix",
            "!",
        ],
    ] {
        batch.add(&[&random[..], more].concat());
    }
    batch.compare();
}

/// A file of JSON lines.
fn lines(desk: &Desk, name: &str, rows: &[Value]) -> String {
    let path = desk.path().join(name);
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(&path, text).expect("a file can be written");
    path.display().to_string()
}

#[test]
fn shared_prefixes_are_those_of_the_python_tool() {
    let Some(tool) = peer() else {
        crate::skip::skip(MISSING);
        return;
    };
    let mut batch = Batch::of(tool);
    let lengths = [
        "--dataset-name",
        "generated-shared-prefix",
        "--gsp-num-groups",
        "3",
        "--gsp-prompts-per-group",
        "2",
        "--gsp-system-prompt-len",
        "30",
        "--gsp-question-len",
        "9",
        "--gsp-output-len",
        "5",
    ];
    let zipf = ["--gsp-group-distribution", "zipf", "--gsp-zipf-alpha", "1.2"];
    for more in [
        &["--backend", "sglang"][..],
        &["--backend", "vllm", "--gsp-range-ratio", "0.4", "--gsp-ordered"],
        &["--backend", "sglang", "--tokenize-prompt"],
        &["--backend", "vllm-chat", "--gsp-fast-prepare", "--seed", "7"],
        &["--backend", "sglang-oai-chat", "--gsp-num-turns", "3"],
        &[
            "--backend",
            "vllm-chat",
            "--gsp-num-turns",
            "2",
            "--gsp-range-ratio",
            "0.5",
            "--seed",
            "3",
        ],
    ] {
        batch.add_on(&[&lengths[..], more].concat(), "");
    }
    batch.add_on(&[&lengths[..], &zipf, &["--backend", "vllm"]].concat(), "");
    batch.compare();
}

#[test]
fn custom_and_recorded_rows_are_those_of_the_python_tool() {
    let Some(tool) = peer() else {
        crate::skip::skip(MISSING);
        return;
    };
    let mut batch = Batch::of(tool);
    let desk = Desk::new();
    let mut custom: Vec<Value> = (1..20)
        .map(|at| {
            let words = |count: usize| vec!["word"; count].join(" ");
            json!({"conversations": [
                {"role": "user", "content": format!("U{at} {}", words(at % 7))},
                {"role": "assistant", "content": words(2 + at % 4)},
            ]})
        })
        .collect();
    custom.push(json!({"conversation": [{"value": "What is it?"}, {"value": "It is what it is."}]}));
    custom.push(json!({"conversations": [{"value": "alone"}]}));
    let custom = lines(&desk, "custom.jsonl", &custom);
    let of_custom = ["--dataset-name", "custom", "--num-prompts", "8"];
    for more in [
        &["--backend", "vllm"][..],
        &[
            "--backend",
            "sglang",
            "--sharegpt-context-len",
            "20",
            "--seed",
            "1",
        ],
        &[
            "--backend",
            "vllm",
            "--apply-chat-template",
            "--prompt-suffix",
            "!",
        ],
        &["--backend", "vllm-chat", "--sharegpt-output-len", "6"],
        &["--backend", "vllm", "--lora-name", "a", "b", "c", "--seed", "1"],
        &[
            "--backend",
            "vllm-chat",
            "--lora-name",
            "a",
            "b",
            "c",
            "--lora-request-distribution",
            "skewed",
            "--request-rate",
            "400",
        ],
        &[
            "--backend",
            "sglang",
            "--lora-name",
            "a",
            "b",
            "--lora-request-distribution",
            "distinct",
        ],
    ] {
        batch.add_on(&[&of_custom[..], more].concat(), &custom);
    }
    let tools = json!([{"type": "function", "function": {"name": "f", "description": "gr\u{fc}n"}}]);
    let recorded = [
        json!({"messages": [{"role": "user", "content": "hi there"}], "max_tokens": 7, "temperature": 0.5, "model": "x"}),
        json!({"messages": []}),
        json!({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "yo"}], "tools": tools, "stop": null}),
    ];
    let recorded = lines(&desk, "openai.jsonl", &recorded);
    let of_openai = ["--dataset-name", "openai", "--backend", "sglang-oai-chat"];
    for more in [
        &["--num-prompts", "0"][..],
        &["--num-prompts", "2", "--sharegpt-output-len", "5"],
    ] {
        batch.add_on(&[&of_openai[..], more].concat(), &recorded);
    }
    batch.compare();
}

#[test]
fn traces_are_those_of_the_python_tool() {
    let Some(tool) = peer() else {
        crate::skip::skip(MISSING);
        return;
    };
    let mut batch = Batch::of(tool);
    let desk = Desk::new();
    let turn = |words: &str| json!({"messages": [{"role": "user", "content": words}], "prompt_tokens": 9});
    let agentic = [json!({"conversations": [
        [turn("a0"), turn("a1"), turn("a2")],
        [turn("b0")],
        [turn("c0"), {"messages": [], "prompt_tokens": 3}, turn("c1")],
    ]})];
    let agentic = lines(&desk, "agentic.json", &agentic);
    for more in [
        &["--dataset-offset", "1"][..],
        &["--agentic-max-turns", "2", "--sharegpt-output-len", "4"],
        &["--num-prompts", "2"],
    ] {
        let args = ["--dataset-name", "agentic-trace", "--backend", "vllm-chat"];
        batch.add_on(&[&args[..], more].concat(), &agentic);
    }
    let mooncake = [
        json!({"timestamp": 400, "input_length": 9, "output_length": 3, "hash_ids": [5, 6]}),
        json!({"timestamp": 0, "input_length": 9, "output_length": 4, "hash_ids": [5]}),
        json!({"timestamp": 200, "input_length": 9, "output_length": 2, "hash_ids": [5, 7]}),
        json!({"timestamp": 100, "input_length": 9, "output_length": 2, "hash_ids": []}),
    ];
    let mooncake = lines(&desk, "mooncake.jsonl", &mooncake);
    for more in [
        &["--num-prompts", "4"][..],
        &[
            "--num-prompts",
            "3",
            "--mooncake-num-rounds",
            "2",
            "--mooncake-slowdown-factor",
            "0.5",
        ],
    ] {
        let args = [
            "--dataset-name",
            "mooncake",
            "--backend",
            "sglang",
            "--use-trace-timestamps",
        ];
        batch.add_on(&[&args[..], more].concat(), &mooncake);
    }
    batch.compare();
}
