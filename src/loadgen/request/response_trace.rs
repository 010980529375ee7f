//! Collects what arrives of one answer and computes its result. It gets bytes and times of reads, and knows
//! no socket.

use std::time::Duration;

use super::answer::{Answer, Ending, failed, nanos};
use super::bounds::Bounds;
use crate::base::clock::{self, Moment};
use crate::base::http1::response::{Fault, Part, Reader};
use crate::base::units::Span;
use crate::loadgen::arrival::{Arrival, Stamp};
use crate::loadgen::protocol::{Decoded, Decoder, LineKind};
use crate::loadgen::sse::{Line, Scanner};
use crate::results::record::request::{Class, Failure};

/// Bytes of lines that are kept before they are parsed.
pub(super) const BLOCK: usize = 32 << 10;
/// Bytes that are kept of an answer with a status other than 200.
const ERROR_LIMIT: usize = 64 << 10;
/// Why an answer of unknown length may be incomplete.
const TRUNCATED: &str =
    "the TLS connection ended without close_notify, and the answer told no length: its end may be missing";
/// Start of the error message for a compressed answer.
pub(crate) const COMPRESSED: &str = "the answer is compressed";

/// The lines of an answer: counters for all lines, and the bytes of lines that are not parsed yet.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// The end, time of arrival and kind of each line.
    marks: Vec<(usize, Moment, LineKind)>,
    last: Option<Moment>,
    /// Number of events without `[DONE]`.
    count: u64,
    /// Bytes of lines that are not events.
    plain_bytes: usize,
    /// Whether at least one line was an event, so that the answer is a stream.
    is_stream: bool,
    is_done: bool,
}

impl Lines {
    /// Adds a line. With `at_once` it is parsed now. A line that differs from a known one only in its text
    /// needs no parsing.
    fn keep(&mut self, line: Line<'_>, at: Moment, decoder: &mut Decoder, zero: Moment, at_once: bool) {
        self.last = Some(at);
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
                self.count += 1;
            }
            LineKind::Plain => self.plain_bytes += line.len(),
        }
        // Lines are decoded in order, so a known line must not overtake kept lines.
        if self.marks.is_empty() {
            if kind == LineKind::Event && decoder.push_known(line, nanos(at, zero)) {
                return;
            }
            if at_once {
                return decoder.push(kind, line, nanos(at, zero));
            }
        }
        self.bytes.extend_from_slice(line);
        self.marks.push((self.bytes.len(), at, kind));
    }

    fn fold(&mut self, decoder: &mut Decoder, zero: Moment) {
        if self.marks.is_empty() {
            return;
        }
        let mut start = 0;
        for (end, at, kind) in self.marks.drain(..) {
            decoder.push(kind, &self.bytes[start..end], nanos(at, zero));
            start = end;
        }
        self.bytes.clear();
        // One huge line must not keep its memory for the rest of the stream.
        self.bytes.shrink_to(2 * BLOCK);
    }
}

pub(super) struct Trace {
    bounds: Bounds,
    zero: Moment,
    reader: Reader,
    scanner: Scanner,
    lines: Lines,
    decoder: Decoder,
    error_body: Vec<u8>,
    pub(super) sent: Moment,
    pub(super) connected: Option<Moment>,
    written: Option<Moment>,
    first_byte: Option<Moment>,
    /// When the last bytes arrived; before that, when the request went out.
    last_read: Moment,
    stamp: Option<Stamp>,
    pub(super) has_body: bool,
    /// Whether the body lasted until the connection ended.
    is_until_close: bool,
}

impl Trace {
    pub(super) fn new(decoder: Decoder, bounds: Bounds, zero: Moment) -> Self {
        let sent = clock::now();
        Self {
            bounds,
            zero,
            reader: Reader::new(),
            scanner: Scanner::new(bounds.line_bytes),
            lines: Lines::default(),
            decoder,
            error_body: Vec::new(),
            sent,
            connected: None,
            written: None,
            first_byte: None,
            last_read: sent,
            stamp: None,
            has_body: false,
            is_until_close: false,
        }
    }

    pub(super) fn events(&self) -> u64 {
        self.lines.count
    }

    pub(super) fn is_done(&self) -> bool {
        self.lines.is_done
    }

    /// The clock that took the times of arrival; [`Stamp::User`] if it took at least one of them.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// When the last bytes arrived; before that, when the request went out.
    pub(super) fn last_read(&self) -> Moment {
        self.last_read
    }

    /// Parses the lines kept so far.
    pub(super) fn fold(&mut self) {
        self.lines.fold(&mut self.decoder, self.zero);
    }

    pub(super) fn fold_full(&mut self) {
        if self.lines.bytes.len() >= BLOCK {
            self.fold();
        }
    }

    /// Records that the kernel has taken the whole request.
    pub(super) fn wrote(&mut self, at: Moment) {
        self.written = Some(at);
        self.last_read = self.last_read.max(at);
    }

    /// Returns the time of a read for the record, and notes its clock. Times never decrease: the kernel may
    /// timestamp an answer before the client has noted the end of the request, or with another processor's
    /// clock.
    pub(super) fn arrived(&mut self, arrival: Arrival) -> Moment {
        if arrival.length > 0 && self.stamp != Some(Stamp::User) {
            self.stamp = Some(arrival.stamp);
        }
        arrival.at.max(self.last_read)
    }

    fn status(&self) -> Option<u16> {
        self.reader.head().map(|head| head.status)
    }

    /// Handles the end of the connection. `is_truncated` means that TLS ended without close_notify; then only
    /// the framing of the answer can prove that it is complete.
    pub(super) fn close(&mut self, is_truncated: bool) -> Result<(), Ending> {
        self.is_until_close = self.reader.is_until_close();
        self.reader.close().map_err(|fault| failed(Class::Reset, fault))?;
        match is_truncated && self.is_until_close {
            true => Err(failed(Class::Reset, TRUNCATED)),
            false => Ok(()),
        }
    }

    /// Handles the bytes of one read. Returns true if the answer is over.
    pub(super) fn take(&mut self, bytes: &[u8], at: Moment) -> Result<bool, Ending> {
        self.first_byte.get_or_insert(at);
        self.last_read = at;
        let mut input = bytes;
        loop {
            let part = self
                .reader
                .next(&mut input)
                .map_err(|fault: Fault| failed(Class::Garbled, fault))?;
            match part {
                None => return Ok(false),
                Some(Part::End) => return Ok(true),
                Some(Part::Head) => self.check_head()?,
                Some(Part::Body(body)) => {
                    self.has_body = true;
                    if self.status() == Some(200) {
                        self.scan(body, at)?;
                    } else {
                        let room = ERROR_LIMIT - self.error_body.len();
                        self.error_body.extend_from_slice(&body[..body.len().min(room)]);
                        if self.error_body.len() == ERROR_LIMIT {
                            return Ok(true);
                        }
                    }
                }
            }
        }
    }

    fn check_head(&self) -> Result<(), Ending> {
        let encoding = self
            .reader
            .head()
            .and_then(|head| head.header("content-encoding"));
        match encoding {
            None | Some("" | "identity") => Ok(()),
            Some(encoding) => Err(failed(
                Class::Garbled,
                format!("{COMPRESSED} (`{encoding}`), which was not asked for"),
            )),
        }
    }

    fn scan(&mut self, body: &[u8], at: Moment) -> Result<(), Ending> {
        let mut rest = body;
        // Parsing delays no time that the kernel takes.
        let at_once = self.stamp == Some(Stamp::Kernel);
        // Bytes after `[DONE]` do not belong to the answer.
        while !self.lines.is_done {
            let line = self.scanner.next(&mut rest);
            let Some(line) = line.map_err(|huge| failed(Class::HugeLine, huge))? else {
                break;
            };
            self.lines.keep(line, at, &mut self.decoder, self.zero, at_once);
            if self.lines.plain_bytes > self.bounds.line_bytes {
                let limit = self.bounds.line_bytes;
                let message = format!("an answer that is no stream of events exceeds {limit} bytes");
                return Err(failed(Class::HugeLine, message));
            }
            if self.lines.count > self.bounds.events {
                return Err(failed(
                    Class::Endless,
                    format!("more than {} events arrived; cut", self.bounds.events),
                ));
            }
        }
        Ok(())
    }

    /// Computes the result; must be called only once.
    pub(super) fn conclude(&mut self, ending: Ending) -> Answer {
        let now = clock::now();
        // `[DONE]` ends the answer, whatever happens to the connection.
        let ending = match self.lines.last {
            Some(at) if self.lines.is_done => Ending::Whole(at),
            _ => ending,
        };
        let (end, is_whole) = match ending {
            Ending::Whole(at) => (at, true),
            _ => (now, false),
        };
        if is_whole
            && !self.lines.is_done
            && let Some(line) = self.scanner.finish()
        {
            self.lines
                .keep(line, self.last_read, &mut self.decoder, self.zero, false);
        }
        self.lines.fold(&mut self.decoder, self.zero);
        let status = self.status();
        let mut decoded = self.decoder.finish(is_whole && status == Some(200));
        self.scanner.oddities().for_each(|oddity| decoded.note(oddity));
        let transport = self.transport(ending, &decoded);
        // An error event or invalid data explains a later break of the connection; a status explains all.
        decoded.failure = match (self.status_failure(), decoded.failure.take()) {
            (Some(failure), _) => Some(failure),
            (None, Some(failure)) if failure.class != Class::Empty => Some(failure),
            (None, failure) => transport.or(failure),
        };
        Answer {
            sent: self.sent,
            connected: self.connected,
            written: self.written,
            first_byte: self.first_byte,
            last_line: self.lines.last,
            end,
            stamp: self.stamp,
            status,
            decoded,
        }
    }

    fn status_failure(&self) -> Option<Failure> {
        let head = self.reader.head().filter(|head| head.status != 200)?;
        let reason = match head.reason.as_str() {
            "" => head.status.to_string(),
            reason => reason.to_owned(),
        };
        let body = String::from_utf8_lossy(&self.error_body);
        let location = head
            .header("location")
            .filter(|_| (300..400).contains(&head.status));
        let message = match location {
            Some(location) => format!("{reason}: redirects are not followed; send to `{location}` instead"),
            None => format!("{reason}: {}", body.trim()),
        };
        Some(Failure {
            class: Class::Status,
            message,
        })
    }

    fn transport(&self, ending: Ending, decoded: &Decoded) -> Option<Failure> {
        let span = |limit: Duration| Span(limit).to_string();
        let (class, message) = match ending {
            Ending::Failed(failure) => return Some(failure),
            Ending::Whole(_) => {
                // A server that dies ends such a body too, so only its content proves that it is complete.
                let is_open = self.lines.is_stream && !self.lines.is_done && decoded.finish.is_none();
                // A proxy may end the stream properly although its engine died. Complete answers of OpenAI
                // protocols mark their end in some way.
                let is_short = self.decoder.tells_ends()
                    && decoded.usage.is_none()
                    && decoded.chunks.len() < self.bounds.tokens as usize;
                if !is_open || !(self.is_until_close || is_short) {
                    return None;
                }
                let ended = match self.is_until_close {
                    true => "connection",
                    false => "stream",
                };
                (
                    Class::Reset,
                    format!("the {ended} ended before the answer told its end"),
                )
            }
            Ending::Cancelled => (Class::Cancelled, "it was ended from our side".to_owned()),
            Ending::TimedOut if !decoded.chunks.is_empty() => (
                Class::TimeoutAfterFirst,
                format!("it did not end within {}", span(self.bounds.request)),
            ),
            Ending::TimedOut => {
                let limit = match self.has_body {
                    true => self.bounds.request,
                    false => self.bounds.first_byte.min(self.bounds.request),
                };
                let place = if self.connected.is_none() {
                    "connection"
                } else {
                    "output"
                };
                (
                    Class::TimeoutBeforeFirst,
                    format!("no {place} came within {}", span(limit)),
                )
            }
        };
        Some(Failure { class, message })
    }
}
