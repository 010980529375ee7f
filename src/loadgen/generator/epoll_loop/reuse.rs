//! Connections that serve several requests.
//!
//! A connection is reused only after its answer has ended by its framing, and only if nothing else arrived on
//! it: bytes that belong to no request are never taken for the answer to the next one.

use std::sync::atomic::Ordering;

use rustix::event::epoll;

use super::{LoopState, Stream};
use crate::base::clock;
use crate::config::connections::ConnectionLifetime;
use crate::loadgen::request::{CLOSE_GRACE, Tail, TailState};
use crate::loadgen::socket::Socket;

/// A connection whose answer has ended with `[DONE]`.
pub(super) struct ClosingSocket {
    socket: Socket,
    /// What is left to read before the connection can be reused, and its endpoint; `None` if it is not reused.
    tail: Option<(Tail, usize)>,
}

impl LoopState {
    fn reuses_connections(&self) -> bool {
        self.event_loop.shared.connections.lifetime == ConnectionLifetime::Load
    }

    /// Takes the connection to an endpoint that was used last, if it is still open.
    pub(super) fn take_idle_socket(&mut self, endpoint: usize) -> Option<Socket> {
        while let Some(mut socket) = self.idle_sockets[endpoint].pop() {
            match socket.read(&mut self.event_loop.reading) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Some(socket),
                Ok(arrival) if arrival.length > 0 => self.count_surplus(),
                // The server closed it while it was idle.
                _ => {}
            }
        }
        None
    }

    /// Keeps the connection of an ended request, if it can be reused, or until the server closes it.
    pub(super) fn keep_connection(&mut self, index: usize, stream: &mut Stream) {
        if self.reuses_connections() {
            if stream.in_flight.has_surplus() {
                self.count_surplus();
            }
            if let Some(socket) = stream.in_flight.take_reusable_socket() {
                return self.keep_idle(socket, stream.endpoint);
            }
        }
        let Some(socket) = stream.in_flight.take_open_socket() else {
            return;
        };
        // Another request would become a part of one that was not wholly sent.
        let tail = (self.reuses_connections() && stream.in_flight.written_at().is_some())
            .then(|| (stream.in_flight.take_tail(), stream.endpoint));
        self.close_deadlines
            .push_back((clock::now().plus(CLOSE_GRACE), index));
        self.closing_sockets.insert(index, ClosingSocket { socket, tail });
        // Data that arrived together with the end of the answer triggers no further event.
        self.read_closing(index);
    }

    /// Reads from a connection whose answer has ended with `[DONE]`, and decides what becomes of it.
    pub(super) fn read_closing(&mut self, index: usize) {
        let Some(mut closing) = self.closing_sockets.remove(&index) else {
            return;
        };
        let reading = &mut self.event_loop.reading;
        let state = match &mut closing.tail {
            Some((tail, _)) => tail.read(&mut closing.socket, reading),
            // Whatever has arrived on it is ignored.
            None => match closing.socket.read(reading) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => TailState::Open,
                _ => TailState::Closed,
            },
        };
        match (state, closing.tail.as_ref().map(|(_, endpoint)| *endpoint)) {
            (TailState::Open, _) => drop(self.closing_sockets.insert(index, closing)),
            (TailState::Complete, Some(endpoint)) => self.keep_idle(closing.socket, endpoint),
            (TailState::Surplus, _) => self.count_surplus(),
            (TailState::Complete | TailState::Closed, _) => {}
        }
    }

    fn keep_idle(&mut self, socket: Socket, endpoint: usize) {
        // Events of an idle connection would name the stream that it served. It is watched by one of both, or
        // by both.
        let _ = epoll::delete(&self.event_loop.epoll, &socket);
        let _ = epoll::delete(&self.event_loop.preparing, &socket);
        self.idle_sockets[endpoint].push(socket);
    }

    fn count_surplus(&self) {
        self.event_loop
            .shared
            .progress
            .surplus
            .fetch_add(1, Ordering::Relaxed);
    }
}
