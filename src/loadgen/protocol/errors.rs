//! Errors in a stream that come in other forms than an `error`, as gateways and older servers send them.

use serde_json::{Map, Value};

use super::error_words;

/// The server's words in an event that holds no output, where it tells of an error. It is called for such events alone, and parses the whole
/// event.
pub(super) fn in_other_form(json: &str) -> Option<String> {
    let event: Map<String, Value> = serde_json::from_str(json).ok()?;
    let has_message = event.get("message").is_some_and(Value::is_string);
    let tells =
        |(key, value): (&String, &Value)| tells_of_error(&key.to_ascii_lowercase(), value, has_message);
    event.iter().any(tells).then(|| error_words(json))
}

fn tells_of_error(key: &str, value: &Value, has_message: bool) -> bool {
    let is_status = value.as_u64().is_some_and(|status| (400..600).contains(&status));
    match key {
        "success" | "ok" => value == &Value::Bool(false),
        "type" | "object" | "event" | "state" | "status" if value.is_string() => is_word_of_failure(value),
        "status" | "status_code" | "statuscode" => is_status,
        "code" => {
            let is_well = value == 200 || value == "200" || value == "ok" || value == "success";
            is_status || is_word_of_failure(value) || has_message && !is_well && !is_nothing(value)
        }
        key => (key.starts_with("error") || key.starts_with("exception")) && !is_nothing(value),
    }
}

fn is_word_of_failure(value: &Value) -> bool {
    let word = value.as_str().unwrap_or_default().to_ascii_lowercase();
    ["error", "exception", "fail"]
        .iter()
        .any(|failure| word.contains(failure))
}

/// Whether a field stands there and says nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0",
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Whether the JSON of a field says anything.
pub(super) fn says_something(json: &str) -> bool {
    serde_json::from_str(json).is_ok_and(|value| !is_nothing(&value))
}

/// The words for an answer that the server ended for such a reason.
pub(super) fn failed_end(reason: &str) -> String {
    format!("the server ended the answer with the finish reason `{reason}`")
}
