//! Sessions of agents: their order, their caps, and the hits of the prefix cache against those that are possible.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Desk, Ran, Sim, data};
use crate::recorder::Recorder;

/// A session in Weka's layout: a main agent whose context grows, and two sub-agents of which one shares its beginning.
/// With the scope `global` sessions have blocks in common.
pub fn session(number: u64, scope: &str) -> Value {
    let shared: Vec<u64> = (0..3 + number).collect();
    let grown = |more: u64| -> Vec<u64> { shared.iter().copied().chain(100..100 + more).collect() };
    let request = |t: f64, ids: &[u64], cut: u64| json!({"t": t, "type": "n", "in": ids.len() as u64 * 64 - cut, "out": 3, "hash_ids": ids, "api_time": 0.01});
    json!({
        "id": format!("trace_{number}"), "models": ["m"], "block_size": 64, "hash_id_scope": scope,
        "requests": [
            request(0.0, &grown(0), 0),
            request(0.02, &grown(2), 10),
            {"t": 0.04, "type": "subagent", "agent_id": "a", "status": "completed", "requests": [
                request(0.04, &[&shared[..2], &[200, 201]].concat(), 0), request(0.06, &[&shared[..2], &[200, 201, 202]].concat(), 63),
            ]},
            {"t": 0.04, "type": "subagent", "agent_id": "b", "status": "completed", "requests": [request(0.04, &[300], 7)]},
            request(0.09, &grown(5), 1),
        ],
    })
}

/// A bench of eight sessions.
fn bench(desk: &Desk, backend: &str, port: u16, more: &[&str]) -> Ran {
    let trace: String = (0..8)
        .map(|number| session(number, "local").to_string() + "\n")
        .collect();
    std::fs::write(desk.path().join("trace.jsonl"), trace).expect("the folder is ours");
    let (port, tokenizer) = (port.to_string(), data("tokenizer.json"));
    let args = [
        "--backend",
        backend,
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--tokenizer",
        &tokenizer,
        "--dataset-name",
        "agentic-sessions",
        "--dataset-path",
        "trace.jsonl",
        "--output-file",
        "out.jsonl",
        "--num-prompts",
        "0",
    ];
    desk.call(&[&args, more].concat())
}

/// Found and queried tokens of the prefix cache by vLLM's metrics.
fn counters(sim: &Sim) -> (f64, f64) {
    (
        sim.counter("vllm:prefix_cache_hits_total"),
        sim.counter("vllm:prefix_cache_queries_total"),
    )
}

/// The shares of prompt tokens that were found, by the answers and in theory; of all and of each session.
pub fn shares(line: &serde_json::Map<String, Value>) -> Vec<(Value, Value)> {
    let ours = &line["matrix"];
    let figures = &ours["figures"];
    let all = ("prefix_cache_hit_share", "theoretical_prefix_cache_hit_share");
    let mut shares = vec![(figures[all.0].clone(), figures[all.1].clone())];
    let sessions = ours["sessions"].as_array().expect("sessions are listed");
    shares.extend(sessions.iter().map(|session| {
        (
            session["measured_hit_share"].clone(),
            session["theoretical_hit_share"].clone(),
        )
    }));
    shares
}

/// One request at a time and a cache that holds everything: what is possible is what happens.
#[test]
fn the_hits_in_theory_are_those_of_the_engine() {
    for (engine_block, more) in [
        ("16", &[][..]),
        ("64", &["--session-cache-block", "64"]),
        ("48", &["--session-cache-block", "48"]),
    ] {
        let (sim, desk) = (Sim::start("vllm", &["--block-tokens", engine_block]), Desk::new());
        let args = [&["--max-concurrency", "1", "--warmup-requests", "0"][..], more].concat();
        let ran = bench(&desk, "vllm", sim.port, &args).exits(0);
        let line = &desk.lines()[0];
        assert_eq!(line["completed"], 48, "{}", ran.stderr);
        let shares = shares(line);
        assert_eq!(shares.len(), 9);
        for (measured, theoretical) in &shares {
            assert!(theoretical.as_f64().unwrap() > 0.2, "{shares:?}");
            assert_eq!(measured, theoretical, "blocks of {engine_block}");
        }
        let (hits, queries) = counters(&sim);
        assert_eq!(json!(hits / queries), shares[0].1);
        assert!(ran.stdout.contains("Theoretical hit rate (%):"), "{}", ran.stdout);
    }
}

/// The same holds for each session by itself if sessions share no blocks, whatever their number at a time.
#[test]
fn sessions_that_run_side_by_side_have_their_own_hits() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let args = [
        "--max-sessions",
        "4",
        "--think-time",
        "10ms",
        "--warmup-requests",
        "0",
    ];
    bench(&desk, "vllm", sim.port, &args).exits(0);
    let line = &desk.lines()[0];
    assert_eq!(line["completed"], 48);
    assert_eq!(
        line["matrix"]["pacing"],
        json!({"sessions": 4, "think_time": "10ms"})
    );
    // Sub-agents of a session begin together, and share two blocks at most.
    for (measured, theoretical) in shares(line) {
        let (measured, theoretical) = (measured.as_f64().unwrap(), theoretical.as_f64().unwrap());
        assert!(
            measured <= theoretical && measured > 0.0,
            "{measured} of {theoretical}"
        );
    }
}

#[test]
fn sessions_that_begin_in_the_middle_find_what_was_sent_before() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let args = [
        "--max-concurrency",
        "1",
        "--warmup-requests",
        "0",
        "--session-start",
        "random",
    ];
    let ran = bench(&desk, "vllm", sim.port, &args).exits(0);
    let line = &desk.lines()[0];
    let completed = line["completed"].as_u64().unwrap();
    assert!((8..48).contains(&completed), "{completed}: {}", ran.stderr);
    for (measured, theoretical) in shares(line) {
        assert_eq!(measured, theoretical);
    }
    let (_, queries) = counters(&sim);
    assert!(
        queries > line["total_input_tokens"].as_f64().unwrap(),
        "the cache was filled before"
    );
}

/// A data set of rows names those that it lacks; requests of sessions are more than sessions.
#[test]
fn sessions_are_no_rows() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let args = ["--num-prompts", "100", "--think-time", "1ms"];
    let ran = bench(&desk, "vllm", sim.port, &args).exits(0);
    assert!(!ran.stderr.contains("the data set has"), "{}", ran.stderr);
    ran.shows("Loaded 8 sessions with 48 requests");
}

#[test]
fn a_chat_gets_the_text_of_the_blocks() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    bench(&desk, "vllm-chat", sim.port, &["--max-idle", "5ms"]).exits(0);
    assert_eq!(desk.lines()[0]["completed"], 48);
}

#[test]
fn what_has_no_sessions_has_no_pauses() {
    let desk = Desk::new();
    for (flags, why) in [
        (
            &["--think-time", "2s"][..],
            "`--think-time`: `random` has no sessions and no conversations",
        ),
        (
            &["--max-sessions", "2"],
            "`--max-sessions`: `random` has no sessions and no conversations",
        ),
        (
            &["--max-idle", "2s"],
            "`--max-idle`: `random` has no sessions and no",
        ),
        (
            &["--session-format", "weka"],
            "belong to the data set `agentic-sessions`",
        ),
        (&["--think-time", "often"], "`often` is not a think time"),
        (&["--max-sessions", "0"], "--max-sessions"),
    ] {
        let ran = desk.random("vllm", 1, flags).exits(2);
        assert!(ran.stderr.contains(why), "{flags:?}: {}", ran.stderr);
    }
    let ran = bench(&desk, "vllm", 1, &["--session-cache-block", "0"]).exits(2);
    assert!(ran.stderr.contains("`cache_block` is 0"), "{}", ran.stderr);
}

/// A session has six requests, of its main agent and of two sub-agents.
#[test]
fn all_requests_of_a_session_have_one_value_of_the_header_that_a_router_reads() {
    let (recorder, desk) = (Recorder::start(), Desk::new());
    let args = ["--routing-key-header", "X-Session-ID", "--warmup-requests", "0"];
    bench(&desk, "vllm", recorder.port, &args).exits(0);
    let mut sessions: BTreeMap<String, usize> = BTreeMap::new();
    for heard in recorder.take() {
        let value = |header: &String| header.strip_prefix("x-session-id: ").map(str::to_owned);
        let session = heard
            .headers
            .iter()
            .find_map(value)
            .expect("each request has one");
        *sessions.entry(session).or_default() += 1;
    }
    assert_eq!(
        sessions.values().copied().collect::<Vec<_>>(),
        [6; 8],
        "{sessions:?}"
    );
}
