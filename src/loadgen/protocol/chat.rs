//! OpenAI chat: `POST /v1/chat/completions`.

use serde_json::{Map, Value, json};

use super::params::{EncodeError, RequestParams};
use crate::loadgen::dataset::Content;
use crate::plan::Protocol;

pub(super) fn body(prompt: &Content, params: &RequestParams<'_>) -> Result<Map<String, Value>, EncodeError> {
    let messages = match prompt {
        Content::Text(text) => json!([{"role": "user", "content": text.as_str()}]),
        Content::Messages(messages) => json!(messages),
        Content::Images { text, images } => {
            let pictures = images
                .iter()
                .map(|image| json!({"type": "image_url", "image_url": {"url": &**image}}));
            let parts: Vec<Value> = pictures.chain([json!({"type": "text", "text": text})]).collect();
            json!([{"role": "user", "content": parts}])
        }
        Content::Ids(_) => return Err(EncodeError::Ids(Protocol::Chat)),
        Content::Audio(_) => return Err(EncodeError::Audio),
    };
    Ok([
        ("model", json!(params.model)),
        ("messages", messages),
        ("max_completion_tokens", json!(params.tokens)),
        ("stream", json!(true)),
        ("temperature", json!(0.0)),
        ("ignore_eos", json!(!params.stop_at_eos)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect())
}
