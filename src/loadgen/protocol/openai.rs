//! Answers of OpenAI's protocols, streamed or not. Completions and chat differ only in where a choice has its
//! text.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decoded::{BorrowedStr, CachedDetails, Decoded, error_text};
use super::fast_path::EventShape;
use super::{errors, lenient};
use crate::results::record::request::{ChunkKind, Oddity, is_failed_finish};
use crate::results::record::spilled::SpilledText;
use crate::results::record::tool_call::{self, ToolCallPart, push_tool_call};

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<Counts>,
    #[serde(borrow, default)]
    model: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Older servers send flat errors with `error` here and the text in `message`.
    #[serde(borrow, default)]
    object: Option<BorrowedStr<'a>>,
    /// Web frameworks put an error message here, without any other field.
    #[serde(borrow, default)]
    detail: Option<&'a RawValue>,
    #[serde(borrow, default)]
    sglext: Option<Extension<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    text: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    delta: Option<Message<'a>>,
    #[serde(borrow, default)]
    message: Option<Message<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<ToolCall<'a>>>,
    /// No answer, but why there is none.
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    refusal: Option<BorrowedStr<'a>>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(default, deserialize_with = "lenient::token_count")]
    index: Option<u32>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    id: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    function: Option<Function<'a>>,
}

impl ToolCall<'_> {
    /// What the event adds to the call.
    fn part(&self) -> Option<ToolCallPart<'_>> {
        let function = self.function.as_ref()?;
        Some(ToolCallPart {
            index: self.index,
            id: BorrowedStr::as_text(&self.id),
            name: BorrowedStr::as_text(&function.name),
            arguments: BorrowedStr::as_text(&function.arguments),
            ..ToolCallPart::default()
        })
    }
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    arguments: Option<BorrowedStr<'a>>,
}

#[derive(Deserialize)]
struct Counts {
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    prompt_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    completion_tokens: Option<u32>,
    /// SGLang reports it here.
    #[serde(default, deserialize_with = "lenient::token_count")]
    reasoning_tokens: Option<u32>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(default)]
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    #[serde(default, deserialize_with = "lenient::token_count")]
    reasoning_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default, deserialize_with = "lenient::token_count")]
    cached_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Extension<'a> {
    #[serde(borrow, default)]
    cached_tokens_details: Option<CachedDetails<'a>>,
}

/// Reads one event; returns the server's message if the event reports an error.
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
    if BorrowedStr::as_text(&event.object) == "error" {
        return Ok(Some(error_text(json)));
    }
    if let Some(detail) = event.detail.filter(|_| event.choices.is_none()) {
        return Ok(Some(error_text(detail.get())));
    }
    let is_bare = event.usage.is_none() && event.sglext.is_none();
    let reported = event.usage.as_ref().and_then(|usage| usage.completion_tokens);
    note_usage(event.usage, event.sglext, decoded);
    decoded.note_model(event.model);
    let Some(choice) = event.choices.and_then(|choices| choices.into_iter().next()) else {
        decoded.note_oddity(Oddity::NoChoice);
        return Ok(errors::nonstandard_error(json));
    };
    let message = choice.delta.as_ref().or(choice.message.as_ref());
    if message.is_some_and(|message| !BorrowedStr::as_text(&message.refusal).is_empty()) {
        decoded.ending.note_refusal();
    }
    if let Some((kind, bytes)) = note_output(&choice, &mut decoded.text) {
        decoded.push_chunk(at_ns, kind, reported, bytes);
        note_tools(&choice, &mut decoded.tool_calls);
    }
    if let Some(error) = choice.error.filter(|error| errors::has_content(error.get())) {
        decoded.finish = Some("error".to_owned());
        return Ok(Some(error_text(error.get())));
    }
    let Some(finish) = choice.finish_reason else {
        if is_bare && let Some((kind, text)) = only_text(&choice) {
            shape.learn(json, kind, text);
        }
        return Ok(None);
    };
    let error = is_failed_finish(&finish.0).then(|| errors::failed_finish(&finish.0));
    decoded.finish = Some(finish.0.into_owned());
    Ok(error)
}

fn note_usage(counts: Option<Counts>, extension: Option<Extension<'_>>, decoded: &mut Decoded) {
    let details = extension.and_then(|extension| extension.cached_tokens_details);
    if counts.is_none() && details.is_none() {
        return;
    }
    let usage = decoded.usage.get_or_insert_default();
    if let Some(counts) = counts {
        usage.prompt = counts.prompt_tokens.filter(|tokens| *tokens > 0).or(usage.prompt);
        usage.completion = counts.completion_tokens.or(usage.completion);
        let cached = counts
            .prompt_tokens_details
            .and_then(|details| details.cached_tokens);
        usage.cached = cached.or(usage.cached);
        let reasoning = counts
            .completion_tokens_details
            .and_then(|details| details.reasoning_tokens);
        usage.reasoning = reasoning.or(counts.reasoning_tokens).or(usage.reasoning);
    }
    if let Some(details) = details {
        let tiers = [details.device, details.host, details.storage];
        usage.cached = Some(tiers.into_iter().flatten().fold(0, u32::saturating_add));
        decoded.cached_tokens = Some(details.into());
    }
}

/// Appends the output of a choice to the text. Returns its kind and its number of bytes, if there was any.
fn note_output(choice: &Choice<'_>, text: &mut SpilledText) -> Option<(ChunkKind, usize)> {
    let answer = BorrowedStr::as_text(&choice.text);
    if !answer.is_empty() {
        text.push_str(answer);
        return Some((ChunkKind::Answer, answer.len()));
    }
    let message = choice.delta.as_ref().or(choice.message.as_ref())?;
    let reasoning = match BorrowedStr::as_text(&message.reasoning_content) {
        "" => BorrowedStr::as_text(&message.reasoning),
        reasoning => reasoning,
    };
    let answer = BorrowedStr::as_text(&message.content);
    text.push_str(reasoning);
    text.push_str(answer);
    let calls = message.tool_calls.as_deref().unwrap_or_default();
    match (reasoning.len() + answer.len(), calls) {
        (0, []) => None,
        (0, calls) => {
            let parts = calls.iter().filter_map(ToolCall::part);
            Some((ChunkKind::Tool, parts.map(|part| part.bytes()).sum()))
        }
        (bytes, _) if answer.is_empty() => Some((ChunkKind::Reasoning, bytes)),
        (bytes, _) => Some((ChunkKind::Answer, bytes)),
    }
}

fn note_tools(choice: &Choice<'_>, calls: &mut Vec<tool_call::ToolCall>) {
    let message = choice.delta.as_ref().or(choice.message.as_ref());
    let parts = message.and_then(|message| message.tool_calls.as_deref());
    let parts = parts.unwrap_or_default().iter().filter_map(ToolCall::part);
    parts.for_each(|part| push_tool_call(calls, &part));
}

/// Returns the text of a choice that carries one text and nothing else, if the JSON has it without escapes.
fn only_text<'c>(choice: &'c Choice<'_>) -> Option<(ChunkKind, &'c str)> {
    let plain = |words: &'c Option<BorrowedStr<'_>>| match words {
        Some(BorrowedStr(Cow::Borrowed(text))) if !text.is_empty() => Some(*text),
        _ => None,
    };
    let called = |message: &Option<Message<'_>>| {
        let calls = message.as_ref().and_then(|message| message.tool_calls.as_deref());
        calls.is_some_and(|calls| !calls.is_empty())
    };
    if called(&choice.delta) || called(&choice.message) {
        return None;
    }
    if let Some(text) = plain(&choice.text) {
        return Some((ChunkKind::Answer, text));
    }
    if !BorrowedStr::as_text(&choice.text).is_empty() {
        return None;
    }
    let message = choice.delta.as_ref().or(choice.message.as_ref())?;
    let reasoning = [&message.reasoning_content, &message.reasoning];
    let is_silent = reasoning
        .iter()
        .all(|words| BorrowedStr::as_text(words).is_empty());
    match plain(&message.content) {
        Some(text) if is_silent => Some((ChunkKind::Answer, text)),
        None if BorrowedStr::as_text(&message.content).is_empty() => {
            let text = plain(reasoning[0])
                .or_else(|| plain(reasoning[1]).filter(|_| BorrowedStr::as_text(reasoning[0]).is_empty()))?;
            Some((ChunkKind::Reasoning, text))
        }
        _ => None,
    }
}
