//! Decodes an answer line by line.

use std::sync::Arc;

use super::decoded::{Decoded, error_text, event_error_text, truncated};
use super::expected_results::ExpectedResults;
use super::fast_path::EventShape;
use super::lenient;
use super::reasoning::ReasoningScanner;
use crate::loadgen::spill::{HeldBytes, Spill};
use crate::plan::Protocol;
use crate::results::record::request::{Failure, RequestFailureClass};

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

/// Decodes an answer line by line.
///
/// Events after an error event are still decoded, because bench_serving decodes them. Lines after invalid
/// data are not.
#[derive(Clone, Debug)]
pub struct Decoder {
    protocol: Protocol,
    decoded: Decoded,
    event_shape: EventShape,
    /// Lines without a field name that are not JSON by themselves; together they may be a body printed over
    /// several lines.
    plain_lines: Vec<u8>,
    plain_at_ns: u64,
    plain_limit: usize,
    /// Whether an answer may end before its first token.
    may_be_empty: bool,
    /// What a complete answer has; `None` for answers with text.
    expected_results: Option<ExpectedResults>,
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
            event_shape: EventShape::default(),
            plain_lines: Vec::new(),
            plain_at_ns: 0,
            plain_limit,
            may_be_empty: false,
            expected_results: None,
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

    /// Rejects an answer with other results.
    #[must_use]
    pub(crate) fn expect_results(mut self, expected: Option<ExpectedResults>) -> Self {
        self.expected_results = expected;
        self
    }

    /// Accepts an answer without output if it has a finish reason or its last event: the model may end it with its first
    /// token.
    #[must_use]
    pub(crate) fn allow_empty(mut self, may_be_empty: bool) -> Self {
        self.may_be_empty = may_be_empty;
        self
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether the event was decoded that ends every complete stream of the protocol.
    pub(crate) fn has_ended(&self) -> bool {
        self.decoded.is_ended
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

    /// Whether any output has arrived.
    pub(crate) fn has_output(&self) -> bool {
        !self.decoded.chunks.is_empty() || self.decoded.vectors > 0
    }

    /// Whether so many tokens of output have arrived and no finish reason. An event counts as one token unless the
    /// protocol counts the tokens of events.
    pub(crate) fn has_unfinished_output(&self, tokens: u32) -> bool {
        let chunks = &self.decoded.chunks;
        let arrived = chunks
            .last_tokens()
            .map_or(chunks.len(), |counted| counted as usize);
        arrived >= tokens as usize && self.decoded.finish.is_none()
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
        let expected = self.expected_results.filter(|_| is_whole);
        if let Some(message) = expected.and_then(|expected| expected.settle(&mut self.decoded)) {
            self.set_failure(RequestFailureClass::Garbled, message);
        }
        let reported = self.decoded.usage.and_then(|usage| usage.completion);
        let ended_at_once = self.may_be_empty && (self.decoded.finish.is_some() || self.decoded.is_ended);
        let is_empty = !self.has_output() && reported.unwrap_or(0) == 0 && !ended_at_once;
        if is_whole && is_empty {
            let mut message = "the response has no output".to_owned();
            if !self.first_silent_event.is_empty() {
                message.push_str(&format!("; its last event: `{}`", self.first_silent_event));
            }
            self.set_failure(RequestFailureClass::Empty, message);
        }
        let mut decoded = std::mem::take(&mut self.decoded);
        decoded.final_answer = std::mem::take(&mut decoded.ending).final_answer(&decoded.text);
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
            let last = decoded.final_answer.as_mut();
            if let Some(text) = last.and_then(|answer| answer.text.as_mut()) {
                relief
                    .spill
                    .spill_rest(text.bytes_mut(), &mut HeldBytes::default());
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
        let is_ranking = self.protocol == Protocol::Rerank && text.starts_with('[');
        if !text.starts_with('{') && !is_ranking {
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
        let (decoded, shape) = (&mut self.decoded, &mut self.event_shape);
        if let Some(message) = super::read(self.protocol, text, at_ns, decoded, shape)? {
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

/// Returns the start of some bytes for a message.
fn excerpt(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(512)];
    format!("`{}`", truncated(&String::from_utf8_lossy(start), 120))
}
