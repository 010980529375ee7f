//! Conversations over bare and encrypted connections.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::config::scenario::LoadLimits;
use crate::loadgen::dataset::{Content, Extras};
use crate::loadgen::generator::tests::run_over;
use crate::loadgen::generator::{LoadSpec, PlannedRequest};
use crate::loadgen::test_server::{Act, Server, stream, target};
use crate::plan::Protocol;
use crate::results::record::request::Request;

/// Returns a conversation with this many rounds.
fn conversation(name: &str, rounds: usize) -> PlannedRequest {
    let turn = |round: usize| vec![json!({"role": "user", "content": format!("{name}{round}")})];
    PlannedRequest {
        content: Content::Text(format!("{name}0").into()),
        prompt_tokens: 3,
        requested_tokens: 2,
        due: Duration::ZERO,
        lora_adapter: None,
        extras: Some(Arc::new(Extras {
            turns: Some((1..rounds).map(turn).collect()),
            ..Extras::default()
        })),
    }
}

fn load(port: u16, planned_requests: Vec<PlannedRequest>, limits: LoadLimits) -> LoadSpec {
    LoadSpec {
        target: target(port, Protocol::Chat),
        requests: planned_requests,
        concurrency: NonZeroU32::new(1),
        sessions: None,
        connections: Default::default(),
        cancel: None,
        limits,
        body: Map::new(),
        stop_at_eos: false,
        sink: None,
        watch: None,
        spill: None,
        threads: NonZeroUsize::MIN,
    }
}

fn rounds(requests: &[Request]) -> Vec<u32> {
    requests.iter().map(|request| request.round.unwrap()).collect()
}

/// Starts a server that records all messages and answers a round that ends in `x1` with an error.
async fn recording_server() -> (Server, Arc<Mutex<Vec<Value>>>) {
    let received: Arc<Mutex<Vec<Value>>> = Arc::default();
    let keep = Arc::clone(&received);
    let server = Server::start(move |request| {
        let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
        let messages = body["messages"].clone();
        let last = messages.as_array().unwrap().last().unwrap()["content"].clone();
        let answer = format!("re {}", last.as_str().unwrap());
        assert_eq!(body["stream_options"], json!({"include_usage": true}));
        keep.lock().unwrap().push(messages);
        if last == "x1" {
            let refusal = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nboom";
            return vec![Act::Write(refusal.to_vec())];
        }
        let piece = json!({"choices": [{"delta": {"content": answer}}]});
        let tail = json!({"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 2}});
        vec![
            Act::Pause(Duration::from_millis(5)),
            Act::Write(stream(&[
                &format!("data: {piece}"),
                &format!("data: {tail}"),
                "data: [DONE]",
            ])),
        ]
    })
    .await;
    (server, received)
}

#[tokio::test]
async fn each_round_hears_all_that_was_said_and_a_slot_is_held_to_the_end() {
    for is_bare in [true, false] {
        let (server, received) = recording_server().await;
        let planned_requests = vec![conversation("x", 3), conversation("y", 2)];
        let requests = run_over(
            load(server.port, planned_requests, LoadLimits::default()),
            is_bare,
        )
        .await;
        let user = |text: &str| json!({"role": "user", "content": text});
        let reply = |text: &str| json!({"role": "assistant", "content": text});
        let received = received.lock().unwrap().clone();
        assert_eq!(
            received,
            [
                json!([user("x0")]),
                json!([user("x0"), reply("re x0"), user("x1")]),
                json!([user("x0"), reply("re x0"), user("x1"), reply(""), user("x2")]),
                json!([user("y0")]),
                json!([user("y0"), reply("re y0"), user("y1")]),
            ],
            "{is_bare}"
        );
        let indices: Vec<u32> = requests.iter().map(|request| request.index).collect();
        assert_eq!(indices, [0, 1, 2, 3, 4]);
        assert!(!requests[1].is_completed() && requests[2].is_completed());
        assert_eq!(requests[2].due_ns, requests[1].end_ns);
        assert!(requests[2].sent_ns >= Some(requests[2].due_ns));
        let prompts: Vec<u32> = requests.iter().map(Request::prompt_sent).collect();
        assert_eq!(prompts, [50, 3, 50, 50, 50]);
        assert_eq!(rounds(&requests), [0, 1, 2, 0, 1]);
    }
}

#[tokio::test]
async fn rounds_that_fall_due_after_the_end_have_no_records() {
    for is_bare in [true, false] {
        let server = Server::answering(vec![
            Act::Pause(Duration::from_millis(400)),
            Act::Write(stream(&[
                r#"data: {"choices":[{"delta":{"content":"a"}}]}"#,
                "data: [DONE]",
            ])),
        ])
        .await;
        let limits = LoadLimits {
            duration: Some("200ms".parse().unwrap()),
            ..LoadLimits::default()
        };
        let planned_requests = vec![conversation("x", 3), conversation("y", 2)];
        let requests = run_over(load(server.port, planned_requests, limits), is_bare).await;
        assert_eq!(rounds(&requests), [0], "{is_bare}");
        assert!(requests[0].is_completed());
        assert_eq!(server.stats.total(), 1);
    }
}

#[tokio::test]
async fn rounds_after_the_last_conversation_began_are_not_drained() {
    for is_bare in [true, false] {
        let server = Server::answering(vec![
            Act::Pause(Duration::from_millis(200)),
            Act::Write(stream(&[
                r#"data: {"choices":[{"delta":{"content":"a"}}]}"#,
                "data: [DONE]",
            ])),
        ])
        .await;
        let limits = LoadLimits {
            drain: "300ms".parse().unwrap(),
            ..LoadLimits::default()
        };
        let requests = run_over(load(server.port, vec![conversation("x", 3)], limits), is_bare).await;
        assert!(requests.iter().all(Request::is_completed), "{is_bare}");
    }
}

#[tokio::test]
async fn a_long_conversation_that_nobody_answers_ends() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let requests = run_over(
        load(port, vec![conversation("x", 1000)], LoadLimits::default()),
        true,
    )
    .await;
    assert_eq!(requests.len(), 1000);
    assert!(requests.iter().all(|request| !request.is_completed()));
}
