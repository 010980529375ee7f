//! TensorRT-LLM behind Triton: `POST /v2/models/ensemble/generate_stream`. It always streams and never counts
//! tokens.

use serde::Deserialize;
use serde::de::Error;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::decoded::{BorrowedStr, Decoded, error_text};
use super::params::{EncodeError, RequestParams, prompt_value};
use crate::loadgen::dataset::Content;
use crate::results::record::request::ChunkKind;

/// An id that no token has, so that no answer ends before its length.
const UNUSED_TOKEN_ID: u32 = 1_048_576;

pub(super) fn body(prompt: &Content, params: &RequestParams<'_>) -> Result<Map<String, Value>, EncodeError> {
    let mut body: Map<String, Value> = [
        ("accumulate_tokens", json!(true)),
        ("text_input", prompt_value(prompt)?),
        ("temperature", json!(0.000_001)),
        ("top_p", json!(1.0)),
        ("max_tokens", json!(params.tokens)),
        ("stream", json!(true)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect();
    if !params.stop_at_eos {
        body.insert("min_length".to_owned(), json!(params.tokens));
        body.insert("end_id".to_owned(), json!(UNUSED_TOKEN_ID));
    }
    Ok(body)
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    text_output: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Reads one event; returns the server's message if the event reports an error. An event without text is
/// output too: its token may end inside a character.
pub(super) fn read(
    json: &str,
    at_ns: u64,
    decoded: &mut Decoded,
) -> Result<Option<String>, serde_json::Error> {
    let event: Event<'_> = serde_json::from_str(json)?;
    if let Some(error) = event.error {
        return Ok(Some(error_text(error.get())));
    }
    let Some(text) = event.text_output else {
        return Err(serde_json::Error::custom("an event has no `text_output`"));
    };
    decoded.push_chunk(at_ns, ChunkKind::Answer, None, text.0.len());
    decoded.text.push_str(&text.0);
    Ok(None)
}
