//! OpenAI completions: `POST /v1/completions`.

use serde_json::{Map, Value, json};

use super::params::{EncodeError, RequestParams, prompt_value};
use crate::loadgen::dataset::Content;

pub(super) fn body(prompt: &Content, params: &RequestParams<'_>) -> Result<Map<String, Value>, EncodeError> {
    Ok([
        ("model", json!(params.model)),
        ("prompt", prompt_value(prompt)?),
        ("best_of", json!(1)),
        ("max_tokens", json!(params.tokens)),
        ("stream", json!(true)),
        ("temperature", json!(0.0)),
        ("ignore_eos", json!(!params.stop_at_eos)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect())
}
