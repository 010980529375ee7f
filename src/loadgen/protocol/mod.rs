//! Encodes requests and decodes answers, for each protocol. Pure: it knows no socket and no clock.
//!
//! [`encode`] writes a request body with bench_serving's keys and values. [`Decoder`] reads the lines of an
//! answer as the metric set `matrix` defines them, and also keeps what bench_serving's metrics need.

mod chat;
mod completions;
mod embeddings;
mod errors;
mod fast_path;
mod lenient;
mod openai;
mod reasoning;
mod sglang_native;
mod trt;
mod truss;

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

use self::fast_path::EventShape;
use self::reasoning::ReasoningScanner;
use crate::loadgen::dataset::{Content, Extras};
use crate::loadgen::spill::{HeldBytes, Spill};
use crate::plan::{Protocol, ProtocolSpec, UsageRequest};
use crate::results::record::chunks::Chunks;
use crate::results::record::request::{
    CachedTokens, Chunk, ChunkKind, Failure, Oddity, RequestFailureClass, Usage,
};
use crate::results::record::spilled::SpilledText;

/// A prompt that a dialect cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// Token ids in a chat message.
    #[error(
        "the chat protocol cannot carry token ids; send text, or use the protocol `completions` or \
         `sglang-native`"
    )]
    IdsInChat,
    /// A row has messages, and the dialect is not chat.
    #[error(
        "only the chat protocol can carry messages; use the protocol `chat` (in `matrix bench`, a chat \
         backend)"
    )]
    MessagesOutsideChat,
    /// A conversation has turns, and the dialect is not chat.
    #[error(
        "only the chat protocol can carry conversations of several turns; use the protocol `chat` (in \
         `matrix bench`, a chat backend)"
    )]
    TurnsOutsideChat,
    /// Pictures that the dialect has no field for.
    #[error("this protocol cannot carry images; use the protocol `chat`, `completions` or `sglang-native`")]
    Images,
    /// The dialect has no field for an adapter.
    #[error(
        "this protocol cannot name a LoRA adapter; use the protocol `chat`, `completions`, `sglang-native` \
         or `embeddings`"
    )]
    Lora,
    /// The dialect has no field for a routing key.
    #[error(
        "this protocol cannot carry a routing key; use the protocol `chat`, `completions`, `sglang-native` \
         or `embeddings`"
    )]
    RoutingKey,
}

/// The header by which a router recognises requests that belong together.
pub(crate) const ROUTING_KEY_HEADER: &str = "X-SMG-Routing-Key";

/// The parameters of a request, besides its prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestParams<'a> {
    /// The model name in requests.
    pub model: &'a str,
    /// Requested output tokens.
    pub tokens: u32,
    /// Whether the answer may end at the model's end token.
    pub stop_at_eos: bool,
    /// Fields of the scenario, added after those of the protocol; `null` removes a field.
    pub body: &'a Map<String, Value>,
    pub lora: Option<&'a str>,
    /// Further fields of the data set's row.
    pub extras: Option<&'a Extras>,
}

impl<'a> RequestParams<'a> {
    /// What a row without extras asks for.
    #[cfg(test)]
    pub(crate) const fn without_extras(
        model: &'a str,
        tokens: u32,
        stop_at_eos: bool,
        body: &'a Map<String, Value>,
    ) -> Self {
        Self {
            model,
            tokens,
            stop_at_eos,
            body,
            lora: None,
            extras: None,
        }
    }

    pub(crate) fn routing_key(&self) -> Option<&'a str> {
        self.extras.and_then(|extras| extras.routing_key.as_deref())
    }

    fn is_conversation(&self) -> bool {
        self.extras.is_some_and(|extras| extras.turns.is_some())
    }
}

pub(crate) fn path(dialect: &ProtocolSpec) -> &str {
    match (&dialect.path, dialect.protocol) {
        (Some(path), _) => path,
        (None, Protocol::SglangNative) => "/generate",
        (None, Protocol::Completions) => "/v1/completions",
        (None, Protocol::Chat) => "/v1/chat/completions",
        (None, Protocol::Trt) => "/v2/models/ensemble/generate_stream",
        (None, Protocol::Truss) => "/v1/models/model:predict",
        (None, Protocol::Embeddings) => "/v1/embeddings",
    }
}

/// Encodes the body of one request.
///
/// Fields of the scenario replace whole fields, as bench_serving's extra body does, and fields of the row
/// come after them. Fields of the dialect are merged into objects, so that they can set a temperature for
/// `/generate` without knowing the requested length.
///
/// # Errors
/// The protocol has no place for something that the row carries.
pub(crate) fn encode(
    dialect: &ProtocolSpec,
    prompt: &Content,
    params: &RequestParams<'_>,
) -> Result<Vec<u8>, EncodeError> {
    check_supported(dialect.protocol, params)?;
    let mut body = match dialect.protocol {
        Protocol::SglangNative => sglang_native::body(prompt, params)?,
        Protocol::Completions => completions::body(prompt, params)?,
        Protocol::Chat => chat::body(prompt, params)?,
        Protocol::Trt => trt::body(prompt, params)?,
        Protocol::Truss => truss::body(prompt, params)?,
        Protocol::Embeddings => embeddings::body(prompt, params)?,
    };
    const STREAM_OPTIONS: &str = "stream_options";
    let is_asked = dialect.usage == UsageRequest::StreamOptions
        && matches!(dialect.protocol, Protocol::Completions | Protocol::Chat);
    if is_asked {
        body.insert(STREAM_OPTIONS.to_owned(), json!({"include_usage": true}));
    }
    let mut is_overridden = false;
    for (key, value) in &dialect.body {
        is_overridden |= key == STREAM_OPTIONS;
        match (body.get_mut(key), value) {
            (Some(Value::Object(there)), Value::Object(more)) => {
                more.iter().for_each(|(key, value)| set_field(there, key, value));
            }
            _ => set_field(&mut body, key, value),
        }
    }
    for (key, value) in params.body {
        is_overridden |= key == STREAM_OPTIONS;
        set_field(&mut body, key, value);
    }
    // The row's own fields are those of a recorded request. A `null` there was sent as `null`.
    for (key, value) in params.extras.iter().flat_map(|extras| &extras.body) {
        is_overridden |= key == STREAM_OPTIONS;
        body.insert(key.clone(), value.clone());
    }
    put_lora(&mut body, dialect.protocol, params);
    put_images(&mut body, dialect.protocol, prompt);
    let streams = body.get("stream") == Some(&Value::Bool(true));
    if params.is_conversation() && streams {
        let options = body.entry(STREAM_OPTIONS).or_insert_with(|| json!({}));
        if let Value::Object(options) = options {
            options.entry("include_usage").or_insert(Value::Bool(true));
        }
    }
    // Servers reject stream options on an answer that does not stream.
    if is_asked && !is_overridden && !streams {
        body.shift_remove(STREAM_OPTIONS);
    }
    Ok(serde_json::to_vec(&body).expect("a JSON map has string keys"))
}

/// Returns the maximum of output tokens that a body allows, summed over its choices. This is the requested
/// number, unless added fields change it. `None` for embeddings.
pub(crate) fn output_limit(dialect: &ProtocolSpec, params: &RequestParams<'_>) -> Option<u32> {
    let nested = dialect.protocol == Protocol::SglangNative;
    let keys: &[&str] = match dialect.protocol {
        Protocol::SglangNative => &["max_new_tokens"],
        Protocol::Chat => &["max_completion_tokens", "max_tokens"],
        Protocol::Completions | Protocol::Trt | Protocol::Truss => &["max_tokens"],
        Protocol::Embeddings => return None,
    };
    let row = params.extras.map(|extras| &extras.body);
    let (mut tokens, mut choices) = (None, 1);
    for fields in [Some(&dialect.body), Some(params.body), row]
        .into_iter()
        .flatten()
    {
        let fields = match nested {
            true => fields.get("sampling_params").and_then(Value::as_object),
            false => Some(fields),
        };
        let number = |key: &&str| fields?.get(*key)?.as_u64();
        tokens = keys.iter().find_map(number).or(tokens);
        choices = number(&"n").unwrap_or(choices);
    }
    let all = tokens.unwrap_or(u64::from(params.tokens)).saturating_mul(choices);
    Some(u32::try_from(all).unwrap_or(u32::MAX))
}

/// Returns the model that a body names, if it differs from the load's model.
pub(crate) fn other_model(dialect: &ProtocolSpec, params: &RequestParams<'_>) -> Option<String> {
    let row = params.extras.map(|extras| &extras.body);
    // The last field that names a model wins.
    let named = [row, Some(params.body), Some(&dialect.body)]
        .into_iter()
        .flatten()
        .find_map(|fields| fields.get("model")?.as_str());
    let name = params.lora.or(named)?;
    (name != params.model).then(|| name.to_owned())
}

/// Rejects what a row carries and the protocol cannot.
fn check_supported(protocol: Protocol, params: &RequestParams<'_>) -> Result<(), EncodeError> {
    let is_nameless = matches!(protocol, Protocol::Trt | Protocol::Truss);
    if params.is_conversation() && protocol != Protocol::Chat {
        return Err(EncodeError::TurnsOutsideChat);
    }
    if params.lora.is_some() && is_nameless {
        return Err(EncodeError::Lora);
    }
    if params.routing_key().is_some() && is_nameless {
        return Err(EncodeError::RoutingKey);
    }
    Ok(())
}

/// Sets the adapter in the model field of OpenAI's protocols. This overrides the fields of the scenario.
fn put_lora(body: &mut Map<String, Value>, protocol: Protocol, params: &RequestParams<'_>) {
    let name = params
        .lora
        .filter(|_| matches!(protocol, Protocol::Completions | Protocol::Chat));
    if let Some(name) = name {
        for key in ["model", "lora_path"] {
            body.insert(key.to_owned(), json!(name));
        }
    }
}

/// Adds images for protocols that take them next to the prompt.
fn put_images(body: &mut Map<String, Value>, protocol: Protocol, prompt: &Content) {
    if let Content::Images { images, .. } = prompt
        && matches!(protocol, Protocol::Completions | Protocol::SglangNative)
    {
        let images: Vec<&str> = images.iter().map(|image| &**image).collect();
        body.insert("image_data".to_owned(), json!(images));
    }
}

/// Sets a field; `null` removes it.
fn set_field(fields: &mut Map<String, Value>, key: &str, value: &Value) {
    match value {
        // `remove` would move the last key into the gap.
        Value::Null => drop(fields.shift_remove(key)),
        value => drop(fields.insert(key.to_owned(), value.clone())),
    }
}

/// Returns the prompt for protocols that take text or ids; of a prompt with images only the text.
fn prompt_value(prompt: &Content) -> Result<Value, EncodeError> {
    match prompt {
        Content::Text(text) => Ok(Value::from(text.as_str())),
        Content::Images { text, .. } => Ok(Value::from(text.as_str())),
        Content::Ids(ids) => Ok(Value::from(ids.as_slice())),
        Content::Messages(_) => Err(EncodeError::MessagesOutsideChat),
    }
}

/// Returns the prompt for protocols that take only text or ids.
fn bare_prompt_value(prompt: &Content) -> Result<Value, EncodeError> {
    match prompt {
        Content::Images { .. } => Err(EncodeError::Images),
        prompt => prompt_value(prompt),
    }
}

/// The kind of a line of an answer, from [`crate::loadgen::sse`]; `[DONE]` is left out because it has no
/// content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// The text after `data:`.
    Event,
    /// The text after `data:` in an event named `error`.
    Error,
    /// A line without a field name.
    Plain,
}

/// Maximum number of model names that are kept of one answer.
const MAX_MODELS: usize = 4;

/// The facts of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The events that carried output.
    pub chunks: Chunks,
    /// The token counts that the server reported.
    pub usage: Option<Usage>,
    /// Where the cached tokens of the prompt were stored.
    pub cached_tokens: Option<CachedTokens>,
    /// What bench_serving cannot parse, each kind once.
    pub oddities: Vec<Oddity>,
    /// The server's finish reason.
    pub finish: Option<String>,
    /// The text: reasoning and answer in order of arrival, without tool calls.
    pub text: SpilledText,
    /// The text of tool calls: names and arguments in order of arrival.
    pub tool_text: String,
    /// The model names in the answer, each once; usually there is one.
    pub models: Vec<String>,
    /// The first error in the content of the answer.
    pub failure: Option<Failure>,
}

/// Decodes an answer line by line.
///
/// Events after an error event are still decoded, because bench_serving decodes them. Lines after invalid
/// data are not.
#[derive(Clone, Debug)]
pub struct Decoder {
    protocol: Protocol,
    decoded: Decoded,
    /// Number of vectors in an answer of embeddings.
    vectors: usize,
    event_shape: EventShape,
    /// Lines without a field name that are not JSON by themselves; together they may be a body printed over
    /// several lines.
    plain_lines: Vec<u8>,
    plain_at_ns: u64,
    plain_limit: usize,
    /// Whether an answer may end before its first token.
    may_be_empty: bool,
    /// The start of the last event before any output.
    first_silent_event: String,
    reasoning: ReasoningScanner,
    spilling: Option<Spilling>,
}

/// Where events and text go that exceed the memory budget.
#[derive(Clone, Debug)]
struct Spilling {
    spill: Arc<Spill>,
    events: HeldBytes,
    /// `None` if the text so far is needed.
    text: Option<HeldBytes>,
    /// How much of the text in memory was searched for reasoning.
    scanned: usize,
}

impl Decoder {
    /// Creates a decoder. A body over several lines may have up to `plain_limit` bytes.
    pub fn new(protocol: Protocol, plain_limit: usize) -> Self {
        Self {
            protocol,
            decoded: Decoded::default(),
            vectors: 0,
            event_shape: EventShape::default(),
            plain_lines: Vec::new(),
            plain_at_ns: 0,
            plain_limit,
            may_be_empty: false,
            first_silent_event: String::new(),
            reasoning: ReasoningScanner::default(),
            spilling: None,
        }
    }

    /// Moves events to `spill` when memory is full; also the text, unless it is needed before the load ends.
    #[must_use]
    pub(crate) fn spill_to(mut self, spill: Option<&Arc<Spill>>, needs_text: bool) -> Self {
        // Each event of this protocol is compared with the text so far.
        let needs_text = needs_text || self.protocol == Protocol::SglangNative;
        self.spilling = spill.map(|spill| Spilling {
            spill: Arc::clone(spill),
            events: HeldBytes::default(),
            text: (!needs_text).then(HeldBytes::default),
            scanned: 0,
        });
        self
    }

    fn spill_if_full(&mut self) {
        let Some(relief) = &mut self.spilling else {
            return;
        };
        relief
            .spill
            .spill_if_full(self.decoded.chunks.storage_bytes(), &mut relief.events);
        let text = &mut self.decoded.text;
        if let Some(held_bytes) = relief.text.as_mut().filter(|held_bytes| {
            relief
                .spill
                .is_block(text.bytes_mut().in_memory().len(), **held_bytes)
        }) {
            self.reasoning.scan(&text.in_memory()[relief.scanned..]);
            relief.scanned = text.in_memory().len();
            if relief.spill.spill_if_full(text.bytes_mut(), held_bytes) {
                relief.scanned = 0;
            }
        }
    }

    /// Accepts an answer without output if it has a finish reason: the model may end it with its first token.
    #[must_use]
    pub(crate) fn allow_empty(mut self, may_be_empty: bool) -> Self {
        self.may_be_empty = may_be_empty;
        self
    }

    /// Returns true if every complete stream of the protocol marks its end: by a finish reason, a usage
    /// report or `[DONE]`.
    pub(crate) fn reports_end(&self) -> bool {
        matches!(self.protocol, Protocol::Completions | Protocol::Chat)
    }

    /// Decodes one line that arrived at `at_ns`.
    pub fn push(&mut self, kind: LineKind, line: &[u8], at_ns: u64) {
        if self.is_garbled() {
            return;
        }
        let Ok(text) = std::str::from_utf8(line) else {
            self.set_failure(
                RequestFailureClass::Garbled,
                format!("a line is not UTF-8: {}", excerpt(line)),
            );
            return;
        };
        match kind {
            LineKind::Event => {
                if let Err(error) = self.push_event(text, at_ns) {
                    self.set_failure(
                        RequestFailureClass::Garbled,
                        format!("an event cannot be parsed: {error}: {}", excerpt(line)),
                    );
                }
            }
            LineKind::Error => self.set_failure(RequestFailureClass::ErrorEvent, event_error_text(text)),
            LineKind::Plain => self.push_plain(text, at_ns),
        }
        self.spill_if_full();
    }

    /// Decodes an event without parsing if it differs from a parsed one only in its text. Returns true if it
    /// did.
    pub(crate) fn push_fast(&mut self, event: &[u8], at_ns: u64) -> bool {
        let Some((kind, text)) = self.event_shape.match_text(event) else {
            return false;
        };
        if self.is_garbled() {
            return false;
        }
        self.decoded.text.push_str(text);
        self.decoded.push_chunk(at_ns, kind, None, text.len());
        self.spill_if_full();
        true
    }

    /// Reserves memory for about this many events with output.
    pub(crate) fn reserve(&mut self, events: usize) {
        self.decoded.chunks.reserve(events);
    }

    /// Returns the facts. `is_whole` means that the answer ended properly, so missing parts were never sent.
    pub fn finish(&mut self, is_whole: bool) -> Decoded {
        if is_whole && !self.plain_lines.is_empty() && !self.is_garbled() {
            let push_plain = std::mem::take(&mut self.plain_lines);
            let text = String::from_utf8_lossy(&push_plain);
            if self.push_event(&text, self.plain_at_ns).is_err() {
                self.set_failure(
                    RequestFailureClass::Garbled,
                    format!(
                        "the response is neither an event stream nor JSON: {}",
                        excerpt(&push_plain)
                    ),
                );
            }
        }
        let reported = self.decoded.usage.and_then(|usage| usage.completion);
        let is_empty = match self.protocol {
            Protocol::Embeddings => self.vectors == 0,
            _ => {
                let ended_at_once = self.may_be_empty && self.decoded.finish.is_some();
                self.decoded.chunks.is_empty() && reported.unwrap_or(0) == 0 && !ended_at_once
            }
        };
        if is_whole && is_empty {
            let mut message = "the response has no output".to_owned();
            if !self.first_silent_event.is_empty() {
                message.push_str(&format!("; its last event: `{}`", self.first_silent_event));
            }
            self.set_failure(RequestFailureClass::Empty, message);
        }
        let mut decoded = std::mem::take(&mut self.decoded);
        let scanned = self.spilling.as_ref().map_or(0, |relief| relief.scanned);
        self.reasoning.scan(&decoded.text.in_memory()[scanned..]);
        if let Some(end) = self.reasoning.end() {
            decoded.chunks.mark_thoughts(end);
        }
        if let Some(relief) = &mut self.spilling {
            relief
                .spill
                .spill_rest(decoded.chunks.storage_bytes(), &mut relief.events);
            if let Some(held_bytes) = &mut relief.text {
                relief.spill.spill_rest(decoded.text.bytes_mut(), held_bytes);
            }
        }
        decoded.chunks.close();
        decoded
    }

    fn push_plain(&mut self, text: &str, at_ns: u64) {
        // Old versions of llama.cpp sent errors under a field name `error:`.
        if let Some(error) = text.strip_prefix("error:") {
            self.set_failure(RequestFailureClass::ErrorEvent, error_text(error.trim()));
            return;
        }
        if self.plain_lines.is_empty() && self.push_event(text, at_ns).is_ok() {
            return;
        }
        if self.plain_lines.len() + text.len() >= self.plain_limit {
            let beginning = excerpt(&self.plain_lines);
            self.set_failure(
                RequestFailureClass::Garbled,
                format!("the response is not an event stream: {beginning}"),
            );
            return;
        }
        self.plain_lines.extend_from_slice(text.as_bytes());
        self.plain_lines.push(b'\n');
        self.plain_at_ns = at_ns;
    }

    fn push_event(&mut self, text: &str, at_ns: u64) -> Result<(), serde_json::Error> {
        // serde would also accept an array for a struct.
        if !text.starts_with('{') {
            return Err(serde::de::Error::custom("an event must be a JSON object"));
        }
        if let Err(error) = self.parse_event(text, at_ns) {
            let repaired = lenient::repair(text).ok_or(error)?;
            self.parse_event(&repaired, at_ns)?;
        }
        if self.decoded.chunks.is_empty() {
            self.first_silent_event = truncated(text, 120);
        }
        Ok(())
    }

    fn parse_event(&mut self, text: &str, at_ns: u64) -> Result<(), serde_json::Error> {
        let error = match self.protocol {
            Protocol::SglangNative => sglang_native::read(text, at_ns, &mut self.decoded)?,
            Protocol::Completions | Protocol::Chat | Protocol::Truss => {
                openai::read(text, at_ns, &mut self.decoded, &mut self.event_shape)?
            }
            Protocol::Trt => trt::read(text, at_ns, &mut self.decoded)?,
            Protocol::Embeddings => match embeddings::read(text, &mut self.decoded)? {
                embeddings::AnswerContent::Vectors(count) => {
                    self.vectors += count;
                    None
                }
                embeddings::AnswerContent::Error(message) => Some(message),
            },
        };
        if let Some(message) = error {
            self.set_failure(RequestFailureClass::ErrorEvent, message);
        }
        Ok(())
    }

    fn is_garbled(&self) -> bool {
        matches!(&self.decoded.failure, Some(failure) if failure.class == RequestFailureClass::Garbled)
    }

    /// Keeps only the first failure: later ones are its consequences.
    fn set_failure(&mut self, class: RequestFailureClass, message: String) {
        self.decoded.failure.get_or_insert(Failure { class, message });
    }
}

/// Where cached tokens were stored, as SGLang reports it under either protocol.
#[derive(Deserialize)]
struct CachedDetails<'a> {
    #[serde(default, deserialize_with = "lenient::token_count")]
    device: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    host: Option<u32>,
    #[serde(default, deserialize_with = "lenient::token_count")]
    storage: Option<u32>,
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

impl Decoded {
    pub(crate) fn note_oddity(&mut self, oddity: Oddity) {
        if !self.oddities.contains(&oddity) {
            self.oddities.push(oddity);
        }
    }

    /// Records the model that an event names, up to [`MAX_MODELS`] different names.
    fn note_model(&mut self, model: Option<BorrowedStr<'_>>) {
        if let Some(model) = model.filter(|model| !model.0.is_empty())
            && self.models.len() < MAX_MODELS
            && !self.models.iter().any(|known| *known == *model.0)
        {
            self.models.push(model.0.into_owned());
        }
    }

    fn push_chunk(&mut self, at_ns: u64, kind: ChunkKind, tokens: Option<u32>, bytes: usize) {
        self.chunks.push(Chunk {
            at_ns,
            kind,
            tokens,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        });
    }
}

/// A JSON string that borrows if it has no escape. Inside an `Option`, serde borrows only through a separate
/// type.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct BorrowedStr<'a>(#[serde(borrow)] Cow<'a, str>);

impl BorrowedStr<'_> {
    fn as_text<'w>(text: &'w Option<BorrowedStr<'_>>) -> &'w str {
        text.as_ref().map_or("", |text| &text.0)
    }
}

/// Returns the server's message in the JSON of an error, at most 4096 characters.
fn error_text(json: &str) -> String {
    let value = serde_json::from_str::<Value>(json).unwrap_or(Value::Null);
    let message = match &value {
        Value::String(text) => Some(text.as_str()),
        Value::Object(error) => error.get("message").and_then(Value::as_str),
        _ => None,
    };
    truncated(message.unwrap_or(json), 4096)
}

/// Returns the server's message in an event named `error`, whatever its data are.
fn event_error_text(data: &str) -> String {
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

/// Returns the start of some bytes for a message.
fn excerpt(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(512)];
    format!("`{}`", truncated(&String::from_utf8_lossy(start), 120))
}

fn truncated(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests;
