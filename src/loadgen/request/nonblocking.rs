//! One request over a non-blocking socket. The event loop advances it when the socket is ready, and watches
//! its deadlines.

use std::io::{self, ErrorKind};
use std::time::Duration;

use super::outgoing::Outgoing;
use super::response::{RequestEnd, Response, failure};
use super::response_limits::ResponseLimits;
use super::response_trace::ResponseTrace;
use crate::base::clock::{self, MonotonicTime};
use crate::base::http1::response::{ResponsePart, ResponseReader};
use crate::loadgen::arrival::TimestampSource;
use crate::loadgen::protocol::Decoder;
use crate::loadgen::socket::{Peer, ReadContext, Socket};
use crate::results::record::request::RequestFailureClass;

/// Maximum number of full buffers that are read from one stream before other streams are served.
const MAX_READS: usize = 4;

pub(crate) struct InFlight {
    trace: ResponseTrace,
    socket: Option<Socket>,
    request: Outgoing,
    bytes_written: usize,
    write_error: Option<io::Error>,
    /// Whether the answer ended before the connection did.
    is_left_open: bool,
    /// Whether the request is kept after it was written, because it may be sent again.
    keeps_request: bool,
}

/// The rest of an answer after `[DONE]`, on a connection that is reused once the answer has ended by its
/// framing.
pub(crate) struct Tail(ResponseReader);

/// What a connection came to after `[DONE]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailState {
    /// The answer has not ended by its framing.
    Open,
    /// Another request may follow.
    Complete,
    /// Bytes followed the answer.
    Surplus,
    /// The connection ended, or its bytes are no answer.
    Closed,
}

impl Tail {
    /// Reads what has arrived.
    pub(crate) fn read(&mut self, socket: &mut Socket, reading: &mut ReadContext) -> TailState {
        loop {
            let arrival = match socket.read(reading) {
                Ok(arrival) if arrival.length > 0 => arrival,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return TailState::Open,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                _ => return TailState::Closed,
            };
            let mut input = reading.bytes(socket, &arrival);
            loop {
                match self.0.next(&mut input) {
                    Ok(Some(ResponsePart::End)) if !input.is_empty() => return TailState::Surplus,
                    Ok(Some(ResponsePart::End)) if self.0.leaves_connection() => return TailState::Complete,
                    Ok(Some(ResponsePart::End)) | Err(_) => return TailState::Closed,
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                }
            }
        }
    }
}

/// The state of an exchange after a read.
pub(crate) enum ReadState {
    /// The exchange waits for its socket.
    Blocked,
    /// Another read may return data at once.
    Ready,
    Done(Box<Response>),
}

/// What a pass over sockets read.
#[derive(Default)]
pub(crate) struct ReadStats {
    pub(crate) bytes: usize,
    pub(crate) events: u64,
}

impl InFlight {
    pub(crate) fn start(
        request: Outgoing,
        decoder: Decoder,
        bounds: ResponseLimits,
        zero: MonotonicTime,
    ) -> Self {
        Self {
            trace: ResponseTrace::new(decoder, bounds, zero),
            socket: None,
            request,
            bytes_written: 0,
            write_error: None,
            is_left_open: false,
            keeps_request: false,
        }
    }

    /// Keeps the request, so that [`InFlight::take_request`] returns it.
    pub(crate) fn keep_request(&mut self) {
        self.keeps_request = true;
    }

    /// Returns the request that was kept.
    pub(crate) fn take_request(&mut self) -> Outgoing {
        std::mem::take(&mut self.request)
    }

    /// Changes the request before it is written.
    pub(crate) fn retarget(&mut self, change: impl FnOnce(&mut Outgoing)) {
        change(&mut self.request);
    }

    /// Sets when the request was sent first, if this is another attempt.
    pub(crate) fn set_sent_at(&mut self, at: MonotonicTime) {
        self.trace.sent = at;
    }

    pub(crate) fn sent_at(&self) -> MonotonicTime {
        self.trace.sent
    }

    pub(crate) fn has_body(&self) -> bool {
        self.trace.has_body
    }

    /// Returns the socket if the answer ended before the connection did.
    pub(crate) fn take_open_socket(&mut self) -> Option<Socket> {
        self.socket.take().filter(|_| self.is_left_open)
    }

    /// Returns the socket if another request may follow on it.
    pub(crate) fn take_reusable_socket(&mut self) -> Option<Socket> {
        let is_reusable = self.trace.leaves_connection() && self.trace.written.is_some();
        self.socket.take_if(|_| is_reusable)
    }

    /// Returns true if bytes followed the answer on its connection.
    pub(crate) fn has_surplus(&self) -> bool {
        self.trace.has_surplus
    }

    /// Returns what is left to read of an answer whose content has ended.
    pub(crate) fn take_tail(&mut self) -> Tail {
        Tail(self.trace.take_reader())
    }

    /// Writes the request to a connection that has served another request.
    pub(crate) fn reuse(&mut self, socket: Socket) -> Result<(), Box<Response>> {
        self.socket = Some(socket);
        self.trace.connected = Some(clock::now());
        match self.write() {
            Ok(()) => Ok(()),
            Err(ending) => Err(self.finish(ending)),
        }
    }

    /// Returns when the last bytes arrived, or when the request went out if nothing has arrived.
    pub(crate) fn last_read_at(&self) -> MonotonicTime {
        self.trace.last_read_at()
    }

    /// The clock that takes the times of arrival; `None` if nothing has arrived.
    pub(crate) fn timestamp_source(&self) -> Option<TimestampSource> {
        self.trace.timestamp_source()
    }

    /// When the kernel had taken the whole request.
    pub(crate) fn written_at(&self) -> Option<MonotonicTime> {
        self.trace.written
    }

    /// The time after which the client cancels the request, if it does.
    pub(crate) fn cancels_after(&self) -> Option<Duration> {
        self.trace.cancels_after()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.trace.connected.is_some()
    }

    /// Returns true if the request waits for room in the socket's send buffer.
    pub(crate) fn is_writing(&self) -> bool {
        let has_unsent = self.socket.as_ref().is_some_and(Socket::has_unsent);
        (self.bytes_written < self.request.len() || has_unsent) && self.write_error.is_none()
    }

    pub(crate) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// Starts to connect. If the connection is expected to be established at once, it also writes. There is no
    /// socket afterwards if the accept queue of a Unix socket is full.
    pub(crate) fn connect(&mut self, to: &Peer, stands_at_once: bool) -> Result<(), Box<Response>> {
        let ending = match Socket::connect(to) {
            Ok(socket) => {
                self.socket = Some(socket);
                if stands_at_once { self.write().err() } else { None }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => Some(connect_failure(error)),
        };
        ending.map_or(Ok(()), |ending| Err(self.finish(ending)))
    }

    /// Takes over a connection that was established at `at`, including its TLS handshake, and writes; or
    /// records why it failed.
    pub(crate) fn finish_connect(
        &mut self,
        socket: io::Result<Socket>,
        at: MonotonicTime,
    ) -> Result<(), Box<Response>> {
        let ending = match socket {
            Ok(socket) => {
                self.socket = Some(socket);
                self.trace.connected = Some(at);
                self.write().err()
            }
            Err(error) => Some(connect_failure(error)),
        };
        ending.map_or(Ok(()), |ending| Err(self.finish(ending)))
    }

    /// Continues to write, after the socket got room or failed.
    pub(crate) fn continue_write(&mut self) -> Result<(), Box<Response>> {
        let fault = match (&self.socket, self.is_connected()) {
            (Some(socket), false) => socket.connect_error().unwrap_or_else(Some),
            _ => None,
        };
        let ending = match fault {
            Some(error) => Some(connect_failure(error)),
            None => self.write().err(),
        };
        ending.map_or(Ok(()), |ending| Err(self.finish(ending)))
    }

    fn write(&mut self) -> Result<(), RequestEnd> {
        let Some(socket) = &mut self.socket else {
            return Ok(());
        };
        while (self.bytes_written < self.request.len() || socket.has_unsent()) && self.write_error.is_none() {
            let before = clock::now();
            match socket.write(self.request.rest(self.bytes_written)) {
                Ok(count) => {
                    self.trace.connected.get_or_insert(before);
                    self.bytes_written += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if self.trace.connected.is_none() => return Err(connect_failure(error)),
                // A server may reject a request while it is being written. Its answer, if any, says more than
                // the write error.
                Err(error) => self.write_error = Some(error),
            }
        }
        self.end_writing();
        Ok(())
    }

    /// Records that the whole request was written, unless writing failed.
    fn end_writing(&mut self) {
        if self.write_error.is_none() && !self.request.is_empty() {
            self.trace.note_written(clock::now());
        }
        match self.keeps_request {
            true => self.bytes_written = self.request.len(),
            false => (self.request, self.bytes_written) = (Outgoing::default(), 0),
        }
    }

    /// Reads what has arrived. `is_ending` means that the other side has ended the connection, after any data
    /// still to be read.
    pub(crate) fn read(
        &mut self,
        is_ending: bool,
        reading: &mut ReadContext,
        stats: &mut ReadStats,
    ) -> ReadState {
        for _ in 0..MAX_READS {
            let Some(socket) = &mut self.socket else {
                return ReadState::Blocked;
            };
            let arrival = match (socket.read(reading), &self.write_error) {
                (Ok(arrival), _) => arrival,
                (Err(error), _) if error.kind() == ErrorKind::WouldBlock => return ReadState::Blocked,
                (Err(error), _) if error.kind() == ErrorKind::Interrupted => continue,
                // A TLS alert says why writing failed.
                (Err(error), Some(_)) if error.kind() == ErrorKind::InvalidData => {
                    return self.finish_read(failure(RequestFailureClass::Reset, error));
                }
                (Err(_), Some(error)) => {
                    let message = format!("the connection failed while the request was written: {error}");
                    return self.finish_read(failure(RequestFailureClass::Reset, message));
                }
                (Err(error), None) => return self.finish_read(failure(RequestFailureClass::Reset, error)),
            };
            let (events, before) = (self.trace.events(), self.trace.last_read_at());
            let at = self.trace.note_arrival(arrival);
            let over = match arrival.length {
                0 => self.trace.close(arrival.is_truncated).map(|()| true),
                _ => self.trace.push_bytes(reading.bytes(socket, &arrival), at),
            };
            // Reading from an encrypted connection also sends what waits for room. Only what arrives later may answer it.
            if self.trace.written.is_none() && !self.is_writing() {
                self.end_writing();
            }
            stats.bytes += arrival.length;
            let events = self.trace.events() - events;
            stats.events += events;
            let off = at.since(reading.look_start.max(before));
            reading.lateness.add_read(events, arrival.timestamp_source, off);
            match over {
                Ok(true) => return self.finish_read(RequestEnd::Complete(at)),
                Ok(false) if self.trace.is_done() => {
                    self.is_left_open = true;
                    return self.finish_read(RequestEnd::Complete(at));
                }
                Ok(false) => {}
                Err(ending) => return self.finish_read(ending),
            }
            match arrival.timestamp_source {
                // Parsing delays no time that the kernel takes.
                TimestampSource::Kernel => self.trace.parse_lines(),
                TimestampSource::User => self.trace.parse_full_block(),
            }
            if !is_ending && !arrival.has_more {
                return ReadState::Blocked;
            }
        }
        ReadState::Ready
    }

    fn finish_read(&mut self, ending: RequestEnd) -> ReadState {
        ReadState::Done(self.finish(ending))
    }

    pub(crate) fn time_out(&mut self) -> Box<Response> {
        self.finish(RequestEnd::TimedOut)
    }

    /// Ends the request because epoll cannot watch its socket.
    pub(crate) fn fail_unwatched(&mut self, error: io::Error) -> Box<Response> {
        let message = format!("the connection of the request cannot be watched with epoll: {error}");
        self.finish(failure(RequestFailureClass::Connect, message))
    }

    pub(crate) fn cancel(&mut self) -> Box<Response> {
        self.finish(RequestEnd::Cancelled)
    }

    pub(crate) fn cancel_as_planned(&mut self) -> Box<Response> {
        self.finish(RequestEnd::CancelledAsPlanned)
    }

    fn finish(&mut self, ending: RequestEnd) -> Box<Response> {
        Box::new(self.trace.take_response(ending))
    }
}

fn connect_failure(error: io::Error) -> RequestEnd {
    match error.kind() {
        ErrorKind::ConnectionRefused => failure(RequestFailureClass::Refused, error),
        _ => failure(RequestFailureClass::Connect, error),
    }
}
