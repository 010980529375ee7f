//! OpenAI embeddings: `POST /v1/embeddings`. An answer is one JSON object. Its vectors are counted and not
//! kept.

use serde::Deserialize;
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
    #[serde(borrow, default)]
    data: Option<Vec<Embedding<'a>>>,
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
struct Embedding<'a> {
    /// A vector: a list of numbers, or their bytes as a base64 text. vLLM's `/pooling` names it `data` and may nest lists.
    #[serde(borrow, default, alias = "data")]
    embedding: Option<&'a RawValue>,
}

impl Embedding<'_> {
    fn has_vector(&self) -> bool {
        let vector = self.embedding.map_or("", RawValue::get);
        vector.starts_with(['[', '"', '{']) && vector.bytes().any(|byte| byte.is_ascii_alphanumeric())
    }
}

/// Some servers report only the total, which consists of prompt tokens.
#[derive(Deserialize)]
struct Counts {
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    prompt_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    total_tokens: Option<u32>,
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
    let reported = answer
        .usage
        .and_then(|usage| usage.prompt_tokens.or(usage.total_tokens));
    if let Some(tokens) = reported {
        decoded.usage.get_or_insert_default().prompt = Some(tokens).filter(|tokens| *tokens > 0);
    }
    decoded.note_model(answer.model);
    let embeddings = answer.data.unwrap_or_default();
    decoded.vectors += embeddings.iter().filter(|one| one.has_vector()).count();
    Ok(None)
}
