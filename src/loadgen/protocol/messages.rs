//! Anthropic Messages: `POST /v1/messages`. A stream has a start and an end for the message and for each
//! block of its content; its last event is `message_stop`.
//!
//! The protocol has no field that makes a server ignore the model's end token, so answers may be shorter than
//! requested.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::decoded::{BorrowedStr, Decoded, error_text};
use super::fast_path::EventShape;
use super::messages_body::{block_list, from_chat, image};
use super::params::{EncodeError, RequestParams};
use super::{errors, lenient};
use crate::loadgen::dataset::Content;
use crate::plan::Protocol;
use crate::results::record::request::{ChunkKind, is_failed_finish};
use crate::results::record::tool_call::{ToolCallPart, push_tool_call};

pub(super) use super::messages_body::row_field;

pub(super) fn body(prompt: &Content, params: &RequestParams<'_>) -> Result<Map<String, Value>, EncodeError> {
    let (system, messages) = match prompt {
        Content::Text(text) => (None, vec![json!({"role": "user", "content": text.as_str()})]),
        Content::Messages(messages) => from_chat(messages),
        Content::Images { text, images } => {
            let mut blocks: Vec<Value> = images.iter().map(|url| image(url)).collect();
            blocks.extend(block_list(&json!(text)));
            (None, vec![json!({"role": "user", "content": blocks})])
        }
        Content::Ids(_) => return Err(EncodeError::Ids(Protocol::Messages)),
        Content::Audio(_) => return Err(EncodeError::Audio),
    };
    let fields = [
        ("model", Some(json!(params.model))),
        ("system", system),
        ("messages", Some(json!(messages))),
        ("max_tokens", Some(json!(params.tokens))),
        ("stream", Some(json!(true))),
        ("temperature", Some(json!(0.0))),
    ];
    Ok(fields
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect())
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    content_block: Option<Block<'a>>,
    /// The message that begins; an error may have a text here.
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(default)]
    usage: Option<Counts>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Web frameworks put an error message here, without any other field.
    #[serde(borrow, default)]
    detail: Option<&'a RawValue>,
}

/// What an event adds to a block, or what `message_delta` says of the whole message.
#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    text: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    thinking: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    partial_json: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<BorrowedStr<'a>>,
}

/// A block of the content. In a stream its text follows in later events.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    text: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    thinking: Option<BorrowedStr<'a>>,
    /// The name of a tool.
    #[serde(borrow, default)]
    name: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

impl Block<'_> {
    /// The call that the block is, or an empty one. A server calls the tools that it runs itself in blocks of other types.
    fn call(&self) -> ToolCallPart<'_> {
        let name = BorrowedStr::as_text(&self.name);
        // In a stream an empty object stands for the input that follows.
        let input = self.input.map_or("", RawValue::get);
        let has_members = |object: &str| object.trim_start().starts_with('"');
        ToolCallPart {
            name,
            arguments: match input.strip_prefix('{') {
                Some(object) if has_members(object) && !name.is_empty() => input,
                _ => "",
            },
            is_foreign: !matches!(BorrowedStr::as_text(&self.kind), "tool_use" | ""),
            ..ToolCallPart::default()
        }
    }
}

/// A whole message; in `message_start` without content.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    model: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    content: Option<Vec<Block<'a>>>,
    #[serde(borrow, default)]
    stop_reason: Option<BorrowedStr<'a>>,
    #[serde(default)]
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct Counts {
    /// Prompt tokens that were neither read from a cache nor written to one.
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    input_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    output_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    cache_read_input_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    cache_creation_input_tokens: Option<u32>,
}

/// Reads one event, or a whole message; returns the server's message if it reports an error.
pub(super) fn read(
    json: &str,
    at_ns: u64,
    decoded: &mut Decoded,
    shape: &mut EventShape,
) -> Result<Option<String>, serde_json::Error> {
    let event: Event<'_> = serde_json::from_str(json)?;
    if let Some(error) = event.error {
        return Ok(Some(error_text(error.get())));
    }
    match BorrowedStr::as_text(&event.kind) {
        "content_block_delta" => {
            if let Some(delta) = &event.delta {
                let arguments = BorrowedStr::as_text(&delta.partial_json);
                let part = ToolCallPart {
                    index: block_index(json, arguments),
                    arguments,
                    ..ToolCallPart::default()
                };
                let texts = [&delta.thinking, &delta.text].map(BorrowedStr::as_text);
                note_pieces(texts, &[part], None, at_ns, decoded);
                if let Some((kind, text)) = only_text(delta).filter(|_| event.usage.is_none()) {
                    shape.learn(json, kind, text);
                }
            }
        }
        "content_block_start" => {
            if let Some(block) = &event.content_block {
                let part = ToolCallPart {
                    index: block_index(json, BorrowedStr::as_text(&block.name)),
                    is_whole: true,
                    ..block.call()
                };
                let texts = [&block.thinking, &block.text].map(BorrowedStr::as_text);
                note_pieces(texts, &[part], None, at_ns, decoded);
            }
        }
        "message_start" => {
            // What it says of the output is an estimate from before the first token.
            let message = event
                .message
                .and_then(|message| serde_json::from_str::<Message<'_>>(message.get()).ok());
            if let Some(message) = message {
                decoded.note_model(message.model);
                note_usage(
                    message.usage.map(|usage| Counts {
                        output_tokens: None,
                        ..usage
                    }),
                    decoded,
                );
            }
        }
        "message_delta" => {
            note_usage(event.usage, decoded);
            return Ok(note_finish(
                event.delta.and_then(|delta| delta.stop_reason),
                decoded,
            ));
        }
        "message_stop" => decoded.is_ended = true,
        "message" => return read_whole(json, at_ns, decoded),
        "content_block_stop" | "ping" => {}
        _ => {
            let detail = event.detail.map(|detail| error_text(detail.get()));
            return Ok(detail.or_else(|| errors::nonstandard_error(json)));
        }
    }
    Ok(None)
}

/// Returns the place of the block that a piece of a call belongs to. Only events with such a piece are read for it.
fn block_index(json: &str, piece: &str) -> Option<u32> {
    #[derive(Deserialize)]
    struct Place {
        #[serde(default, deserialize_with = "lenient::token_count")]
        index: Option<u32>,
    }
    if piece.is_empty() {
        return None;
    }
    serde_json::from_str::<Place>(json).ok()?.index
}

/// Reads an answer that was not streamed.
fn read_whole(json: &str, at_ns: u64, decoded: &mut Decoded) -> Result<Option<String>, serde_json::Error> {
    let message: Message<'_> = serde_json::from_str(json)?;
    let reported = message.usage.as_ref().and_then(|usage| usage.output_tokens);
    note_usage(message.usage, decoded);
    decoded.note_model(message.model);
    let blocks = message.content.unwrap_or_default();
    let (mut thinking, mut text) = (String::new(), String::new());
    for block in &blocks {
        thinking.push_str(BorrowedStr::as_text(&block.thinking));
        text.push_str(BorrowedStr::as_text(&block.text));
    }
    let calls: Vec<ToolCallPart<'_>> = blocks
        .iter()
        .filter(|block| block.name.is_some())
        .map(|block| ToolCallPart {
            arguments: block.input.map_or("", RawValue::get),
            ..block.call()
        })
        .collect();
    note_pieces([&thinking, &text], &calls, reported, at_ns, decoded);
    Ok(note_finish(message.stop_reason, decoded))
}

/// Records reasoning, text and tool calls of one event as one chunk, if there is any.
fn note_pieces(
    [thinking, text]: [&str; 2],
    calls: &[ToolCallPart<'_>],
    reported: Option<u32>,
    at_ns: u64,
    decoded: &mut Decoded,
) {
    let called: usize = calls.iter().map(ToolCallPart::bytes).sum();
    let kind = match () {
        () if !text.is_empty() => ChunkKind::Answer,
        () if !thinking.is_empty() => ChunkKind::Reasoning,
        () if called > 0 => ChunkKind::Tool,
        () => return,
    };
    let bytes = match kind {
        ChunkKind::Tool => called,
        _ => thinking.len() + text.len(),
    };
    decoded.text.push_str(thinking);
    decoded.text.push_str(text);
    let calls = calls.iter().filter(|part| part.bytes() > 0);
    calls.for_each(|part| push_tool_call(&mut decoded.tool_calls, part));
    decoded.push_chunk(at_ns, kind, reported, bytes);
}

/// Returns the text of a delta that carries one text and nothing else, if the JSON has it without escapes.
fn only_text<'d>(delta: &'d Delta<'_>) -> Option<(ChunkKind, &'d str)> {
    let plain = |words: &'d Option<BorrowedStr<'_>>| match words {
        Some(BorrowedStr(Cow::Borrowed(text))) if !text.is_empty() => Some(*text),
        _ => None,
    };
    match (&delta.text, &delta.thinking, &delta.partial_json) {
        (text, None, None) => Some((ChunkKind::Answer, plain(text)?)),
        (None, thinking, None) => Some((ChunkKind::Reasoning, plain(thinking)?)),
        _ => None,
    }
}

/// Records token counts. All prompt tokens of one report are its `input_tokens` and those of its caches.
fn note_usage(counts: Option<Counts>, decoded: &mut Decoded) {
    let Some(counts) = counts else {
        return;
    };
    let usage = decoded.usage.get_or_insert_default();
    let caches = [counts.cache_read_input_tokens, counts.cache_creation_input_tokens];
    let prompt = counts
        .input_tokens
        .map(|input| caches.into_iter().flatten().fold(input, u32::saturating_add));
    usage.prompt = prompt.filter(|tokens| *tokens > 0).or(usage.prompt);
    usage.completion = counts.output_tokens.or(usage.completion);
    usage.cached = counts.cache_read_input_tokens.or(usage.cached);
}

/// Records the stop reason. Returns an error message if it means a failure.
fn note_finish(reason: Option<BorrowedStr<'_>>, decoded: &mut Decoded) -> Option<String> {
    let reason = reason?.0;
    let error = is_failed_finish(&reason).then(|| errors::failed_finish(&reason));
    decoded.finish = Some(reason.into_owned());
    error
}

#[cfg(test)]
mod tests;
