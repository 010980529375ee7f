//! Answers and servers that are sound in their own way: printed over many lines, never closed, redirected, without text or without counts.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::harness::{Desk, Ran, data};
use crate::scripted::{serve_in_turn, stream, text};

/// Answers every request for tokens with these bytes; a connection stays open for as long as the client keeps it if `holds`.
pub fn serve(answer: impl Into<Vec<u8>>, holds: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has one").port();
    let answer: Arc<[u8]> = answer.into().into();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || say(stream, &answer, holds));
        }
    });
    port
}

fn say(mut stream: TcpStream, answer: &[u8], holds: bool) -> Option<()> {
    let mut bytes = Vec::new();
    while !is_whole(&bytes)? {
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&buffer[..length]);
    }
    if bytes.starts_with(b"GET") {
        return stream
            .write_all(&whole("200 OK", "", &json!({"data": [{"id": "m"}]}).to_string()))
            .ok();
    }
    stream.write_all(answer).ok()?;
    // The client ends it.
    while holds && stream.read(&mut [0; 64]).ok()? > 0 {}
    Some(())
}

/// Whether a request is; `None` where it is none.
fn is_whole(bytes: &[u8]) -> Option<bool> {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Some(false);
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim())
    });
    Some(body.len() >= length.map_or(Some(0), |length| length.parse().ok())?)
}

/// An answer of known length.
pub fn whole(status: &str, header: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{header}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// An answer that streams, in chunks, so that its end is known before the connection's; without its end where that stays open.
pub fn streamed(lines: &[String]) -> Vec<u8> {
    let events = lines.join("\n\n") + "\n\n";
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{events}\r\n", events.len()).into_bytes()
}

/// A few short requests: what was said, and the line that was written.
fn bench(backend: &str, port: u16, more: &[&str]) -> (Ran, Map<String, Value>) {
    let desk = Desk::new();
    let common = [
        "--num-prompts",
        "4",
        "--warmup-requests",
        "0",
        "--disable-tqdm",
        "--ready-check-timeout-sec",
        "0",
        "--model",
        "m",
    ];
    let ran = desk.random(backend, port, &[&common[..], more].concat());
    let line = desk.lines().into_iter().next().expect("a line was written");
    (ran, line)
}

#[test]
fn an_embedding_printed_over_many_lines_is_one_answer() {
    let body = json!({"data": [{"embedding": vec![0.25; 4096]}], "usage": {"prompt_tokens": 32}});
    let body = serde_json::to_string_pretty(&body).expect("it is JSON");
    let (ran, line) = bench("vllm-embedding", serve(whole("200 OK", "", &body), false), &[]);
    let ran = ran.exits(0);
    assert_eq!(line["completed"], json!(4));
    assert!(!ran.stderr.contains("peak of output"), "{}", ran.stderr);
}

#[test]
fn a_server_that_never_closes_neither_keeps_slots_nor_lengthens_the_load() {
    let mut lines = stream(&["a", " b"].map(text));
    lines.insert(
        2,
        json!({"choices": [], "usage": {"prompt_tokens": 32, "completion_tokens": 8}}).to_string(),
    );
    lines[2].insert_str(0, "data: ");
    let (ran, line) = bench("vllm", serve(streamed(&lines), true), &["--max-concurrency", "1"]);
    ran.exits(0).says("left 4 connections open");
    // Each would have taken a second.
    let duration = line["duration"].as_f64().expect("a number");
    assert!(duration < 3.0, "{duration} s");
}

/// As some gateways answer a wrong key.
#[test]
fn keys_that_a_server_repeats_are_in_no_file_and_no_stream() {
    let said = r#"{"error": "key planted-header-1 of planted-other-2 refused, body planted-body-3"}"#;
    let port = serve(whole("500 Internal Server Error", "", said), false);
    let desk = Desk::new();
    let ran = desk.random(
        "vllm",
        port,
        &[
            "--num-prompts",
            "2",
            "--warmup-requests",
            "0",
            "--ready-check-timeout-sec",
            "0",
            "--model",
            "m",
            "--output-details",
            "--records",
            "records.jsonl",
            "--header",
            "Authorization=Bearer planted-header-1",
            "X-Auth=planted-other-2",
            "--extra-request-body",
            r#"{"api_key": "planted-body-3"}"#,
        ],
    );
    let ran = ran.exits(3).says("key *** of *** refused, body ***");
    let records = fs::read_to_string(desk.path().join("records.jsonl")).expect("records are written");
    let lines = serde_json::to_string(&desk.lines()).expect("it is JSON");
    for text in [&ran.stdout, &ran.stderr, &records, &lines] {
        assert!(!text.contains("planted-"), "{text}");
    }
    assert!(records.contains("refused"), "{records}");
}

#[test]
fn where_nothing_completed_no_figure_is_less_than_nothing() {
    let refused = whole("500 Internal Server Error", "", r#"{"error": "no"}"#);
    let (ran, line) = bench("vllm", serve(refused, false), &[]);
    assert!(!ran.stdout.contains("-0.0"), "{}", ran.stdout);
    assert!(
        !serde_json::to_string(&line)
            .expect("it is JSON")
            .contains(":-0.0"),
        "{line:#?}"
    );
}

#[test]
fn a_report_of_no_tokens_is_held_against_the_text() {
    let mut events = ["a", " b", " c"].map(text).to_vec();
    events.push(json!({"choices": [], "usage": {"prompt_tokens": 32, "completion_tokens": 0}}));
    let answer = [streamed(&stream(&events)), b"0\r\n\r\n".to_vec()].concat();
    let (ran, line) = bench("vllm", serve(answer, false), &[]);
    ran.exits(0);
    let tokens = line["total_output_tokens"].as_f64().expect("a number");
    assert!(tokens >= 12.0, "{tokens} tokens for 4 answers of `a b c`");
    // Scripts format this number, also of loads below a second.
    assert!(
        line["max_output_tokens_per_s"].is_number(),
        "{:?}",
        line["max_output_tokens_per_s"]
    );
}

/// Some servers send a usage of zeros with each event, or repeat the first one; the last one counts.
#[test]
fn counts_within_an_answer_that_its_end_contradicts_are_none() {
    for within in [0, 1] {
        let event = |word: &str| {
            let usage = json!({"prompt_tokens": 4, "completion_tokens": within, "total_tokens": 4 + within});
            let event =
                json!({"choices": [{"index": 0, "text": word, "finish_reason": null}], "usage": usage});
            format!("data: {event}")
        };
        let end = json!({
            "choices": [{"index": 0, "text": "", "finish_reason": "length"}],
            "usage": {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8},
        });
        let mut lines: Vec<String> = [" one", " two", " three", " four"].map(event).to_vec();
        lines.extend([format!("data: {end}"), "data: [DONE]".to_owned()]);
        let (ran, line) = bench(
            "vllm",
            serve([streamed(&lines), b"0\r\n\r\n".to_vec()].concat(), false),
            &[],
        );
        assert_eq!(line["total_output_tokens"], 16, "{within}: {}", ran.stderr);
        assert_eq!(line["matrix"]["figures"]["output_tokens"], 16.0, "{within}");
    }
}

#[test]
fn a_redirect_and_the_words_of_a_refusal_are_told() {
    let location = "Location: http://127.0.0.1:9/elsewhere\r\n";
    let moved = whole("307 Temporary Redirect", location, "");
    let (ran, _) = bench("vllm", serve(moved, false), &[]);
    ran.exits(3).says("http://127.0.0.1:9/elsewhere");
    let refused = whole("200 OK", "", r#"{"detail": "the engine is out of order"}"#);
    let (ran, _) = bench("vllm", serve(refused, false), &[]);
    ran.exits(3).says("the engine is out of order");
}

#[test]
fn a_path_that_the_server_does_not_know_is_told_with_the_backend_that_asks_it() {
    let port = serve(whole("404 Not Found", "", ""), false);
    let more = [
        "--warmup-requests",
        "1",
        "--ready-check-timeout-sec",
        "0",
        "--model",
        "m",
    ];
    let ran = Desk::new().random("sglang", port, &more).exits(3);
    ran.says("/generate is the endpoint of `--backend sglang`");
}

#[test]
fn tokens_that_come_as_numbers_without_text_are_output() {
    let event = |ids: &[u32], count: u32| json!({"output_ids": ids, "meta_info": {"completion_tokens": count, "prompt_tokens": 32}});
    let lines = stream(&[event(&[5, 6], 2), event(&[5, 6, 7, 8], 4)]);
    let answer = [streamed(&lines), b"0\r\n\r\n".to_vec()].concat();
    let (ran, line) = bench("sglang", serve(answer, false), &[]);
    ran.exits(0);
    assert_eq!(line["total_output_tokens"], json!(16));
    let ttft = &line["matrix"]["figures"]["mean_ttft_ms"];
    assert!(ttft.as_f64() > Some(0.0), "{ttft:?}");
}

#[test]
fn prompts_of_later_rounds_that_nobody_counted_hold_what_was_said_before() {
    let event = |content: &str| json!({"choices": [{"delta": {"content": content}}]});
    let answer = [
        streamed(&stream(&["a", " b", " c", " d"].map(event))),
        b"0\r\n\r\n".to_vec(),
    ]
    .concat();
    let port = serve(answer, false);
    let (_, once) = conversation(port, 1, &[]);
    let (ran, often) = conversation(port, 4, &[]);
    // Four times the first one's would be without what was said meanwhile: questions of five tokens and answers of some.
    assert!(often > 4.0 * once + 3.0 * 5.0, "{often} of {once} at first");
    ran.says("the prompt tokens of 3 later rounds are counted by the client");
}

/// A server that drops what was said before reports few prompt tokens and reads few; one that reports many reads no more.
#[test]
fn prompts_of_rounds_are_held_against_what_was_said() {
    let event = |content: &str| json!({"choices": [{"delta": {"content": content}}]});
    let held = |prompts: Option<[f64; 3]>| {
        let answer = |round: usize| {
            let mut events = ["a", " b", " c", " d"].map(event).to_vec();
            if let Some(prompts) = prompts {
                let prompt = prompts[round].round();
                events.push(
                    json!({"choices": [], "usage": {"prompt_tokens": prompt as u64, "completion_tokens": 4}}),
                );
            }
            stream(&events)
        };
        let port = serve_in_turn(&[answer(0), answer(1), answer(2)]);
        conversation(
            port,
            3,
            &["--gsp-system-prompt-len", "300", "--gsp-question-len", "60"],
        )
    };
    // What we count ourselves: each round holds a question of sixty tokens and an answer of four more than the one before.
    let (_, own) = held(None);
    let honest = [own / 3.0 - 64.0, own / 3.0, own / 3.0 + 64.0];
    let (ran, actual) = held(Some(honest));
    assert!(!ran.stderr.contains("prompt-tokens-disagree"), "{}", ran.stderr);
    assert!((actual - own).abs() <= 2.0, "{actual} {own}");
    let (ran, actual) = held(Some([honest[0], 70.0, 70.0]));
    ran.says("prompt-tokens-disagree")
        .says("by the server's count, 2 of 3 prompts are shorter");
    assert!((actual - own).abs() < 40.0, "{actual} {own}");
    let (ran, actual) = held(Some(honest.map(|prompt| 5.0 * prompt)));
    ran.says("prompt-tokens-disagree")
        .says("by the server's count, 3 of 3 prompts are longer");
    assert!((actual - own).abs() < 40.0, "{actual} {own}");
}

/// A conversation of so many rounds, and its prompt tokens.
fn conversation(port: u16, rounds: u32, more: &[&str]) -> (Ran, f64) {
    let (desk, tokenizer) = (Desk::new(), data("tokenizer.json"));
    let (port, rounds) = (port.to_string(), rounds.to_string());
    let common = [
        "--backend",
        "vllm-chat",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--model",
        "m",
        "--tokenizer",
        &tokenizer,
        "--ready-check-timeout-sec",
        "0",
        "--warmup-requests",
        "0",
        "--dataset-name",
        "generated-shared-prefix",
        "--gsp-num-groups",
        "1",
        "--gsp-prompts-per-group",
        "1",
        "--gsp-system-prompt-len",
        "20",
        "--gsp-question-len",
        "5",
        "--gsp-output-len",
        "4",
        "--gsp-num-turns",
        &rounds,
        "--output-file",
        "out.jsonl",
    ];
    let ran = desk.call(&[&common[..], more].concat());
    let line = desk.lines().remove(0);
    let prompts = line["matrix"]["figures"]["input_tokens"].as_f64();
    (ran.exits(0), prompts.expect("a number"))
}

#[test]
fn nobody_is_advised_to_use_threads_that_cannot_be_asked_for() {
    let actual = Command::new(crate::binary::matrix())
        .args(["explain", "--codes"])
        .output()
        .expect("the binary runs");
    let actual = String::from_utf8_lossy(&actual.stdout);
    assert!(actual.contains("client-saturated"), "{actual}");
    assert!(!actual.contains("more client threads"), "{actual}");
}
