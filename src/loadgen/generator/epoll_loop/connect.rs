//! Brings a request from its slot to the kernel, and limits the number of connections being established.
//!
//! A request counts as sent when its connection is requested. Any wait before that is the client's delay and
//! part of the lag. Sockets that still connect or send a body have their own epoll, so that they are served
//! even while the loop pauses. Requests that are due together are sent one after another; work that can wait
//! until the connection is established is deferred until then.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::handshakes::{HandshakeResult, Handshakes};
use super::pause::Gap;
use super::repeat::Attempts;
use super::slotted_request::SlottedRequest;
use super::wait::wait_for;
use super::{
    HANDSHAKE_TOKEN, LoopState, MAX_EXPECTED_EVENTS, MAX_PREPARING_EVENTS, REDUCED_MAX_CONNECTING, Stream,
};
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::generator::concurrency_limit::Slot;
use crate::loadgen::generator::pending::PendingRequest;
use crate::loadgen::protocol::Decoder;
use crate::loadgen::request::{CONNECT_RETRANSMIT, InFlight, Outgoing, Response};
use crate::loadgen::socket::Socket;

/// Pause before another attempt to connect to a Unix socket whose accept queue is full.
const FULL_QUEUE_PAUSE: Duration = Duration::from_millis(1);

impl LoopState {
    /// Sends a request that has a slot, or queues it if too many connections are being established.
    pub(super) fn start_request(
        &mut self,
        mut pending: PendingRequest,
        slot: Option<Slot>,
        ready: MonotonicTime,
    ) {
        pending.set_due(ready, self.zero, &self.event_loop.shared);
        let slotted = SlottedRequest {
            request: pending,
            concurrency_slot: slot,
            ready_at: ready,
        };
        if self.connecting < self.max_connecting && self.unconnected.is_empty() {
            self.connect(slotted);
        } else {
            self.unconnected.push_back(slotted);
        }
    }

    /// Sends queued requests as far as the limit of connections allows.
    pub(super) fn connect_waiting(&mut self) {
        while self.connecting < self.max_connecting
            && let Some(slotted) = self.unconnected.pop_front()
        {
            self.connect(slotted);
        }
    }

    fn connect(&mut self, slotted: SlottedRequest) {
        let SlottedRequest {
            request: mut pending,
            concurrency_slot: slot,
            ready_at: ready,
        } = slotted;
        let shared = &self.event_loop.shared;
        shared.progress.running.fetch_add(1, Ordering::Relaxed);
        let bounds = pending.bounds(shared);
        let mut request = self.deferred_bodies.take(&mut pending, shared);
        let endpoint = shared.route.choose(pending.endpoint);
        shared.retarget(&mut request, 0, endpoint);
        shared.route.begin_request(endpoint);
        let mut in_flight = self.start_in_flight(&pending, request);
        let (index, sent) = (pending.position, in_flight.sent_at());
        let first = bounds.first_byte.min(bounds.request);
        let idle = self.take_idle_socket(endpoint);
        let attempts = Attempts::first(idle.is_some());
        let connected = match idle {
            Some(socket) => {
                in_flight.keep_request();
                in_flight.reuse(socket)
            }
            None => self.begin_connect(&mut in_flight, index, endpoint, sent.plus(first)),
        };
        if first < bounds.request {
            self.first_byte_deadlines.push_back((sent.plus(first), index));
        }
        self.request_deadlines
            .push_back((sent.plus(bounds.request), index));
        if let Some(after) = bounds.cancel.and_then(|point| point.time) {
            self.cancel_deadlines.insert((sent.plus(after), index));
        }
        let room = self.event_loop.free_streams.pop().unwrap_or_else(Box::new_uninit);
        let stream = Stream {
            in_flight,
            request: pending,
            ready_at: ready,
            slot,
            is_connecting: false,
            gap: Gap::default(),
            is_preparing: false,
            is_registered: false,
            endpoint,
            attempts,
        };
        self.streams[index] = Some(Box::write(room, stream));
        self.running += 1;
        self.watch_connect(index, connected, sent);
    }

    /// Creates the state of one attempt to send a request.
    pub(super) fn start_in_flight(&self, pending: &PendingRequest, request: Outgoing) -> InFlight {
        let needs_text = pending.conversation.is_some() || self.sessions.needs_answer(pending.place);
        let shared = &self.event_loop.shared;
        let bounds = pending.bounds(shared);
        let mut decoder = Decoder::new(shared.target.dialect.protocol, bounds.line_bytes)
            .allow_empty(shared.stop_at_eos || !shared.target.dialect.protocol.facts().fixes_length)
            .expect_results(pending.expected_results)
            .spill_to(shared.spill.as_ref(), needs_text);
        decoder.reserve(pending.requested_tokens.min(MAX_EXPECTED_EVENTS) as usize);
        let mut in_flight = InFlight::start(request, decoder, bounds, self.zero);
        if shared.connections.retries > 0 {
            in_flight.keep_request();
        }
        in_flight
    }

    /// Requests a connection. If it is expected to be established at once, this also writes the request.
    pub(super) fn begin_connect(
        &mut self,
        in_flight: &mut InFlight,
        index: usize,
        endpoint: usize,
        deadline: MonotonicTime,
    ) -> Result<(), Box<Response>> {
        let route = &self.event_loop.shared.route;
        let to = route.next_peer(endpoint);
        match (&mut self.event_loop.handshakes, route.tls(endpoint)) {
            (Some(handshakes), Some(tls)) => {
                handshakes.request(index, to, tls, deadline);
                Ok(())
            }
            _ => in_flight.connect(to, self.stands_at_once),
        }
    }

    /// Counts and watches a connection that was requested at `began`.
    pub(super) fn watch_connect(
        &mut self,
        index: usize,
        connected: Result<(), Box<Response>>,
        began: MonotonicTime,
    ) {
        if let Err(answer) = connected {
            return self.finish(index, *answer);
        }
        let Some(stream) = &mut self.streams[index] else {
            return;
        };
        stream.is_connecting = !stream.in_flight.is_connected();
        if stream.is_connecting {
            self.stands_at_once = false;
            self.connecting += 1;
            self.retries.push_back((began.plus(CONNECT_RETRANSMIT), index));
            if stream.in_flight.socket().is_none()
                && self.event_loop.shared.route.tls(stream.endpoint).is_none()
            {
                self.full_queues
                    .push_back((clock::now().plus(FULL_QUEUE_PAUSE), index));
            }
        }
        stream.is_preparing = stream.in_flight.is_writing();
        self.preparing += usize::from(stream.is_preparing);
        let mut watched = Ok(());
        if stream.is_preparing {
            let interest = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            watched = register_socket(&self.event_loop.preparing, &stream.in_flight, index, interest);
        }
        match watched {
            Ok(()) => self.register_stream(index),
            Err(error) => self.fail_unwatched(index, error),
        }
    }

    /// Connects again to a Unix socket whose accept queue was full; the kernel does not wait for room in it.
    pub(super) fn repeat_connect(&mut self, index: usize) {
        let Some(stream) = &mut self.streams[index] else {
            return;
        };
        if stream.in_flight.socket().is_some() {
            return;
        }
        self.connecting -= usize::from(std::mem::take(&mut stream.is_connecting));
        self.preparing -= usize::from(std::mem::take(&mut stream.is_preparing));
        let connected = stream
            .in_flight
            .connect(self.event_loop.shared.route.next_peer(stream.endpoint), true);
        self.watch_connect(index, connected, clock::now());
    }

    /// Takes over connections whose handshakes have ended.
    fn take_handshakes(&mut self) {
        if let Some(handshakes) = &self.event_loop.handshakes {
            handshakes.waker().clear();
        }
        while let Some(handshake) = self
            .event_loop
            .handshakes
            .as_ref()
            .and_then(Handshakes::next_result)
        {
            self.finish_connect(handshake);
        }
    }

    fn finish_connect(&mut self, handshake: HandshakeResult) {
        let index = handshake.index;
        // A request that has timed out no longer needs its connection.
        let Some(stream) = &mut self.streams[index] else {
            return;
        };
        if stream.is_connecting {
            stream.is_connecting = false;
            self.connecting -= 1;
            self.max_connecting += usize::from(handshake.socket.is_ok());
        }
        if let Err(answer) = stream
            .in_flight
            .finish_connect(handshake.socket, handshake.done_at)
        {
            return self.finish(index, *answer);
        }
        // Data that arrived together with the handshake triggers no further event.
        if stream.in_flight.socket().is_some_and(Socket::has_early_content) {
            self.readable.push(index);
        }
        if stream.in_flight.is_writing() {
            let interest = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            if let Err(error) =
                register_socket(&self.event_loop.preparing, &stream.in_flight, index, interest)
            {
                return self.fail_unwatched(index, error);
            }
        } else {
            stream.is_preparing = false;
            self.preparing -= 1;
        }
        self.register_stream(index);
    }

    /// Registers a stream for reading once its connection is established.
    fn register_stream(&mut self, index: usize) {
        let Some(stream) = self.streams[index].as_mut() else {
            return;
        };
        if stream.is_registered || !stream.in_flight.is_connected() {
            return;
        }
        stream.is_registered = true;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if let Err(error) = register_socket(&self.event_loop.epoll, &stream.in_flight, index, interest) {
            self.fail_unwatched(index, error);
        }
    }

    /// Ends a request whose socket cannot be watched, because the kernel has no memory or watches left
    /// (`fs.epoll.max_user_watches`).
    fn fail_unwatched(&mut self, index: usize, error: io::Error) {
        if let Some(stream) = &mut self.streams[index] {
            let answer = stream.in_flight.fail_unwatched(error);
            self.finish(index, *answer);
        }
    }

    pub(super) fn continue_write(&mut self, index: usize) {
        let Some(stream) = &mut self.streams[index] else {
            return;
        };
        if !stream.in_flight.is_writing() {
            return;
        }
        let written = stream.in_flight.continue_write();
        if stream.is_connecting && stream.in_flight.is_connected() {
            stream.is_connecting = false;
            self.connecting -= 1;
            // The server accepts connections as fast as they come.
            self.max_connecting += 1;
        }
        if stream.is_preparing && !stream.in_flight.is_writing() {
            stream.is_preparing = false;
            self.preparing -= 1;
        }
        match written {
            Ok(()) => self.register_stream(index),
            Err(answer) => self.finish(index, *answer),
        }
    }

    /// Serves the sockets that connect or send a body, and waits for them for up to `wait`.
    pub(super) fn serve_preparing(&mut self, wait: Duration) {
        let mut events = Vec::with_capacity(MAX_PREPARING_EVENTS);
        wait_for(&self.event_loop.preparing, &mut events, wait);
        for event in &events {
            match event.data.u64() {
                HANDSHAKE_TOKEN => self.take_handshakes(),
                index => self.continue_write(usize::try_from(index).unwrap_or(usize::MAX)),
            }
        }
        self.connect_waiting();
    }

    /// Stops counting a connection whose first packet must be retransmitted; it would block all others for
    /// minutes. The limit drops, because the server does not accept connections as they come.
    pub(super) fn note_retransmit(&mut self, index: usize) {
        if let Some(stream) = self.streams[index].as_mut().filter(|stream| stream.is_connecting) {
            stream.is_connecting = false;
            self.connecting -= 1;
            self.max_connecting = REDUCED_MAX_CONNECTING;
        }
    }
}

fn register_socket(
    epoll: &OwnedFd,
    in_flight: &InFlight,
    index: usize,
    interest: epoll::EventFlags,
) -> io::Result<()> {
    let Some(socket) = in_flight.socket() else {
        return Ok(());
    };
    epoll::add(epoll, socket, epoll::EventData::new_u64(index as u64), interest)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use tokio_util::sync::CancellationToken;

    use super::super::EventLoop;
    use super::*;
    use crate::loadgen::dataset::Content;
    use crate::loadgen::generator::tests::{load, prepare_all};

    #[tokio::test]
    async fn a_long_body_is_written_on_while_the_loop_pauses() {
        const BODY: usize = 64 << 20;
        const PAUSE: Duration = Duration::from_secs(3);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut load = load(listener.local_addr().unwrap().port(), &[0]);
        load.requests[0].content = Content::Text("a".repeat(BODY).into());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut buffer, mut received) = (vec![0; 1 << 20], 0);
            while received <= BODY || !buffer.contains(&b'}') {
                received += stream.read(&mut buffer).unwrap();
            }
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: [DONE]\n\n";
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let (pending_requests, shared) = prepare_all(load).await;
        let zero = clock::now();
        let mut round =
            EventLoop::new(&shared, 1)
                .unwrap()
                .into_state(pending_requests, zero, &CancellationToken::new());
        round.next_poll = zero.plus(PAUSE);
        round.run();
        server.join().unwrap();
        let request = &round.outcomes[0].record;
        let seconds = |at: Option<u64>| at.map(|at| at as f64 / 1e9);
        let (written, first_byte) = (seconds(request.written_ns), seconds(request.first_byte_ns));
        assert!(written.is_some_and(|at| at < PAUSE.as_secs_f64()), "{written:?}");
        assert!(first_byte.is_some(), "{:?}", request.failure);
    }
}
