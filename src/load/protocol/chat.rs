//! OpenAI chat: `POST /v1/chat/completions`.

use serde_json::{Map, Value, json};

use super::{Ask, Content, EncodeError};

pub(super) fn body(prompt: &Content, ask: &Ask<'_>) -> Result<Map<String, Value>, EncodeError> {
    let Content::Text(text) = prompt else {
        return Err(EncodeError::IdsInChat);
    };
    Ok([
        ("model", json!(ask.model)),
        ("messages", json!([{"role": "user", "content": text}])),
        ("max_completion_tokens", json!(ask.tokens)),
        ("stream", json!(true)),
        ("temperature", json!(0.0)),
        ("ignore_eos", json!(!ask.stop_at_eos)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect())
}
