//! Truss: `POST /v1/models/model:predict`, with the fields of completions in an order of its own; its answers are theirs.

use serde_json::{Map, Value, json};

use super::{Ask, Content, prompt_value};

/// Source: spec/bench-serving.md 2.6.
pub(super) fn body(prompt: &Content, ask: &Ask<'_>) -> Map<String, Value> {
    [
        ("model", json!(ask.model)),
        ("prompt", prompt_value(prompt)),
        ("temperature", json!(0.0)),
        ("best_of", json!(1)),
        ("max_tokens", json!(ask.tokens)),
        ("stream", json!(true)),
        ("ignore_eos", json!(!ask.stop_at_eos)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect()
}
