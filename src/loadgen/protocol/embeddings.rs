//! OpenAI embeddings: `POST /v1/embeddings`. An answer is one JSON object. Its vectors are counted and not
//! kept.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::decoded::{BorrowedStr, Decoded, error_text};
use super::lenient;
use super::params::{EncodeError, RequestParams, prompt_value};
use crate::loadgen::dataset::Content;

pub(super) fn body(prompt: &Content, params: &RequestParams<'_>) -> Result<Map<String, Value>, EncodeError> {
    let mut body: Map<String, Value> = [("input", prompt_value(prompt)?), ("model", json!(params.model))]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect();
    // Unlike in a chat request, the fields of the scenario override the adapter.
    for key in ["model", "lora_path"] {
        if let Some(name) = params.lora {
            body.insert(key.to_owned(), json!(name));
        }
    }
    Ok(body)
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(default)]
    data: Option<Vec<IgnoredAny>>,
    #[serde(borrow, default)]
    model: Option<BorrowedStr<'a>>,
    #[serde(default)]
    usage: Option<Counts>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Older servers send flat errors with `error` here and the text in `message`.
    #[serde(borrow, default)]
    object: Option<BorrowedStr<'a>>,
}

#[derive(Deserialize)]
struct Counts {
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    prompt_tokens: Option<u32>,
}

/// Reads an answer; returns the server's message if it reports an error.
pub(super) fn read(json: &str, decoded: &mut Decoded) -> Result<Option<String>, serde_json::Error> {
    let answer: Answer<'_> = serde_json::from_str(json)?;
    if let Some(error) = answer.error {
        return Ok(Some(error_text(error.get())));
    }
    if BorrowedStr::as_text(&answer.object) == "error" {
        return Ok(Some(error_text(json)));
    }
    if let Some(tokens) = answer.usage.and_then(|usage| usage.prompt_tokens) {
        decoded.usage.get_or_insert_default().prompt = Some(tokens).filter(|tokens| *tokens > 0);
    }
    decoded.note_model(answer.model);
    decoded.vectors += answer.data.map_or(0, |data| data.len());
    Ok(None)
}
