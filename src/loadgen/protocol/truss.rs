//! Truss: `POST /v1/models/model:predict`. It has the fields of completions in its own order, and their
//! answers.

use serde_json::{Map, Value, json};

use super::{Ask, Content, EncodeError, bare_prompt_value};

pub(super) fn body(prompt: &Content, ask: &Ask<'_>) -> Result<Map<String, Value>, EncodeError> {
    Ok([
        ("model", json!(ask.model)),
        ("prompt", bare_prompt_value(prompt)?),
        ("temperature", json!(0.0)),
        ("best_of", json!(1)),
        ("max_tokens", json!(ask.tokens)),
        ("stream", json!(true)),
        ("ignore_eos", json!(!ask.stop_at_eos)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect())
}
