//! Collects what arrives of one answer and computes its result. It gets bytes and times of reads, and knows
//! no socket.

use std::time::Duration;

use super::buffered_lines::{BufferedLines, PARSE_BLOCK_BYTES};
use super::response::{RETRIED_STATUSES, RequestEnd, Response, failure};
use super::response_limits::ResponseLimits;
use super::retry_after::parse_retry_after;
use crate::base::clock::{self, MonotonicTime};
use crate::base::http1::response::{HttpResponseError, ResponsePart, ResponseReader};
use crate::base::secrets::mask_redirect_secrets;
use crate::base::units::HumanDuration;
use crate::config::api::EndMark;
use crate::loadgen::arrival::{Arrival, TimestampSource};
use crate::loadgen::protocol::{Decoded, Decoder};
use crate::loadgen::sse::LineScanner;
use crate::results::record::request::{Failure, RequestFailureClass};

/// Bytes that are kept of an answer with a status other than 200.
const MAX_ERROR_BODY: usize = 64 << 10;
/// Why an answer of unknown length may be incomplete.
const TRUNCATED_MESSAGE: &str =
    "the TLS connection ended without close_notify and the response has no length, so its end may be missing";
/// Start of the error message for a compressed answer.
pub(crate) const COMPRESSED_MESSAGE: &str = "the response is compressed";

pub(super) struct ResponseTrace {
    bounds: ResponseLimits,
    /// Number of events after which the events are checked: against the limit, or for the tokens after which the
    /// request is cancelled.
    unchecked_events: u64,
    zero: MonotonicTime,
    reader: ResponseReader,
    scanner: LineScanner,
    lines: BufferedLines,
    decoder: Decoder,
    end_mark: EndMark,
    error_body: Vec<u8>,
    pub(super) sent: MonotonicTime,
    pub(super) connected: Option<MonotonicTime>,
    pub(super) written: Option<MonotonicTime>,
    /// Whether output arrived before the kernel had taken the whole request.
    has_early_output: bool,
    /// Whether a part of the body did, which is output unless the answer is a stream.
    has_early_body: bool,
    first_byte: Option<MonotonicTime>,
    /// When the last bytes arrived; before that, when the request went out.
    last_read: MonotonicTime,
    timestamp_source: Option<TimestampSource>,
    pub(super) has_body: bool,
    /// Whether the body lasted until the connection ended.
    is_until_close: bool,
    /// Whether bytes followed the end of the answer.
    pub(super) has_surplus: bool,
}

impl ResponseTrace {
    pub(super) fn new(decoder: Decoder, bounds: ResponseLimits, zero: MonotonicTime) -> Self {
        let sent = clock::now();
        let cancels_after_tokens = bounds.cancel.is_some_and(|point| point.tokens.is_some());
        Self {
            unchecked_events: if cancels_after_tokens { 0 } else { bounds.events },
            bounds,
            zero,
            reader: ResponseReader::new(),
            scanner: LineScanner::new(bounds.line_bytes),
            lines: BufferedLines::default(),
            end_mark: decoder.protocol().facts().end_mark,
            decoder,
            error_body: Vec::new(),
            sent,
            connected: None,
            written: None,
            has_early_output: false,
            has_early_body: false,
            first_byte: None,
            last_read: sent,
            timestamp_source: None,
            has_body: false,
            is_until_close: false,
            has_surplus: false,
        }
    }

    /// Whether an event may end the answer.
    fn has_last_event(&self) -> bool {
        matches!(self.end_mark, EndMark::LastEvent | EndMark::LastEventOrDone)
    }

    pub(super) fn events(&self) -> u64 {
        self.lines.event_count
    }

    /// Whether the answer is over: by `[DONE]`, or by the last event of the protocol.
    pub(super) fn is_done(&self) -> bool {
        self.lines.is_done || self.decoder.has_ended()
    }

    /// The clock that took the times of arrival; [`TimestampSource::User`] if it took at least one of them.
    pub(super) fn timestamp_source(&self) -> Option<TimestampSource> {
        self.timestamp_source
    }

    /// When the last bytes arrived; before that, when the request went out.
    pub(super) fn last_read_at(&self) -> MonotonicTime {
        self.last_read
    }

    /// Parses the lines kept so far.
    pub(super) fn parse_lines(&mut self) {
        self.lines.parse(&mut self.decoder, self.zero);
    }

    pub(super) fn parse_full_block(&mut self) {
        if self.lines.bytes.len() >= PARSE_BLOCK_BYTES {
            self.parse_lines();
        }
    }

    /// Records that the kernel has taken the whole request. What arrived before cannot be the answer to all of it.
    pub(super) fn note_written(&mut self, at: MonotonicTime) {
        if self.has_body {
            self.parse_lines();
            self.has_early_output = self.decoder.has_output();
            self.has_early_body = self.lines.plain_bytes > 0 || self.scanner.has_partial_line();
        }
        self.written = Some(at);
        self.last_read = self.last_read.max(at);
    }

    /// Returns the time of a read for the record, and notes its clock. Times never decrease: the kernel may
    /// timestamp an answer before the client has noted the end of the request, or with another processor's
    /// clock.
    pub(super) fn note_arrival(&mut self, arrival: Arrival) -> MonotonicTime {
        if arrival.length > 0 && self.timestamp_source != Some(TimestampSource::User) {
            self.timestamp_source = Some(arrival.timestamp_source);
        }
        arrival.received_at.max(self.last_read)
    }

    fn status(&self) -> Option<u16> {
        self.reader.head().map(|head| head.status)
    }

    /// Handles the end of the connection. `is_truncated` means that TLS ended without close_notify; then only
    /// the framing of the answer can prove that it is complete.
    pub(super) fn close(&mut self, is_truncated: bool) -> Result<(), RequestEnd> {
        self.is_until_close = self.reader.is_until_close();
        self.reader
            .close()
            .map_err(|fault| failure(RequestFailureClass::Reset, fault))?;
        match is_truncated && self.is_until_close {
            true => Err(failure(RequestFailureClass::Reset, TRUNCATED_MESSAGE)),
            false => Ok(()),
        }
    }

    /// Handles the bytes of one read. Returns true if the answer is over.
    pub(super) fn push_bytes(&mut self, bytes: &[u8], at: MonotonicTime) -> Result<bool, RequestEnd> {
        self.first_byte.get_or_insert(at);
        self.last_read = at;
        let mut input = bytes;
        loop {
            let part = self
                .reader
                .next(&mut input)
                .map_err(|fault: HttpResponseError| failure(RequestFailureClass::Garbled, fault))?;
            match part {
                None => return Ok(false),
                Some(ResponsePart::End) => {
                    self.has_surplus = !input.is_empty();
                    return Ok(true);
                }
                Some(ResponsePart::Head) => self.check_head()?,
                Some(ResponsePart::Body(body)) => {
                    self.has_body = true;
                    if self.status() == Some(200) {
                        self.scan(body, at)?;
                    } else {
                        let room = MAX_ERROR_BODY - self.error_body.len();
                        self.error_body.extend_from_slice(&body[..body.len().min(room)]);
                        if self.error_body.len() == MAX_ERROR_BODY {
                            return Ok(true);
                        }
                    }
                }
            }
        }
    }

    fn check_head(&self) -> Result<(), RequestEnd> {
        let encoding = self
            .reader
            .head()
            .and_then(|head| head.header("content-encoding"));
        match encoding {
            None | Some("" | "identity") => Ok(()),
            Some(encoding) => Err(failure(
                RequestFailureClass::Garbled,
                format!(
                    "{COMPRESSED_MESSAGE} (`{encoding}`), although the request does not allow compression"
                ),
            )),
        }
    }

    fn scan(&mut self, body: &[u8], at: MonotonicTime) -> Result<(), RequestEnd> {
        let mut rest = body;
        // Parsing delays no time that the kernel takes. An event that ends the answer must be noticed at once.
        let at_once = self.timestamp_source == Some(TimestampSource::Kernel) || self.has_last_event();
        // Bytes after the end do not belong to the answer.
        while !self.is_done() {
            let line = self.scanner.next(&mut rest);
            let Some(line) = line.map_err(|huge| failure(RequestFailureClass::HugeLine, huge))? else {
                break;
            };
            self.lines.push(line, at, &mut self.decoder, self.zero, at_once);
            if self.lines.plain_bytes > self.bounds.line_bytes {
                let limit = self.bounds.line_bytes;
                let message = format!("the response is not an event stream and exceeds {limit} bytes");
                return Err(failure(RequestFailureClass::HugeLine, message));
            }
            if self.lines.event_count > self.unchecked_events {
                self.check_events()?;
            }
        }
        Ok(())
    }

    /// Ends an answer that has too many events, or the tokens after which the request is cancelled. An event that
    /// gives the finish reason completes the answer instead.
    fn check_events(&mut self) -> Result<(), RequestEnd> {
        if self.lines.event_count > self.bounds.events {
            let message = format!(
                "more than {} events arrived; the response was cut off",
                self.bounds.events
            );
            return Err(failure(RequestFailureClass::Endless, message));
        }
        self.parse_lines();
        let tokens = self.bounds.cancel.and_then(|point| point.tokens);
        match tokens.is_some_and(|tokens| self.decoder.has_unfinished_output(tokens.get())) {
            true => Err(RequestEnd::CancelledAsPlanned),
            false => Ok(()),
        }
    }

    pub(super) fn cancels_after(&self) -> Option<Duration> {
        self.bounds.cancel.and_then(|point| point.time)
    }

    /// Takes the parser of the answer, with which its end can be read after `[DONE]`.
    pub(super) fn take_reader(&mut self) -> ResponseReader {
        std::mem::take(&mut self.reader)
    }

    /// Returns true if another request may follow on the connection.
    pub(super) fn leaves_connection(&self) -> bool {
        self.reader.leaves_connection() && !self.has_surplus
    }

    /// How long the server asks to wait before the request is sent again.
    fn retry_after(&self) -> Option<Duration> {
        let head = self
            .reader
            .head()
            .filter(|head| RETRIED_STATUSES.contains(&head.status))?;
        parse_retry_after(head.header("retry-after")?)
    }

    /// Computes the result; must be called only once.
    pub(super) fn take_response(&mut self, ending: RequestEnd) -> Response {
        let now = clock::now();
        // The mark of its end ends the answer, whatever happens to the connection.
        let ending = match self.lines.last_arrival {
            Some(at) if self.is_done() => RequestEnd::Complete(at),
            _ => ending,
        };
        let is_cancelled = matches!(ending, RequestEnd::CancelledAsPlanned);
        let (end, is_whole) = match ending {
            RequestEnd::Complete(at) => (at, true),
            _ => (now, false),
        };
        if is_whole
            && !self.is_done()
            && let Some(line) = self.scanner.finish()
        {
            self.lines
                .push(line, self.last_read, &mut self.decoder, self.zero, false);
        }
        self.lines.parse(&mut self.decoder, self.zero);
        let status = self.status();
        let mut decoded = self.decoder.finish(is_whole && status == Some(200));
        self.scanner
            .oddities()
            .for_each(|oddity| decoded.note_oddity(oddity));
        let transport = self.transport_failure(ending, &decoded);
        // An error event or invalid data explains a later break of the connection; a status explains all.
        decoded.failure = match (self.status_failure(), decoded.failure.take()) {
            (Some(failure), _) => Some(failure),
            (None, Some(failure)) if failure.class != RequestFailureClass::Empty => Some(failure),
            (None, failure) => transport.or(failure),
        };
        let is_cancelled = is_cancelled && decoded.failure.is_none();
        Response {
            sent: self.sent,
            connected: self.connected,
            written: self.written,
            first_byte: self.first_byte,
            last_line: self.lines.last_arrival,
            end,
            timestamp_source: self.timestamp_source,
            status,
            retry_after: self.retry_after(),
            decoded,
            is_cancelled,
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
            Some(location) => format!(
                "{reason}: redirects are not followed; the server redirects to `{}`, so use the base URL of that address",
                mask_redirect_secrets(location)
            ),
            None => format!("{reason}: {}", body.trim()),
        };
        Some(Failure {
            class: RequestFailureClass::Status,
            message,
        })
    }

    /// Whether output arrived before the whole request was sent.
    fn is_early(&self) -> bool {
        self.written.is_none() || self.has_early_output || self.has_early_body && !self.lines.is_stream
    }

    fn transport_failure(&self, ending: RequestEnd, decoded: &Decoded) -> Option<Failure> {
        let span = |limit: Duration| HumanDuration(limit).to_string();
        let (class, message) = match ending {
            RequestEnd::Failed(failure) => return Some(failure),
            // A server that answers what it has not read did no work.
            RequestEnd::Complete(_) | RequestEnd::CancelledAsPlanned if self.is_early() => (
                RequestFailureClass::Garbled,
                "the server answered before the whole request was sent".to_owned(),
            ),
            RequestEnd::Complete(_) => {
                // A server that dies ends such a body too, so only its content proves that it is complete.
                let is_marked = match self.end_mark {
                    EndMark::LastEvent => decoded.is_ended,
                    EndMark::LastEventOrDone => decoded.is_ended || self.lines.is_done,
                    EndMark::None | EndMark::FinishOrUsage => self.lines.is_done || decoded.finish.is_some(),
                };
                let is_open = self.lines.is_stream && !is_marked;
                // A proxy may end the stream properly although its engine died. Complete answers of OpenAI
                // protocols mark their end in some way.
                let is_short = match self.end_mark {
                    EndMark::None => false,
                    EndMark::FinishOrUsage => {
                        decoded.usage.is_none() && decoded.chunks.len() < self.bounds.tokens as usize
                    }
                    EndMark::LastEvent | EndMark::LastEventOrDone => true,
                };
                if !is_open || !(self.is_until_close || is_short) {
                    return None;
                }
                let ended = match self.is_until_close {
                    true => "connection",
                    false => "stream",
                };
                (
                    RequestFailureClass::Reset,
                    format!("the {ended} ended before the end mark of the response arrived"),
                )
            }
            RequestEnd::CancelledAsPlanned => return None,
            RequestEnd::Cancelled => (
                RequestFailureClass::Cancelled,
                "the client cancelled the request".to_owned(),
            ),
            RequestEnd::TimedOut if !decoded.chunks.is_empty() => (
                RequestFailureClass::TimeoutAfterFirst,
                format!("the response did not end within {}", span(self.bounds.request)),
            ),
            RequestEnd::TimedOut => {
                let limit = match self.has_body {
                    true => self.bounds.request,
                    false => self.bounds.first_byte.min(self.bounds.request),
                };
                let phase = if self.connected.is_none() {
                    "connection"
                } else {
                    "output"
                };
                (
                    RequestFailureClass::TimeoutBeforeFirst,
                    format!("no {phase} within {}", span(limit)),
                )
            }
        };
        Some(Failure { class, message })
    }
}
