//! Truss: `POST /v1/models/model:predict`. It has the fields of completions in its own order, and their
//! answers.

use serde_json::{Map, Value, json};

use super::params::{EncodeError, RequestParams, prompt_value};
use crate::loadgen::dataset::Content;

pub(super) fn body(prompt: &Content, params: &RequestParams<'_>) -> Result<Map<String, Value>, EncodeError> {
    Ok([
        ("model", json!(params.model)),
        ("prompt", prompt_value(prompt)?),
        ("temperature", json!(0.0)),
        ("best_of", json!(1)),
        ("max_tokens", json!(params.tokens)),
        ("stream", json!(true)),
        ("ignore_eos", json!(!params.stop_at_eos)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect())
}
