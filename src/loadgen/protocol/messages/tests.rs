use serde_json::{Map, Value, json};

use crate::loadgen::dataset::{Content, Extras};
use crate::loadgen::protocol::{Decoded, Decoder, EncodeError, LineKind, RequestParams, encode};
use crate::plan::{ClientStyle, Protocol, ProtocolSpec, UsageRequest};
use crate::results::record::request::ChunkKind::{Answer, Reasoning, Tool};
use crate::results::record::request::{ChunkKind, RequestFailureClass, Usage};
use crate::results::record::tool_call::tool_calls_text;

fn encoded(prompt: &Content, lora: Option<&str>, extras: Option<&Extras>) -> Result<Value, EncodeError> {
    let dialect = ProtocolSpec {
        protocol: Protocol::Messages,
        path: None,
        usage: UsageRequest::StreamOptions,
        body: Map::new(),
        routing_key_header: None,
        embeddings: Default::default(),
        style: ClientStyle::BenchServing,
    };
    let nothing = Map::new();
    let params = RequestParams {
        lora,
        extras,
        ..RequestParams::without_extras("m", 5, false, &nothing)
    };
    encode(&dialect, prompt, &params).map(|body| serde_json::from_slice(&body).unwrap())
}

fn decode(events: &[Value]) -> Decoded {
    let mut decoder = Decoder::new(Protocol::Messages, 1 << 20);
    for (event, at) in events.iter().zip(1..) {
        let event = event.to_string();
        if !decoder.push_fast(event.as_bytes(), at) {
            decoder.push(LineKind::Event, event.as_bytes(), at);
        }
    }
    decoder.finish(true)
}

fn chunks(decoded: &Decoded) -> Vec<(u64, ChunkKind, Option<u32>, u32)> {
    decoded.chunks.iter().map(|chunk| chunk.into()).collect()
}

fn text(index: u32, text: &str) -> Value {
    json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}, "index": index})
}

fn start(usage: &Value) -> Value {
    json!({"type": "message_start", "message": {"id": "i", "type": "message", "role": "assistant", "content": [],
        "model": "tiny", "stop_reason": null, "usage": usage}})
}

fn end(reason: &str, usage: &Value) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": usage}),
        json!({"type": "message_stop"}),
    ]
}

#[test]
fn a_body_has_the_fields_that_the_protocol_knows_and_no_others() {
    let prompt = Content::Text("hi".to_owned().into());
    assert_eq!(
        encoded(&prompt, None, None).unwrap(),
        json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": true,
            "temperature": 0.0})
    );
    let adapter = encoded(&prompt, Some("a"), None).unwrap();
    assert_eq!((&adapter["model"], adapter.get("lora_path")), (&json!("a"), None));
    assert_eq!(
        encoded(&Content::Ids(vec![1].into()), None, None),
        Err(EncodeError::Ids(Protocol::Messages))
    );
}

#[test]
fn pictures_are_blocks_with_their_data_or_their_address() {
    let prompt = Content::Images {
        text: "what?".to_owned(),
        images: vec!["data:image/png;base64,AAAA".into(), "https://x/y.png".into()],
    };
    assert_eq!(
        encoded(&prompt, None, None).unwrap()["messages"][0]["content"],
        json!([
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
            {"type": "text", "text": "what?"},
        ])
    );
}

#[test]
fn chat_messages_keep_their_content_in_the_places_of_this_protocol() {
    let call =
        |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
    let prompt = Content::Messages(vec![
        json!({"role": "system", "content": "be brief"}),
        json!({"role": "user", "content": [{"type": "text", "text": "hi"}]}),
        json!({"role": "assistant", "content": null, "tool_calls": [call("1"), call("2")]}),
        json!({"role": "tool", "tool_call_id": "1", "content": "one"}),
        json!({"role": "tool", "tool_call_id": "2", "content": "two"}),
        json!({"role": "assistant", "content": "done"}),
    ]);
    let extras = Extras {
        turns: Some(Vec::new()),
        body: Map::from_iter([
            (
                "tools".to_owned(),
                json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]),
            ),
            ("tool_choice".to_owned(), json!("required")),
            ("stop".to_owned(), json!("x")),
        ]),
        ..Extras::default()
    };
    let body = encoded(&prompt, None, Some(&extras)).unwrap();
    assert_eq!(body["system"], "be brief");
    let used = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {"a": 1}});
    let result =
        |id: &str, content: &str| json!({"type": "tool_result", "tool_use_id": id, "content": content});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [used("1"), used("2")]},
            {"role": "user", "content": [result("1", "one"), result("2", "two")]},
            {"role": "assistant", "content": "done"},
        ])
    );
    assert_eq!(
        body["tools"],
        json!([{"name": "f", "description": "", "input_schema": {"type": "object"}}])
    );
    assert_eq!(body["tool_choice"], json!({"type": "any"}));
    assert_eq!(body["stop_sequences"], json!(["x"]));
    assert_eq!(
        body.get("stream_options"),
        None,
        "a conversation does not ask for counts"
    );
}

#[test]
fn a_stream_of_blocks_is_reasoning_answer_and_tool_calls() {
    let thought = |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": text}});
    let argument = |text: &str| json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": text}});
    let begun = |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let [last, stop] = end("tool_use", &json!({"output_tokens": 9}));
    let decoded = decode(&[
        start(
            &json!({"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 16, "cache_creation_input_tokens": 5}),
        ),
        begun(0, json!({"type": "thinking", "thinking": ""})),
        json!({"type": "ping"}),
        thought("hm"),
        thought("mm"),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}}),
        json!({"type": "content_block_stop", "index": 0}),
        begun(1, json!({"type": "text", "text": ""})),
        text(1, "yes"),
        text(1, " sir"),
        begun(
            2,
            json!({"type": "tool_use", "id": "t", "name": "f", "input": {}}),
        ),
        argument(""),
        argument("{}"),
        last,
        stop,
    ]);
    assert_eq!(decoded.failure, None);
    assert_eq!(
        chunks(&decoded),
        [
            (4, Reasoning, None, 2),
            (5, Reasoning, None, 2),
            (9, Answer, None, 3),
            (10, Answer, None, 4),
            (11, Tool, None, 1),
            (13, Tool, None, 2),
        ]
    );
    assert_eq!(decoded.text.in_memory(), "hmmmyes sir");
    assert_eq!(tool_calls_text(&decoded.tool_calls), "f{}");
    assert_eq!(decoded.finish.as_deref(), Some("tool_use"));
    assert_eq!(decoded.models, ["tiny"]);
    assert!(decoded.is_ended);
    // The counts of the start are an estimate of the output, and exact for the prompt: 3 + 16 + 5.
    assert_eq!(
        decoded.usage,
        Some(Usage {
            prompt: Some(24),
            completion: Some(9),
            cached: Some(16),
            ..Usage::default()
        })
    );
}

/// vLLM counts the whole prompt in `input_tokens` of the start, and without its cached part at the end.
#[test]
fn each_report_of_prompt_tokens_stands_for_itself() {
    let [last, stop] = end(
        "max_tokens",
        &json!({"input_tokens": 2, "output_tokens": 1, "cache_read_input_tokens": 16, "cache_creation_input_tokens": 0}),
    );
    let begin = start(&json!({"input_tokens": 18, "output_tokens": 0}));
    let decoded = decode(&[begin, text(0, "a"), last, stop]);
    let usage = decoded.usage.unwrap();
    assert_eq!(
        (usage.prompt, usage.completion, usage.cached),
        (Some(18), Some(1), Some(16))
    );
}

#[test]
fn an_unreported_count_is_unknown_and_not_what_the_start_estimated() {
    let begin = start(&json!({"input_tokens": 4, "output_tokens": 1}));
    let stop = json!({"type": "message_stop"});
    let decoded = decode(&[begin, text(0, "a"), stop]);
    let usage = decoded.usage.unwrap();
    assert_eq!((usage.prompt, usage.completion), (Some(4), None));
}

#[test]
fn a_whole_message_is_one_chunk() {
    let message = json!({"id": "i", "type": "message", "role": "assistant", "model": "tiny", "stop_reason": "end_turn",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"},
            {"type": "tool_use", "name": "f", "input": {"a": 1}}],
        "usage": {"input_tokens": 4, "output_tokens": 7}});
    let mut decoder = Decoder::new(Protocol::Messages, 1 << 20);
    decoder.push(LineKind::Plain, message.to_string().as_bytes(), 1);
    let decoded = decoder.finish(true);
    assert_eq!(chunks(&decoded), [(1, Answer, Some(7), 5)]);
    assert_eq!(
        (
            decoded.text.in_memory(),
            tool_calls_text(&decoded.tool_calls).as_str()
        ),
        ("hmyes", "f{\"a\":1}")
    );
    assert_eq!(decoded.finish.as_deref(), Some("end_turn"));
    assert_eq!(decoded.failure, None);
}

#[test]
fn errors_are_found_under_any_name_and_text_after_them_is_kept() {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let decoded = decode(&[text(0, "a"), error.clone(), text(0, "b")]);
    let failure = decoded.failure.unwrap();
    assert_eq!(
        (failure.class, failure.message.as_str()),
        (RequestFailureClass::ErrorEvent, "busy")
    );
    assert_eq!(decoded.text.in_memory(), "ab");
    let mut named = Decoder::new(Protocol::Messages, 1 << 20);
    named.push(LineKind::Error, error.to_string().as_bytes(), 1);
    assert_eq!(named.finish(true).failure.unwrap().message, "busy");
    for bare in [
        json!({"detail": "gone"}),
        json!({"type": "exception", "message": "gone"}),
    ] {
        assert_eq!(decode(&[bare]).failure.unwrap().message, "gone");
    }
}

#[test]
fn a_block_without_a_start_counts_and_a_strange_event_does_not() {
    let [last, stop] = end("end_turn", &json!({"output_tokens": 1}));
    let decoded = decode(&[
        text(7, "a"),
        json!({"type": "message_start", "message": {"usage": "none"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"x": 1}}}),
        json!({"type": "content_block_note", "index": 0}),
        json!({"type": "content_block_stop", "index": 9}),
        last,
        stop,
    ]);
    assert_eq!(chunks(&decoded), [(1, Answer, None, 1)]);
    assert_eq!(decoded.failure, None);
    assert!(decoded.is_ended);
}

#[test]
fn a_stop_that_is_a_failure_fails_the_answer() {
    let [last, stop] = end("content_filtered", &json!({"output_tokens": 1}));
    let failure = decode(&[text(0, "a"), last, stop]).failure.unwrap();
    assert_eq!(failure.class, RequestFailureClass::ErrorEvent);
    assert!(
        failure.message.contains("`content_filtered`"),
        "{}",
        failure.message
    );
}

fn begun(index: u32, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn used(name: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": "t", "name": name, "input": input})
}

fn input(index: u32, json: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": json}})
}

/// The calls of a stream that are not the server's own.
fn calls(events: &[Value]) -> Vec<(String, String)> {
    let calls = decode(events).tool_calls.into_iter();
    calls
        .filter(|call| !call.is_foreign)
        .map(|call| (call.name, call.arguments))
        .collect()
}

fn pair(name: &str, arguments: &str) -> (String, String) {
    (name.to_owned(), arguments.to_owned())
}

#[test]
fn input_belongs_to_the_block_with_its_index() {
    let both = [
        begun(1, &used("f", &json!({}))),
        begun(2, &used("g", &json!({}))),
        input(1, "{\"a\":"),
        input(2, "{}"),
        input(1, "1}"),
    ];
    assert_eq!(calls(&both), [pair("f", r#"{"a":1}"#), pair("g", "{}")]);
    // A block that did not begin as a call is no part of another one.
    let stray = [
        begun(0, &json!({"type": "text", "text": ""})),
        begun(1, &used("f", &json!({}))),
        input(0, "{"),
        input(1, "{}"),
        input(0, "}"),
        input(7, "[]"),
    ];
    assert_eq!(calls(&stray), [pair("f", "{}"), pair("", "{}"), pair("", "[]")]);
}

#[test]
fn input_in_the_start_of_a_block_counts_unless_more_follows() {
    let whole = begun(0, &used("f", &json!({"a": 1})));
    assert_eq!(calls(&[whole.clone(), input(0, "")]), [pair("f", r#"{"a":1}"#)]);
    assert_eq!(
        calls(&[whole, input(0, "{\"a\""), input(0, ":2}")]),
        [pair("f", r#"{"a":2}"#)]
    );
    for empty in [json!({}), Value::Null] {
        assert_eq!(calls(&[begun(0, &used("f", &empty))]), [pair("f", "")]);
    }
}

#[test]
fn tools_that_the_server_runs_are_output_and_no_calls() {
    let search = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
    let stream = [
        begun(0, &search),
        input(0, "{\"query\":1}"),
        begun(1, &used("f", &json!({}))),
        input(1, "{}"),
    ];
    assert_eq!(calls(&stream), [pair("f", "{}")]);
    let decoded = decode(&stream);
    assert_eq!(chunks(&decoded).len(), 4);
    assert_eq!(
        tool_calls_text(&decoded.tool_calls),
        r#"web_search{"query":1}f{}"#
    );
    let whole = json!({"type": "message", "content": [search, used("f", &json!({"a": 1}))]});
    assert_eq!(calls(&[whole]), [pair("f", r#"{"a":1}"#)]);
}
