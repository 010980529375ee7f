//! Sessions of agents on real engines on CPU: the hits of the prefix cache that are possible are those that the engine
//! reports in its answers, and those that it counts.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::harness::Desk;
use crate::real_engine::{self, RealEngine, tiny_model};
use crate::sessions::{session, shares};

/// An engine, and how it counts.
struct Engine<'a> {
    real: RealEngine,
    engines: &'a Path,
    /// Tokens of a block of its prefix cache.
    block: &'static str,
    /// Looked up and found tokens of its prefix cache.
    counters: [&'static str; 2],
}

/// Eight sessions that were sent.
struct Replay {
    line: Map<String, Value>,
    /// Growth of the engine's counters.
    queries: f64,
    hits: f64,
    records: Vec<Value>,
}

impl Engine<'_> {
    /// Sends eight sessions to an empty cache. `beside` is the number of prompt tokens that are sent besides those of the load;
    /// `None` if it is not known.
    fn replay(&self, backend: &str, scope: &str, more: &[&str], beside: Option<f64>) -> Replay {
        let desk = Desk::new();
        let trace: String = (0..8)
            .map(|number| session(number, scope).to_string() + "\n")
            .collect();
        std::fs::write(desk.path().join("trace.jsonl"), trace).expect("the folder is ours");
        let tokenizer = tiny_model(self.engines).display().to_string();
        let args = [
            "--backend",
            backend,
            "--host",
            "127.0.0.1",
            "--port",
            &self.real.port,
            "--tokenizer",
            &tokenizer,
            "--dataset-name",
            "agentic-sessions",
            "--dataset-path",
            "trace.jsonl",
            "--num-prompts",
            "0",
            "--session-cache-block",
            self.block,
            "--flush-cache",
            "--output-file",
            "out.jsonl",
            "--records",
            "records.jsonl",
        ];
        let before = self.real.counters(self.counters);
        desk.call(&[&args[..], more].concat()).exits(0);
        let line = desk.lines().remove(0);
        let figure = |name: &str| line["matrix"]["figures"][name].as_f64().expect("it is reported");
        let (prompt, cached) = (figure("reported_input_tokens"), figure("cached_input_tokens"));
        let counted = self
            .real
            .counted_since(self.counters, before, |counted| match beside {
                Some(beside) => counted == [prompt + beside, cached],
                None => counted[0] > prompt,
            });
        let records =
            std::fs::read_to_string(desk.path().join("records.jsonl")).expect("records were written");
        let records = records
            .lines()
            .map(|line| serde_json::from_str(line).expect("a record is JSON"));
        Replay {
            queries: counted[0],
            hits: counted[1],
            records: records.collect(),
            line,
        }
    }

    /// What holds for every engine that keeps all blocks.
    fn finds_what_is_possible(&self, backends: &[&str], chat: &str) {
        let one = ["--max-concurrency", "1", "--warmup-requests", "0"];
        for backend in backends {
            for scope in ["local", "global"] {
                let replay = self.replay(backend, scope, &one, Some(0.0));
                replay.finds_what_is_possible(48);
                replay.counts_what_is_reported(0.0);
            }
        }
        // The tokens of its template are found as well, and divided by.
        let replay = self.replay(chat, "global", &one, Some(0.0));
        replay.finds_what_is_possible(48);
        replay.counts_what_is_reported(0.0);
        assert!(replay.prompt() > replay.figure("input_tokens"));
        // Warm-up requests of 256 tokens each are counted by the engine only, and leave nothing that the load finds.
        let warm = ["--max-concurrency", "1", "--warmup-requests", "1"];
        let replay = self.replay(backends[0], "local", &warm, Some(256.0));
        replay.finds_what_is_possible(48);
        replay.counts_what_is_reported(256.0);
        self.finds_what_was_sent_before(backends[0]);
        self.runs_sub_agents_side_by_side(backends[0]);
    }

    /// Sessions that begin at a drawn request find the blocks of the requests before it.
    fn finds_what_was_sent_before(&self, backend: &str) {
        let random = [
            "--max-concurrency",
            "1",
            "--warmup-requests",
            "0",
            "--session-start",
            "random",
        ];
        for scope in ["local", "global"] {
            let replay = self.replay(backend, scope, &random, None);
            let sent = replay.records.len();
            assert!((8..48).contains(&sent), "{sent}");
            replay.finds_what_is_possible(sent);
            // The prompts before the starts are counted by the engine only.
            assert!(replay.queries > replay.prompt() && replay.hits >= replay.figure("cached_input_tokens"));
        }
    }

    /// Two sub-agents begin together, and the next request waits for both. Only requests that follow one another share blocks, so
    /// that all possible hits happen, however many sessions there are at a time.
    fn runs_sub_agents_side_by_side(&self, backend: &str) {
        let side_by_side = [
            "--max-sessions",
            "4",
            "--think-time",
            "10ms",
            "--warmup-requests",
            "0",
        ];
        let replay = self.replay(backend, "local", &side_by_side, Some(0.0));
        replay.finds_what_is_possible(48);
        replay.counts_what_is_reported(0.0);
        let mut sessions: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
        for record in &replay.records {
            let number = record["session"].as_u64().expect("it belongs to a session");
            sessions.entry(number).or_default().push(record);
        }
        let time = |record: &Value, key: &str| record[key].as_u64().expect("it was sent and ended");
        for requests in sessions.values_mut() {
            requests.sort_by_key(|record| record["index"].as_u64());
            // The main agent has the first two and the last; the first sub-agent two, the second one.
            let [_, fork, first, second, other, join] = requests[..] else {
                panic!("{requests:?}");
            };
            assert_eq!(time(first, "due_ns"), time(other, "due_ns"));
            assert!(time(first, "due_ns") > time(fork, "end_ns"));
            assert!(time(second, "sent_ns") > time(first, "end_ns"));
            let ends = time(second, "end_ns").max(time(other, "end_ns"));
            assert!(time(join, "sent_ns") > ends);
        }
    }
}

impl Replay {
    fn figure(&self, name: &str) -> f64 {
        self.line["matrix"]["figures"][name]
            .as_f64()
            .expect("it is reported")
    }

    /// Prompt tokens by the answers.
    fn prompt(&self) -> f64 {
        self.figure("reported_input_tokens")
    }

    /// All requests and each session: the share in theory is that of the answers.
    fn finds_what_is_possible(&self, completed: usize) {
        assert_eq!(self.line["completed"], completed);
        let shares = shares(&self.line);
        assert_eq!(shares.len(), 9);
        assert!(shares[0].1.as_f64() > Some(0.4), "{shares:?}");
        for (measured, theoretical) in &shares {
            assert_eq!(measured, theoretical, "{shares:?}");
        }
    }

    /// The engine's counters grew by what its answers report, and by so many tokens that were looked up besides.
    fn counts_what_is_reported(&self, beside: f64) {
        let reported = (self.prompt() + beside, self.figure("cached_input_tokens"));
        assert_eq!((self.queries, self.hits), reported);
    }
}

/// Its blocks have 128 tokens on CPU, twice those of the trace.
#[test]
#[ignore = "a long form; tests/peers.sh runs it"]
fn real_vllm_finds_in_its_cache_what_is_possible() {
    let Some(engines) = real_engine::folder("vllm") else {
        return;
    };
    let desk = Desk::new();
    let (model, log) = (tiny_model(&engines), desk.path().join("vllm.log"));
    let more = ["--enable-prompt-tokens-details"];
    let engine = Engine {
        real: RealEngine::vllm(&engines, &model, &log, &more),
        engines: &engines,
        block: "128",
        counters: ["vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"],
    };
    engine.finds_what_is_possible(&["vllm"], "vllm-chat");
    for chat in ["vllm-messages", "vllm-responses"] {
        let one = ["--max-concurrency", "1", "--warmup-requests", "0"];
        let replay = engine.replay(chat, "global", &one, Some(0.0));
        replay.finds_what_is_possible(48);
        replay.counts_what_is_reported(0.0);
    }
}

/// Its cache holds single tokens.
#[test]
#[ignore = "a long form; tests/peers.sh runs it"]
fn real_sglang_finds_in_its_cache_what_is_possible() {
    let Some(engines) = real_engine::folder("sglang") else {
        return;
    };
    let desk = Desk::new();
    let (model, log) = (tiny_model(&engines), desk.path().join("sglang.log"));
    let engine = Engine {
        real: RealEngine::sglang(&engines, &model, &log, &["--enable-cache-report"]),
        engines: &engines,
        block: "1",
        counters: ["sglang:prompt_tokens_total", "sglang:cached_tokens_total"],
    };
    engine.finds_what_is_possible(&["sglang", "sglang-oai"], "sglang-oai-chat");
}
