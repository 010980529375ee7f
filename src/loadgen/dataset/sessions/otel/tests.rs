use std::path::Path;

use super::*;

fn read(values: &[Value]) -> Result<Vec<RecordedSession>, String> {
    let values: Vec<(Value, Place)> = values
        .iter()
        .enumerate()
        .map(|(line, value)| {
            (
                value.clone(),
                Place::new(Path::new("spans.jsonl"), Some(line + 1)),
            )
        })
        .collect();
    let sessions = sessions(&values, 0, usize::MAX).map_err(|error| error.to_string())?;
    sessions
        .into_iter()
        .map(|session| session.sort().map_err(|error| error.to_string()))
        .collect()
}

/// A flat span; times are milliseconds.
fn span(id: &str, parent: Option<&str>, start: u64, end: u64, operation: &str) -> Value {
    json!({
        "trace_id": "t", "span_id": id, "parent_span_id": parent, "start_time": start * 1_000_000,
        "end_time": end * 1_000_000, "attributes": {
            "gen_ai.operation.name": operation, "gen_ai.usage.input_tokens": 40, "gen_ai.usage.output_tokens": 7,
        },
    })
}

fn graph(session: &RecordedSession) -> Vec<(Vec<usize>, u128)> {
    let facts = |request: &RecordedRequest| (request.after.clone(), request.delay.as_millis());
    session.requests.iter().map(facts).collect()
}

#[test]
fn sub_agents_fan_out_below_a_tool_and_are_joined() {
    let spans = [
        span("root", None, 1000, 9000, "invoke_agent"),
        span("plan", Some("root"), 1100, 2000, "chat"),
        span("tool a", Some("root"), 2100, 5000, "execute_tool"),
        span("agent a", Some("tool a"), 2200, 4900, "invoke_agent"),
        span("a1", Some("agent a"), 2300, 3000, "chat"),
        span("a2", Some("agent a"), 3500, 4000, "chat"),
        span("tool b", Some("root"), 2150, 4000, "execute_tool"),
        span("b1", Some("tool b"), 2500, 3900, "chat"),
        span("idle", Some("root"), 5000, 5500, "execute_tool"),
        span("last", Some("root"), 6000, 8000, "chat"),
    ];
    let expected = [
        (vec![], 0),
        (vec![0], 300),
        (vec![1], 500),
        (vec![0], 500),
        (vec![2, 3], 2000),
    ];
    let sessions = read(&spans).unwrap();
    assert_eq!(graph(&sessions[0]), expected);
    let whole = json!({"trace_id": "t", "spans": spans});
    assert_eq!(graph(&read(&[whole]).unwrap()[0]), expected);
}

#[test]
fn prompts_without_text_grow_with_their_agent() {
    let mut second = span("b", Some("r"), 30, 40, "chat");
    second["attributes"]["gen_ai.usage.input_tokens"] = json!(60);
    let spans = [
        span("r", None, 0, 90, "invoke_agent"),
        span("a", Some("r"), 10, 20, "chat"),
        second,
        span("x", Some("r"), 50, 60, "invoke_agent"),
        span("y", Some("x"), 50, 60, "chat"),
    ];
    let sessions = read(&spans).unwrap();
    let ids = |index: usize| match &sessions[0].requests[index].prompt {
        RecordedPrompt::Blocks { ids, .. } => ids.clone(),
        other @ RecordedPrompt::Messages(_) => panic!("{other:?}"),
    };
    assert_eq!((ids(0).len(), ids(1).len()), (3, 4));
    assert_eq!(ids(0)[..], ids(1)[..3]);
    assert_ne!(ids(2)[0], ids(0)[0], "another agent");
}

#[test]
fn otlp_and_the_console_exporter_are_read() {
    let otlp = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{
    "traceId": "0af7", "spanId": "b7ad", "parentSpanId": "", "startTimeUnixNano": "1000000000", "endTimeUnixNano": "2000000000",
    "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "12"}},
        {"key": "gen_ai.system_instructions", "value": {"stringValue": "[{\"type\": \"text\", \"content\": \"be brief\"}]"}},
        {"key": "gen_ai.input.messages", "value": {"stringValue":
            "[{\"role\": \"user\", \"parts\": [{\"type\": \"text\", \"content\": \"hello\"}]}, {\"role\": \"tool\", \"content\": \"42\"}]"}},
    ]}]}]}]});
    let console = json!({
        "name": "chat", "context": {"trace_id": "0x1", "span_id": "0x2"}, "parent_id": null,
        "start_time": "2026-02-25T10:00:00.000000Z", "end_time": "2026-02-25T10:00:02.000000",
        "attributes": {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "old", "gen_ai.request.max_tokens": 9},
    });
    let sessions = read(&[otlp, console]).unwrap();
    let messages = |session: usize| match &sessions[session].requests[0].prompt {
        RecordedPrompt::Messages(messages) => messages.clone(),
        other @ RecordedPrompt::Blocks { .. } => panic!("{other:?}"),
    };
    let expected = [
        json!({"role": "system", "content": "be brief"}),
        json!({"role": "user", "content": "hello"}),
        json!({"role": "user", "content": "42"}),
    ];
    assert_eq!(messages(0), expected);
    assert_eq!(messages(1), [json!({"role": "user", "content": "old"})]);
    let outputs: Vec<_> = sessions
        .iter()
        .map(|session| session.requests[0].output_tokens)
        .collect();
    assert_eq!(outputs, [Some(12), Some(9)]);
}

#[test]
fn a_caller_of_another_system_may_be_absent() {
    let spans = [
        span("a", Some("remote"), 0, 10, "chat"),
        span("b", Some("remote"), 20, 30, "chat"),
    ];
    assert_eq!(graph(&read(&spans).unwrap()[0]), [(vec![], 0), (vec![0], 10)]);
}

#[test]
fn what_is_wrong_is_refused_with_its_line() {
    let chat = |id: &str, parent: Option<&str>| span(id, parent, 0, 10, "chat");
    let with = |key: &str, value: Value| {
        let mut span = chat("a", None);
        span[key] = value;
        span
    };
    let attribute = |key: &str, value: Value| {
        let mut span = chat("a", None);
        span["attributes"] = json!({"gen_ai.operation.name": "chat", key: value});
        span
    };
    for (spans, why) in [
        (
            vec![chat("a", None), chat("a", None)],
            "line 2: two spans of the trace have the id `a`",
        ),
        (
            vec![chat("a", Some("x")), chat("b", Some("y"))],
            "line 2: the span `b` has the parent `y`, which is not in the file",
        ),
        (
            vec![chat("r", None), chat("a", Some("b")), chat("b", Some("a"))],
            "line 2: the span `a` is its own ancestor",
        ),
        (
            vec![with("start_time", json!(20_000_000))],
            "the span ends 10ms before it starts",
        ),
        (
            vec![with("start_time", json!("noon"))],
            "`start_time` is `\"noon\"`",
        ),
        (vec![with("span_id", json!(""))], "it has no `spanId`"),
        (vec![with("trace_id", Value::Null)], "it has no `traceId`"),
        (vec![attribute("a", json!(1))], "neither messages"),
        (
            vec![attribute(
                "gen_ai.usage.input_tokens",
                json!(1_000_000_000_000_u64),
            )],
            "more than the maximum of 100000000",
        ),
        (
            vec![attribute("gen_ai.usage.input_tokens", json!(-3))],
            "whole number of tokens",
        ),
        (
            vec![attribute("gen_ai.input.messages", json!("[{"))],
            "is not valid JSON",
        ),
        (
            vec![attribute("gen_ai.input.messages", json!("{}"))],
            "is not a list",
        ),
    ] {
        let error = read(&spans).unwrap_err();
        assert!(
            error.contains(why) && error.contains("spans.jsonl"),
            "{spans:?}: {error}"
        );
    }
    let deep: Vec<Value> = (0..400)
        .map(|number| {
            chat(
                &number.to_string(),
                (number > 0).then(|| (number - 1).to_string()).as_deref(),
            )
        })
        .collect();
    assert!(
        read(&deep)
            .unwrap_err()
            .contains("nested in more than 256 other spans")
    );
}
