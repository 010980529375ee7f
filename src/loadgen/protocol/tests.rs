use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::loadgen::dataset::{Content, Extras};
use crate::plan::{ClientStyle, Protocol, ProtocolSpec, UsageRequest};
use crate::results::record::request::{ChunkKind, Oddity, RequestFailureClass, Usage};
use crate::results::record::tool_call::tool_calls_text;

fn dialect(protocol: Protocol) -> ProtocolSpec {
    ProtocolSpec {
        protocol,
        path: None,
        usage: UsageRequest::Unasked,
        body: Map::new(),
        routing_key_header: None,
        embeddings: Default::default(),
        style: ClientStyle::BenchServing,
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => panic!("not an object: {value}"),
    }
}

fn encode_text(dialect: &ProtocolSpec, prompt: &Content, stop_at_eos: bool, body: Value) -> String {
    let body = object(body);
    let params = RequestParams::without_extras("m", 5, stop_at_eos, &body);
    String::from_utf8(encode(dialect, prompt, &params).unwrap()).unwrap()
}

fn text_prompt() -> Content {
    Content::Text("xxxxxx".to_owned().into())
}

fn decode<'l>(protocol: Protocol, events: impl IntoIterator<Item = (u64, &'l str)>) -> Decoded {
    let mut decoder = Decoder::new(protocol, 1 << 20);
    for (at, event) in events {
        decoder.push(LineKind::Event, event.as_bytes(), at);
    }
    decoder.finish(true)
}

fn facts(decoded: &Decoded) -> Vec<(u64, ChunkKind, Option<u32>, u32)> {
    decoded.chunks.iter().map(|chunk| chunk.into()).collect()
}

fn failure(decoded: &Decoded) -> Option<(RequestFailureClass, &str)> {
    decoded
        .failure
        .as_ref()
        .map(|failure| (failure.class, failure.message.as_str()))
}

use ChunkKind::{Answer, Reasoning, Tool};

#[test]
fn bodies_have_the_keys_and_values_of_bench_serving_in_order() {
    assert_eq!(
        encode_text(&dialect(Protocol::SglangNative), &text_prompt(), false, json!({})),
        r#"{"text":"xxxxxx","sampling_params":{"temperature":0.0,"max_new_tokens":5,"ignore_eos":true},"stream":true,"lora_path":null,"return_logprob":false,"return_routed_experts":false,"logprob_start_len":-1}"#
    );
    assert_eq!(
        encode_text(
            &dialect(Protocol::Completions),
            &Content::Ids(vec![7, 8].into()),
            true,
            json!({})
        ),
        r#"{"model":"m","prompt":[7,8],"best_of":1,"max_tokens":5,"stream":true,"temperature":0.0,"ignore_eos":false}"#
    );
    assert_eq!(
        encode_text(&dialect(Protocol::Chat), &text_prompt(), false, json!({})),
        r#"{"model":"m","messages":[{"role":"user","content":"xxxxxx"}],"max_completion_tokens":5,"stream":true,"temperature":0.0,"ignore_eos":true}"#
    );
    assert!(
        encode_text(
            &dialect(Protocol::SglangNative),
            &Content::Ids(vec![7].into()),
            false,
            json!({})
        )
        .starts_with(r#"{"input_ids":[7],"sampling_params""#)
    );
}

#[test]
fn the_scenario_overrides_the_dialect_and_null_removes_a_key() {
    let mut dialect = dialect(Protocol::Completions);
    dialect.body = object(json!({"best_of": null, "temperature": 0.5, "top_k": 1}));
    assert_eq!(
        encode_text(
            &dialect,
            &text_prompt(),
            false,
            json!({"temperature": 1.0, "ignore_eos": null, "top_p": 0.9})
        ),
        r#"{"model":"m","prompt":"xxxxxx","max_tokens":5,"stream":true,"temperature":1.0,"top_k":1,"top_p":0.9}"#
    );
}

#[test]
fn usage_is_asked_for_only_where_the_answer_streams() {
    let mut dialect = dialect(Protocol::Chat);
    dialect.usage = UsageRequest::StreamOptions;
    let ending = r#","stream_options":{"include_usage":true}}"#;
    assert!(encode_text(&dialect, &text_prompt(), false, json!({})).ends_with(ending));
    assert!(
        !encode_text(&dialect, &text_prompt(), false, json!({"stream": false})).contains("stream_options")
    );
    dialect.protocol = Protocol::SglangNative;
    assert!(!encode_text(&dialect, &text_prompt(), false, json!({})).contains("stream_options"));
}

#[test]
fn a_chat_refuses_token_ids() {
    let nothing = Map::new();
    let params = RequestParams::without_extras("m", 5, false, &nothing);
    let result = encode(&dialect(Protocol::Chat), &Content::Ids(vec![1].into()), &params);
    assert_eq!(result, Err(EncodeError::Ids(Protocol::Chat)));
}

fn image_prompt() -> Content {
    Content::Images {
        text: "what?".to_owned(),
        images: vec!["data:a".into(), "data:b".into()],
    }
}

#[test]
fn messages_and_pictures_go_where_each_protocol_has_them() {
    let messages = Content::Messages(vec![json!({"role": "system", "content": "s", "name": "n"})]);
    let chat = encode_text(&dialect(Protocol::Chat), &messages, false, json!({}));
    assert!(
        chat.contains(r#""messages":[{"role":"system","content":"s","name":"n"}],"#),
        "{chat}"
    );
    let chat = encode_text(&dialect(Protocol::Chat), &image_prompt(), false, json!({}));
    assert!(
        chat.contains(
            r#""content":[{"type":"image_url","image_url":{"url":"data:a"}},{"type":"image_url","image_url":{"url":"data:b"}},{"type":"text","text":"what?"}]"#
        ),
        "{chat}"
    );
    let native = encode_text(
        &dialect(Protocol::SglangNative),
        &image_prompt(),
        false,
        json!({}),
    );
    assert!(native.starts_with(r#"{"text":"what?","#), "{native}");
    assert!(
        native.ends_with(r#","image_data":["data:a","data:b"]}"#),
        "{native}"
    );
}

#[test]
fn rows_add_fields_adapters_and_usage_of_conversations() {
    let scenario = object(json!({"model": "mine", "lora_path": "mine", "top_k": 1, "stop": null}));
    let extras = Extras {
        turns: Some(Vec::new()),
        body: object(json!({"top_k": 2, "stop": null})),
        ..Extras::default()
    };
    let params = RequestParams {
        lora: Some("a"),
        extras: Some(&extras),
        ..RequestParams::without_extras("m", 5, false, &scenario)
    };
    let body = |protocol, params: &RequestParams<'_>| {
        let bytes = encode(&dialect(protocol), &text_prompt(), params).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let chat = body(Protocol::Chat, &params);
    assert!(chat.starts_with(r#"{"model":"a","messages""#), "{chat}");
    let tail = r#""lora_path":"a","top_k":2,"stop":null,"stream_options":{"include_usage":true}}"#;
    assert!(chat.ends_with(tail), "{chat}");
    let params = RequestParams {
        extras: None,
        ..params
    };
    let native = body(Protocol::SglangNative, &params);
    assert!(native.contains(r#""lora_path":"mine""#), "{native}");
    let nothing = Map::new();
    let params = RequestParams {
        body: &nothing,
        ..params
    };
    assert!(body(Protocol::SglangNative, &params).contains(r#""lora_path":"a""#));
    let vectors = body(Protocol::Embeddings, &params);
    assert_eq!(vectors, r#"{"input":"xxxxxx","model":"a","lora_path":"a"}"#);
}

#[test]
fn a_conversation_keeps_the_users_own_stream_options() {
    let own = object(json!({"stream_options": {"include_usage": false}}));
    let extras = Extras {
        turns: Some(Vec::new()),
        ..Extras::default()
    };
    let params = RequestParams {
        extras: Some(&extras),
        ..RequestParams::without_extras("m", 5, false, &own)
    };
    let body = encode(&dialect(Protocol::Chat), &text_prompt(), &params).unwrap();
    assert!(
        String::from_utf8(body)
            .unwrap()
            .ends_with(r#""stream_options":{"include_usage":false}}"#)
    );
}

#[test]
fn what_a_protocol_cannot_carry_is_refused() {
    let nothing = Map::new();
    let plain = RequestParams::without_extras("m", 5, false, &nothing);
    let failure = |protocol, prompt: &Content, params: &RequestParams<'_>| {
        encode(&dialect(protocol), prompt, params).unwrap_err()
    };
    let messages = Content::Messages(Vec::new());
    for protocol in [
        Protocol::SglangNative,
        Protocol::Completions,
        Protocol::Embeddings,
        Protocol::Trt,
    ] {
        assert_eq!(
            failure(protocol, &messages, &plain),
            EncodeError::MessagesOutsideChat
        );
    }
    let extras = |turns: Option<Vec<Vec<Value>>>, key: Option<&str>| Extras {
        turns,
        routing_key: key.map(str::to_owned),
        ..Extras::default()
    };
    let (turns, key) = (extras(Some(Vec::new()), None), extras(None, Some("k")));
    let with = |extras| RequestParams {
        extras: Some(extras),
        ..plain
    };
    assert_eq!(
        failure(Protocol::Completions, &text_prompt(), &with(&turns)),
        EncodeError::TurnsOutsideChat
    );
    for protocol in [Protocol::Trt, Protocol::Truss] {
        assert_eq!(failure(protocol, &image_prompt(), &plain), EncodeError::Images);
        assert_eq!(
            failure(protocol, &text_prompt(), &with(&key)),
            EncodeError::RoutingKey
        );
        let lora = RequestParams {
            lora: Some("a"),
            ..plain
        };
        assert_eq!(failure(protocol, &text_prompt(), &lora), EncodeError::Lora);
    }
    assert_eq!(
        failure(Protocol::Embeddings, &image_prompt(), &plain),
        EncodeError::Images
    );
}

#[test]
fn native_events_carry_the_whole_text_and_add_the_difference() {
    let decoded = decode(
        Protocol::SglangNative,
        [
            (
                10,
                r#"{"text":"ab","meta_info":{"prompt_tokens":3,"completion_tokens":2,"cached_tokens":1}}"#,
            ),
            (20, r#"{"text":"abcd","meta_info":{"completion_tokens":4}}"#),
            (30, r#"{"text":"abcd","meta_info":{"completion_tokens":4}}"#),
            (
                40,
                r#"{"text":"abcdefg","meta_info":{"completion_tokens":7,"finish_reason":{"type":"length","length":7}}}"#,
            ),
        ],
    );
    let expected = [
        (10, Answer, Some(2), 2),
        (20, Answer, Some(4), 2),
        (40, Answer, Some(7), 3),
    ];
    assert_eq!(facts(&decoded), expected);
    assert_eq!(
        decoded.usage,
        Some(Usage {
            prompt: Some(3),
            completion: Some(7),
            cached: Some(1),
            ..Usage::default()
        })
    );
    assert_eq!(
        (decoded.finish.as_deref(), decoded.text.in_memory()),
        (Some("length"), "abcdefg")
    );
    assert_eq!(decoded.failure, None);
}

#[test]
fn native_tokens_inside_a_character_are_a_chunk_without_bytes() {
    let decoded = decode(
        Protocol::SglangNative,
        [
            (1, r#"{"text":"","meta_info":{"completion_tokens":1}}"#),
            (2, r#"{"text":"é","meta_info":{"completion_tokens":2}}"#),
            (3, r#"{"text":"é","meta_info":{"completion_tokens":3}}"#),
        ],
    );
    assert_eq!(
        facts(&decoded),
        [(2, Answer, Some(2), 2), (3, Answer, Some(3), 0)]
    );
}

#[test]
fn an_error_event_is_a_failure_in_the_servers_words() {
    for (protocol, event, words) in [
        (
            Protocol::SglangNative,
            r#"{"error":{"message":"out of memory"}}"#,
            "out of memory",
        ),
        (Protocol::SglangNative, r#"{"error":"boom"}"#, "boom"),
        (
            Protocol::SglangNative,
            r#"{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"too long"}}}"#,
            "too long",
        ),
        (
            Protocol::Completions,
            r#"{"error":{"message":"bad","code":500}}"#,
            "bad",
        ),
        (
            Protocol::Chat,
            r#"{"object":"error","message":"flat","code":500}"#,
            "flat",
        ),
        (Protocol::Chat, r#"{"error":{"code":7}}"#, r#"{"code":7}"#),
        (
            Protocol::Chat,
            r#"{"choices":[{"delta":{},"finish_reason":"abort"}]}"#,
            "the server ended the answer with the finish reason `abort`",
        ),
        (
            Protocol::Completions,
            r#"{"choices":[{"text":"","finish_reason":"content_filter"}]}"#,
            "the server ended the answer with the finish reason `content_filter`",
        ),
    ] {
        assert_eq!(
            failure(&decode(protocol, [(1, event)])),
            Some((RequestFailureClass::ErrorEvent, words))
        );
    }
    let mut decoder = Decoder::new(Protocol::Chat, 100);
    decoder.push(
        LineKind::Plain,
        br#"error: {"code":500,"message":"slot gone"}"#,
        1,
    );
    assert_eq!(
        failure(&decoder.finish(true)),
        Some((RequestFailureClass::ErrorEvent, "slot gone"))
    );
}

#[test]
fn errors_in_other_forms_are_failures_and_other_events_without_output_are_none() {
    let fails = |protocol: Protocol, event: &str| {
        let output = match protocol {
            Protocol::SglangNative => r#"{"text":"a","meta_info":{"completion_tokens":1}}"#,
            _ => r#"{"choices":[{"text":"a"}]}"#,
        };
        let decoded = decode(protocol, [(1, output), (2, event)]);
        failure(&decoded).map(|(class, words)| (class, words.to_owned()))
    };
    for event in [
        r#"{"message":"it died","type":"InternalServerError","code":500}"#,
        r#"{"message":"it died","code":"rate_limit_exceeded"}"#,
        r#"{"errors":[{"message":"it died"}]}"#,
        r#"{"error_code":50001,"text":"it died"}"#,
        r#"{"status":"error","reason":"it died"}"#,
        r#"{"status":503,"title":"it died"}"#,
        r#"{"success":false,"reason":"it died"}"#,
        r#"{"choices":[],"error_msg":"it died"}"#,
    ] {
        for protocol in [Protocol::Chat, Protocol::Completions, Protocol::SglangNative] {
            // In this protocol the field holds the text of an answer.
            if protocol == Protocol::SglangNative && event.contains(r#""text""#) {
                continue;
            }
            let (class, words) = fails(protocol, event).expect(event);
            assert_eq!(class, RequestFailureClass::ErrorEvent, "{event}");
            assert!(words.contains("it died"), "{words}");
        }
    }
    for event in [
        r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#,
        r#"{"id":"1","object":"chat.completion.chunk","choices":[],"prompt_filter_results":[{"content_filter_results":{"hate":{"filtered":false}}}]}"#,
        r#"{"type":"ping"}"#,
        r#"{"message":"still reading","code":200}"#,
        r#"{"choices":[],"error_code":0,"errors":[],"status":"ok"}"#,
        r#"{"choices":[{"text":"b","error":null}]}"#,
        r#"{"choices":[{"text":"","error":{},"finish_reason":"stop"}]}"#,
    ] {
        assert_eq!(fails(Protocol::Chat, event), None, "{event}");
    }
    let event = r#"{"choices":[{"text":"","error":{"message":"it died"},"finish_reason":"stop"}]}"#;
    let (_, words) = fails(Protocol::Completions, event).expect("it fails");
    assert_eq!(words, "it died");
}

#[test]
fn an_answer_that_the_server_did_not_finish_is_a_failure() {
    let class = |finish: &str| {
        let events = [
            (
                Protocol::Chat,
                format!(r#"{{"choices":[{{"text":"a","finish_reason":"{finish}"}}]}}"#),
            ),
            (
                Protocol::SglangNative,
                format!(
                    r#"{{"text":"a","meta_info":{{"completion_tokens":1,"finish_reason":{{"type":"{finish}"}}}}}}"#
                ),
            ),
        ];
        let classes = events
            .map(|(protocol, event)| failure(&decode(protocol, [(1, &*event)])).map(|(class, _)| class));
        assert_eq!(classes[0], classes[1], "{finish}");
        classes[0]
    };
    for finish in [
        "abort",
        "timeout",
        "cancelled",
        "Cancel",
        "request_timed_out",
        "server_error",
    ] {
        assert_eq!(class(finish), Some(RequestFailureClass::ErrorEvent), "{finish}");
    }
    for finish in [
        "stop",
        "length",
        "eos_token",
        "tool_calls",
        "COMPLETE",
        "finished",
    ] {
        assert_eq!(class(finish), None, "{finish}");
    }
}

#[test]
fn what_follows_an_error_event_is_still_read_and_what_follows_garbage_is_not() {
    let answer = r#"{"choices":[{"text":"a"}]}"#;
    let decoded = decode(Protocol::Completions, [(1, r#"{"error":"x"}"#), (2, answer)]);
    assert_eq!(
        (decoded.chunks.len(), decoded.failure.unwrap().class),
        (1, RequestFailureClass::ErrorEvent)
    );
    let decoded = decode(Protocol::Completions, [(1, answer), (2, "{oops"), (3, answer)]);
    assert_eq!(decoded.chunks.len(), 1);
    let failure = decoded.failure.unwrap();
    assert_eq!(failure.class, RequestFailureClass::Garbled);
    assert!(failure.message.contains("`{oops`"), "{}", failure.message);
}

#[test]
fn a_completions_stream_may_end_with_usage_alone() {
    let decoded = decode(
        Protocol::Completions,
        [
            (10, r#"{"model":"served","choices":[{"text":"a\n"}]}"#),
            (20, r#"{"choices":[{"text":""}]}"#),
            (
                30,
                r#"{"choices":[{"text":"bc","finish_reason":"length"}],"usage":null}"#,
            ),
            (
                40,
                r#"{"choices":[],"usage":{"prompt_tokens":55,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}"#,
            ),
        ],
    );
    assert_eq!(facts(&decoded), [(10, Answer, None, 2), (30, Answer, None, 2)]);
    let usage = decoded.usage.unwrap();
    assert_eq!(
        (usage.prompt, usage.completion, usage.cached),
        (Some(55), Some(9), Some(4))
    );
    assert_eq!(
        (
            decoded.text.in_memory(),
            decoded.models.first().map(String::as_str)
        ),
        ("a\nbc", Some("served"))
    );
    assert_eq!(
        (decoded.finish.as_deref(), decoded.failure),
        (Some("length"), None)
    );
    // The event with only the usage, which bench_serving cannot parse.
    assert_eq!(decoded.oddities, [Oddity::NoChoice]);
}

#[test]
fn where_cached_tokens_lay_is_read_from_both_of_sglangs_places() {
    let lay = r#"{"device":1,"host":2,"storage":3,"storage_backend":"file"}"#;
    let native = format!(
        r#"{{"text":"a","meta_info":{{"completion_tokens":1,"cached_tokens":6,"cached_tokens_details":{lay}}}}}"#
    );
    let openai_event =
        format!(r#"{{"choices":[{{"text":"a"}}],"sglext":{{"cached_tokens_details":{lay}}}}}"#);
    for (protocol, event) in [
        (Protocol::SglangNative, native),
        (Protocol::Completions, openai_event),
    ] {
        let decoded = decode(protocol, [(10, event.as_str())]);
        let cached = decoded.cached_tokens.unwrap();
        assert_eq!(
            (cached.device, cached.host, cached.storage),
            (Some(1), Some(2), Some(3))
        );
        assert_eq!(cached.storage_backend.as_deref(), Some("file"));
        assert_eq!(decoded.usage.unwrap().cached, Some(6));
        assert_eq!(decoded.failure, None);
    }
    let without = decode(
        Protocol::SglangNative,
        [(10, r#"{"text":"a","meta_info":{"cached_tokens_details":null}}"#)],
    );
    assert_eq!((without.cached_tokens, without.failure), (None, None));
}

#[test]
fn reasoning_is_output_and_an_empty_role_event_is_not() {
    let decoded = decode(
        Protocol::Chat,
        [
            (5, r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#),
            (10, r#"{"choices":[{"delta":{"reasoning_content":"hm "}}]}"#),
            (
                15,
                r#"{"choices":[{"delta":{"reasoning_content":null,"reasoning":"so "}}]}"#,
            ),
            (
                20,
                r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":3}}"#,
            ),
            (30, r#"{"choices":[{"delta":null,"finish_reason":"stop"}]}"#),
        ],
    );
    let expected = [
        (10, Reasoning, None, 3),
        (15, Reasoning, None, 3),
        (20, Answer, Some(3), 1),
    ];
    assert_eq!(facts(&decoded), expected);
    assert_eq!(decoded.text, "hm so a");
}

#[test]
fn the_first_delta_of_a_tool_call_is_output() {
    let decoded = decode(
        Protocol::Chat,
        [
            (
                5,
                r#"{"choices":[{"delta":{"role":"assistant","content":null}}]}"#,
            ),
            (
                10,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}}]}"#,
            ),
            (
                20,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}"#,
            ),
            (
                30,
                r#"{"choices":[{"delta":{"tool_calls":[]},"finish_reason":"tool_calls"}]}"#,
            ),
        ],
    );
    assert_eq!(facts(&decoded), [(10, Tool, None, 1), (20, Tool, None, 2)]);
    assert_eq!((decoded.text.in_memory(), decoded.failure), ("", None));
}

#[test]
fn an_answer_that_does_not_stream_is_one_chunk() {
    for (protocol, body) in [
        (
            Protocol::SglangNative,
            "{\"text\":\"ab\",\n\"meta_info\":{\"completion_tokens\":2,\n\"finish_reason\":\"length\"}}",
        ),
        (
            Protocol::Completions,
            r#"{"choices":[{"text":"ab","finish_reason":"length"}],"usage":{"completion_tokens":2}}"#,
        ),
        (
            Protocol::Chat,
            "{\n  \"choices\": [\n    {\"message\": {\"content\": \"ab\"},\n \"finish_reason\": \"length\"}\n  ],\n\"usage\": {\"completion_tokens\": 2}\n}",
        ),
    ] {
        let mut decoder = Decoder::new(protocol, 1000);
        for (line, at) in body.split('\n').zip(1..) {
            decoder.push(LineKind::Plain, line.trim().as_bytes(), at);
        }
        let decoded = decoder.finish(true);
        let at = body.split('\n').count() as u64;
        assert_eq!(facts(&decoded), [(at, Answer, Some(2), 2)]);
        assert_eq!(
            (decoded.finish.as_deref(), decoded.failure),
            (Some("length"), None)
        );
    }
}

#[test]
fn an_answer_without_output_is_empty_unless_the_server_counts_tokens() {
    let empty = decode(Protocol::Completions, [(1, r#"{"choices":[{"text":""}]}"#)]);
    assert_eq!(empty.failure.unwrap().class, RequestFailureClass::Empty);
    assert_eq!(
        decode(Protocol::Chat, []).failure.unwrap().class,
        RequestFailureClass::Empty
    );
    let silent = r#"{"choices":[{"text":""}],"usage":{"completion_tokens":1}}"#;
    let decoded = decode(Protocol::Completions, [(1, silent)]);
    assert_eq!((decoded.chunks.len(), decoded.failure), (0, None));
}

#[test]
fn garbage_is_told_with_its_beginning() {
    let mut decoder = Decoder::new(Protocol::Chat, 1000);
    decoder.push(LineKind::Plain, b"<html>", 1);
    decoder.push(LineKind::Plain, b"</html>", 2);
    let failure = decoder.finish(true).failure.unwrap();
    assert_eq!(failure.class, RequestFailureClass::Garbled);
    assert!(failure.message.contains("<html>"), "{}", failure.message);
    let array = decode(Protocol::SglangNative, [(1, r#"["text"]"#)]);
    assert_eq!(array.failure.unwrap().class, RequestFailureClass::Garbled);
    let mut decoder = Decoder::new(Protocol::Chat, 1000);
    decoder.push(LineKind::Event, b"\xff\xfe", 1);
    assert_eq!(
        decoder.finish(true).failure.unwrap().class,
        RequestFailureClass::Garbled
    );
}

fn near_json() -> impl Strategy<Value = String> {
    let value = prop::sample::select(vec![
        "null",
        "1",
        "-1",
        "1.5",
        "true",
        "[]",
        "{}",
        "\"\"",
        "\"t\\u00e9\"",
        "[null]",
        "[{}]",
        "[{\"text\":\"x\"}]",
        "{\"message\":\"m\"}",
        "99999999999",
    ]);
    let key = prop::sample::select(vec![
        "text",
        "meta_info",
        "error",
        "object",
        "message",
        "choices",
        "usage",
        "model",
        "sglext",
        "other",
    ]);
    prop::collection::vec((key, value), 0..5).prop_map(|fields| {
        let fields: Vec<String> = fields
            .iter()
            .map(|(key, value)| format!("\"{key}\":{value}"))
            .collect();
        format!("{{{}}}", fields.join(","))
    })
}

proptest! {
    #[test]
    fn no_line_makes_a_decoder_panic(
        lines in prop::collection::vec((any::<bool>(), near_json()), 0..6),
        noise in prop::collection::vec(any::<u8>(), 0..60),
        is_whole: bool,
    ) {
        for protocol in [Protocol::SglangNative, Protocol::Completions, Protocol::Chat] {
            let mut decoder = Decoder::new(protocol, 100);
            for (is_event, line) in &lines {
                let kind = if *is_event { LineKind::Event } else { LineKind::Plain };
                decoder.push(kind, line.as_bytes(), 1);
            }
            decoder.push(LineKind::Plain, &noise, 2);
            decoder.push(LineKind::Event, &noise, 3);
            let decoded = decoder.finish(is_whole);
            prop_assert!(decoded.chunks.iter().map(|chunk| chunk.at_ns).is_sorted());
        }
    }
}

#[test]
fn bodies_of_trt_truss_and_embeddings_have_the_keys_of_bench_serving_in_order() {
    assert_eq!(
        encode_text(&dialect(Protocol::Trt), &text_prompt(), false, json!({})),
        r#"{"accumulate_tokens":true,"text_input":"xxxxxx","temperature":1e-6,"top_p":1.0,"max_tokens":5,"stream":true,"min_length":5,"end_id":1048576}"#
    );
    assert!(!encode_text(&dialect(Protocol::Trt), &text_prompt(), true, json!({})).contains("min_length"));
    assert_eq!(
        encode_text(&dialect(Protocol::Truss), &text_prompt(), false, json!({})),
        r#"{"model":"m","prompt":"xxxxxx","temperature":0.0,"best_of":1,"max_tokens":5,"stream":true,"ignore_eos":true}"#
    );
    assert_eq!(
        encode_text(
            &dialect(Protocol::Embeddings),
            &text_prompt(),
            false,
            json!({"dimensions": 8})
        ),
        r#"{"input":"xxxxxx","model":"m","dimensions":8}"#
    );
}

#[test]
fn the_dialect_adds_to_objects_and_the_scenario_replaces_them() {
    let mut dialect = dialect(Protocol::SglangNative);
    dialect.body = object(json!({"sampling_params": {"temperature": 0.5, "top_p": 0.9}, "lora_path": "a"}));
    assert!(encode_text(&dialect, &text_prompt(), false, json!({})).contains(
        r#""sampling_params":{"temperature":0.5,"max_new_tokens":5,"ignore_eos":true,"top_p":0.9},"stream":true,"lora_path":"a""#
    ));
    let replaced = encode_text(
        &dialect,
        &text_prompt(),
        false,
        json!({"sampling_params": {"top_k": 1}}),
    );
    assert!(
        replaced.contains(r#""sampling_params":{"top_k":1},"#),
        "{replaced}"
    );
}

#[test]
fn every_event_of_trt_is_a_chunk_and_one_without_text_output_is_garbage() {
    let decoded = decode(
        Protocol::Trt,
        [
            (10, r#"{"text_output":"ab","model_name":"ensemble"}"#),
            (20, r#"{"text_output":""}"#),
        ],
    );
    assert_eq!(facts(&decoded), [(10, Answer, None, 2), (20, Answer, None, 0)]);
    assert_eq!((decoded.text.in_memory(), failure(&decoded)), ("ab", None));
    let garbled = decode(Protocol::Trt, [(10, r#"{"other":1}"#)]);
    assert_eq!(
        failure(&garbled).map(|(class, _)| class),
        Some(RequestFailureClass::Garbled)
    );
    let error = decode(Protocol::Trt, [(10, r#"{"error":"out of memory"}"#)]);
    assert_eq!(
        failure(&error),
        Some((RequestFailureClass::ErrorEvent, "out of memory"))
    );
}

#[test]
fn an_answer_of_embeddings_is_complete_when_it_holds_a_vector() {
    let answer = |body: &str| {
        let mut decoder = Decoder::new(Protocol::Embeddings, 1 << 20);
        decoder.push(LineKind::Plain, body.as_bytes(), 10);
        decoder.finish(true)
    };
    let sound = answer(r#"{"object":"list","data":[{"embedding":[0.1,-2e-3]}],"usage":{"prompt_tokens":4}}"#);
    assert_eq!((failure(&sound), facts(&sound)), (None, Vec::new()));
    assert_eq!(sound.usage.and_then(|usage| usage.prompt), Some(4));
    let encoded = answer(r#"{"data":[{"embedding":"zczMPQ=="}],"usage":{"total_tokens":5}}"#);
    assert_eq!(failure(&encoded), None);
    assert_eq!(encoded.usage.and_then(|usage| usage.prompt), Some(5));
    let pooled = answer(r#"{"data":[{"index":0,"data":[[0.5],[-0.1]]}],"usage":{"prompt_tokens":7}}"#);
    assert_eq!(failure(&pooled), None);
    for data in [
        "[]",
        r#"[{"index":0}]"#,
        r#"[{"index":0,"embedding":null}]"#,
        r#"[{"index":0,"embedding":[ ]}]"#,
        r#"[{"index":0,"embedding":""}]"#,
    ] {
        let empty = answer(&format!(
            r#"{{"object":"list","data":{data},"usage":{{"prompt_tokens":4}}}}"#
        ));
        let class = failure(&empty).map(|(class, _)| class);
        assert_eq!(class, Some(RequestFailureClass::Empty), "{data}");
    }
    let error = answer(r#"{"object":"error","message":"too long"}"#);
    assert_eq!(
        failure(&error),
        Some((RequestFailureClass::ErrorEvent, "too long"))
    );
}

#[test]
fn truss_answers_like_completions() {
    let decoded = decode(
        Protocol::Truss,
        [
            (10, r#"{"choices":[{"text":"a"}]}"#),
            (20, r#"{"choices":[{"text":"b","finish_reason":"length"}]}"#),
        ],
    );
    assert_eq!(facts(&decoded), [(10, Answer, None, 1), (20, Answer, None, 1)]);
    assert_eq!(decoded.finish.as_deref(), Some("length"));
}

/// Source: docs/bench-serving.md 14.2. `analysis/metrics` tests bench_serving's readings of the same streams.
#[test]
fn the_golden_streams_are_read_with_their_faults_mended() {
    let native = decode(
        Protocol::SglangNative,
        [
            (10, r#"{"text":"ab","meta_info":{"completion_tokens":2}}"#),
            (20, r#"{"text":"abcd","meta_info":{"completion_tokens":4}}"#),
            (30, r#"{"text":"abcd","meta_info":{"completion_tokens":4}}"#),
            (40, r#"{"text":"abcdefg","meta_info":{"completion_tokens":7}}"#),
        ],
    );
    let openai_event = [
        (10, Answer, Some(2), 2),
        (20, Answer, Some(4), 2),
        (40, Answer, Some(7), 3),
    ];
    assert_eq!((facts(&native), failure(&native)), (openai_event.to_vec(), None));
    let error = decode(Protocol::SglangNative, [(10, r#"{"error":{"message":"no"}}"#)]);
    assert_eq!(failure(&error), Some((RequestFailureClass::ErrorEvent, "no")));
    let chat = decode(
        Protocol::Chat,
        [
            (5, r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#),
            (10, r#"{"choices":[{"delta":{"reasoning_content":"r"}}]}"#),
            (20, r#"{"choices":[{"delta":{"content":"a"}}]}"#),
            (30, r#"{"choices":[{"delta":{"content":"b"}}]}"#),
            (40, r#"{"choices":[{"delta":{"content":"c"}}]}"#),
            (
                45,
                r#"{"choices":[],"usage":{"completion_tokens":9,"prompt_tokens":55}}"#,
            ),
        ],
    );
    let times: Vec<u64> = chat.chunks.iter().map(|chunk| chunk.at_ns).collect();
    assert_eq!((times, chat.text.in_memory()), (vec![10, 20, 30, 40], "rabc"));
    let usage = chat.usage.unwrap();
    assert_eq!((usage.completion, usage.prompt), (Some(9), Some(55)));
    let tools = decode(
        Protocol::Chat,
        [(
            10,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f"}}]}}]}"#,
        )],
    );
    assert_eq!(
        (facts(&tools), failure(&tools)),
        (vec![(10, Tool, None, 1)], None)
    );
}

#[test]
fn what_python_reads_costs_no_answer() {
    let decoded = decode(
        Protocol::Chat,
        [
            (
                1,
                r#"{"choices":[{"delta":{"content":"a"},"logprobs":{"x":NaN}}]}"#,
            ),
            (
                2,
                r#"{"choices":[{"delta":{"content":"b\ud83d"},"y":-Infinity}]}"#,
            ),
            (
                3,
                r#"{"choices":[{"delta":{"content":"c"}}],"usage":{"completion_tokens":-1,"prompt_tokens":7.0}}"#,
            ),
            (4, r#"{"choices":[{"delta":{"content":"d"}}],"usage":"none"}"#),
            (
                5,
                r#"{"choices":[],"usage":null,"usage":{"completion_tokens":4}}"#,
            ),
        ],
    );
    assert_eq!(failure(&decoded), None);
    assert_eq!(decoded.text, "ab\u{fffd}cd");
    let usage = decoded.usage.unwrap();
    assert_eq!((usage.prompt, usage.completion), (Some(7), Some(4)));
}

#[test]
fn reasoning_is_told_apart_wherever_it_stands() {
    let decoded = decode(
        Protocol::Chat,
        [
            (1, r#"{"choices":[{"delta":{"content":"<think>"}}]}"#),
            (2, r#"{"choices":[{"delta":{"content":"hm"}}]}"#),
            (3, r#"{"choices":[{"delta":{"content":"</think>"}}]}"#),
            (4, r#"{"choices":[{"delta":{"content":"\n\n"}}]}"#),
            (5, r#"{"choices":[{"delta":{"content":"yes"}}]}"#),
            (
                6,
                r#"{"choices":[],"usage":{"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":3}}}"#,
            ),
        ],
    );
    let kinds: Vec<ChunkKind> = decoded.chunks.iter().map(|chunk| chunk.kind).collect();
    let thought = ChunkKind::Thought;
    assert_eq!(kinds, [thought, thought, thought, thought, Answer]);
    assert_eq!(decoded.usage.unwrap().reasoning, Some(3));
}

#[test]
fn an_event_named_error_and_other_words_of_errors_are_failures() {
    let mut decoder = Decoder::new(Protocol::Completions, 300);
    decoder.push(LineKind::Event, br#"{"choices":[{"text":"a"}]}"#, 1);
    decoder.push(LineKind::Error, br#"{"code":500,"message":"engine died"}"#, 2);
    assert_eq!(
        failure(&decoder.finish(true)),
        Some((RequestFailureClass::ErrorEvent, "engine died"))
    );
    let mut decoder = Decoder::new(Protocol::Completions, 300);
    decoder.push(LineKind::Error, br#"{"error":{"message":"oom"}}"#, 2);
    assert_eq!(
        failure(&decoder.finish(true)),
        Some((RequestFailureClass::ErrorEvent, "oom"))
    );
    for protocol in [Protocol::Chat, Protocol::SglangNative] {
        let decoded = decode(protocol, [(1, r#"{"detail": "boom"}"#)]);
        assert_eq!(failure(&decoded), Some((RequestFailureClass::ErrorEvent, "boom")));
    }
    let decoded = decode(
        Protocol::Chat,
        [(1, r#"{"choices":[{"delta":{"role":"assistant"}}]}"#)],
    );
    let (class, words) = failure(&decoded).unwrap();
    assert_eq!(class, RequestFailureClass::Empty);
    assert!(
        words.contains("its last event: `{\"choices\":[{\"delta\""),
        "{words}"
    );
}

#[test]
fn an_answer_that_may_end_at_once_is_whole_without_output() {
    let event = br#"{"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}"#;
    for (may_be_empty, expected) in [(true, None), (false, Some(RequestFailureClass::Empty))] {
        let mut decoder = Decoder::new(Protocol::Chat, 300).allow_empty(may_be_empty);
        decoder.push(LineKind::Event, event, 1);
        assert_eq!(failure(&decoder.finish(true)).map(|(class, _)| class), expected);
    }
    // Without a finish reason nothing shows that the answer was complete.
    let mut decoder = Decoder::new(Protocol::Chat, 300).allow_empty(true);
    decoder.push(LineKind::Event, br#"{"choices":[{"delta":{"content":""}}]}"#, 1);
    assert!(decoder.finish(true).failure.is_some());
}

#[test]
fn a_refusal_of_a_chat_is_noted_beside_its_text() {
    for (message, is_refusal) in [
        (r#""delta":{"content":"yes","refusal":"no"}"#, true),
        (r#""delta":{"content":"yes","refusal":null}"#, false),
        (r#""delta":{"content":"yes","refusal":false}"#, false),
        (r#""message":{"content":"yes","refusal":"no"}"#, true),
    ] {
        let mut decoder = Decoder::new(Protocol::Chat, 1000);
        let event = format!(r#"{{"choices":[{{{message},"finish_reason":"stop"}}]}}"#);
        decoder.push(LineKind::Event, event.as_bytes(), 1);
        let decoded = decoder.finish(true);
        assert_eq!(failure(&decoded), None, "{message}");
        assert_eq!(
            decoded.final_answer.is_some_and(|last| last.is_refusal),
            is_refusal,
            "{message}"
        );
    }
}

#[test]
fn tool_calls_are_kept_beside_the_text() {
    let decoded = decode(
        Protocol::Chat,
        [
            (
                1,
                r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"find","arguments":""}}]}}]}"#,
            ),
            (
                2,
                r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{\"a\":1}"}}]}}]}"#,
            ),
        ],
    );
    assert_eq!(
        (
            decoded.text.in_memory(),
            tool_calls_text(&decoded.tool_calls).as_str()
        ),
        ("", r#"find{"a":1}"#)
    );
}

#[test]
fn parallel_tool_calls_are_told_apart_and_the_first_one_is_the_first_output() {
    let part = |call: Value| json!({"choices": [{"delta": {"tool_calls": [call]}}]}).to_string();
    let named = |index: u32, id: &str, name: &str| {
        part(
            json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}),
        )
    };
    let more =
        |index: u32, arguments: &str| part(json!({"index": index, "function": {"arguments": arguments}}));
    let lines = [
        r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#.to_owned(),
        named(0, "x", "find"),
        named(1, "y", "stop"),
        more(0, "{\"a\":"),
        more(1, "{}"),
        more(0, " \"\\n\"}"),
        // An index or id of another type is as good as none.
        part(json!({"index": "2", "id": 7, "function": {"arguments": " "}})),
        r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#.to_owned(),
    ];
    let decoded = decode(Protocol::Chat, (1..).zip(lines.iter().map(String::as_str)));
    let calls: Vec<(&str, &str)> = decoded
        .tool_calls
        .iter()
        .map(|call| (call.name.as_str(), call.arguments.as_str()))
        .collect();
    assert_eq!(calls, [("find", "{\"a\": \"\\n\"}"), ("stop", "{} ")]);
    let chunks: Vec<_> = decoded
        .chunks
        .iter()
        .map(|chunk| (chunk.at_ns, chunk.kind))
        .collect();
    assert_eq!(chunks.first(), Some(&(2, Tool)));
    assert_eq!(chunks.len(), 6);
    assert_eq!(decoded.failure, None);
}

#[test]
fn native_answers_of_ids_alone_and_of_disjoint_pieces_are_read() {
    let ids = decode(
        Protocol::SglangNative,
        [
            (1, r#"{"output_ids":[5],"meta_info":{"completion_tokens":1}}"#),
            (2, r#"{"output_ids":[5,6],"meta_info":{"completion_tokens":2}}"#),
            (
                3,
                r#"{"output_ids":[5,6],"meta_info":{"completion_tokens":2,"finish_reason":"length"}}"#,
            ),
        ],
    );
    assert_eq!(facts(&ids), [(1, Answer, Some(1), 0), (2, Answer, Some(2), 0)]);
    let pieces = decode(
        Protocol::SglangNative,
        [
            (1, r#"{"text":" The","meta_info":{"completion_tokens":1}}"#),
            (2, r#"{"text":" quick","meta_info":{"completion_tokens":2}}"#),
            (3, r#"{"text":" fox","meta_info":{"completion_tokens":3}}"#),
            (
                4,
                r#"{"text":"","meta_info":{"completion_tokens":3,"finish_reason":"length"}}"#,
            ),
        ],
    );
    assert_eq!(pieces.text, " The quick fox");
    assert_eq!(facts(&pieces).len(), 3);
    // The end of a whole text may change.
    let whole = decode(
        Protocol::SglangNative,
        [
            (
                1,
                "{\"text\":\"ab\u{fffd}\",\"meta_info\":{\"completion_tokens\":1}}",
            ),
            (2, r#"{"text":"abé","meta_info":{"completion_tokens":2}}"#),
        ],
    );
    assert_eq!(whole.text, "abé");
}

#[test]
fn the_limit_is_what_the_body_says() {
    let nothing = Map::new();
    let mut params = RequestParams::without_extras("m", 5, false, &nothing);
    assert_eq!(output_limit(&dialect(Protocol::Chat), &params), Some(5));
    let (more, native) = (
        object(json!({"max_tokens": 100, "n": 2})),
        object(json!({"sampling_params": {"max_new_tokens": 7}})),
    );
    params.body = &more;
    assert_eq!(output_limit(&dialect(Protocol::Chat), &params), Some(200));
    assert_eq!(output_limit(&dialect(Protocol::SglangNative), &params), Some(5));
    params.body = &native;
    assert_eq!(output_limit(&dialect(Protocol::SglangNative), &params), Some(7));
}
