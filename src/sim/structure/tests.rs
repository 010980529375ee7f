use serde_json::{Value, json};

use super::{Demand, Structure};

fn of_schema(schema: &Value, key: u64, limit: usize) -> Result<Structure, String> {
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    let demand = Demand {
        response_format: Some(&format),
        ..Demand::default()
    };
    Ok(Structure::generate(demand, key, limit)?.unwrap())
}

fn record() -> Value {
    json!({
        "type": "object", "required": ["title", "tags", "year", "inner"], "additionalProperties": false,
        "properties": {
            "title": {"type": "string", "maxLength": 12, "minLength": 3},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 2}, "minItems": 2, "maxItems": 3},
            "year": {"type": "integer", "minimum": 1990, "maximum": 1995},
            "price": {"type": "number", "minimum": 0.1, "maximum": 0.2},
            "color": {"enum": ["red", "a \"quoted\" one", 7, null]},
            "kind": {"const": {"a": [1]}},
            "inner": {"type": "object", "properties": {"ok": {"type": "boolean"}, "none": {"type": "null"}}},
        },
    })
}

#[test]
fn answers_fulfil_their_schemas_and_are_drawn_by_the_key() {
    let schema = record();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut texts = std::collections::BTreeSet::new();
    for key in 0..300 {
        for limit in [1, 1000] {
            let structure = of_schema(&schema, key, limit).unwrap();
            let text = structure.tokens.concat();
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(
                validator.is_valid(&value),
                "{text}: {:?}",
                validator.validate(&value)
            );
            assert_eq!(structure, of_schema(&schema, key, limit).unwrap());
            assert!(structure.tokens.iter().all(|token| !token.is_empty()));
            texts.insert(text);
        }
    }
    assert!(texts.len() > 300, "{}", texts.len());
}

#[test]
fn an_answer_is_short_where_the_limit_is_low() {
    let schema = record();
    let shortest = of_schema(&schema, 1, 1).unwrap();
    assert!(!shortest.tokens.concat().contains("color"));
    let longer = of_schema(&schema, 1, 1000).unwrap();
    assert!(longer.tokens.concat().contains("color"));
    assert_eq!(of_schema(&schema, 1, longer.len()).unwrap(), longer);
    assert_eq!(of_schema(&schema, 1, longer.len() - 1).unwrap(), shortest);
}

#[test]
fn what_is_not_simulated_is_refused_with_its_name() {
    for (schema, says) in [
        (json!({"type": "string", "pattern": "a"}), "`pattern`"),
        (json!({"anyOf": [{"type": "string"}]}), "`anyOf`"),
        (json!({"type": ["string", "null"]}), "type"),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
            "`$ref`",
        ),
        (json!({"type": "object", "required": ["a"]}), "`a`"),
        (json!({"type": "array", "minItems": 1}), "`items`"),
        (
            json!({"type": "integer", "minimum": 2, "maximum": 1}),
            "`minimum`",
        ),
        (
            json!({"type": "string", "minLength": -3}),
            "the value of `minLength` is -3; write a whole number from 0",
        ),
        (json!({"type": "string", "maxLength": 1.5}), "`maxLength` is 1.5"),
        (
            json!({"type": "array", "items": {"type": "null"}, "minItems": "2"}),
            "`minItems` is \"2\"",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "maxItems": -1}}}),
            "`maxItems` is -1",
        ),
        (
            json!({"type": "integer", "minimum": "1"}),
            "`minimum` is \"1\"; write a number",
        ),
        (json!({}), "type"),
        (json!(true), "must be a JSON object"),
        (json!({"enum": []}), "`enum`"),
    ] {
        let error = of_schema(&schema, 1, 9).unwrap_err();
        assert!(error.contains(says), "{schema}: {error}");
    }
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep = json!({"type": "array", "items": deep});
    }
    assert!(of_schema(&deep, 1, 9).unwrap_err().contains("levels"));
}

#[test]
fn an_answer_without_bounds_is_refused_or_made_smaller() {
    let huge = 4_000_000_000_u64;
    let items = |count: u64, items: Value| json!({"type": "array", "minItems": count, "items": items});
    for schema in [
        json!({"type": "string", "minLength": huge}),
        items(huge, json!({"type": "null"})),
        items(u64::MAX, json!({"type": "object"})),
        items(2000, items(2000, json!({"type": "integer"}))),
        items(2000, json!({"type": "string", "minLength": 2000})),
        items(2000, json!({"const": "x".repeat(2000)})),
        json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "minLength": huge}}}),
    ] {
        let error = of_schema(&schema, 1, 9).unwrap_err();
        assert!(
            error.contains("more than 1000000 characters"),
            "{schema}: {error}"
        );
    }
    let optional = json!({"type": "object", "properties": {
        "a": {"type": "string", "minLength": huge}, "b": items(u64::MAX, json!({"type": "null"})),
    }});
    assert_eq!(of_schema(&optional, 1, 1000).unwrap().tokens.concat(), "{}");
    let long = json!({"type": "string", "minLength": 500_000});
    assert!(of_schema(&long, 1, 9).unwrap().tokens.concat().len() >= 500_000);
}

#[test]
fn a_tool_is_called_only_where_that_is_required() {
    let tools = [
        json!({"type": "function", "function": {"name": "find", "parameters": record()}}),
        json!({"name": "stop", "input_schema": {"type": "object", "properties": {}}}),
        json!({"type": "function", "function": {"name": "bare"}}),
    ];
    let call = |choice: Value, key: u64| {
        let demand = Demand {
            tools: Some(&tools),
            tool_choice: Some(&choice),
            ..Demand::default()
        };
        Structure::generate(demand, key, 1000)
    };
    for choice in [json!("auto"), json!("none"), json!({"type": "auto"}), Value::Null] {
        assert_eq!(call(choice, 1), Ok(None));
    }
    let mut names = std::collections::BTreeSet::new();
    for key in 0..60 {
        for choice in [json!("required"), json!({"type": "any"})] {
            let structure = call(choice, key).unwrap().unwrap();
            serde_json::from_str::<serde_json::Map<String, Value>>(&structure.tokens.concat()).unwrap();
            names.extend(structure.tool);
        }
    }
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["bare", "find", "stop"]);
    let stop = call(json!({"type": "tool", "name": "stop"}), 1).unwrap().unwrap();
    assert_eq!(
        (stop.tool.as_deref(), stop.tokens.concat().as_str()),
        (Some("stop"), "{}")
    );
    let find = call(json!({"type": "function", "function": {"name": "find"}}), 1)
        .unwrap()
        .unwrap();
    assert_eq!(find.len(), find.tokens.len() + 1);
    assert!(
        call(json!({"type": "tool", "name": "other"}), 1)
            .unwrap_err()
            .contains("`other`")
    );
    for tools in [None, Some(&[][..])] {
        for (choice, says) in [
            (json!("required"), "has no `tools`"),
            (json!({"type": "any"}), "has no `tools`"),
            (json!({"type": "tool", "name": "stop"}), "not among the tools"),
        ] {
            let demand = Demand {
                tools,
                tool_choice: Some(&choice),
                ..Demand::default()
            };
            let error = Structure::generate(demand, 1, 9).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let demand = Demand {
            tools,
            tool_choice: Some(&Value::Null),
            ..Demand::default()
        };
        assert_eq!(Structure::generate(demand, 1, 9), Ok(None));
    }
}

#[test]
fn a_spoiled_answer_is_wrong_whatever_its_schema() {
    for schema in [
        record(),
        json!({"type": "object"}),
        json!({"type": "array", "items": {"type": "integer"}}),
        json!({"type": "integer"}),
        json!({"type": "string"}),
        json!({"enum": [null, "a"]}),
    ] {
        let validator = jsonschema::validator_for(&schema).unwrap();
        for nth in 0..3 {
            let mut structure = of_schema(&schema, 5, 1000).unwrap();
            structure.spoil(nth);
            let text = structure.tokens.concat();
            let is_correct = serde_json::from_str(&text).is_ok_and(|value: Value| validator.is_valid(&value));
            assert!(!is_correct, "{schema} {nth}: {text}");
        }
    }
}
