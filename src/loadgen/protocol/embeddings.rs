//! OpenAI embeddings: `POST /v1/embeddings`. An answer is one JSON object. Its vectors are counted and not
//! kept.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{Ask, Content, Decoded, EncodeError, Words, bare_prompt_value, error_words, lenient};

pub(super) fn body(prompt: &Content, ask: &Ask<'_>) -> Result<Map<String, Value>, EncodeError> {
    let mut body: Map<String, Value> = [("input", bare_prompt_value(prompt)?), ("model", json!(ask.model))]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect();
    // Unlike in a chat request, the fields of the scenario override the adapter.
    for key in ["model", "lora_path"] {
        if let Some(name) = ask.lora {
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
    model: Option<Words<'a>>,
    #[serde(default)]
    usage: Option<Counts>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Older servers send flat errors with `error` here and the text in `message`.
    #[serde(borrow, default)]
    object: Option<Words<'a>>,
}

#[derive(Deserialize)]
struct Counts {
    #[serde(default, deserialize_with = "lenient::count")]
    prompt_tokens: Option<u32>,
}

pub(super) enum Read {
    Vectors(usize),
    /// The server's error message.
    Error(String),
}

pub(super) fn read(json: &str, decoded: &mut Decoded) -> Result<Read, serde_json::Error> {
    let answer: Answer<'_> = serde_json::from_str(json)?;
    if let Some(error) = answer.error {
        return Ok(Read::Error(error_words(error.get())));
    }
    if Words::of(&answer.object) == "error" {
        return Ok(Read::Error(error_words(json)));
    }
    if let Some(tokens) = answer.usage.and_then(|usage| usage.prompt_tokens) {
        decoded.usage.get_or_insert_default().prompt = Some(tokens).filter(|tokens| *tokens > 0);
    }
    decoded.note_model(answer.model);
    Ok(Read::Vectors(answer.data.map_or(0, |data| data.len())))
}
