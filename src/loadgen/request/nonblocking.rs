//! One request over a non-blocking socket. The event loop advances it when the socket is ready, and watches
//! its deadlines.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use super::answer::{Answer, Ending, failed};
use super::bounds::Bounds;
use super::response_trace::Trace;
use crate::base::clock::{self, Moment};
use crate::loadgen::arrival::Stamp;
use crate::loadgen::protocol::Decoder;
use crate::loadgen::socket::{Reading, Socket};
use crate::results::record::request::Class;

/// Maximum number of full buffers that are read from one stream before other streams are served.
const TURNS: usize = 4;

pub(crate) struct Live {
    trace: Trace,
    socket: Option<Socket>,
    request: Vec<u8>,
    written: usize,
    write_error: Option<io::Error>,
    /// Whether the answer ended before the connection did.
    is_left_open: bool,
}

/// The state of an exchange after a read.
pub(crate) enum Course {
    /// The exchange waits for its socket.
    Waits,
    /// Another read may return data at once.
    Ready,
    Over(Box<Answer>),
}

/// What a pass over sockets read.
#[derive(Default)]
pub(crate) struct Haul {
    pub(crate) bytes: usize,
    pub(crate) events: u64,
}

impl Live {
    pub(crate) fn begin(request: Vec<u8>, decoder: Decoder, bounds: Bounds, zero: Moment) -> Self {
        Self {
            trace: Trace::new(decoder, bounds, zero),
            socket: None,
            request,
            written: 0,
            write_error: None,
            is_left_open: false,
        }
    }

    pub(crate) fn sent(&self) -> Moment {
        self.trace.sent
    }

    pub(crate) fn has_body(&self) -> bool {
        self.trace.has_body
    }

    /// Returns the socket if the answer ended before the connection did.
    pub(crate) fn left_open(&mut self) -> Option<Socket> {
        self.socket.take().filter(|_| self.is_left_open)
    }

    /// Returns when the last bytes arrived, or when the request went out if nothing has arrived.
    pub(crate) fn last_read(&self) -> Moment {
        self.trace.last_read()
    }

    /// The clock that takes the times of arrival; `None` if nothing has arrived.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.trace.stamp()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.trace.connected.is_some()
    }

    /// Returns true if the request waits for room in the socket's send buffer.
    pub(crate) fn is_writing(&self) -> bool {
        let has_unsent = self.socket.as_ref().is_some_and(Socket::has_unsent);
        (self.written < self.request.len() || has_unsent) && self.write_error.is_none()
    }

    pub(crate) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// Starts to connect. If the connection is expected to be established at once, it also writes.
    pub(crate) fn connect(&mut self, to: SocketAddr, stands_at_once: bool) -> Result<(), Box<Answer>> {
        let ending = match Socket::connect(to) {
            Ok(socket) => {
                self.socket = Some(socket);
                if stands_at_once { self.write().err() } else { None }
            }
            Err(error) => Some(unconnected(error)),
        };
        ending.map_or(Ok(()), |ending| Err(self.conclude(ending)))
    }

    /// Takes over a connection that was established at `at`, including its TLS handshake, and writes; or
    /// records why it failed.
    pub(crate) fn stand(&mut self, socket: io::Result<Socket>, at: Moment) -> Result<(), Box<Answer>> {
        let ending = match socket {
            Ok(socket) => {
                self.socket = Some(socket);
                self.trace.connected = Some(at);
                self.write().err()
            }
            Err(error) => Some(unconnected(error)),
        };
        ending.map_or(Ok(()), |ending| Err(self.conclude(ending)))
    }

    /// Continues to write, after the socket got room or failed.
    pub(crate) fn write_on(&mut self) -> Result<(), Box<Answer>> {
        let fault = match (&self.socket, self.is_connected()) {
            (Some(socket), false) => socket.fault().unwrap_or_else(Some),
            _ => None,
        };
        let ending = match fault {
            Some(error) => Some(unconnected(error)),
            None => self.write().err(),
        };
        ending.map_or(Ok(()), |ending| Err(self.conclude(ending)))
    }

    fn write(&mut self) -> Result<(), Ending> {
        let Some(socket) = &mut self.socket else {
            return Ok(());
        };
        while (self.written < self.request.len() || socket.has_unsent()) && self.write_error.is_none() {
            let before = clock::now();
            match socket.write(&self.request[self.written..]) {
                Ok(taken) => {
                    self.trace.connected.get_or_insert(before);
                    self.written += taken;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if self.trace.connected.is_none() => return Err(unconnected(error)),
                // A server may reject a request while it is being written. Its answer, if any, says more than
                // the write error.
                Err(error) => self.write_error = Some(error),
            }
        }
        if self.write_error.is_none() && !self.request.is_empty() {
            self.trace.wrote(clock::now());
        }
        (self.request, self.written) = (Vec::new(), 0);
        Ok(())
    }

    /// Reads what has arrived. `is_ending` means that the other side has ended the connection, after any data
    /// still to be read.
    pub(crate) fn read(&mut self, is_ending: bool, reading: &mut Reading, haul: &mut Haul) -> Course {
        for _ in 0..TURNS {
            let Some(socket) = &mut self.socket else {
                return Course::Waits;
            };
            let arrival = match (socket.read(reading), &self.write_error) {
                (Ok(arrival), _) => arrival,
                (Err(error), _) if error.kind() == ErrorKind::WouldBlock => return Course::Waits,
                (Err(error), _) if error.kind() == ErrorKind::Interrupted => continue,
                (Err(_), Some(error)) => {
                    let message = format!("while the request was written: {error}");
                    return self.over(failed(Class::Reset, message));
                }
                (Err(error), None) => return self.over(failed(Class::Reset, error)),
            };
            let (events, before) = (self.trace.events(), self.trace.last_read());
            let at = self.trace.arrived(arrival);
            let over = match arrival.length {
                0 => self.trace.close(arrival.is_truncated).map(|()| true),
                _ => self.trace.take(reading.bytes(socket, &arrival), at),
            };
            haul.bytes += arrival.length;
            let events = self.trace.events() - events;
            haul.events += events;
            let off = at.since(reading.looked.max(before));
            reading.late.take(events, arrival.stamp, off);
            match over {
                Ok(true) => return self.over(Ending::Whole(at)),
                Ok(false) if self.trace.is_done() => {
                    self.is_left_open = true;
                    return self.over(Ending::Whole(at));
                }
                Ok(false) => {}
                Err(ending) => return self.over(ending),
            }
            match arrival.stamp {
                // Parsing delays no time that the kernel takes.
                Stamp::Kernel => self.trace.fold(),
                Stamp::User => self.trace.fold_full(),
            }
            if !is_ending && !arrival.has_more {
                return Course::Waits;
            }
        }
        Course::Ready
    }

    fn over(&mut self, ending: Ending) -> Course {
        Course::Over(self.conclude(ending))
    }

    pub(crate) fn time_out(&mut self) -> Box<Answer> {
        self.conclude(Ending::TimedOut)
    }

    /// Ends the request because epoll cannot watch its socket.
    pub(crate) fn unwatched(&mut self, error: io::Error) -> Box<Answer> {
        let message = format!("its connection cannot be watched: {error}");
        self.conclude(failed(Class::Connect, message))
    }

    pub(crate) fn cancel(&mut self) -> Box<Answer> {
        self.conclude(Ending::Cancelled)
    }

    fn conclude(&mut self, ending: Ending) -> Box<Answer> {
        Box::new(self.trace.conclude(ending))
    }
}

fn unconnected(error: io::Error) -> Ending {
    match error.kind() {
        ErrorKind::ConnectionRefused => failed(Class::Refused, error),
        _ => failed(Class::Connect, error),
    }
}
