//! Anthropic Messages and OpenAI Responses: against the simulated engine, and against servers that do not keep to them.

use serde_json::{Value, json};

use crate::answers;
use crate::harness::{Desk, Ran, Sim};
use crate::scripted::{bench, figure};

/// The lines of these events, each with its name.
fn named(events: &[Value]) -> Vec<String> {
    let line = |event: &Value| {
        format!(
            "event: {}\ndata: {event}",
            event["type"].as_str().unwrap_or_default()
        )
    };
    events.iter().map(line).collect()
}

/// A stream of Messages with this text, an event for each word.
fn messages(words: &[&str]) -> Vec<Value> {
    let mut events = vec![
        json!({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 32, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    ];
    events.extend(words.iter().map(
        |word| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}),
    ));
    events.push(json!({"type": "content_block_stop", "index": 0}));
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 8}}));
    events.push(json!({"type": "message_stop"}));
    events
}

/// A stream of Responses with this text, an event for each word.
fn responses(words: &[&str]) -> Vec<Value> {
    let response = |status: &str, usage: Value| json!({"object": "response", "model": "m", "status": status, "usage": usage});
    let mut events =
        vec![json!({"type": "response.created", "response": response("in_progress", Value::Null)})];
    events.extend(
        words
            .iter()
            .map(|word| json!({"type": "response.output_text.delta", "delta": word, "output_index": 0})),
    );
    let usage = json!({"input_tokens": 32, "output_tokens": 8});
    events.push(json!({"type": "response.completed", "response": response("completed", usage)}));
    events
}

const WORDS: [&str; 8] = ["the", " of", " and", " to", " in", " is", " that", " for"];

/// The protocols, each with the events of an answer of eight tokens.
fn streams() -> [(&'static str, Vec<Value>); 2] {
    [
        ("vllm-messages", messages(&WORDS)),
        ("vllm-responses", responses(&WORDS)),
    ]
}

#[test]
fn the_simulated_engine_counts_the_same_prompt_and_answer_under_every_protocol() {
    let sim = Sim::start("vllm", &[]);
    let counts = |backend: &str, more: &[&str]| {
        let desk = Desk::new();
        let ran = desk.random(backend, sim.port, more).exits(0);
        assert_eq!(ran.value("Successful requests"), "10", "{backend} {more:?}");
        let line = desk.lines().remove(0);
        let figure = |name: &str| figure(&line, name);
        (figure("output_tokens"), figure("input_tokens"))
    };
    let chat = counts("vllm-chat", &[]);
    assert_eq!(chat.0, 80.0);
    for backend in ["vllm-messages", "vllm-responses", "anthropic"] {
        assert_eq!(counts(backend, &[]), chat, "{backend}");
        assert_eq!(counts(backend, &["--disable-stream"]), chat, "{backend}");
    }
}

#[test]
fn conversations_carry_their_answers_under_every_protocol() {
    let sim = Sim::start("vllm", &[]);
    let turns = |backend: &str| {
        let more = [
            "--dataset-name",
            "generated-shared-prefix",
            "--gsp-num-groups",
            "2",
            "--gsp-prompts-per-group",
            "2",
            "--gsp-system-prompt-len",
            "16",
            "--gsp-question-len",
            "8",
            "--gsp-output-len",
            "4",
            "--gsp-num-turns",
            "3",
            "--output-details",
        ];
        let desk = Desk::new();
        desk.random(backend, sim.port, &more).exits(0);
        let line = desk.lines().remove(0);
        (line["completed"].clone(), line["generated_texts"].clone())
    };
    let chat = turns("vllm-chat");
    assert_eq!(chat.0, json!(12));
    // The words of an answer depend on the whole prompt, so equal answers had equal histories.
    for backend in ["vllm-messages", "vllm-responses"] {
        assert_eq!(turns(backend), chat, "{backend}");
    }
}

#[test]
fn a_stream_without_its_last_event_was_cut() {
    for (backend, mut events) in streams() {
        let (ran, line) = bench(backend, &named(&events), &[]);
        ran.exits(0);
        assert_eq!(figure(&line, "output_tokens"), 16.0, "{backend}");
        events.pop();
        let (ran, _) = bench(backend, &named(&events), &[]);
        ran.exits(3)
            .says("the connection ended before the end mark of the response arrived");
        // A proxy that ends the stream properly although its engine died.
        let port = answers::serve(
            [answers::streamed(&named(&events)), b"0\r\n\r\n".to_vec()].concat(),
            false,
        );
        Desk::new()
            .random(backend, port, &["--num-prompts", "2", "--warmup-requests", "0"])
            .exits(3)
            .says("the stream ended before the end mark of the response arrived");
    }
}

#[test]
fn the_last_event_ends_an_answer_although_the_connection_stays_and_more_follows() {
    for (backend, mut events) in streams() {
        let later = events[2].clone();
        events.push(later);
        events.push(json!({"type": "error", "error": {"message": "too late"}}));
        // The server would keep each connection for as long as the client does.
        let port = answers::serve(answers::streamed(&named(&events)), true);
        let desk = Desk::new();
        let more = ["--num-prompts", "2", "--warmup-requests", "0", "--output-details"];
        desk.random(backend, port, &more)
            .exits(0)
            .says("left 2 connections open");
        let line = desk.lines().remove(0);
        assert_eq!(line["completed"], json!(2), "{backend}");
        assert_eq!(line["generated_texts"][0], json!(WORDS.concat()), "{backend}");
    }
}

#[test]
fn an_error_after_the_first_words_fails_the_answer_with_its_words() {
    for (backend, mut events) in streams() {
        events.truncate(4);
        events.push(json!({"type": "error", "error": {"type": "api_error", "message": "engine died"}}));
        let (ran, _) = bench(backend, &named(&events), &[]);
        ran.exits(3).says("error-event, such as: engine died");
    }
    let mut events = responses(&WORDS[..3]);
    let last = events.len() - 1;
    events[last] = json!({"type": "response.failed", "response": {"status": "failed", "error": {"message": "engine died"}}});
    let (ran, _) = bench("vllm-responses", &named(&events), &[]);
    ran.exits(3).says("error-event, such as: engine died");
}

#[test]
fn counts_that_are_missing_are_made_from_the_text_and_counts_that_differ_are_named() {
    for (backend, mut events) in streams() {
        for event in &mut events {
            event.as_object_mut().expect("an object").remove("usage");
            event["response"]["usage"] = Value::Null;
        }
        let (ran, line) = bench(backend, &named(&events), &[]);
        ran.exits(0);
        let tokens = figure(&line, "output_tokens");
        assert!(tokens > 0.0, "{backend}: {tokens}");
    }
    let inflated = |backend: &str, events: &[Value]| -> Ran {
        let text = Value::Array(events.to_vec()).to_string();
        let events: Value =
            serde_json::from_str(&text.replace("\"output_tokens\":8", "\"output_tokens\":24"))
                .expect("it stays JSON");
        let (ran, line) = bench(backend, &named(events.as_array().expect("a list")), &[]);
        assert_eq!(figure(&line, "output_tokens"), 48.0, "the server's count stands");
        ran
    };
    for (backend, events) in streams() {
        inflated(backend, &events).exits(0).says("output-long");
    }
}

#[test]
fn events_in_another_order_count_what_they_carry() {
    for (backend, mut events) in streams() {
        // The words come before the start, and the start comes late.
        let start = events.remove(0);
        events.insert(4, start);
        let (ran, line) = bench(backend, &named(&events), &[]);
        ran.exits(0);
        assert_eq!(figure(&line, "output_tokens"), 16.0, "{backend}");
    }
}

#[test]
fn what_these_protocols_cannot_carry_is_refused_before_anything_is_sent() {
    for backend in ["vllm-messages", "vllm-responses"] {
        let run = |more: &[&str]| {
            let common = ["--backend", backend, "--model", "m", "--port", "1"];
            Desk::new().call(&[&common[..], more].concat()).exits(2)
        };
        run(&["--tokenize-prompt"]).says("`--tokenize-prompt` needs the backend `sglang`");
        run(&["--return-logprob"]).says("`--return-logprob` has no effect");
        run(&["--rules", "classic"]).says("does not have the backend");
    }
}

/// Two ranked documents, and what the server counts.
fn ranked() -> Value {
    json!({"model": "m", "usage": {"prompt_tokens": 90, "total_tokens": 90},
        "results": [{"index": 1, "relevance_score": 0.5}, {"index": 0, "relevance_score": 0.25}]})
}

fn rerank(port: u16, more: &[&str]) -> (Desk, Ran) {
    rerank_with("vllm-rerank", port, more)
}

fn rerank_with(backend: &str, port: u16, more: &[&str]) -> (Desk, Ran) {
    let desk = Desk::new();
    let data_set = [
        "--dataset-name",
        "random-rerank",
        "--rerank-query-len",
        "5",
        "--rerank-documents",
        "2",
        "--rerank-document-len",
        "40",
        "--num-prompts",
        "3",
        "--warmup-requests",
        "1",
    ];
    let ran = desk.random(backend, port, &[&data_set[..], more].concat());
    (desk, ran)
}

#[test]
fn simulated_engines_rank_as_real_ones_do() {
    for (dialect, flags) in [("vllm", &[][..]), ("sglang", &["--enable-metrics"])] {
        let sim = Sim::start(dialect, flags);
        let backend = format!("{dialect}-rerank");
        let (desk, ran) = rerank_with(&backend, sim.port, &["--warmup-requests", "0"]);
        assert_eq!(ran.exits(0).value("Successful requests"), "3");
        let counted = |name: &str| sim.counter(&format!("{dialect}:{name}_tokens_total"));
        let line = desk.lines().remove(0);
        assert_eq!(figure(&line, "reported_input_tokens"), counted("prompt"));
        assert_eq!(counted("generation"), 0.0);
        // Half of the documents are left out.
        let sim = Sim::start(dialect, &["--early-end", "0.5"]);
        let (_, ran) = rerank_with(&backend, sim.port, &["--warmup-requests", "0"]);
        ran.exits(3).says("has 1 results instead of 2");
    }
}

#[test]
fn documents_are_ranked_and_nothing_is_generated() {
    let body = ranked().to_string();
    let port = answers::serve(answers::whole("200 OK", "", &body), false);
    let (desk, ran) = rerank(port, &[]);
    let ran = ran.exits(0);
    assert_eq!(ran.value("Successful requests"), "3");
    let line = desk.lines().remove(0);
    // Each of three requests has two pairs of a query of 5 and a document of 40 tokens.
    assert_eq!(figure(&line, "input_tokens"), 270.0);
    assert_eq!(figure(&line, "reported_input_tokens"), 270.0);
    assert_eq!(line["total_output_tokens"], json!(0));
    let refused = json!({"error": {"message": "too many documents"}}).to_string();
    let port = answers::serve(answers::whole("400 Bad Request", "", &refused), false);
    let (_, ran) = rerank(port, &["--warmup-requests", "0"]);
    ran.exits(3).says("too many documents");
}

#[test]
fn documents_and_other_prompts_are_not_mixed() {
    let refuse = |backend: &str, data_set: &str| {
        let args = [
            "--backend",
            backend,
            "--dataset-name",
            data_set,
            "--model",
            "m",
            "--port",
            "1",
        ];
        Desk::new()
            .call(&args)
            .exits(2)
            .says("cannot be used with the data set");
    };
    refuse("vllm-rerank", "random-ids");
    refuse("vllm", "random-rerank");
    refuse("vllm-chat", "random-rerank");
    for (flag, value) in [("--rerank-documents", "0"), ("--rerank-range-ratio", "2")] {
        let (_, ran) = rerank(1, &[flag, value]);
        ran.exits(2).says("`--rerank-*`");
    }
    let args = [
        "--dataset-name",
        "random-ids",
        "--model",
        "m",
        "--rerank-documents",
        "2",
    ];
    Desk::new()
        .call(&args)
        .exits(2)
        .says("`--rerank-…` belong to the data set `random-rerank`");
}
