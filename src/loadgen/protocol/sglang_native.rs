//! SGLang's own protocol: `POST /generate`; each event repeats the whole text so far.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::decoded::{BorrowedStr, CachedDetails, Decoded, error_text};
use super::params::{EncodeError, RequestParams, prompt_value};
use super::{errors, lenient};
use crate::loadgen::dataset::Content;
use crate::results::record::request::{ChunkKind, Usage, is_failed_finish};

pub(super) fn body(prompt: &Content, params: &RequestParams<'_>) -> Result<Map<String, Value>, EncodeError> {
    let key = match prompt {
        Content::Ids(_) => "input_ids",
        _ => "text",
    };
    let mut body = Map::new();
    body.insert(key.to_owned(), prompt_value(prompt)?);
    for (key, value) in [
        (
            "sampling_params",
            json!({"temperature": 0.0, "max_new_tokens": params.tokens, "ignore_eos": !params.stop_at_eos}),
        ),
        ("stream", json!(true)),
        ("lora_path", json!(params.lora)),
        ("return_logprob", json!(false)),
        ("return_routed_experts", json!(false)),
        ("logprob_start_len", json!(-1)),
    ] {
        body.insert(key.to_owned(), value);
    }
    Ok(body)
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    text: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    meta_info: Option<Meta<'a>>,
    /// From servers without a tokenizer: the tokens so far, or those of this event.
    #[serde(borrow, default)]
    output_ids: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Web frameworks put an error message here, without any other field.
    #[serde(borrow, default)]
    detail: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Meta<'a> {
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    prompt_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    completion_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    reasoning_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    cached_tokens: Option<u32>,
    #[serde(borrow, default)]
    cached_tokens_details: Option<CachedDetails<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<&'a RawValue>,
}

/// Reads one event; returns the server's message if the event reports an error.
pub(super) fn read(
    json: &str,
    at_ns: u64,
    decoded: &mut Decoded,
) -> Result<Option<String>, serde_json::Error> {
    let event: Event<'_> = serde_json::from_str(json)?;
    if let Some(error) = event.error {
        return Ok(Some(error_text(error.get())));
    }
    let is_blank = event.text.is_none() && event.meta_info.is_none() && event.output_ids.is_none();
    if let Some(detail) = event.detail.filter(|_| is_blank) {
        return Ok(Some(error_text(detail.get())));
    }
    if let Some(error) = is_blank.then(|| errors::nonstandard_error(json)).flatten() {
        return Ok(Some(error));
    }
    let meta = event.meta_info.unwrap_or_default();
    let before = decoded.usage.unwrap_or_default();
    if meta.prompt_tokens.is_some() || meta.completion_tokens.is_some() || meta.cached_tokens.is_some() {
        decoded.usage = Some(Usage {
            prompt: meta.prompt_tokens.filter(|tokens| *tokens > 0).or(before.prompt),
            completion: meta.completion_tokens.or(before.completion),
            cached: meta.cached_tokens.or(before.cached),
            reasoning: meta.reasoning_tokens.or(before.reasoning),
            is_ours: false,
        });
    }
    if let Some(details) = meta.cached_tokens_details {
        decoded.cached_tokens = Some(details.into());
    }
    let text = BorrowedStr::as_text(&event.text);
    // An event that repeats known text, such as the one with the finish reason, carries no output. An event
    // whose tokens end inside a character adds tokens but no text.
    let has_more_tokens = meta.completion_tokens > before.completion;
    let has_ids = event.output_ids.is_some_and(|ids| ids.get().len() > "[]".len());
    if text.is_empty() && has_ids && has_more_tokens {
        decoded.push_chunk(at_ns, ChunkKind::Answer, meta.completion_tokens, 0);
    } else if has_more_tokens && is_delta(text, decoded.text.in_memory()) {
        decoded.push_chunk(at_ns, ChunkKind::Answer, meta.completion_tokens, text.len());
        decoded.text.push_str(text);
    } else {
        let added = text.len().saturating_sub(decoded.text.len());
        if !text.is_empty() && (added > 0 || has_more_tokens) {
            decoded.push_chunk(at_ns, ChunkKind::Answer, meta.completion_tokens, added);
            decoded.text.set(text);
        }
    }
    Ok(meta
        .finish_reason
        .and_then(|reason| note_finish(reason.get(), decoded)))
}

/// Returns true if an event with more tokens carries only a new piece of the text, as some servers stream it,
/// and not the whole text. The end of a whole text may change while its last character is incomplete.
fn is_delta(text: &str, before: &str) -> bool {
    let stable = before.trim_end_matches('\u{fffd}');
    if text.is_empty() || stable.is_empty() || text.starts_with(stable) {
        return false;
    }
    let common = text
        .bytes()
        .zip(stable.bytes())
        .take_while(|(one, other)| one == other);
    text.len() <= before.len() || 2 * common.count() < stable.len()
}

/// Records the finish reason. Returns an error message if the reason is a failure, such as an abort. Old
/// versions send a word, newer ones an object.
fn note_finish(reason: &str, decoded: &mut Decoded) -> Option<String> {
    let reason: Value = serde_json::from_str(reason).unwrap_or_default();
    let kind = match &reason {
        Value::String(kind) => kind.as_str(),
        Value::Object(reason) => reason.get("type").and_then(Value::as_str)?,
        _ => return None,
    };
    decoded.finish = Some(kind.to_owned());
    is_failed_finish(kind).then(|| {
        let message = reason.get("message").and_then(Value::as_str);
        message.map_or_else(|| errors::failed_finish(kind), str::to_owned)
    })
}
