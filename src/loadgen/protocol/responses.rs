//! OpenAI Responses: `POST /v1/responses`. Each event of a stream names its type; the last one repeats the
//! whole answer and has the token counts.

mod ending;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::decoded::{BorrowedStr, Decoded, error_text};
use super::params::{EncodeError, RequestParams};
use super::responses_body::{image, input_items};
use super::{errors, lenient};
use crate::loadgen::dataset::Content;
use crate::plan::Protocol;
use crate::results::record::request::{ChunkKind, is_failed_finish};
use crate::results::record::tool_call::{
    ToolCallPart, complete_tool_call, complete_tool_calls, push_tool_call,
};

pub(super) use self::ending::Ending;
pub(super) use super::responses_body::row_field;

pub(super) fn body(prompt: &Content, params: &RequestParams<'_>) -> Result<Map<String, Value>, EncodeError> {
    let input = match prompt {
        Content::Text(text) => json!(text.as_str()),
        Content::Messages(messages) => Value::from(input_items(messages)),
        Content::Images { text, images } => {
            let mut parts: Vec<Value> = images.iter().map(|url| image(url)).collect();
            parts.push(json!({"type": "input_text", "text": text}));
            json!([{"role": "user", "content": parts}])
        }
        Content::Ids(_) => return Err(EncodeError::Ids(Protocol::Responses)),
        Content::Audio(_) => return Err(EncodeError::Audio),
    };
    Ok([
        ("model", json!(params.model)),
        ("input", input),
        ("max_output_tokens", json!(params.tokens)),
        ("stream", json!(true)),
        ("temperature", json!(0.0)),
        ("ignore_eos", json!(!params.stop_at_eos)),
        // Servers keep answers by default, so that a later request can refer to them.
        ("store", json!(false)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect())
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<BorrowedStr<'a>>,
    /// Only some types of events have a text here.
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// `response` in an answer that is not streamed.
    #[serde(borrow, default)]
    object: Option<BorrowedStr<'a>>,
    /// Web frameworks put an error message here, without any other field.
    #[serde(borrow, default)]
    detail: Option<&'a RawValue>,
}

/// A response so far; complete in the last event.
#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow, default)]
    model: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    status: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
    #[serde(default)]
    usage: Option<Counts>,
    #[serde(borrow, default)]
    incomplete_details: Option<IncompleteDetails<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct IncompleteDetails<'a> {
    #[serde(borrow, default)]
    reason: Option<BorrowedStr<'a>>,
}

/// An item of the output: a message, reasoning, or a call of a tool.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<BorrowedStr<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    id: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    content: Option<Vec<Part<'a>>>,
    #[serde(borrow, default)]
    summary: Option<Vec<Part<'a>>>,
    #[serde(borrow, default)]
    name: Option<BorrowedStr<'a>>,
    /// The arguments of a function, and the input of a custom tool.
    #[serde(borrow, default)]
    arguments: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    input: Option<BorrowedStr<'a>>,
}

impl Item<'_> {
    /// The call that the item is, or an empty one, at this place of the output. Only functions are called by the client; the
    /// server calls its own tools, and the input of a custom tool has no schema.
    fn call(&self, index: Option<u32>) -> ToolCallPart<'_> {
        ToolCallPart {
            index,
            id: BorrowedStr::as_text(&self.id),
            name: BorrowedStr::as_text(&self.name),
            arguments: BorrowedStr::as_text(self.arguments.as_ref().map_or(&self.input, |_| &self.arguments)),
            is_whole: true,
            is_foreign: !matches!(BorrowedStr::as_text(&self.kind), "function_call" | ""),
        }
    }

    fn is_message(&self) -> bool {
        BorrowedStr::as_text(&self.kind) == "message"
    }

    /// The text of a message; empty for other items.
    fn message_text(&self) -> String {
        let parts = self.content.iter().flatten().filter(|_| self.is_message());
        parts.map(|part| BorrowedStr::as_text(&part.text)).collect()
    }

    fn is_refusal(&self) -> bool {
        let mut parts = self.content.iter().flatten();
        parts.any(|part| !BorrowedStr::as_text(&part.refusal).is_empty())
    }
}

/// A part of a message.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<BorrowedStr<'a>>,
    /// No answer, but why there is none.
    #[serde(borrow, default)]
    refusal: Option<BorrowedStr<'a>>,
}

/// The fields of an event about one item of the output.
#[derive(Default, Deserialize)]
struct ItemEvent<'a> {
    #[serde(default, deserialize_with = "lenient::token_count")]
    output_index: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    content_index: Option<u32>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    item_id: Option<BorrowedStr<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    name: Option<BorrowedStr<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    arguments: Option<BorrowedStr<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<BorrowedStr<'a>>,
}

impl<'a> ItemEvent<'a> {
    /// Reads these fields. Events with a piece of the text are not read for them.
    fn parse(json: &'a str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }
}

#[derive(Deserialize)]
struct Counts {
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    input_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    output_tokens: Option<u32>,
    #[serde(default)]
    input_tokens_details: Option<InputDetails>,
    #[serde(default)]
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    #[serde(default, deserialize_with = "lenient::token_count")]
    cached_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct OutputDetails {
    #[serde(default, deserialize_with = "lenient::token_count")]
    reasoning_tokens: Option<u32>,
}

/// Reads one event, or a whole response; returns the server's message if it reports an error.
pub(super) fn read(
    json: &str,
    at_ns: u64,
    decoded: &mut Decoded,
) -> Result<Option<String>, serde_json::Error> {
    let event: Event<'_> = serde_json::from_str(json)?;
    let kind = BorrowedStr::as_text(&event.kind);
    if let Some((kind, is_function)) = delta_kind(kind) {
        let text = event.delta.map(|delta| serde_json::from_str(delta.get()));
        let text: Option<BorrowedStr<'_>> = text.transpose()?;
        let text = BorrowedStr::as_text(&text);
        match kind {
            ChunkKind::Tool => read_call_part(text, is_function, json, at_ns, decoded),
            _ => {
                decoded.has_text_piece |= kind == ChunkKind::Answer && !text.is_empty();
                note_text(kind, text, None, at_ns, decoded);
            }
        }
        return Ok(None);
    }
    match kind {
        "response.output_item.added" => {
            // The arguments of a call usually follow in later events.
            if let Some(item) = parsed_item(event.item) {
                let mut part = item.call(ItemEvent::parse(json).output_index);
                if part.is_foreign {
                    part.arguments = "";
                }
                note_calls(&[part], None, at_ns, decoded);
            }
            Ok(None)
        }
        "response.output_item.done" | "response.function_call_arguments.done" => {
            read_call_end(event.item, json, at_ns, decoded);
            Ok(None)
        }
        "response.output_text.done" => {
            let event = ItemEvent::parse(json);
            decoded.ending.note_part(&event);
            if !decoded.has_text_piece {
                let text = BorrowedStr::as_text(&event.text);
                note_text(ChunkKind::Answer, text, None, at_ns, decoded);
            }
            Ok(None)
        }
        "response.refusal.delta" | "response.refusal.done" => {
            decoded.ending.note_refusal();
            Ok(None)
        }
        "response.created" => {
            let begun = event
                .response
                .and_then(|response| serde_json::from_str::<Response<'_>>(response.get()).ok());
            decoded.note_model(begun.and_then(|begun| begun.model));
            Ok(None)
        }
        "response.completed" | "response.incomplete" | "response.failed" => {
            decoded.is_ended = true;
            let response = event.response.map_or("{}", RawValue::get);
            let error = read_whole(response, at_ns, decoded)?;
            let is_failed = kind == "response.failed";
            Ok(error.or_else(|| is_failed.then(|| errors::failed_finish("failed"))))
        }
        "error" => Ok(Some(error_text(event.error.map_or(json, RawValue::get)))),
        kind if kind.starts_with("response.") => Ok(None),
        "" if BorrowedStr::as_text(&event.object) == "response" => read_whole(json, at_ns, decoded),
        _ => {
            let error = event.error.or(event.detail).map(|error| error_text(error.get()));
            Ok(error.or_else(|| errors::nonstandard_error(json)))
        }
    }
}

/// Returns what the `delta` of this type of event adds to, if it is output, and whether that is the call of a function.
fn delta_kind(event: &str) -> Option<(ChunkKind, bool)> {
    match event.strip_prefix("response.")?.strip_suffix(".delta")? {
        "output_text" => Some((ChunkKind::Answer, false)),
        "reasoning_text" | "reasoning_summary_text" => Some((ChunkKind::Reasoning, false)),
        "function_call_arguments" => Some((ChunkKind::Tool, true)),
        "custom_tool_call_input" | "mcp_call_arguments" | "code_interpreter_call_code" => {
            Some((ChunkKind::Tool, false))
        }
        _ => None,
    }
}

fn parsed_item(item: Option<&RawValue>) -> Option<Item<'_>> {
    serde_json::from_str(item?.get()).ok()
}

/// Records the text of one event as one chunk, if there is any.
fn note_text(kind: ChunkKind, text: &str, reported: Option<u32>, at_ns: u64, decoded: &mut Decoded) {
    if text.is_empty() {
        return;
    }
    decoded.text.push_str(text);
    decoded.push_chunk(at_ns, kind, reported, text.len());
}

/// Records the calls of one event as one chunk, if there are any.
fn note_calls(calls: &[ToolCallPart<'_>], reported: Option<u32>, at_ns: u64, decoded: &mut Decoded) {
    let bytes = calls.iter().map(ToolCallPart::bytes).sum();
    if bytes > 0 {
        keep_calls(calls, decoded);
        decoded.push_chunk(at_ns, ChunkKind::Tool, reported, bytes);
    }
}

fn keep_calls(calls: &[ToolCallPart<'_>], decoded: &mut Decoded) {
    let calls = calls.iter().filter(|part| part.bytes() > 0);
    calls.for_each(|part| push_tool_call(&mut decoded.tool_calls, part));
}

/// Reads an event with a piece of the arguments of a call.
fn read_call_part(text: &str, is_function: bool, json: &str, at_ns: u64, decoded: &mut Decoded) {
    let event = ItemEvent::parse(json);
    let part = ToolCallPart {
        index: event.output_index,
        id: BorrowedStr::as_text(&event.item_id),
        arguments: text,
        is_foreign: !is_function,
        ..ToolCallPart::default()
    };
    note_calls(&[part], None, at_ns, decoded);
}

/// Reads an event that ends a call of a function: it has the whole item, or the fields of the call itself.
fn read_call_end(item: Option<&RawValue>, json: &str, at_ns: u64, decoded: &mut Decoded) {
    let event = ItemEvent::parse(json);
    if item.is_some() {
        if let Some(item) = parsed_item(item) {
            decoded.ending.note_item(&item, event.output_index);
            note_whole_call(&item.call(event.output_index), at_ns, decoded);
        }
        return;
    }
    let whole = ToolCallPart {
        index: event.output_index,
        id: BorrowedStr::as_text(&event.item_id),
        name: BorrowedStr::as_text(&event.name),
        arguments: BorrowedStr::as_text(&event.arguments),
        is_whole: true,
        ..ToolCallPart::default()
    };
    note_whole_call(&whole, at_ns, decoded);
}

/// Records the call of a function as a whole, which counts whatever its parts were. What these did not have of it becomes a
/// chunk.
fn note_whole_call(whole: &ToolCallPart<'_>, at_ns: u64, decoded: &mut Decoded) {
    if whole.is_foreign || whole.bytes() == 0 {
        return;
    }
    let bytes = complete_tool_call(&mut decoded.tool_calls, whole);
    if bytes > 0 {
        decoded.push_chunk(at_ns, ChunkKind::Tool, None, bytes);
    }
}

/// Records the calls of the whole output, which count whatever events had before. An output without a message or a call
/// tells nothing.
fn note_whole_calls(items: &[Item<'_>], at_ns: u64, decoded: &mut Decoded) {
    let calls = items.iter().zip(0..).map(|(item, index)| item.call(Some(index)));
    let calls: Vec<ToolCallPart<'_>> = calls
        .filter(|call| !call.is_foreign && !call.name.is_empty())
        .collect();
    if calls.is_empty() && !items.iter().any(Item::is_message) {
        return;
    }
    let bytes = complete_tool_calls(&mut decoded.tool_calls, &calls);
    if bytes > 0 {
        decoded.push_chunk(at_ns, ChunkKind::Tool, None, bytes);
    }
}

/// Reads a response: its token counts, how it ended, and its output if no event had it before.
fn read_whole(json: &str, at_ns: u64, decoded: &mut Decoded) -> Result<Option<String>, serde_json::Error> {
    let response: Response<'_> = serde_json::from_str(json)?;
    let reported = response.usage.as_ref().and_then(|usage| usage.output_tokens);
    if let Some(counts) = response.usage {
        let usage = decoded.usage.get_or_insert_default();
        usage.prompt = counts.input_tokens.filter(|tokens| *tokens > 0).or(usage.prompt);
        usage.completion = counts.output_tokens.or(usage.completion);
        let details = counts.input_tokens_details;
        usage.cached = details.and_then(|details| details.cached_tokens).or(usage.cached);
        let details = counts.output_tokens_details;
        usage.reasoning = details
            .and_then(|details| details.reasoning_tokens)
            .or(usage.reasoning);
    }
    decoded.note_model(response.model);
    match response.output.map(RawValue::get) {
        Some(output) if decoded.chunks.is_empty() => {
            let items: Vec<Item<'_>> = serde_json::from_str(output)?;
            decoded.ending.note_output(&items);
            note_output(&items, reported, at_ns, decoded);
        }
        Some(output) => {
            let items: Vec<Item<'_>> = serde_json::from_str(output).unwrap_or_default();
            decoded.ending.note_output(&items);
            note_whole_calls(&items, at_ns, decoded);
        }
        None => {}
    }
    if let Some(error) = response.error.filter(|error| errors::has_content(error.get())) {
        decoded.finish = Some("error".to_owned());
        return Ok(Some(error_text(error.get())));
    }
    // A response may be called completed although its details say that it is not.
    let reason = response.incomplete_details.and_then(|details| details.reason);
    let Some(finish) = reason.or(response.status) else {
        return Ok(None);
    };
    let error = is_failed_finish(&finish.0).then(|| errors::failed_finish(&finish.0));
    decoded.finish = Some(finish.0.into_owned());
    Ok(error)
}

/// Records all items of an output as one chunk.
fn note_output(items: &[Item<'_>], reported: Option<u32>, at_ns: u64, decoded: &mut Decoded) {
    let (mut text, mut has_answer) = (String::new(), false);
    for item in items {
        let parts = item.summary.iter().chain(&item.content).flatten();
        let before = text.len();
        for part in parts {
            text.push_str(BorrowedStr::as_text(&part.text));
        }
        let is_reasoning = BorrowedStr::as_text(&item.kind) == "reasoning";
        has_answer |= text.len() > before && !is_reasoning;
    }
    let calls: Vec<ToolCallPart<'_>> = items
        .iter()
        .zip(0..)
        .map(|(item, index)| item.call(Some(index)))
        .collect();
    if text.is_empty() {
        return note_calls(&calls, reported, at_ns, decoded);
    }
    keep_calls(&calls, decoded);
    let kind = match has_answer {
        true => ChunkKind::Answer,
        false => ChunkKind::Reasoning,
    };
    note_text(kind, &text, reported, at_ns, decoded);
}

#[cfg(test)]
mod tests;
