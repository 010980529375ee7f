use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::AnswerChecks;
use crate::loadgen::PlannedRequest;
use crate::loadgen::dataset::{Content, Extras};
use crate::results::record::final_answer::FinalAnswer;
use crate::results::record::request::{AnswerCheck, Request};
use crate::results::record::tool_call::{ToolCallPart, push_tool_call};

fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn item(extras: Extras) -> PlannedRequest {
    PlannedRequest {
        content: Content::Text("x".to_owned().into()),
        prompt_tokens: 1,
        requested_tokens: 9,
        due: Duration::ZERO,
        lora_adapter: None,
        extras: Some(Arc::new(extras)),
    }
}

fn item_with(body: &Value) -> PlannedRequest {
    item(Extras {
        body: fields(body),
        ..Extras::default()
    })
}

fn answer(text: &str, calls: &[(&str, &str)], finish: &str) -> Request {
    let mut request: Request = serde_json::from_value(json!({
        "index": 0, "prompt_tokens": 1, "asked_tokens": 9, "due_ns": 0, "end_ns": 1, "finish": finish,
        "chunks": [[0, "a", null, text.len()]], "text": text,
    }))
    .unwrap();
    for (&(name, arguments), index) in calls.iter().zip(0..) {
        push_tool_call(
            &mut request.tool_calls,
            &ToolCallPart {
                index: Some(index),
                name,
                arguments,
                ..ToolCallPart::default()
            },
        );
    }
    request
}

/// What is recorded of an answer: `correct`, or the class and the message of the problem; `None` if nothing is.
fn outcome(items: &[PlannedRequest], mut request: Request) -> Option<(String, String)> {
    let checks = AnswerChecks::compile(items, &Map::new()).unwrap();
    checks.apply(std::slice::from_mut(&mut request));
    assert!(request.tool_calls.is_empty() && request.final_answer.is_none());
    Some(match request.answer_check? {
        AnswerCheck::Correct => ("correct".to_owned(), String::new()),
        check => {
            let (class, message) = check.problem().unwrap();
            (class.to_owned(), message.to_owned())
        }
    })
}

fn person() -> Value {
    json!({
        "type": "object", "required": ["name", "age"], "additionalProperties": false,
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    })
}

#[test]
fn an_answer_must_be_json_of_the_schema_wherever_the_request_has_it() {
    let schema = person();
    for body in [
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": schema}}}),
        json!({"text": {"format": {"type": "json_schema", "name": "p", "schema": schema}}}),
        json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}}),
        json!({"guided_json": schema}),
        json!({"structured_outputs": {"json": schema}}),
        json!({"sampling_params": {"json_schema": schema.to_string()}}),
        json!({"json_schema": schema.to_string()}),
    ] {
        for (text, finish, class, says) in [
            (r#"{"name": "Ada", "age": 36}"#, "stop", "correct", ""),
            (r#"{"name": "Ada", "age": 36}"#, "length", "correct", ""),
            (" {\"name\": \"Ada\",\n \"age\": 36}\n", "stop", "correct", ""),
            (
                r#"Sure! {"name": "Ada", "age": 36}"#,
                "stop",
                "not-json",
                "column 1",
            ),
            (
                "```json\n{\"name\": \"Ada\", \"age\": 36}\n```",
                "stop",
                "not-json",
                "",
            ),
            (
                r#"{"name": "Ada", "age": 36,}"#,
                "stop",
                "not-json",
                "trailing comma",
            ),
            (
                r#"{"name": "Ada", "age": 36} {}"#,
                "stop",
                "not-json",
                "trailing characters",
            ),
            (r#"{"name": "Ada", "age": NaN}"#, "stop", "not-json", ""),
            (r#"{"name": "Ada", "a"#, "stop", "not-json", "EOF"),
            (r#"{"name": "Ada", "a"#, "length", "cut", "is not checked"),
            (r#"{"name": "Ada", "a"#, "max_tokens", "cut", ""),
            // Wrong before it was cut.
            (r#"Sure! {"name": "Ada", "a"#, "length", "not-json", ""),
            (
                r#"{"name": "Ada", "age": 36} and so on"#,
                "length",
                "not-json",
                "trailing",
            ),
            (r#"{"name": "Ada", "age": "36"}"#, "stop", "schema", "at `/age`"),
            (r#"{"name": "Ada", "age": "36"}"#, "length", "schema", "at `/age`"),
            (r#"{"name": "Ada"}"#, "stop", "schema", "required property"),
            (r#"{"name": "Ada", "age": 36, "x": 1}"#, "stop", "schema", "x"),
            ("[]", "stop", "schema", ""),
            ("", "stop", "empty", "no text"),
            ("", "length", "cut", ""),
            (" \n", "stop", "empty", ""),
            // JSON allows no other white space.
            ("\u{a0}", "stop", "not-json", ""),
            ("\u{c}{\"name\": \"Ada\", \"age\": 36}", "stop", "not-json", ""),
        ] {
            let (found, why) = outcome(&[item_with(&body)], answer(text, &[], finish)).unwrap();
            assert_eq!(found, class, "{body} {text} {finish}: {why}");
            assert!(why.contains(says), "{text}: {why}");
            // Texts of answers are stored only where the scenario asks for it.
            assert!(!why.contains("Ada") && !why.contains("36"), "{why}");
        }
    }
}

#[test]
fn any_object_one_of_several_texts_or_a_pattern_may_be_demanded() {
    let object = json!({"response_format": {"type": "json_object"}});
    let choice = json!({"structured_outputs": {"choice": ["yes", "no"]}});
    let pattern = json!({"guided_regex": "[a-c]{2}|x+"});
    let other = json!({"response_format": {"type": "regex_schema", "regex_schema": "[a-c]{2}|x+"}});
    for (body, text, finish, class) in [
        (&object, r#"{"a": [1]}"#, "stop", "correct"),
        (&object, "[1]", "stop", "schema"),
        (&choice, "yes", "stop", "correct"),
        (&choice, "yes ", "stop", "schema"),
        (&choice, "maybe", "stop", "schema"),
        (&choice, "n", "length", "cut"),
        (&pattern, "ab", "stop", "correct"),
        (&pattern, "xxx", "stop", "correct"),
        (&pattern, "abx", "stop", "schema"),
        (&other, "ab", "stop", "correct"),
        (&other, "ad", "stop", "schema"),
    ] {
        let (found, why) = outcome(&[item_with(body)], answer(text, &[], finish)).unwrap();
        assert_eq!(found, class, "{body} {text}: {why}");
    }
}

/// Two tools and a choice in the forms of chat, Responses and Messages. `choice` is a word of chat, or the name of a tool.
fn offers(choice: &str) -> [Value; 3] {
    let is_word = ["auto", "none", "required"].contains(&choice);
    let flat = |key: &str| json!([{"name": "find", key: person()}, {"name": "stop"}]);
    let of_chat = match is_word {
        true => json!(choice),
        false => json!({"type": "function", "function": {"name": choice}}),
    };
    let of_responses = match is_word {
        true => json!(choice),
        false => json!({"type": "function", "name": choice}),
    };
    let of_messages = match choice {
        "required" => json!({"type": "any"}),
        "auto" | "none" => json!({"type": choice}),
        named => json!({"type": "tool", "name": named}),
    };
    let functions = json!([
        {"type": "function", "function": {"name": "find", "parameters": person()}},
        {"type": "function", "function": {"name": "stop"}},
    ]);
    [
        json!({"tools": functions, "tool_choice": of_chat}),
        json!({"tools": flat("parameters"), "tool_choice": of_responses}),
        json!({"tools": flat("input_schema"), "tool_choice": of_messages}),
    ]
}

#[test]
fn calls_must_name_an_offered_tool_and_fulfil_its_parameters() {
    let good = r#"{"name": "Ada", "age": 36}"#;
    for (choice, calls, finish, class) in [
        ("required", &[("find", good)][..], "tool_calls", Some("correct")),
        (
            "required",
            &[("find", good), ("stop", "")],
            "tool_calls",
            Some("correct"),
        ),
        ("auto", &[("find", good)], "tool_calls", Some("correct")),
        ("auto", &[("find", "[]")], "stop", Some("arguments")),
        ("auto", &[], "stop", None),
        ("none", &[], "stop", None),
        ("none", &[("stop", "{}")], "stop", Some("surplus-tool-call")),
        ("required", &[], "stop", Some("no-tool-call")),
        ("required", &[], "length", Some("cut")),
        ("required", &[("stop", "")], "stop", Some("correct")),
        ("required", &[("stop", " {} ")], "stop", Some("correct")),
        ("required", &[("stop", "\u{a0}")], "stop", Some("arguments")),
        ("required", &[("look", good)], "stop", Some("unknown-tool")),
        (
            "required",
            &[("find", good), ("look", "{}")],
            "stop",
            Some("unknown-tool"),
        ),
        ("required", &[("", good)], "stop", Some("unknown-tool")),
        (
            "required",
            &[("find", r#"{"name": "Ada", "age": "36"}"#)],
            "stop",
            Some("arguments"),
        ),
        (
            "required",
            &[("find", r#"{"name": "Ada","#)],
            "stop",
            Some("arguments"),
        ),
        (
            "required",
            &[("find", r#"{"name": "Ada","#)],
            "length",
            Some("cut"),
        ),
        ("required", &[("find", "")], "stop", Some("arguments")),
        ("required", &[("find", "")], "length", Some("cut")),
        ("stop", &[("stop", "{}")], "stop", Some("correct")),
        ("stop", &[("find", good)], "stop", Some("unknown-tool")),
        ("stop", &[], "stop", Some("no-tool-call")),
    ] {
        for body in offers(choice) {
            let found = outcome(&[item_with(&body)], answer("", calls, finish));
            let found_class = found.as_ref().map(|(class, _)| class.as_str());
            assert_eq!(found_class, class, "{body} {calls:?}: {found:?}");
        }
    }
    let [mut one, ..] = offers("required");
    one["parallel_tool_calls"] = json!(false);
    let several = answer("", &[("stop", ""), ("stop", "")], "stop");
    assert_eq!(
        outcome(&[item_with(&one)], several).unwrap().0,
        "surplus-tool-call"
    );
}

#[test]
fn a_choice_of_allowed_tools_excludes_the_others() {
    for (mode, calls, class) in [
        ("auto", &[][..], None),
        ("auto", &[("stop", "")], Some("correct")),
        ("auto", &[("find", "{}")], Some("unknown-tool")),
        ("required", &[], Some("no-tool-call")),
        ("required", &[("stop", ""), ("stop", "")], Some("correct")),
        ("required", &[("stop", ""), ("find", "{}")], Some("unknown-tool")),
    ] {
        let [mut chat, mut responses, _] = offers("auto");
        chat["tool_choice"] = json!({"type": "allowed_tools", "allowed_tools": {
            "mode": mode, "tools": [{"type": "function", "function": {"name": "stop"}}],
        }});
        responses["tool_choice"] = json!({
            "type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "stop"}],
        });
        for body in [chat, responses] {
            let found = outcome(&[item_with(&body)], answer("", calls, "stop"));
            let found_class = found.as_ref().map(|(class, _)| class.as_str());
            assert_eq!(found_class, class, "{body} {calls:?}: {found:?}");
        }
    }
}

#[test]
fn an_expected_answer_is_a_text_json_or_calls() {
    let expects = |expected: Value| {
        item(Extras {
            expected_answer: Some(expected),
            ..Extras::default()
        })
    };
    let calls = json!({"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": [2.0]}}, {"name": "stop"}]});
    let written =
        json!({"tool_calls": [{"function": {"name": "add", "arguments": "{\"a\": 1, \"b\": [2]}"}}]});
    for (expected, text, called, finish, class) in [
        (json!("Paris"), " Paris\n", &[][..], "stop", "correct"),
        (json!("Paris"), "paris", &[], "stop", "unexpected"),
        (json!("Paris"), "Par", &[], "length", "cut"),
        (json!("Paris"), "Lon", &[], "length", "unexpected"),
        (
            json!({"a": 1, "b": [2]}),
            r#"{"b": [2.0], "a": 1}"#,
            &[],
            "stop",
            "correct",
        ),
        // A client would run the call, too.
        (json!("yes"), "yes", &[("add", "{}")], "stop", "unexpected"),
        (json!(42), "42", &[("add", "{}")], "length", "unexpected"),
        (json!({"a": 1}), r#"{"a": 1, "b": 2}"#, &[], "stop", "unexpected"),
        (json!([1, 2]), "[2, 1]", &[], "stop", "unexpected"),
        (json!(42), "42.0", &[], "stop", "correct"),
        (json!(42), "forty-two", &[], "stop", "not-json"),
        (
            calls.clone(),
            "",
            &[("add", r#"{"b": [2], "a": 1}"#), ("stop", "")],
            "stop",
            "correct",
        ),
        (
            calls.clone(),
            "",
            &[("add", r#"{"b": [2], "a": 1}"#)],
            "stop",
            "unexpected",
        ),
        (
            calls,
            "",
            &[("add", r#"{"b": [3], "a": 1}"#), ("stop", "{}")],
            "stop",
            "unexpected",
        ),
        (
            written,
            "",
            &[("add", r#"{"b": [2], "a": 1}"#)],
            "stop",
            "correct",
        ),
    ] {
        let (found, why) = outcome(&[expects(expected.clone())], answer(text, called, finish)).unwrap();
        assert_eq!(found, class, "{expected} {text} {called:?}: {why}");
    }
    // A schema is checked first.
    let both = item(Extras {
        body: fields(&json!({"guided_json": {"type": "integer"}})),
        expected_answer: Some(json!(7)),
        ..Extras::default()
    });
    for (text, class) in [("7", "correct"), ("8", "unexpected"), ("true", "schema")] {
        assert_eq!(
            outcome(std::slice::from_ref(&both), answer(text, &[], "stop"))
                .unwrap()
                .0,
            class
        );
    }
}

#[test]
fn reasoning_is_no_part_of_an_answer_and_what_did_not_complete_is_not_checked() {
    let object = [item_with(&json!({"response_format": {"type": "json_object"}}))];
    let mut request = answer("hm {}", &[], "stop");
    request.chunks = serde_json::from_value(json!([[0, "r", null, 3], [1, "a", null, 2]])).unwrap();
    assert_eq!(outcome(&object, request.clone()).unwrap().0, "correct");
    request.cancelled = true;
    assert_eq!(outcome(&object, request), None);
    let mut lost = answer("{}", &[], "stop");
    lost.text = None;
    assert_eq!(outcome(&object, lost).unwrap().0, "text-lost");
}

#[test]
fn each_round_and_each_row_has_its_own_demand_and_the_body_counts_for_rows_without_one() {
    let integer = Extras {
        body: fields(&json!({"guided_json": {"type": "integer"}})),
        turns: Some(vec![Vec::new()]),
        ..Extras::default()
    };
    let nothing = item_with(&json!({"response_format": null}));
    let items = [item(integer), nothing, item_with(&json!({}))];
    let body = fields(&json!({"response_format": {"type": "json_object"}}));
    let checks = AnswerChecks::compile(&items, &body).unwrap();
    let mut requests: Vec<Request> = ["1", "{}", "x", "{}", "1"]
        .into_iter()
        .zip(0..)
        .map(|(text, index)| Request {
            index,
            ..answer(text, &[], "stop")
        })
        .collect();
    checks.apply(&mut requests);
    let found: Vec<Option<bool>> = requests
        .iter()
        .map(|request| Some(request.answer_check.as_ref()?.is_correct()))
        .collect();
    // A schema demands more than any object, whichever field has it.
    assert_eq!(found, [Some(true), Some(false), None, Some(true), None]);
}

#[test]
fn schemas_that_are_none_or_lie_elsewhere_are_refused_and_so_are_loads_without_any_demand() {
    let compiled = |bodies: &[Value]| {
        let items: Vec<PlannedRequest> = bodies.iter().map(item_with).collect();
        AnswerChecks::compile(&items, &Map::new()).map(drop)
    };
    let good = json!({"guided_json": person()});
    // Each part names the one before twice.
    let doubled = |at: usize| json!({"allOf": vec![json!({"$ref": format!("#/$defs/l{}", at - 1)}); 2]});
    let mut parts = Map::from_iter([("l0".to_owned(), json!({"type": "object"}))]);
    parts.extend((1..40).map(|at| (format!("l{at}"), doubled(at))));
    let bomb = json!({"$ref": "#/$defs/l39", "$defs": parts});
    for (broken, says) in [
        (json!({"guided_json": bomb}), "references lead to more than"),
        (json!({"guided_json": {"type": "no-such-type"}}), "no-such-type"),
        (
            json!({"guided_json": {"$ref": "http://127.0.0.1:9/schema.json"}}),
            "Retrieval is disabled",
        ),
        (
            json!({"guided_json": {"$ref": "file:///etc/hostname"}}),
            "Retrieval is disabled",
        ),
        (json!({"guided_json": {"pattern": "("}}), "regex"),
        (
            json!({"tools": [{"function": {"name": "f", "parameters": {"type": 1}}}]}),
            "the tool `f`",
        ),
    ] {
        let error = compiled(&[good.clone(), broken]).unwrap_err();
        assert!(
            error.starts_with("the answer to request 2 cannot be checked: "),
            "{error}"
        );
        assert!(error.contains(says), "{error}");
    }
    let error = compiled(&[
        json!({}),
        json!({"tools": []}),
        json!({"response_format": {"type": "text"}}),
    ]);
    assert!(
        error
            .unwrap_err()
            .contains("no request says what its answer must be")
    );
    assert_eq!(compiled(&[json!({}), good]), Ok(()));
}

/// Neither recursion of schema or answer, nor a pattern that backtracks, stops the check.
#[test]
fn hostile_schemas_and_answers_end() {
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let lists = json!({"guided_json": {"type": ["array", "integer"], "items": {"$ref": "#"}}});
    let itself = json!({"guided_json": {"allOf": [{"$ref": "#"}]}});
    let objects = |levels: usize, key: &str| {
        let begin = format!("{{\"{key}\": ").repeat(levels);
        format!("{begin}1{}", "}".repeat(levels))
    };
    let node = json!({"$ref": "#/$defs/n"});
    let optional = json!({"anyOf": [node, {"type": "null"}]});
    let generated = |part: Value| json!({"guided_json": {"$defs": {"n": part}, "$ref": "#/$defs/n"}});
    let linked = generated(json!({"type": "object", "properties": {"next": optional}}));
    let tree = generated(json!({"type": "object", "properties": {"left": optional, "right": optional}}));
    let generated = generated(json!({"type": ["object", "integer"], "properties": {"a": node}}));
    let branch = json!({"type": "array", "items": {"$ref": "#"}});
    let branches = json!({"guided_json": {"anyOf": [branch, branch]}});
    let evil = json!({"guided_json": {"pattern": "^(a+)+$"}});
    // The look-ahead needs backtracking.
    let steps = json!({"guided_json": {"pattern": "^(?=a)(a|a?)+(?!a)$"}});
    let quoted = format!("\"{}!\"", "a".repeat(100_000));
    for (body, text, class) in [
        (&lists, nested(100), "correct"),
        (&lists, nested(100_000), "too-complex"),
        (&lists, "[".repeat(1_000_000), "too-complex"),
        (&lists, "[1, 2e999]".to_owned(), "too-complex"),
        (&itself, "7".to_owned(), "correct"),
        (&generated, objects(30, "a"), "correct"),
        (&generated, objects(30, "a").replace('1', "null"), "schema"),
        (&linked, objects(30, "next").replace('1', "null"), "correct"),
        (&linked, objects(30, "next"), "schema"),
        (&tree, objects(30, "left").replace('1', "null"), "correct"),
        (&branches, "[[], []]".to_owned(), "correct"),
        (&branches, nested(5), "schema"),
        (&branches, nested(50), "too-complex"),
        (&evil, quoted.clone(), "schema"),
        (&steps, quoted, "too-complex"),
    ] {
        let (found, why) = outcome(&[item_with(body)], answer(&text, &[], "stop")).unwrap();
        assert_eq!(found, class, "{body}: {why}");
    }
}

#[test]
fn the_text_at_the_end_of_an_answer_is_checked_instead_of_its_pieces_and_a_refusal_is_incorrect() {
    let expecting = |expected: &str| {
        [item(Extras {
            expected_answer: Some(json!(expected)),
            ..Extras::default()
        })]
    };
    let ended = |text: Option<&str>, is_refusal| Request {
        final_answer: Some(Box::new(FinalAnswer {
            text: text.map(Into::into),
            is_refusal,
        })),
        ..answer("yes", &[], "stop")
    };
    for (expected, request, class) in [
        ("yes", answer("yes", &[], "stop"), "correct"),
        ("yes", ended(Some("no"), false), "unexpected"),
        ("no", ended(Some("no"), false), "correct"),
        ("yes", ended(None, true), "unexpected"),
        ("yes", ended(Some("yes"), true), "unexpected"),
    ] {
        let found = outcome(&expecting(expected), request.clone()).unwrap();
        assert_eq!(found.0, class, "{request:?}");
    }
}
