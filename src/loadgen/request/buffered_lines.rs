//! The lines of an answer, from their arrival until they are parsed.

use super::response::nanos_since;
use crate::base::clock::MonotonicTime;
use crate::loadgen::protocol::{Decoder, LineKind};
use crate::loadgen::sse::Line;

/// Bytes of lines that are kept before they are parsed.
pub(super) const PARSE_BLOCK_BYTES: usize = 32 << 10;

/// The lines of an answer: counters for all lines, and the bytes of lines that are not parsed yet.
#[derive(Default)]
pub(super) struct BufferedLines {
    pub(super) bytes: Vec<u8>,
    /// The end, time of arrival and kind of each line.
    line_ends: Vec<(usize, MonotonicTime, LineKind)>,
    pub(super) last_arrival: Option<MonotonicTime>,
    /// Number of events without `[DONE]`.
    pub(super) event_count: u64,
    /// Bytes of lines that are not events.
    pub(super) plain_bytes: usize,
    /// Whether at least one line was an event, so that the answer is a stream.
    pub(super) is_stream: bool,
    pub(super) is_done: bool,
}

impl BufferedLines {
    /// Adds a line. With `at_once` it is parsed now. A line that differs from a known one only in its text
    /// needs no parsing.
    pub(super) fn push(
        &mut self,
        line: Line<'_>,
        at: MonotonicTime,
        decoder: &mut Decoder,
        zero: MonotonicTime,
        at_once: bool,
    ) {
        self.last_arrival = Some(at);
        let (kind, line) = match line {
            Line::Done => {
                self.is_done = true;
                return;
            }
            Line::Event(event) => (LineKind::Event, event),
            Line::Error(event) => (LineKind::Error, event),
            Line::Plain(line) => (LineKind::Plain, line),
        };
        match kind {
            LineKind::Event | LineKind::Error => {
                self.is_stream = true;
                self.event_count += 1;
            }
            LineKind::Plain => self.plain_bytes += line.len(),
        }
        // Lines are decoded in order, so a known line must not overtake kept lines.
        if self.line_ends.is_empty() {
            if kind == LineKind::Event && decoder.push_fast(line, nanos_since(at, zero)) {
                return;
            }
            if at_once {
                return decoder.push(kind, line, nanos_since(at, zero));
            }
        }
        self.bytes.extend_from_slice(line);
        self.line_ends.push((self.bytes.len(), at, kind));
    }

    /// Parses the lines that are kept.
    pub(super) fn parse(&mut self, decoder: &mut Decoder, zero: MonotonicTime) {
        if self.line_ends.is_empty() {
            return;
        }
        let mut start = 0;
        for (end, at, kind) in self.line_ends.drain(..) {
            decoder.push(kind, &self.bytes[start..end], nanos_since(at, zero));
            start = end;
        }
        self.bytes.clear();
        // One huge line must not keep its memory for the rest of the stream.
        self.bytes.shrink_to(2 * PARSE_BLOCK_BYTES);
    }
}
