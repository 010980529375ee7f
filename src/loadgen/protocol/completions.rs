//! OpenAI completions: `POST /v1/completions`.

use serde_json::{Map, Value, json};

use super::{Ask, Content, EncodeError, prompt_value};

pub(super) fn body(prompt: &Content, ask: &Ask<'_>) -> Result<Map<String, Value>, EncodeError> {
    Ok([
        ("model", json!(ask.model)),
        ("prompt", prompt_value(prompt)?),
        ("best_of", json!(1)),
        ("max_tokens", json!(ask.tokens)),
        ("stream", json!(true)),
        ("temperature", json!(0.0)),
        ("ignore_eos", json!(!ask.stop_at_eos)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect())
}
