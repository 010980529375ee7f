//! Audio transcription: `POST /v1/audio/transcriptions`. A request is a form with a recording; an answer is a stream, or one
//! JSON object with the text.
//!
//! vLLM and SGLang stream chunks like those of a chat, with a finish reason at the end of each piece of a long recording, and
//! end with `[DONE]`. OpenAI streams events with types, and ends with `transcript.text.done`.

use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::decoded::{BorrowedStr, Decoded, error_text};
use super::fast_path::EventShape;
use super::params::{EncodeError, RequestParams};
use super::{errors, lenient};
use crate::loadgen::dataset::{AudioClip, Content};
use crate::results::record::request::{ChunkKind, is_failed_finish};

/// Forms of answers that are JSON.
const JSON_FORMATS: [&str; 3] = ["json", "verbose_json", "diarized_json"];

/// What is sent instead of a prompt without a recording, such as the first request that a server is sent.
static SILENCE: LazyLock<Arc<AudioClip>> = LazyLock::new(|| {
    const RATE: u32 = 16_000;
    Arc::new(AudioClip::from_samples("silence.wav", RATE, &[0; RATE as usize]))
});

/// The recording of a prompt.
pub(super) fn clip(prompt: &Content) -> &Arc<AudioClip> {
    match prompt {
        Content::Audio(clip) => clip,
        _ => &SILENCE,
    }
}

/// The fields of a request besides its file. A number of output tokens is sent only if one is requested: without it the
/// recording decides.
pub(super) fn body(params: &RequestParams<'_>) -> Map<String, Value> {
    let limit = (params.tokens > 0).then(|| ("max_completion_tokens", json!(params.tokens)));
    [
        ("model", json!(params.lora.unwrap_or(params.model))),
        ("response_format", json!("json")),
        ("temperature", json!(0.0)),
        ("stream", json!(true)),
    ]
    .into_iter()
    .chain(limit)
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// Rejects forms of answers that are not JSON.
pub(super) fn check_format(fields: &Map<String, Value>) -> Result<(), EncodeError> {
    match fields.get("response_format") {
        Some(format) if !JSON_FORMATS.iter().any(|known| format == known) => Err(EncodeError::ResponseFormat),
        _ => Ok(()),
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    /// The type of an event of OpenAI's streams.
    #[serde(borrow, default, rename = "type")]
    kind: Option<BorrowedStr<'a>>,
    /// The text of an event of OpenAI's streams.
    #[serde(borrow, default)]
    delta: Option<BorrowedStr<'a>>,
    /// The whole text.
    #[serde(borrow, default)]
    text: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<Counts>,
    /// Seconds of the recording in an answer of the format `verbose_json`.
    #[serde(default, deserialize_with = "lenient::seconds")]
    duration: Option<f64>,
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
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<BorrowedStr<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<BorrowedStr<'a>>,
}

/// A report of tokens, or of seconds of the recording.
#[derive(Deserialize)]
struct Counts {
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    prompt_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    completion_tokens: Option<u32>,
    /// OpenAI's name of prompt tokens here.
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    input_tokens: Option<u32>,
    /// OpenAI's name of output tokens here.
    #[serde(default, deserialize_with = "lenient::token_count")]
    output_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::seconds")]
    seconds: Option<f64>,
}

impl Counts {
    fn prompt(&self) -> Option<u32> {
        self.prompt_tokens
            .or(self.input_tokens)
            .filter(|tokens| *tokens > 0)
    }

    fn output(&self) -> Option<u32> {
        self.completion_tokens.or(self.output_tokens)
    }
}

/// Reads one event, or a whole answer; returns the server's message if it reports an error.
pub(super) fn read(
    json: &str,
    at_ns: u64,
    decoded: &mut Decoded,
    shape: &mut EventShape,
) -> Result<Option<String>, serde_json::Error> {
    let event: Event<'_> = serde_json::from_str(json)?;
    if let Some(error) = event.error.filter(|error| errors::has_content(error.get())) {
        return Ok(Some(error_text(error.get())));
    }
    if [&event.object, &event.kind]
        .into_iter()
        .any(|named| BorrowedStr::as_text(named) == "error")
    {
        return Ok(Some(error_text(json)));
    }
    let has_output = event.choices.is_some() || event.delta.is_some() || event.text.is_some();
    if let Some(detail) = event.detail.filter(|_| !has_output) {
        return Ok(Some(error_text(detail.get())));
    }
    let is_bare = event.usage.is_none();
    let reported = event.usage.as_ref().and_then(Counts::output);
    let of_usage = event.usage.as_ref().and_then(|usage| usage.seconds);
    note_seconds([event.duration, of_usage], decoded);
    note_usage(event.usage, decoded);
    decoded.note_model(event.model);
    if let Some(choices) = event.choices {
        let Some(choice) = choices.into_iter().next() else {
            return Ok(None);
        };
        return Ok(read_choice(
            json, &choice, reported, is_bare, at_ns, decoded, shape,
        ));
    }
    match (BorrowedStr::as_text(&event.kind), event.text) {
        ("transcript.text.delta", _) => push_text(BorrowedStr::as_text(&event.delta), None, at_ns, decoded),
        // The last event of a stream repeats what has arrived.
        ("" | "transcript.text.done", Some(text)) => {
            if decoded.chunks.is_empty() {
                push_text(&text.0, reported, at_ns, decoded);
            }
            decoded.is_ended = true;
        }
        // This one also repeats it, with a speaker.
        ("transcript.text.segment", _) => {}
        _ => return Ok(errors::nonstandard_error(json)),
    }
    Ok(None)
}

fn read_choice(
    json: &str,
    choice: &Choice<'_>,
    reported: Option<u32>,
    is_bare: bool,
    at_ns: u64,
    decoded: &mut Decoded,
    shape: &mut EventShape,
) -> Option<String> {
    let content = choice.delta.as_ref().and_then(|delta| delta.content.as_ref());
    let text = content.map_or("", |content| &content.0);
    push_text(text, reported, at_ns, decoded);
    let Some(finish) = &choice.finish_reason else {
        if is_bare && !text.is_empty() && content.is_some_and(BorrowedStr::is_borrowed) {
            shape.learn(json, ChunkKind::Answer, text);
        }
        return None;
    };
    let error = is_failed_finish(&finish.0).then(|| errors::failed_finish(&finish.0));
    decoded.finish = Some(finish.0.to_string());
    error
}

fn push_text(text: &str, tokens: Option<u32>, at_ns: u64, decoded: &mut Decoded) {
    if !text.is_empty() {
        decoded.text.push_str(text);
        decoded.push_chunk(at_ns, ChunkKind::Answer, tokens, text.len());
    }
}

/// Keeps the smaller of two lengths that an event reports: no more of the recording was certainly read.
fn note_seconds(reported: [Option<f64>; 2], decoded: &mut Decoded) {
    let known = reported.into_iter().flatten().reduce(f64::min);
    decoded.audio_seconds = known.or(decoded.audio_seconds);
}

fn note_usage(counts: Option<Counts>, decoded: &mut Decoded) {
    let Some(counts) = counts else {
        return;
    };
    let (prompt, output) = (counts.prompt(), counts.output());
    if prompt.is_some() || output.is_some() {
        let usage = decoded.usage.get_or_insert_default();
        usage.prompt = prompt.or(usage.prompt);
        usage.completion = output.or(usage.completion);
    }
}

#[cfg(test)]
mod tests;
