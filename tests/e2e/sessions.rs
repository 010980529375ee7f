//! Sessions of agents, from the matrix file to the plan, the records, the report and a resumed run.

use std::collections::BTreeMap;
use std::fs;

use matrix::results::record::cell::{Definitions, MeasurementStatus};
use matrix::results::record::event::Event;
use serde_json::{Value, json};

use crate::harness::{Bench, sims, summary};

const AGENTS: &str = "  - agents: { dataset: agentic-sessions, path: agents.jsonl, prompts: 4, concurrency: 3, sessions: 2, think_time: 20ms, \
                      max_idle: 5s }\n";

/// A session whose main agent waits for two sub-agents that begin together.
fn session(number: u64) -> Value {
    let request = |t: f64, ids: &[u64]| json!({"t": t, "type": "n", "in": ids.len() * 64, "out": 4, "hash_ids": ids, "api_time": 0.01});
    let agent = |id: &str, ids: &[u64]| json!({"t": 1.0, "type": "subagent", "agent_id": id, "status": "completed", "requests": [request(1.0, ids)]});
    json!({"id": number.to_string(), "block_size": 64, "hash_id_scope": "local", "requests": [
        request(0.0, &[1, 2]), agent("a", &[1, 2, 3]), agent("b", &[7, 8]), request(2.0, &[1, 2, 4, 5]),
    ]})
}

fn matrix(scenario: &str) -> String {
    sims(&[("a", "vllm", ""), ("chat", "vllm-chat", "")], scenario)
}

fn bench(scenario: &str) -> Bench {
    let bench = Bench::of(&matrix(scenario));
    let trace: String = (0..6).map(|number| session(number).to_string() + "\n").collect();
    fs::write(bench.path().join("matrices/agents.jsonl"), trace).expect("a file can be written");
    bench
}

#[test]
fn a_plan_says_how_sessions_are_paced() {
    let plan = bench(AGENTS).call(&["plan", "matrices/m.yaml"]).exits(0);
    let plan = plan.shows("4 sessions, lengths of the data set, rate inf, at most 3 at once");
    plan.shows("at most 2 sessions at once, think time 20ms, pauses between turns limited to 5s, seed");
    let all = AGENTS.replace("prompts: 4", "prompts: 0");
    bench(&all)
        .call(&["plan", "matrices/m.yaml"])
        .exits(0)
        .shows("all sessions, lengths of the data set");
}

#[test]
fn sessions_go_from_the_matrix_to_the_records_and_the_report() {
    let bench = bench(AGENTS);
    bench.run(&[]).exits(0);
    let run = bench.finished();
    for engine in ["a", "chat"] {
        let summary = summary(&run, engine, "agents");
        assert_eq!(summary.status, MeasurementStatus::Done);
        assert_eq!(summary.prompts, Some(16), "requests of four sessions");
        let figures = &summary.figures[&Definitions::Matrix];
        let theoretical = figures
            .get("theoretical_prefix_cache_hit_share")
            .copied()
            .flatten();
        if engine == "chat" {
            assert_eq!(theoretical, None, "the tokenizer has no chat template");
            continue;
        }
        let measured = figures["prefix_cache_hit_share"].expect("it is known");
        let theoretical = theoretical.expect("it is known");
        assert!(
            theoretical > 0.2 && (measured - theoretical).abs() < 1e-9,
            "{measured} {theoretical}"
        );
    }
    for measurement in run.plan.starts.iter().flat_map(|start| &start.cells) {
        let requests = run.read_requests(measurement).expect("requests are kept");
        let mut sessions: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for request in &requests {
            assert!(request.is_completed());
            let record = serde_json::to_value(request).expect("a record is JSON");
            let number = record["session"].as_u64().expect("it belongs to a session");
            sessions.entry(number).or_default().push(request);
        }
        assert_eq!(sessions.len(), 4);
        let pause = 20_000_000;
        let mut spans = Vec::new();
        for requests in sessions.values_mut() {
            requests.sort_by_key(|request| request.index);
            let [first, one, other, join] = requests[..] else {
                panic!("{requests:?}");
            };
            // With three in flight, a request may also wait for one of another session.
            assert!(one.due_ns.min(other.due_ns) >= first.end_ns + pause);
            assert!(join.due_ns >= one.end_ns.max(other.end_ns) + pause);
            spans.push((first.sent_ns.expect("it was sent"), join.end_ns));
        }
        for (begin, _) in &spans {
            let active = spans.iter().filter(|(from, to)| from <= begin && begin < to);
            assert!(active.count() <= 2, "{spans:?}");
        }
        for request in &requests {
            let sent = request.sent_ns.expect("it was sent");
            let in_flight = requests
                .iter()
                .filter(|other| other.sent_ns.is_some_and(|begin| begin <= sent) && sent < other.end_ns);
            assert!(in_flight.count() <= 3);
        }
    }
    let run = bench.run_folder().display().to_string();
    let csv = bench.call(&["report", &run, "--format", "csv-long"]).exits(0);
    csv.shows("theoretical_prefix_cache_hit_share");
    bench.call(&["report", &run]).exits(0).shows("agents");
    bench.leaves_no_process();
}

#[test]
fn sessions_are_resumed_and_measured_again_with_another_pace() {
    let bench = bench(AGENTS);
    let endings = |bench: &Bench| {
        let journal = bench.finished().journal;
        let ended = journal
            .iter()
            .filter(|(_, event)| matches!(event, Event::CellEnded { .. }));
        ended.count()
    };
    bench.run(&["--only", "engine=a"]).exits(0);
    assert_eq!(endings(&bench), 1);
    bench.run(&["--resume"]).exits(0);
    assert_eq!(endings(&bench), 2, "only the other engine was measured");
    bench.rewrite(&matrix(&AGENTS.replace("20ms", "30ms")));
    bench.run(&["--resume"]).exits(2).says("add `--yes`");
    bench.run(&["--resume", "--yes"]).exits(0);
    assert_eq!(endings(&bench), 4);
}
