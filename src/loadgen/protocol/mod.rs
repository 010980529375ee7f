//! Requests to bytes, lines to facts, for each dialect. Pure.
//!
//! [`encode`] writes a request body with bench_serving's keys and values; [`Decoder`] reads the lines of an answer as the
//! definition set `matrix` wants them, and keeps what the compat figures need. It knows no socket and reads no clock.

mod chat;
mod completions;
mod embeddings;
mod errors;
mod fast_path;
mod lenient;
mod openai;
mod sglang_native;
mod thoughts;
mod trt;
mod truss;

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

use self::fast_path::Known;
use self::thoughts::Thoughts;
use crate::loadgen::dataset::{Content, Extras};
use crate::loadgen::spill::{Held, Spill};
use crate::plan::{Dialect, Protocol, Usage as UsageRequest};
use crate::results::record::chunks::Chunks;
use crate::results::record::outsourced::Text;
use crate::results::record::request::{CachedTokens, Chunk, ChunkKind, Class, Failure, Oddity, Usage};

/// A prompt that a dialect cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// Token ids in a chat message.
    #[error(
        "the chat protocol carries no token ids; send text, or use the protocol `completions` or `sglang-native`"
    )]
    IdsInChat,
    /// Chat messages where text or token ids go.
    #[error(
        "only the chat protocol carries messages; use the protocol `chat` (in `matrix bench`, a chat backend)"
    )]
    MessagesOutsideChat,
    /// Several turns outside a chat.
    #[error(
        "only the chat protocol carries conversations of several turns; use the protocol `chat` (in `matrix bench`, a chat backend)"
    )]
    TurnsOutsideChat,
    /// Pictures that the dialect has no field for.
    #[error("this protocol carries no pictures; use the protocol `chat`, `completions` or `sglang-native`")]
    Pictures,
    /// A LoRA adapter that the dialect has no field for.
    #[error(
        "this protocol names no LoRA adapter; use the protocol `chat`, `completions`, `sglang-native` or `embeddings`"
    )]
    Lora,
    /// A routing key that the dialect sends to no router.
    #[error(
        "this protocol has no routing key; use the protocol `chat`, `completions`, `sglang-native` or `embeddings`"
    )]
    RoutingKey,
}

/// The header that tells a router which requests belong together.
pub(crate) const ROUTING_KEY: &str = "X-SMG-Routing-Key";

/// What a request asks for, besides its prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    /// The model's name in requests.
    pub model: &'a str,
    /// Output tokens asked for.
    pub tokens: u32,
    /// Whether the answer may end where the model ends it.
    pub stop_at_eos: bool,
    /// Fields of the scenario, added after those of the dialect; `null` removes one.
    pub body: &'a Map<String, Value>,
    pub lora: Option<&'a str>,
    /// What the row carries beside its prompt.
    pub extras: Option<&'a Extras>,
}

impl<'a> Ask<'a> {
    /// What a row without extras asks for.
    #[cfg(test)]
    pub(crate) const fn plain(
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

    /// The value of the header [`ROUTING_KEY`].
    pub(crate) fn routing_key(&self) -> Option<&'a str> {
        self.extras.and_then(|extras| extras.routing_key.as_deref())
    }

    fn is_talk(&self) -> bool {
        self.extras.is_some_and(|extras| extras.turns.is_some())
    }
}

/// The path that a dialect's requests go to.
pub(crate) fn path(dialect: &Dialect) -> &str {
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

/// The body of one request.
///
/// What the scenario adds replaces whole fields, as bench_serving's extra body does, and what the row adds comes after it. What
/// the dialect adds goes into the objects that stand there, so that it can set a temperature for `/generate` without knowing the
/// length that is asked for.
///
/// # Errors
/// The dialect has no place for something that the row carries.
pub(crate) fn encode(dialect: &Dialect, prompt: &Content, ask: &Ask<'_>) -> Result<Vec<u8>, EncodeError> {
    refuse(dialect.protocol, ask)?;
    let mut body = match dialect.protocol {
        Protocol::SglangNative => sglang_native::body(prompt, ask)?,
        Protocol::Completions => completions::body(prompt, ask)?,
        Protocol::Chat => chat::body(prompt, ask)?,
        Protocol::Trt => trt::body(prompt, ask)?,
        Protocol::Truss => truss::body(prompt, ask)?,
        Protocol::Embeddings => embeddings::body(prompt, ask)?,
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
                more.iter().for_each(|(key, value)| put(there, key, value));
            }
            _ => put(&mut body, key, value),
        }
    }
    for (key, value) in ask.body {
        is_overridden |= key == STREAM_OPTIONS;
        put(&mut body, key, value);
    }
    // The row's own fields are a recorded request's; a `null` there was sent as one.
    for (key, value) in ask.extras.iter().flat_map(|extras| &extras.body) {
        is_overridden |= key == STREAM_OPTIONS;
        body.insert(key.clone(), value.clone());
    }
    put_lora(&mut body, dialect.protocol, ask);
    put_images(&mut body, dialect.protocol, prompt);
    let streams = body.get("stream") == Some(&Value::Bool(true));
    if ask.is_talk() && streams {
        let options = body.entry(STREAM_OPTIONS).or_insert_with(|| json!({}));
        if let Value::Object(options) = options {
            options.entry("include_usage").or_insert(Value::Bool(true));
        }
    }
    // Servers refuse stream options on an answer that does not stream.
    if is_asked && !is_overridden && !streams {
        body.shift_remove(STREAM_OPTIONS);
    }
    Ok(serde_json::to_vec(&body).expect("a JSON map has string keys"))
}

/// The most output tokens that a body allows, choices of one request together: those that the row asks for, unless fields that are
/// added say otherwise.
pub(crate) fn limit(dialect: &Dialect, ask: &Ask<'_>) -> Option<u32> {
    let nested = dialect.protocol == Protocol::SglangNative;
    let keys: &[&str] = match dialect.protocol {
        Protocol::SglangNative => &["max_new_tokens"],
        Protocol::Chat => &["max_completion_tokens", "max_tokens"],
        Protocol::Completions | Protocol::Trt | Protocol::Truss => &["max_tokens"],
        Protocol::Embeddings => return None,
    };
    let row = ask.extras.map(|extras| &extras.body);
    let (mut tokens, mut choices) = (None, 1);
    for fields in [Some(&dialect.body), Some(ask.body), row].into_iter().flatten() {
        let fields = match nested {
            true => fields.get("sampling_params").and_then(Value::as_object),
            false => Some(fields),
        };
        let number = |key: &&str| fields?.get(*key)?.as_u64();
        tokens = keys.iter().find_map(number).or(tokens);
        choices = number(&"n").unwrap_or(choices);
    }
    let all = tokens.unwrap_or(u64::from(ask.tokens)).saturating_mul(choices);
    Some(u32::try_from(all).unwrap_or(u32::MAX))
}

/// The model that a body names, where it is another than the load's.
pub(crate) fn other_model(dialect: &Dialect, ask: &Ask<'_>) -> Option<String> {
    let row = ask.extras.map(|extras| &extras.body);
    // What is named last wins.
    let named = [row, Some(ask.body), Some(&dialect.body)]
        .into_iter()
        .flatten()
        .find_map(|fields| fields.get("model")?.as_str());
    let name = ask.lora.or(named)?;
    (name != ask.model).then(|| name.to_owned())
}

/// What a row carries and the protocol cannot.
fn refuse(protocol: Protocol, ask: &Ask<'_>) -> Result<(), EncodeError> {
    let is_nameless = matches!(protocol, Protocol::Trt | Protocol::Truss);
    if ask.is_talk() && protocol != Protocol::Chat {
        return Err(EncodeError::TurnsOutsideChat);
    }
    if ask.lora.is_some() && is_nameless {
        return Err(EncodeError::Lora);
    }
    if ask.routing_key().is_some() && is_nameless {
        return Err(EncodeError::RoutingKey);
    }
    Ok(())
}

/// Names the adapter where OpenAI's protocols have the model, over what the scenario adds.
fn put_lora(body: &mut Map<String, Value>, protocol: Protocol, ask: &Ask<'_>) {
    let name = ask
        .lora
        .filter(|_| matches!(protocol, Protocol::Completions | Protocol::Chat));
    if let Some(name) = name {
        for key in ["model", "lora_path"] {
            body.insert(key.to_owned(), json!(name));
        }
    }
}

/// The pictures of protocols that take them beside the prompt.
fn put_images(body: &mut Map<String, Value>, protocol: Protocol, prompt: &Content) {
    if let Content::Pictures { images, .. } = prompt
        && matches!(protocol, Protocol::Completions | Protocol::SglangNative)
    {
        let images: Vec<&str> = images.iter().map(|image| &**image).collect();
        body.insert("image_data".to_owned(), json!(images));
    }
}

/// Sets a field; `null` removes it.
fn put(fields: &mut Map<String, Value>, key: &str, value: &Value) {
    match value {
        // `remove` would move the last key into the gap.
        Value::Null => drop(fields.shift_remove(key)),
        value => drop(fields.insert(key.to_owned(), value.clone())),
    }
}

/// The prompt of protocols that take text or ids; with pictures, its text.
fn prompt_value(prompt: &Content) -> Result<Value, EncodeError> {
    match prompt {
        Content::Text(text) => Ok(Value::from(text.as_str())),
        Content::Pictures { text, .. } => Ok(Value::from(text.as_str())),
        Content::Ids(ids) => Ok(Value::from(ids.as_slice())),
        Content::Messages(_) => Err(EncodeError::MessagesOutsideChat),
    }
}

/// The prompt of protocols that take nothing but text or ids.
fn bare_prompt_value(prompt: &Content) -> Result<Value, EncodeError> {
    match prompt {
        Content::Pictures { .. } => Err(EncodeError::Pictures),
        prompt => prompt_value(prompt),
    }
}

/// A line of an answer, as [`crate::loadgen::sse`] tells them apart; `[DONE]` says nothing and is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// What followed `data:`.
    Event,
    /// What followed `data:` in an event that is named `error`.
    Error,
    /// A line without a field name.
    Plain,
}

/// So many names of models are kept of one answer.
const MODELS: usize = 4;

/// What an answer said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The events that carried output.
    pub chunks: Chunks,
    /// What the server reported of its token counts.
    pub usage: Option<Usage>,
    /// Where the cached tokens of the prompt lay.
    pub cached: Option<CachedTokens>,
    /// What bench_serving cannot read, each kind once.
    pub oddities: Vec<Oddity>,
    /// Why the server says the answer ended.
    pub finish: Option<String>,
    /// The text: reasoning and answer in order of arrival, tool calls left out.
    pub text: Text,
    /// What tool calls say: names and arguments in order of arrival.
    pub tool_text: String,
    /// The models that the server says it is, each once: usually one.
    pub models: Vec<String>,
    /// What was wrong with the content of the answer.
    pub failure: Option<Failure>,
}

/// Reads an answer line by line.
///
/// Events after an error event are still read, since bench_serving reads them; nothing is read after garbage.
#[derive(Clone, Debug)]
pub struct Decoder {
    protocol: Protocol,
    decoded: Decoded,
    /// How many vectors an answer of embeddings held.
    vectors: usize,
    known: Known,
    /// Lines without a field name that are no JSON by themselves: perhaps a body printed over several lines.
    plain: Vec<u8>,
    plain_at_ns: u64,
    plain_limit: usize,
    /// Whether an answer may end before its first token.
    may_be_empty: bool,
    /// The beginning of the last event before any output.
    silent: String,
    thoughts: Thoughts,
    relief: Option<Relief>,
}

/// Where events and text go that are more than memory is to hold.
#[derive(Clone, Debug)]
struct Relief {
    spill: Arc<Spill>,
    events: Held,
    /// Absent where the text so far is needed.
    text: Option<Held>,
    /// How much of the text in memory was looked at for reasoning.
    looked: usize,
}

impl Decoder {
    /// A decoder before the first line. A body over several lines may have up to `plain_limit` bytes.
    pub fn new(protocol: Protocol, plain_limit: usize) -> Self {
        Self {
            protocol,
            decoded: Decoded::default(),
            vectors: 0,
            known: Known::default(),
            plain: Vec::new(),
            plain_at_ns: 0,
            plain_limit,
            may_be_empty: false,
            silent: String::new(),
            thoughts: Thoughts::default(),
            relief: None,
        }
    }

    /// Puts events into `spill` once memory is full, and the text too unless it is needed before the load is over.
    #[must_use]
    pub(crate) fn spill_to(mut self, spill: Option<&Arc<Spill>>, needs_text: bool) -> Self {
        // Each event of this protocol is compared with the text so far.
        let needs_text = needs_text || self.protocol == Protocol::SglangNative;
        self.relief = spill.map(|spill| Relief {
            spill: Arc::clone(spill),
            events: Held::default(),
            text: (!needs_text).then(Held::default),
            looked: 0,
        });
        self
    }

    fn relieve(&mut self) {
        let Some(relief) = &mut self.relief else {
            return;
        };
        relief
            .spill
            .relieve(self.decoded.chunks.packed(), &mut relief.events);
        let text = &mut self.decoded.text;
        if let Some(held) = relief
            .text
            .as_mut()
            .filter(|held| relief.spill.is_block(text.bytes().here().len(), **held))
        {
            self.thoughts.look(&text.here()[relief.looked..]);
            relief.looked = text.here().len();
            if relief.spill.relieve(text.bytes(), held) {
                relief.looked = 0;
            }
        }
    }

    /// An answer that says why it ended may hold nothing: the model may end it with its first token.
    #[must_use]
    pub(crate) fn allow_empty(mut self, may_be_empty: bool) -> Self {
        self.may_be_empty = may_be_empty;
        self
    }

    /// Whether every whole answer that streams says so: by a reason, a report of its counts, or `[DONE]`.
    pub(crate) fn tells_ends(&self) -> bool {
        matches!(self.protocol, Protocol::Completions | Protocol::Chat)
    }

    /// Reads one line that arrived at `at_ns`.
    pub fn push(&mut self, kind: LineKind, line: &[u8], at_ns: u64) {
        if self.is_garbled() {
            return;
        }
        let Ok(text) = std::str::from_utf8(line) else {
            self.fail(Class::Garbled, format!("a line is not UTF-8: {}", excerpt(line)));
            return;
        };
        match kind {
            LineKind::Event => {
                if let Err(error) = self.event(text, at_ns) {
                    self.fail(
                        Class::Garbled,
                        format!("an event is not readable: {error}: {}", excerpt(line)),
                    );
                }
            }
            LineKind::Error => self.fail(Class::ErrorEvent, event_error(text)),
            LineKind::Plain => self.plain(text, at_ns),
        }
        self.relieve();
    }

    /// Reads an event without parsing it, if it differs from one that was parsed in nothing but its text; whether it did.
    pub(crate) fn push_known(&mut self, event: &[u8], at_ns: u64) -> bool {
        let Some((kind, text)) = self.known.text_of(event) else {
            return false;
        };
        if self.is_garbled() {
            return false;
        }
        self.decoded.text.push_str(text);
        self.decoded.chunk(at_ns, kind, None, text.len());
        self.relieve();
        true
    }

    /// Makes room for about so many events with output.
    pub(crate) fn expect(&mut self, events: usize) {
        self.decoded.chunks.reserve(events);
    }

    /// Hands out the facts. `is_whole` says that the answer ended well, so that what it lacks was never sent.
    pub fn finish(&mut self, is_whole: bool) -> Decoded {
        if is_whole && !self.plain.is_empty() && !self.is_garbled() {
            let plain = std::mem::take(&mut self.plain);
            let text = String::from_utf8_lossy(&plain);
            if self.event(&text, self.plain_at_ns).is_err() {
                self.fail(
                    Class::Garbled,
                    format!(
                        "the answer is neither a stream of events nor JSON: {}",
                        excerpt(&plain)
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
            let mut message = "the answer held no output".to_owned();
            if !self.silent.is_empty() {
                message.push_str(&format!("; its last event: `{}`", self.silent));
            }
            self.fail(Class::Empty, message);
        }
        let mut decoded = std::mem::take(&mut self.decoded);
        let looked = self.relief.as_ref().map_or(0, |relief| relief.looked);
        self.thoughts.look(&decoded.text.here()[looked..]);
        if let Some(end) = self.thoughts.end() {
            decoded.chunks.mark_thoughts(end);
        }
        if let Some(relief) = &mut self.relief {
            relief.spill.seal(decoded.chunks.packed(), &mut relief.events);
            if let Some(held) = &mut relief.text {
                relief.spill.seal(decoded.text.bytes(), held);
            }
        }
        decoded.chunks.close();
        decoded
    }

    fn plain(&mut self, text: &str, at_ns: u64) {
        // llama.cpp of old sent errors under a field name of its own.
        if let Some(error) = text.strip_prefix("error:") {
            self.fail(Class::ErrorEvent, error_words(error.trim()));
            return;
        }
        if self.plain.is_empty() && self.event(text, at_ns).is_ok() {
            return;
        }
        if self.plain.len() + text.len() >= self.plain_limit {
            let beginning = excerpt(&self.plain);
            self.fail(
                Class::Garbled,
                format!("the answer is not a stream of events: {beginning}"),
            );
            return;
        }
        self.plain.extend_from_slice(text.as_bytes());
        self.plain.push(b'\n');
        self.plain_at_ns = at_ns;
    }

    fn event(&mut self, text: &str, at_ns: u64) -> Result<(), serde_json::Error> {
        // serde would also take an array for a struct, field by field.
        if !text.starts_with('{') {
            return Err(serde::de::Error::custom("an event must be a JSON object"));
        }
        if let Err(error) = self.read(text, at_ns) {
            let repaired = lenient::repaired(text).ok_or(error)?;
            self.read(&repaired, at_ns)?;
        }
        if self.decoded.chunks.is_empty() {
            self.silent = shorten(text, 120);
        }
        Ok(())
    }

    fn read(&mut self, text: &str, at_ns: u64) -> Result<(), serde_json::Error> {
        let error = match self.protocol {
            Protocol::SglangNative => sglang_native::read(text, at_ns, &mut self.decoded)?,
            Protocol::Completions | Protocol::Chat | Protocol::Truss => {
                openai::read(text, at_ns, &mut self.decoded, &mut self.known)?
            }
            Protocol::Trt => trt::read(text, at_ns, &mut self.decoded)?,
            Protocol::Embeddings => match embeddings::read(text, &mut self.decoded)? {
                embeddings::Read::Vectors(count) => {
                    self.vectors += count;
                    None
                }
                embeddings::Read::Error(message) => Some(message),
            },
        };
        if let Some(message) = error {
            self.fail(Class::ErrorEvent, message);
        }
        Ok(())
    }

    fn is_garbled(&self) -> bool {
        matches!(&self.decoded.failure, Some(failure) if failure.class == Class::Garbled)
    }

    /// The first failure stays: what follows is its consequence.
    fn fail(&mut self, class: Class, message: String) {
        self.decoded.failure.get_or_insert(Failure { class, message });
    }
}

/// Where cached tokens lay, as SGLang tells it under either protocol.
#[derive(Deserialize)]
struct CachedDetails<'a> {
    #[serde(default, deserialize_with = "lenient::count")]
    device: Option<u32>,
    #[serde(default, deserialize_with = "lenient::count")]
    host: Option<u32>,
    #[serde(default, deserialize_with = "lenient::count")]
    storage: Option<u32>,
    #[serde(borrow, default)]
    storage_backend: Option<Words<'a>>,
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
    /// Notes something that bench_serving cannot read.
    pub(crate) fn note(&mut self, oddity: Oddity) {
        if !self.oddities.contains(&oddity) {
            self.oddities.push(oddity);
        }
    }

    /// Notes the model that an event names; more of them than a few say nothing new.
    fn note_model(&mut self, model: Option<Words<'_>>) {
        if let Some(model) = model.filter(|model| !model.0.is_empty())
            && self.models.len() < MODELS
            && !self.models.iter().any(|known| *known == *model.0)
        {
            self.models.push(model.0.into_owned());
        }
    }

    fn chunk(&mut self, at_ns: u64, kind: ChunkKind, tokens: Option<u32>, bytes: usize) {
        self.chunks.push(Chunk {
            at_ns,
            kind,
            tokens,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        });
    }
}

/// A text of JSON that borrows where it holds no escape. (Within an `Option`, serde borrows only through a type of its own.)
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Words<'a>(#[serde(borrow)] Cow<'a, str>);

impl Words<'_> {
    fn of<'w>(words: &'w Option<Words<'_>>) -> &'w str {
        words.as_ref().map_or("", |words| &words.0)
    }
}

/// The server's own words in the JSON of an error, at most a page of them.
fn error_words(json: &str) -> String {
    let value = serde_json::from_str::<Value>(json).unwrap_or(Value::Null);
    let message = match &value {
        Value::String(text) => Some(text.as_str()),
        Value::Object(error) => error.get("message").and_then(Value::as_str),
        _ => None,
    };
    shorten(message.unwrap_or(json), 4096)
}

/// The server's words in an event that is named an error, whatever its data are.
fn event_error(data: &str) -> String {
    #[derive(Deserialize)]
    struct Nested<'a> {
        #[serde(borrow)]
        error: &'a serde_json::value::RawValue,
    }
    match serde_json::from_str::<Nested<'_>>(data) {
        Ok(nested) => error_words(nested.error.get()),
        Err(_) => error_words(data),
    }
}

/// The beginning of some bytes for a message.
fn excerpt(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(512)];
    format!("`{}`", shorten(&String::from_utf8_lossy(start), 120))
}

fn shorten(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests;
