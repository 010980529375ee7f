//! Recognises errors in a stream that do not use an `error` field, as gateways and older servers send them.

use serde_json::{Map, Value};

use super::decoded::error_text;

/// Returns the server's message if the event reports an error. It parses the whole event, so it is called
/// only for events without output.
pub(super) fn nonstandard_error(json: &str) -> Option<String> {
    let event: Map<String, Value> = serde_json::from_str(json).ok()?;
    let has_message = event.get("message").is_some_and(Value::is_string);
    let tells =
        |(key, value): (&String, &Value)| is_error_field(&key.to_ascii_lowercase(), value, has_message);
    event.iter().any(tells).then(|| error_text(json))
}

fn is_error_field(key: &str, value: &Value, has_message: bool) -> bool {
    let is_status = value.as_u64().is_some_and(|status| (400..600).contains(&status));
    match key {
        "success" | "ok" => value == &Value::Bool(false),
        "type" | "object" | "event" | "state" | "status" if value.is_string() => is_failure_value(value),
        "status" | "status_code" | "statuscode" => is_status,
        "code" => {
            let is_well = value == 200 || value == "200" || value == "ok" || value == "success";
            is_status || is_failure_value(value) || has_message && !is_well && !is_empty_value(value)
        }
        key => (key.starts_with("error") || key.starts_with("exception")) && !is_empty_value(value),
    }
}

fn is_failure_value(value: &Value) -> bool {
    let word = value.as_str().unwrap_or_default().to_ascii_lowercase();
    ["error", "exception", "fail"]
        .iter()
        .any(|failure| word.contains(failure))
}

/// Returns true if the value of a field means that there is no error.
fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0",
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Returns true if the JSON of a field has a meaningful value.
pub(super) fn has_content(json: &str) -> bool {
    serde_json::from_str(json).is_ok_and(|value| !is_empty_value(&value))
}

/// Returns the error message for an answer that ended with such a finish reason.
pub(super) fn failed_finish(reason: &str) -> String {
    format!("the server ended the answer with the finish reason `{reason}`")
}
