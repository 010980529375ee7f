//! The facts of an answer, and parts of events that protocols share.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::lenient;
use super::responses::Ending;
use crate::results::record::chunks::Chunks;
use crate::results::record::final_answer::FinalAnswer;
use crate::results::record::request::{CachedTokens, Chunk, ChunkKind, Failure, Oddity, Usage};
use crate::results::record::spilled::SpilledText;
use crate::results::record::tool_call::ToolCall;

/// Maximum number of model names that are kept of one answer.
const MAX_MODELS: usize = 4;

/// The facts of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The events that carried output.
    pub chunks: Chunks,
    /// The token counts that the server reported.
    pub usage: Option<Usage>,
    /// Seconds of the recording, as the server reports them.
    pub(crate) audio_seconds: Option<f64>,
    /// Where the cached tokens of the prompt were stored.
    pub(crate) cached_tokens: Option<CachedTokens>,
    /// What bench_serving cannot parse, each kind once.
    pub(crate) oddities: Vec<Oddity>,
    /// The server's finish reason.
    pub(crate) finish: Option<String>,
    /// The text: reasoning and answer in order of arrival, without tool calls.
    pub(crate) text: SpilledText,
    /// The calls of tools, in the order in which they begin.
    pub(crate) tool_calls: Vec<ToolCall>,
    /// The text as the events that end its parts have it, until the answer ends.
    pub(super) ending: Ending,
    /// What these events say of the answer; `None` if its pieces say the same.
    pub(crate) final_answer: Option<Box<FinalAnswer>>,
    /// The model names in the answer, each once; usually there is one.
    pub(crate) models: Vec<String>,
    /// Whether a piece of the answer's text arrived, where events may repeat the whole text.
    pub(super) has_text_piece: bool,
    /// Number of vectors or scores in an answer without text.
    pub(super) vectors: usize,
    /// The first vector that is not the base64 text of 32-bit floats.
    pub(super) odd_base64: Option<usize>,
    /// The largest index of a document in a ranking.
    pub(super) last_document: Option<u64>,
    /// Prompt tokens of the results of a ranking, if the server reports them for each result only.
    pub(super) result_tokens: Option<u32>,
    /// Whether the event arrived that ends every complete stream of the protocol.
    pub(crate) is_ended: bool,
    /// The first error in the content of the answer.
    pub failure: Option<Failure>,
}

impl Decoded {
    pub(crate) fn note_oddity(&mut self, oddity: Oddity) {
        if !self.oddities.contains(&oddity) {
            self.oddities.push(oddity);
        }
    }

    /// Records the model that an event names, up to [`MAX_MODELS`] different names.
    pub(super) fn note_model(&mut self, model: Option<BorrowedStr<'_>>) {
        if let Some(model) = model.filter(|model| !model.0.is_empty())
            && self.models.len() < MAX_MODELS
            && !self.models.iter().any(|known| *known == *model.0)
        {
            self.models.push(model.0.into_owned());
        }
    }

    pub(super) fn push_chunk(&mut self, at_ns: u64, kind: ChunkKind, tokens: Option<u32>, bytes: usize) {
        self.chunks.push(Chunk {
            at_ns,
            kind,
            tokens,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        });
    }
}

/// Where cached tokens were stored, as SGLang reports it under either protocol.
#[derive(Deserialize)]
pub(super) struct CachedDetails<'a> {
    #[serde(default, deserialize_with = "lenient::token_count")]
    pub(super) device: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    pub(super) host: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    pub(super) storage: Option<u32>,
    #[serde(borrow, default)]
    storage_backend: Option<BorrowedStr<'a>>,
}

impl From<CachedDetails<'_>> for CachedTokens {
    fn from(details: CachedDetails<'_>) -> Self {
        Self {
            device: details.device,
            host: details.host,
            storage: details.storage,
            storage_backend: details.storage_backend.map(|name| name.0.into_owned()),
        }
    }
}

/// A JSON string that borrows if it has no escape. Inside an `Option`, serde borrows only through a separate
/// type.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct BorrowedStr<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl BorrowedStr<'_> {
    /// Whether it is a part of the JSON, without escapes.
    pub(super) const fn is_borrowed(&self) -> bool {
        matches!(self.0, Cow::Borrowed(_))
    }

    pub(super) fn as_text<'w>(text: &'w Option<BorrowedStr<'_>>) -> &'w str {
        text.as_ref().map_or("", |text| &text.0)
    }
}

/// Returns the server's message in the JSON of an error, at most 4096 characters.
pub(super) fn error_text(json: &str) -> String {
    let value = serde_json::from_str::<Value>(json).unwrap_or(Value::Null);
    let message = match &value {
        Value::String(text) => Some(text.as_str()),
        Value::Object(error) => error.get("message").and_then(Value::as_str),
        _ => None,
    };
    truncated(message.unwrap_or(json), 4096)
}

/// Returns the server's message in an event named `error`, whatever its data are.
pub(super) fn event_error_text(data: &str) -> String {
    #[derive(Deserialize)]
    struct Nested<'a> {
        #[serde(borrow)]
        error: &'a serde_json::value::RawValue,
    }
    match serde_json::from_str::<Nested<'_>>(data) {
        Ok(nested) => error_text(nested.error.get()),
        Err(_) => error_text(data),
    }
}

pub(super) fn truncated(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
