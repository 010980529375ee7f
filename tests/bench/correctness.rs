//! Answers that are compared with what their requests demand: against the simulated engine, which fulfils schemas and calls tools,
//! and against servers that do not.

use serde_json::{Value, json};

use crate::harness::{Desk, Ran, Sim, data};
use crate::recorder::Recorder;
use crate::scripted::{figure, serve_in_turn, stream};

/// Messages in the manner of ChatML.
const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A bench of a data set with records, one request at a time.
fn bench(desk: &Desk, backend: &str, port: u16, dataset: &str, more: &[&str]) -> Ran {
    let tokenizer = desk.path().join("tokenizer.json");
    std::fs::copy(data("tokenizer.json"), &tokenizer).expect("a file can be copied");
    std::fs::write(desk.path().join("chat_template.jinja"), TEMPLATE).expect("a file can be written");
    // Records are appended.
    let _ = std::fs::remove_file(desk.path().join("records.jsonl"));
    let port = port.to_string();
    let args = [
        "--backend",
        backend,
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--tokenizer",
        "./tokenizer.json",
        "--dataset-name",
        dataset,
        "--max-concurrency",
        "1",
        "--warmup-requests",
        "0",
        "--disable-tqdm",
        "--output-file",
        "out.jsonl",
        "--records",
        "records.jsonl",
    ];
    desk.call(&[&args[..], more].concat())
}

/// A bench of these rows of `openai`, whose answers may end early.
fn rows(desk: &Desk, port: u16, rows: &[Value], more: &[&str]) -> Ran {
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(desk.path().join("rows.jsonl"), text).expect("a file can be written");
    let count = rows.len().to_string();
    let args = [
        "--dataset-path",
        "rows.jsonl",
        "--num-prompts",
        &count,
        "--disable-ignore-eos",
    ];
    bench(desk, "vllm-chat", port, "openai", &[&args[..], more].concat())
}

/// The verdict of each record, or the class of its problem.
fn verdicts(desk: &Desk) -> Vec<String> {
    let text = std::fs::read_to_string(desk.path().join("records.jsonl")).expect("records");
    text.lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line).expect("JSON");
            let check = &record["answer_check"];
            let class = check.get("class").or_else(|| check.get("verdict"));
            class.and_then(Value::as_str).unwrap_or("none").to_owned()
        })
        .collect()
}

fn person() -> Value {
    json!({
        "type": "object", "required": ["name", "age"], "additionalProperties": false,
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    })
}

fn row(fields: &Value) -> Value {
    let mut row = json!({"messages": [{"role": "user", "content": "who?"}], "max_tokens": 64});
    row.as_object_mut()
        .expect("a map")
        .extend(fields.as_object().expect("a map").clone());
    row
}

fn schema_row() -> Value {
    row(
        &json!({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": person()}}}),
    )
}

fn tool_row() -> Value {
    let tool = json!({"type": "function", "function": {"name": "find", "parameters": person()}});
    row(&json!({"tools": [tool], "tool_choice": "required"}))
}

/// The lines of an answer: these deltas, an event each, and a finish reason.
fn answer(deltas: &[Value], finish: &str) -> Vec<String> {
    let event = |delta: &Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let mut events: Vec<Value> = deltas.iter().map(event).collect();
    events.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}));
    stream(&events)
}

fn says(text: &str, finish: &str) -> Vec<String> {
    let middle = text.len() / 2;
    let cut = (middle..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    let pieces = [&text[..cut], &text[cut..]];
    answer(&pieces.map(|piece| json!({"content": piece})), finish)
}

fn calls(name: &str, arguments: &[&str], finish: &str) -> Vec<String> {
    let function =
        json!({"index": 0, "id": "c", "type": "function", "function": {"name": name, "arguments": ""}});
    let mut deltas = vec![
        json!({"role": "assistant", "content": ""}),
        json!({"tool_calls": [function]}),
    ];
    deltas.extend(
        arguments
            .iter()
            .map(|piece| json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})),
    );
    answer(&deltas, finish)
}

#[test]
fn the_simulated_engine_fulfils_what_is_demanded_but_for_the_planted_share() {
    for (backend, tools_share) in [
        ("vllm-chat", "0"),
        ("vllm", "0"),
        ("vllm-responses", "0"),
        ("vllm-chat", "1"),
        ("vllm-messages", "1"),
        ("vllm-responses", "1"),
        ("vllm-chat", "0.5"),
    ] {
        for (planted, correct) in [(None, 40.0), (Some("0.1"), 36.0), (Some("100%"), 0.0)] {
            for whole in [false, true] {
                let engine: Vec<&str> = planted
                    .iter()
                    .flat_map(|share| ["--wrong-answers", share])
                    .collect();
                let sim = Sim::start("vllm", &engine);
                let desk = Desk::new();
                let mut more = vec![
                    "--num-prompts",
                    "40",
                    "--structured-tools-share",
                    tools_share,
                    "--structured-schemas",
                    "5",
                    "--goodput",
                    "e2el:100000",
                ];
                more.extend(whole.then_some("--disable-stream"));
                let case = format!("{backend} {tools_share} {planted:?} {whole}");
                let ran = bench(&desk, backend, sim.port, "structured", &more).exits(0);
                let line = desk.lines().pop().expect("a line");
                let found = |name: &str| figure(&line, name);
                assert_eq!(found("correct_requests"), correct, "{case}: {}", ran.stderr);
                assert_eq!(found("incorrect_requests"), 40.0 - correct, "{case}");
                assert_eq!(found("unchecked_requests"), 0.0, "{case}");
                assert_eq!(found("correct_share"), correct / 40.0, "{case}");
                assert_eq!(found("slo_attainment_share"), correct / 40.0, "{case}");
                assert_eq!(found("completed_requests"), 40.0, "{case}");
                assert_eq!(ran.value("Correct answers"), correct.to_string(), "{case}");
                // The block's goodput counts correct answers only, too.
                let goodput: f64 = ran.value("Request goodput (req/s)").parse().expect("a number");
                assert_eq!(goodput == 0.0, correct == 0.0, "{case}");
                let good = verdicts(&desk)
                    .iter()
                    .filter(|verdict| *verdict == "correct")
                    .count();
                assert_eq!(good as f64, correct, "{case}");
                ran.says(&format!("{correct} of 40 checked answers are correct"));
            }
        }
    }
}

#[test]
fn answers_without_demand_are_not_checked_and_a_model_that_may_decide_need_not_call() {
    let sim = Sim::start("vllm", &[]);
    let desk = Desk::new();
    let more = ["--num-prompts", "30", "--structured-plain-share", "0.5"];
    bench(&desk, "vllm-chat", sim.port, "structured", &more).exits(0);
    let line = desk.lines().pop().expect("a line");
    let checked = figure(&line, "correct_requests");
    assert!((5.0..=25.0).contains(&checked), "{checked}");
    let unchecked = verdicts(&desk)
        .iter()
        .filter(|verdict| *verdict == "none")
        .count();
    assert_eq!(unchecked as f64, 30.0 - checked);
    // The simulated model answers with words where it may decide.
    let more = [
        "--num-prompts",
        "3",
        "--structured-tools-share",
        "1",
        "--structured-tool-choice",
        "auto",
    ];
    let ran = bench(&desk, "vllm-chat", sim.port, "structured", &more).exits(0);
    assert_eq!(verdicts(&desk), ["none"; 3]);
    assert!(!ran.stdout.contains("Correct"), "{}", ran.stdout);
    // Nothing is checked.
    let more = ["--num-prompts", "3", "--check-answers=false"];
    let ran = bench(&desk, "vllm-chat", sim.port, "structured", &more).exits(0);
    assert_eq!(verdicts(&desk), ["none"; 3]);
    assert!(!ran.stdout.contains("Correct"), "{}", ran.stdout);
}

#[test]
fn an_answer_that_the_limit_cuts_is_not_called_incorrect() {
    let sim = Sim::start("vllm", &[]);
    let desk = Desk::new();
    let more = [
        "--num-prompts",
        "6",
        "--structured-tools-share",
        "0.5",
        "--random-output-len",
        "4",
        "--goodput",
        "e2el:100000",
    ];
    let ran = bench(&desk, "vllm-chat", sim.port, "structured", &more).exits(0);
    assert_eq!(verdicts(&desk), ["cut"; 6]);
    let line = desk.lines().pop().expect("a line");
    assert_eq!(line["matrix"]["figures"]["correct_share"], Value::Null);
    assert_eq!(figure(&line, "goodput_req_s"), 0.0);
    ran.says("6 of class `cut`, for example: the limit of output tokens cut the answer");
}

#[test]
fn each_way_to_miss_a_schema_or_a_tool_is_named() {
    let good = r#"{"name": "Ada", "age": 36}"#;
    let fenced = format!("```json\n{good}\n```");
    let cases = [
        (schema_row(), says(good, "stop"), "correct"),
        (schema_row(), says(&format!("Sure! {good}"), "stop"), "not-json"),
        (schema_row(), says(&fenced, "stop"), "not-json"),
        (schema_row(), says(&good[..12], "stop"), "not-json"),
        (schema_row(), says(&good[..12], "length"), "cut"),
        (
            schema_row(),
            says(r#"{"name": "Ada", "age": "36"}"#, "stop"),
            "schema",
        ),
        (schema_row(), answer(&[json!({"content": ""})], "stop"), "empty"),
        (
            schema_row(),
            answer(&[json!({"reasoning_content": "{}"})], "stop"),
            "empty",
        ),
        (
            schema_row(),
            answer(
                &[json!({"reasoning_content": "hm"}), json!({"content": good})],
                "stop",
            ),
            "correct",
        ),
        (
            tool_row(),
            calls("find", &[&good[..5], &good[5..]], "tool_calls"),
            "correct",
        ),
        (tool_row(), calls("search", &[good], "tool_calls"), "unknown-tool"),
        (
            tool_row(),
            calls("find", &[&good[..12]], "tool_calls"),
            "arguments",
        ),
        (tool_row(), calls("find", &[&good[..12]], "length"), "cut"),
        (tool_row(), calls("find", &["{}"], "tool_calls"), "arguments"),
        (tool_row(), says(good, "stop"), "no-tool-call"),
        (
            row(&json!({"expected_answer": "Paris"})),
            says("Paris", "stop"),
            "correct",
        ),
        (
            row(&json!({"expected_answer": "Paris"})),
            says("London", "stop"),
            "unexpected",
        ),
        (
            row(&json!({"expected_answer": {"a": 1}})),
            says(r#"{"a": 1.0}"#, "stop"),
            "correct",
        ),
        (row(&json!({})), says("anything", "stop"), "none"),
        // Neither depth nor length stops the check.
        (schema_row(), says(&"[".repeat(200_000), "stop"), "too-complex"),
        (
            schema_row(),
            says(&format!("\"{}\"", "a".repeat(300_000)), "stop"),
            "schema",
        ),
    ];
    let answers: Vec<Vec<String>> = cases.iter().map(|(_, answer, _)| answer.clone()).collect();
    let asked: Vec<Value> = cases.iter().map(|(row, ..)| row.clone()).collect();
    let desk = Desk::new();
    let ran = rows(&desk, serve_in_turn(&answers), &asked, &["--check-answers"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let expected: Vec<&str> = cases.iter().map(|(.., expected)| *expected).collect();
    assert_eq!(verdicts(&desk), expected, "{}", ran.stderr);
    // Nothing of this makes the measurement invalid.
    let line = desk.lines().pop().expect("a line");
    for class in ["not-json", "no-tool-call", "unknown-tool"] {
        assert!(
            ran.stderr.contains(&format!("of class `{class}`, for example: ")),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(figure(&line, "failed_requests"), 0.0);
}

#[test]
fn what_cannot_be_checked_is_refused_before_the_load() {
    let recorder = Recorder::start();
    let desk = Desk::new();
    let remote = format!("http://127.0.0.1:{}/schema.json", recorder.port);
    for (fields, message) in [
        (json!({}), "no request says what its answer must be"),
        (json!({"guided_json": {"$ref": remote}}), "Retrieval is disabled"),
        (
            json!({"guided_json": {"type": "no-such-type"}}),
            "the JSON schema is invalid",
        ),
    ] {
        // The file was read, and nothing was sent.
        rows(&desk, recorder.port, &[row(&fields)], &["--check-answers"])
            .exits(2)
            .says(message);
    }
    let sent: Vec<String> = recorder.take().into_iter().map(|heard| heard.path).collect();
    assert!(
        !sent
            .iter()
            .any(|path| path.contains("schema") || path.contains("chat")),
        "{sent:?}"
    );
    for (backend, dataset, more, message) in [
        ("vllm-messages", "structured", &[][..], "can send a JSON schema"),
        ("sglang", "structured", &[], "can send a JSON schema"),
        (
            "vllm",
            "structured",
            &["--structured-tools-share", "1"],
            "`--structured-tools-share` needs a backend that can offer tools; use a backend such as `vllm-chat`",
        ),
        (
            "vllm-chat",
            "random-ids",
            &["--structured-tools", "2"],
            "belong to the data set `structured`",
        ),
        (
            "vllm-chat",
            "structured",
            &["--structured-properties", "0"],
            "`properties` is 0",
        ),
        (
            "vllm-chat",
            "structured",
            &[
                "--structured-tools-share",
                "0.7",
                "--structured-plain-share",
                "0.7",
            ],
            "more than 1 together",
        ),
        (
            "vllm-embedding",
            "random-ids",
            &["--check-answers"],
            "`--check-answers` has no effect",
        ),
    ] {
        bench(&desk, backend, recorder.port, dataset, more)
            .exits(2)
            .says(message);
    }
}

#[test]
fn the_expected_answer_is_not_sent_and_the_demands_are() {
    let recorder = Recorder::start();
    let desk = Desk::new();
    let mut asked = schema_row();
    asked["expected_answer"] = json!("Paris");
    rows(&desk, recorder.port, &[asked], &[]).exits(0);
    assert_eq!(verdicts(&desk), ["none"]);
    let sent = recorder.take();
    let body = &sent
        .iter()
        .find(|heard| heard.path == "/v1/chat/completions")
        .expect("it was sent")
        .body;
    assert_eq!(body.get("expected_answer"), None);
    assert_eq!(body["response_format"]["json_schema"]["schema"], person());
    // Responses has the format elsewhere.
    let more = ["--num-prompts", "1", "--check-answers=false"];
    let ran = bench(&desk, "vllm-responses", recorder.port, "structured", &more);
    let sent = recorder.take();
    let body = sent.iter().find(|heard| heard.path == "/v1/responses");
    let body = &body.unwrap_or_else(|| panic!("{}", ran.stderr)).body;
    assert_eq!(body["text"]["format"]["type"], "json_schema");
    assert_eq!(body["text"]["format"]["schema"]["type"], "object");
    assert_eq!(body.get("response_format"), None);
    assert_eq!(body["ignore_eos"], false);
}

#[test]
fn a_tool_call_is_the_first_token() {
    let mut lines = calls("find", &["{\"name\": \"Ada\", ", "\"age\": 36}"], "tool_calls");
    // The role comes at once, the name of the tool later, its arguments later still.
    lines.insert(1, "wait 300".to_owned());
    lines.insert(3, "wait 200".to_owned());
    let desk = Desk::new();
    rows(
        &desk,
        serve_in_turn(&[lines]),
        &[tool_row()],
        &["--check-answers"],
    )
    .exits(0);
    assert_eq!(verdicts(&desk), ["correct"]);
    let line = desk.lines().pop().expect("a line");
    let (ttft, e2e) = (figure(&line, "mean_ttft_ms"), figure(&line, "mean_e2e_ms"));
    assert!(ttft >= 300.0, "{ttft}");
    assert!(e2e - ttft >= 200.0, "{ttft} {e2e}");
}
