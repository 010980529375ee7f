//! The part of JSON Schema that is simulated. Other keywords are refused, as engines refuse what their grammars cannot express.

use serde_json::{Map, Value};

/// Keywords that answers fulfil.
const FULFILLED: [&str; 15] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "enum",
    "const",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "strict",
    "$schema",
];

/// Keywords that demand nothing.
const DESCRIPTIVE: [&str; 5] = ["title", "description", "default", "examples", "$id"];

/// Deepest nesting of objects and arrays.
const MAX_DEPTH: usize = 32;

/// The types that are simulated.
pub(super) const TYPES: [&str; 7] = [
    "object", "array", "string", "integer", "number", "boolean", "null",
];

/// Checks that a schema can be fulfilled.
///
/// # Errors
/// It has a keyword or a type that is not simulated, or contradicts itself.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    check_at(schema, MAX_DEPTH)
}

fn check_at(schema: &Value, depth: usize) -> Result<(), String> {
    let refused = |why: String| {
        Err(format!(
            "the simulated engine does not support this schema: {why}"
        ))
    };
    let Value::Object(schema) = schema else {
        return refused("a schema must be a JSON object".to_owned());
    };
    if depth == 0 {
        return refused(format!("the schema has more than {MAX_DEPTH} levels"));
    }
    for key in schema.keys() {
        if !FULFILLED.contains(&key.as_str()) && !DESCRIPTIVE.contains(&key.as_str()) {
            return refused(format!("the keyword `{key}` is not supported"));
        }
    }
    if schema.contains_key("const") || schema.contains_key("enum") {
        return match values(schema).is_empty() {
            true => refused("`enum` has no values".to_owned()),
            false => Ok(()),
        };
    }
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    if !TYPES.contains(&kind) {
        return refused(format!(
            "the type {} is not supported",
            schema.get("type").unwrap_or(&Value::Null)
        ));
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        properties
            .values()
            .try_for_each(|property| check_at(property, depth - 1))?;
    }
    for name in required(schema) {
        if schema
            .get("properties")
            .and_then(|properties| properties.get(name))
            .is_none()
        {
            return refused(format!("the required property `{name}` has no schema"));
        }
    }
    if let Some(items) = schema.get("items") {
        check_at(items, depth - 1)?;
    } else if kind == "array" && count(schema, "minItems").unwrap_or(0) > 0 {
        return refused("an array with `minItems` has no `items`".to_owned());
    }
    check_bounds(schema)
}

fn check_bounds(schema: &Map<String, Value>) -> Result<(), String> {
    let refused = |why: String| {
        Err(format!(
            "the simulated engine does not support this schema: {why}"
        ))
    };
    for (is_count, [low, high]) in [
        (true, ["minItems", "maxItems"]),
        (true, ["minLength", "maxLength"]),
        (false, ["minimum", "maximum"]),
    ] {
        for key in [low, high] {
            let wrong = schema.get(key).filter(|value| match is_count {
                true => !is_whole(value),
                false => !value.is_number(),
            });
            if let Some(value) = wrong {
                let kind = if is_count { "whole number from 0" } else { "number" };
                return refused(format!("the value of `{key}` is {value}; write a {kind}"));
            }
        }
        if let (Some(low_value), Some(high_value)) = (number(schema, low), number(schema, high))
            && low_value > high_value
        {
            return refused(format!("the value of `{low}` is above the value of `{high}`"));
        }
    }
    Ok(())
}

/// Whether a value is a count; JSON Schema allows `2.0`.
fn is_whole(value: &Value) -> bool {
    value.is_u64()
        || value
            .as_f64()
            .is_some_and(|number| number >= 0.0 && number.fract() == 0.0)
}

/// Returns about how many characters and items the smallest answer has that fulfils a schema.
pub(super) fn smallest_size(schema: &Value) -> usize {
    let Value::Object(schema) = schema else {
        return 1;
    };
    if !values(schema).is_empty() {
        return 1;
    }
    let size = match schema.get("type").and_then(Value::as_str) {
        Some("string") => count(schema, "minLength").unwrap_or(0),
        Some("array") => {
            let item = schema.get("items").map_or(0, smallest_size);
            count(schema, "minItems").unwrap_or(0).saturating_mul(item)
        }
        Some("object") => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let sizes = required(schema).filter_map(|name| Some(smallest_size(properties?.get(name)?)));
            sizes.fold(0, usize::saturating_add)
        }
        _ => 1,
    };
    size.max(1)
}

/// The values of `const` or `enum`.
pub(super) fn values(schema: &Map<String, Value>) -> Vec<&Value> {
    let only = schema.get("const").into_iter();
    only.chain(schema.get("enum").and_then(Value::as_array).into_iter().flatten())
        .collect()
}

pub(super) fn required(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

pub(super) fn number(schema: &Map<String, Value>, key: &str) -> Option<f64> {
    schema.get(key)?.as_f64()
}

pub(super) fn count(schema: &Map<String, Value>, key: &str) -> Option<usize> {
    number(schema, key).map(|count| count as usize)
}
