use serde_json::{Map, Value, json};

use crate::loadgen::dataset::{Content, Extras};
use crate::loadgen::protocol::{
    Decoded, Decoder, EncodeError, LineKind, RequestParams, encode, output_limit,
};
use crate::plan::{ClientStyle, Protocol, ProtocolSpec, UsageRequest};
use crate::results::record::request::ChunkKind::{Answer, Reasoning, Tool};
use crate::results::record::request::{ChunkKind, RequestFailureClass, Usage};
use crate::results::record::tool_call::tool_calls_text;

fn dialect() -> ProtocolSpec {
    ProtocolSpec {
        protocol: Protocol::Responses,
        path: None,
        usage: UsageRequest::StreamOptions,
        body: Map::new(),
        routing_key_header: None,
        embeddings: Default::default(),
        style: ClientStyle::BenchServing,
    }
}

fn encoded(prompt: &Content, extras: Option<&Extras>) -> Result<Value, EncodeError> {
    let nothing = Map::new();
    let params = RequestParams {
        extras,
        ..RequestParams::without_extras("m", 5, false, &nothing)
    };
    encode(&dialect(), prompt, &params).map(|body| serde_json::from_slice(&body).unwrap())
}

fn decode(events: &[Value]) -> Decoded {
    let mut decoder = Decoder::new(Protocol::Responses, 1 << 20);
    for (event, at) in events.iter().zip(1..) {
        decoder.push(LineKind::Event, event.to_string().as_bytes(), at);
    }
    decoder.finish(true)
}

fn chunks(decoded: &Decoded) -> Vec<(u64, ChunkKind, Option<u32>, u32)> {
    decoded.chunks.iter().map(|chunk| chunk.into()).collect()
}

fn delta(kind: &str, text: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "delta": text, "item_id": "i", "sequence_number": 4})
}

fn response(status: &str) -> Value {
    json!({"object": "response", "model": "tiny", "status": status, "error": null, "incomplete_details": null,
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "yes"}]}],
        "usage": {"input_tokens": 15, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 4,
            "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 19}})
}

fn completed(response: &Value) -> Value {
    json!({"type": "response.completed", "sequence_number": 9, "response": response})
}

#[test]
fn a_body_has_the_prompt_as_input_and_is_not_stored() {
    assert_eq!(
        encoded(&Content::Text("hi".to_owned().into()), None).unwrap(),
        json!({"model": "m", "input": "hi", "max_output_tokens": 5, "stream": true, "temperature": 0.0,
            "ignore_eos": true, "store": false})
    );
    assert_eq!(
        encoded(&Content::Ids(vec![1].into()), None),
        Err(EncodeError::Ids(Protocol::Responses))
    );
    let images = Content::Images {
        text: "what?".to_owned(),
        images: vec!["data:a".into()],
    };
    assert_eq!(
        encoded(&images, None).unwrap()["input"],
        json!([{"role": "user", "content": [{"type": "input_image", "image_url": "data:a", "detail": "auto"},
            {"type": "input_text", "text": "what?"}]}])
    );
    let own_limit = Map::from_iter([("max_output_tokens".to_owned(), json!(7))]);
    let params = RequestParams::without_extras("m", 5, false, &own_limit);
    assert_eq!(output_limit(&dialect(), &params), Some(7));
}

#[test]
fn chat_messages_become_items() {
    let prompt = Content::Messages(vec![
        json!({"role": "system", "content": "be brief"}),
        json!({"role": "user", "content": [{"type": "text", "text": "hi"}]}),
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}),
        json!({"role": "tool", "tool_call_id": "1", "content": "one"}),
        json!({"role": "assistant", "content": [{"type": "text", "text": "done"}]}),
    ]);
    let extras = Extras {
        turns: Some(Vec::new()),
        body: Map::from_iter([
            (
                "tools".to_owned(),
                json!([{"type": "function", "function": {"name": "f"}}]),
            ),
            (
                "tool_choice".to_owned(),
                json!({"type": "function", "function": {"name": "f"}}),
            ),
        ]),
        ..Extras::default()
    };
    let body = encoded(&prompt, Some(&extras)).unwrap();
    assert_eq!(
        body["input"],
        json!([
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "one"},
            {"role": "assistant", "content": "done"},
        ])
    );
    assert_eq!(body["tools"], json!([{"type": "function", "name": "f"}]));
    assert_eq!(body["tool_choice"], json!({"type": "function", "name": "f"}));
    assert_eq!(body.get("stream_options"), None);
}

#[test]
fn a_stream_of_typed_events_is_reasoning_answer_and_tool_calls() {
    let decoded = decode(&[
        json!({"type": "response.created", "response": response("in_progress")}),
        json!({"type": "response.in_progress", "response": response("in_progress")}),
        json!({"type": "response.output_item.added", "item": {"type": "reasoning", "content": []}}),
        delta("reasoning_text", "hm"),
        delta("reasoning_summary_text", "mm"),
        json!({"type": "response.output_item.added", "item": {"type": "message", "content": []}}),
        json!({"type": "response.content_part.added", "part": {"type": "output_text", "text": ""}}),
        delta("output_text", "yes"),
        delta("refusal", "no"),
        json!({"type": "response.output_text.done", "text": "yes"}),
        json!({"type": "response.output_item.added", "item": {"type": "function_call", "name": "f", "arguments": ""}}),
        delta("function_call_arguments", "{}"),
        json!({"type": "response.audio.delta", "delta": {"not": "a text"}}),
        completed(&response("completed")),
    ]);
    assert_eq!(decoded.failure, None);
    assert_eq!(
        chunks(&decoded),
        [
            (4, Reasoning, None, 2),
            (5, Reasoning, None, 2),
            (8, Answer, None, 3),
            (11, Tool, None, 1),
            (12, Tool, None, 2),
        ]
    );
    assert_eq!(decoded.text.in_memory(), "hmmmyes");
    assert_eq!(tool_calls_text(&decoded.tool_calls), "f{}");
    assert_eq!(decoded.finish.as_deref(), Some("completed"));
    assert_eq!(decoded.models, ["tiny"]);
    assert!(decoded.is_ended);
    assert_eq!(
        decoded.usage,
        Some(Usage {
            prompt: Some(15),
            completion: Some(4),
            cached: Some(8),
            reasoning: Some(2),
            ..Usage::default()
        })
    );
}

/// vLLM calls such a response completed, OpenAI calls it incomplete.
#[test]
fn the_limit_of_output_tokens_is_the_finish_reason_under_either_event() {
    let mut cut = response("incomplete");
    cut["incomplete_details"] = json!({"reason": "max_output_tokens"});
    for kind in ["response.completed", "response.incomplete"] {
        let decoded = decode(&[delta("output_text", "a"), json!({"type": kind, "response": cut})]);
        assert_eq!(decoded.finish.as_deref(), Some("max_output_tokens"), "{kind}");
        assert_eq!(decoded.failure, None, "{kind}");
        assert!(decoded.is_ended, "{kind}");
    }
    cut["incomplete_details"] = json!({"reason": "content_filter"});
    let decoded = decode(&[delta("output_text", "a"), completed(&cut)]);
    assert_eq!(decoded.failure.unwrap().class, RequestFailureClass::ErrorEvent);
}

#[test]
fn an_answer_that_no_event_had_is_in_the_last_one_and_is_counted_once() {
    let decoded = decode(&[completed(&response("completed"))]);
    assert_eq!(chunks(&decoded), [(1, Answer, Some(4), 3)]);
    let decoded = decode(&[delta("output_text", "yes"), completed(&response("completed"))]);
    assert_eq!(decoded.text.in_memory(), "yes");
    let mut whole = Decoder::new(Protocol::Responses, 1 << 20);
    whole.push(LineKind::Plain, response("completed").to_string().as_bytes(), 1);
    let decoded = whole.finish(true);
    assert_eq!(chunks(&decoded), [(1, Answer, Some(4), 3)]);
    assert_eq!((decoded.failure, decoded.is_ended), (None, false));
}

#[test]
fn failures_are_found_in_events_in_responses_and_without_a_type() {
    let mut failed = response("failed");
    failed["error"] = json!({"code": "server_error", "message": "lost"});
    let mut silent = response("failed");
    silent["error"] = Value::Null;
    for (event, message) in [
        (json!({"type": "response.failed", "response": failed}), "lost"),
        (
            json!({"type": "response.failed", "response": silent}),
            "the finish reason `failed`",
        ),
        (json!({"type": "response.failed"}), "the finish reason `failed`"),
        (
            json!({"type": "error", "code": "x", "message": "lost", "param": null}),
            "lost",
        ),
        (json!({"type": "error", "error": {"message": "lost"}}), "lost"),
        (json!({"error": {"message": "lost"}}), "lost"),
        (json!({"detail": "lost"}), "lost"),
        (failed.clone(), "lost"),
    ] {
        let failure = decode(&[delta("output_text", "a"), event.clone()]).failure;
        let failure = failure.unwrap_or_else(|| panic!("{event} is a failure"));
        assert_eq!(failure.class, RequestFailureClass::ErrorEvent);
        assert!(failure.message.contains(message), "{}", failure.message);
    }
}

#[test]
fn counts_that_are_missing_are_unknown() {
    let mut uncounted = response("completed");
    uncounted["usage"] = Value::Null;
    let decoded = decode(&[delta("output_text", "a"), completed(&uncounted)]);
    assert_eq!((decoded.usage, decoded.failure), (None, None));
}

fn call_item(id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": id, "call_id": "c", "name": name, "arguments": arguments})
}

fn item_event(kind: &str, index: u32, item: &Value) -> Value {
    json!({"type": format!("response.output_item.{kind}"), "output_index": index, "item": item})
}

fn arguments_event(kind: &str, index: u32, id: &str, text: &str) -> Value {
    let key = if kind == "done" { "arguments" } else { "delta" };
    json!({"type": format!("response.function_call_arguments.{kind}"), "output_index": index, "item_id": id, key: text})
}

fn completed_with(items: &[Value]) -> Value {
    let mut response = response("completed");
    response["output"] = json!(items);
    completed(&response)
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "m", "content": [{"type": "output_text", "text": text}]})
}

/// The calls of functions in a stream.
fn calls(events: &[Value]) -> Vec<(String, String)> {
    let calls = decode(events).tool_calls.into_iter();
    calls
        .filter(|call| !(call.is_foreign || call.is_superseded))
        .map(|call| (call.name, call.arguments))
        .collect()
}

fn pair(name: &str, arguments: &str) -> (String, String) {
    (name.to_owned(), arguments.to_owned())
}

#[test]
fn arguments_count_wherever_a_stream_has_them_and_once() {
    let begun = |index: u32| item_event("added", index, &call_item(&format!("i{index}"), "f", ""));
    let whole = |index: u32, text: &str| call_item(&format!("i{index}"), "f", text);
    let both = [pair("f", "{1}"), pair("f", "{2}")];
    let ends = [
        arguments_event("done", 0, "i0", "{1}"),
        item_event("done", 0, &whole(0, "{1}")),
        arguments_event("done", 1, "i1", "{2}"),
        item_event("done", 1, &whole(1, "{2}")),
        completed_with(&[whole(0, "{1}"), whole(1, "{2}")]),
    ];
    for events in [
        // Interleaved pieces.
        vec![
            begun(0),
            begun(1),
            arguments_event("delta", 0, "i0", "{"),
            arguments_event("delta", 1, "i1", "{2"),
            arguments_event("delta", 0, "i0", "1}"),
            arguments_event("delta", 1, "i1", "}"),
        ],
        vec![begun(0), begun(1), ends[0].clone(), ends[2].clone()],
        vec![begun(0), begun(1), ends[1].clone(), ends[3].clone()],
        vec![ends[1].clone(), ends[3].clone()],
        vec![
            item_event("added", 0, &whole(0, "{1}")),
            item_event("added", 1, &whole(1, "{2}")),
        ],
        vec![begun(0), begun(1), ends[4].clone()],
        vec![delta("output_text", "hm"), ends[4].clone()],
        vec![ends[4].clone()],
        // The last event has other ids.
        vec![
            ends[1].clone(),
            ends[3].clone(),
            completed_with(&[
                json!({"type": "reasoning"}),
                call_item("x", "f", "{1}"),
                call_item("y", "f", "{2}"),
            ]),
        ],
    ] {
        assert_eq!(calls(&events), both, "{events:?}");
    }
    let pieces = [
        begun(0),
        arguments_event("delta", 0, "i0", "{1}"),
        begun(1),
        arguments_event("delta", 1, "i1", "{2}"),
    ];
    let all: Vec<Value> = pieces.iter().chain(&ends).cloned().collect();
    assert_eq!(calls(&all), both);
    assert_eq!(chunks(&decode(&all)), chunks(&decode(&pieces)));
    // A piece of a call that did not begin is no part of another one.
    let stray = [begun(0), arguments_event("delta", 1, "i1", "{}")];
    assert_eq!(calls(&stray), [pair("f", ""), pair("", "{}")]);
}

/// Clients use the item of the last event about it.
#[test]
fn the_end_of_a_call_wins_over_its_pieces() {
    let begun = item_event("added", 0, &call_item("i0", "f", ""));
    let piece = |text: &str| arguments_event("delta", 0, "i0", text);
    let end = |text: &str| arguments_event("done", 0, "i0", text);
    let item = |name: &str, text: &str| item_event("done", 0, &call_item("i0", name, text));
    let right = [pair("f", "{\"a\":2}")];
    for events in [
        // Cut, and whole but different.
        vec![piece("{\"a"), end("{\"a\":2}")],
        vec![piece("{\"a"), item("f", "{\"a\":2}")],
        vec![piece("{\"a\":1}"), end("{\"a\":2}")],
        vec![piece("{\"a\":1}"), item("f", "{\"a\":2}")],
        // Ends that differ, and a late piece.
        vec![end("{\"a\":1}"), item("f", "{\"a\":2}")],
        vec![piece("{}"), end("{\"a\":1}"), item("f", "{\"a\":2}"), piece("}")],
        vec![
            piece("{}"),
            item("f", "{\"a\":1}"),
            completed_with(&[call_item("i0", "f", "{\"a\":2}")]),
        ],
        vec![
            piece("{}"),
            item("g", "{\"a\":1}"),
            completed_with(&[call_item("i1", "f", "{\"a\":2}")]),
        ],
        // Only the whole output has it.
        vec![
            piece("{\"a"),
            completed_with(&[call_item("i0", "f", "{\"a\":2}")]),
        ],
        // An end that says nothing.
        vec![piece("{\"a\":2}"), end(""), item("f", "")],
    ] {
        let events: Vec<Value> = [begun.clone()].into_iter().chain(events).collect();
        assert_eq!(calls(&events), right, "{events:?}");
    }
    let renamed = [begun, piece("{}"), item("g", "{}")];
    assert_eq!(calls(&renamed), [pair("g", "{}")]);
    let called = |items: &[Value]| calls(&[&renamed[..], &[completed_with(items)]].concat());
    assert_eq!(called(&[call_item("i0", "zzz", "{}")]), [pair("zzz", "{}")]);
    assert_eq!(called(&[message("no")]), []);
    assert_eq!(called(&[]), [pair("g", "{}")]);
    let cut = [renamed[0].clone(), piece("{\"a"), end("{\"a\":2}")];
    assert_eq!(
        chunks(&decode(&cut)),
        [(1, Tool, None, 1), (2, Tool, None, 3), (3, Tool, None, 4)]
    );
}

#[test]
fn only_functions_are_calls_and_the_output_of_others_still_counts() {
    let events = [
        item_event(
            "added",
            0,
            &json!({"type": "mcp_call", "id": "m", "name": "look", "arguments": ""}),
        ),
        json!({"type": "response.mcp_call_arguments.delta", "output_index": 0, "item_id": "m", "delta": "{}"}),
        item_event(
            "added",
            1,
            &json!({"type": "custom_tool_call", "id": "c", "name": "run", "input": ""}),
        ),
        json!({"type": "response.custom_tool_call_input.delta", "output_index": 1, "item_id": "c", "delta": "ls"}),
        item_event(
            "done",
            1,
            &json!({"type": "custom_tool_call", "id": "c", "name": "run", "input": "ls"}),
        ),
        json!({"type": "response.code_interpreter_call_code.delta", "output_index": 2, "item_id": "p", "delta": "1+1"}),
        item_event("added", 3, &call_item("f", "f", "")),
        arguments_event("delta", 3, "f", "{}"),
    ];
    assert_eq!(calls(&events), [pair("f", "{}")]);
    let decoded = decode(&events);
    assert_eq!(chunks(&decoded).len(), 7);
    assert_eq!(tool_calls_text(&decoded.tool_calls), "look{}runls1+1f{}");
}

#[test]
fn text_without_pieces_is_in_the_event_that_ends_it() {
    let done = |text: &str| json!({"type": "response.output_text.done", "text": text});
    let decoded = decode(&[delta("reasoning_text", "hm"), done("yes"), done(" sir")]);
    assert_eq!(
        chunks(&decoded),
        [
            (1, Reasoning, None, 2),
            (2, Answer, None, 3),
            (3, Answer, None, 4)
        ]
    );
    assert_eq!(decoded.text.in_memory(), "hmyes sir");
    let decoded = decode(&[delta("output_text", ""), delta("output_text", "yes"), done("yes")]);
    assert_eq!(chunks(&decoded), [(2, Answer, None, 3)]);
}

#[test]
fn a_refusal_is_no_text_of_the_answer() {
    let mut refused = response("completed");
    refused["output"] = json!([{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]);
    let decoded = decode(&[delta("refusal", "no"), completed(&refused)]);
    assert_eq!((chunks(&decoded), decoded.text.in_memory()), (vec![], ""));
    assert_eq!(decoded.failure, None);
    assert!(decoded.final_answer.unwrap().is_refusal);
    for refusal in [
        delta("refusal", "no"),
        item_event("done", 0, &refused["output"][0]),
        completed(&refused),
    ] {
        let decoded = decode(&[delta("output_text", "yes"), refusal]);
        let last = decoded.final_answer.unwrap();
        assert_eq!((last.is_refusal, last.text), (true, None));
    }
}

/// Clients use the whole output, or else the last event about an item.
#[test]
fn the_text_of_the_end_wins_over_its_pieces_and_changes_no_chunk() {
    let done = |text: &str| json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": text});
    let item = |text: &str| item_event("done", 0, &message(text));
    let whole = |text: &str| completed_with(&[json!({"type": "reasoning", "content": []}), message(text)]);
    let pieces = [delta("output_text", "the "), delta("output_text", "answer")];
    for (ends, text) in [
        (vec![], None),
        (
            vec![done("the answer"), item("the answer"), whole("the answer")],
            None,
        ),
        (vec![done("no")], Some("no")),
        (vec![done("yes"), item("no")], Some("no")),
        (vec![done("yes"), item("yes"), whole("no")], Some("no")),
        (vec![done("no"), item("no"), completed_with(&[])], Some("no")),
        (vec![whole("no"), item("yes"), done("yes")], Some("no")),
        // Events that say nothing.
        (vec![done(""), item(""), whole("")], None),
        // Two items, and reasoning in the text.
        (
            vec![item("the "), item_event("done", 1, &message("end"))],
            Some("the end"),
        ),
        (vec![whole("<think>hm</think>no")], Some("no")),
    ] {
        let events = [&pieces[..], &ends].concat();
        let decoded = decode(&events);
        let last = decoded.final_answer.as_deref();
        let found = last
            .and_then(|answer| answer.text.as_ref())
            .map(|text| text.read());
        assert_eq!(found.as_deref(), text, "{ends:?}");
        assert_eq!(decoded.text.in_memory(), "the answer");
        assert_eq!(chunks(&decoded), chunks(&decode(&pieces)));
    }
    // The text of a whole answer has its reasoning too.
    let reasoned = [
        json!({"type": "reasoning", "content": [{"text": "hm"}]}),
        message("yes"),
    ];
    let decoded = decode(&[completed_with(&reasoned)]);
    assert_eq!(decoded.text.in_memory(), "hmyes");
    assert_eq!(decoded.final_answer.unwrap().text.unwrap(), "yes");
}
