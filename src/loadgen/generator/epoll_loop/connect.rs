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

use super::handshakes::{Handshakes, Shaken};
use super::pause::Gap;
use super::wait::wait_for;
use super::{FEW_CONNECTS, MOST_EXPECTED, PREPARE, Round, SHAKEN, Stream};
use crate::base::clock::Moment;
use crate::loadgen::generator::concurrency_limit::Slot;
use crate::loadgen::generator::pending::Job;
use crate::loadgen::protocol::Decoder;
use crate::loadgen::request::{Live, RETRY};
use crate::loadgen::socket::Socket;

/// A request that has a slot, with what is needed to send it.
pub(super) struct Begun {
    pub(super) job: Job,
    slot: Option<Slot>,
    ready: Moment,
}

impl Round {
    /// Sends a request that has a slot, or queues it if too many connections are being established.
    pub(super) fn begin(&mut self, mut job: Job, slot: Option<Slot>, ready: Moment) {
        job.take_turn(ready, self.zero, &self.inner.shared);
        let begun = Begun { job, slot, ready };
        if self.connecting < self.connects && self.unconnected.is_empty() {
            self.connect(begun);
        } else {
            self.unconnected.push_back(begun);
        }
    }

    /// Sends queued requests as far as the limit of connections allows.
    pub(super) fn connect_waiting(&mut self) {
        while self.connecting < self.connects
            && let Some(begun) = self.unconnected.pop_front()
        {
            self.connect(begun);
        }
    }

    fn connect(&mut self, begun: Begun) {
        let Begun { mut job, slot, ready } = begun;
        let shared = &self.inner.shared;
        shared.progress.running.fetch_add(1, Ordering::Relaxed);
        let bounds = job.bounds(&shared.limits);
        let request = self.bodies.take(&mut job, shared);
        let mut decoder = Decoder::new(shared.target.dialect.protocol, bounds.line_bytes)
            .allow_empty(shared.stop_at_eos)
            .spill_to(shared.spill.as_ref(), job.talk.is_some());
        decoder.expect(job.asked_tokens.min(MOST_EXPECTED) as usize);
        let mut live = Live::begin(request, decoder, bounds, self.zero);
        let (place, sent) = (job.place, live.sent());
        let first = bounds.first_byte.min(bounds.request);
        let to = shared.route.next();
        let connected = match &mut self.inner.handshakes {
            Some(handshakes) => {
                handshakes.ask(place, to, sent.plus(first));
                Ok(())
            }
            None => live.connect(to, self.stands_at_once),
        };
        if first < bounds.request {
            self.firsts.push_back((sent.plus(first), place));
        }
        self.lasts.push_back((sent.plus(bounds.request), place));
        let is_connecting = connected.is_ok() && !live.is_connected();
        let room = self.inner.rooms.pop().unwrap_or_else(Box::new_uninit);
        let stream = Stream {
            live,
            job,
            ready,
            slot,
            is_connecting,
            gap: Gap::default(),
            is_preparing: false,
            is_heard: false,
        };
        let stream = self.streams[place].insert(Box::write(room, stream));
        self.running += 1;
        if let Err(answer) = connected {
            return self.end(place, *answer);
        }
        if is_connecting {
            self.stands_at_once = false;
            self.connecting += 1;
            self.retries.push_back((sent.plus(RETRY), place));
        }
        stream.is_preparing = stream.live.is_writing();
        self.preparing += usize::from(stream.is_preparing);
        let mut watched = Ok(());
        if stream.is_preparing {
            let interest = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            watched = watch(&self.inner.preparing, &stream.live, place, interest);
        }
        match watched {
            Ok(()) => self.hear(place),
            Err(error) => self.unwatched(place, error),
        }
    }

    /// Takes over connections whose handshakes have ended.
    fn take_shaken(&mut self) {
        if let Some(handshakes) = &self.inner.handshakes {
            handshakes.bell().hush();
        }
        while let Some(shaken) = self.inner.handshakes.as_ref().and_then(Handshakes::take) {
            self.stand(shaken);
        }
    }

    fn stand(&mut self, shaken: Shaken) {
        let place = shaken.place;
        // A request that has timed out no longer needs its connection.
        let Some(stream) = &mut self.streams[place] else {
            return;
        };
        if stream.is_connecting {
            stream.is_connecting = false;
            self.connecting -= 1;
            self.connects += usize::from(shaken.socket.is_ok());
        }
        if let Err(answer) = stream.live.stand(shaken.socket, shaken.at) {
            return self.end(place, *answer);
        }
        // Data that arrived together with the handshake triggers no further event.
        if stream.live.socket().is_some_and(Socket::has_early_content) {
            self.again.push(place);
        }
        if stream.live.is_writing() {
            let interest = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            if let Err(error) = watch(&self.inner.preparing, &stream.live, place, interest) {
                return self.unwatched(place, error);
            }
        } else {
            stream.is_preparing = false;
            self.preparing -= 1;
        }
        self.hear(place);
    }

    /// Registers a stream for reading once its connection is established.
    fn hear(&mut self, place: usize) {
        let Some(stream) = self.streams[place].as_mut() else {
            return;
        };
        if stream.is_heard || !stream.live.is_connected() {
            return;
        }
        stream.is_heard = true;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if let Err(error) = watch(&self.inner.epoll, &stream.live, place, interest) {
            self.unwatched(place, error);
        }
    }

    /// Ends a request whose socket cannot be watched, because the kernel has no memory or watches left
    /// (`fs.epoll.max_user_watches`).
    fn unwatched(&mut self, place: usize, error: io::Error) {
        if let Some(stream) = &mut self.streams[place] {
            let answer = stream.live.unwatched(error);
            self.end(place, *answer);
        }
    }

    pub(super) fn write_on(&mut self, place: usize) {
        let Some(stream) = &mut self.streams[place] else {
            return;
        };
        if !stream.live.is_writing() {
            return;
        }
        let written = stream.live.write_on();
        if stream.is_connecting && stream.live.is_connected() {
            stream.is_connecting = false;
            self.connecting -= 1;
            // The server accepts connections as fast as they come.
            self.connects += 1;
        }
        if stream.is_preparing && !stream.live.is_writing() {
            stream.is_preparing = false;
            self.preparing -= 1;
        }
        match written {
            Ok(()) => self.hear(place),
            Err(answer) => self.end(place, *answer),
        }
    }

    /// Serves the sockets that connect or send a body, and waits for them for up to `wait`.
    pub(super) fn prepare(&mut self, wait: Duration) {
        let mut events = Vec::with_capacity(PREPARE);
        wait_for(&self.inner.preparing, &mut events, wait);
        for event in &events {
            match event.data.u64() {
                SHAKEN => self.take_shaken(),
                place => self.write_on(usize::try_from(place).unwrap_or(usize::MAX)),
            }
        }
        self.connect_waiting();
    }

    /// Stops counting a connection whose first packet must be retransmitted; it would block all others for
    /// minutes. The limit drops, because the server does not accept connections as they come.
    pub(super) fn retry(&mut self, place: usize) {
        if let Some(stream) = self.streams[place].as_mut().filter(|stream| stream.is_connecting) {
            stream.is_connecting = false;
            self.connecting -= 1;
            self.connects = FEW_CONNECTS;
        }
    }
}

fn watch(epoll: &OwnedFd, live: &Live, place: usize, interest: epoll::EventFlags) -> io::Result<()> {
    let Some(socket) = live.socket() else {
        return Ok(());
    };
    epoll::add(epoll, socket, epoll::EventData::new_u64(place as u64), interest)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use tokio_util::sync::CancellationToken;

    use super::super::Loop;
    use super::*;
    use crate::base::clock;
    use crate::loadgen::dataset::Content;
    use crate::loadgen::generator::tests::{load, prepared};

    #[tokio::test]
    async fn a_long_body_is_written_on_while_the_loop_pauses() {
        const BODY: usize = 64 << 20;
        const PAUSE: Duration = Duration::from_secs(3);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut load = load(listener.local_addr().unwrap().port(), &[0]);
        load.items[0].content = Content::Text("a".repeat(BODY).into());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut buffer, mut taken) = (vec![0; 1 << 20], 0);
            while taken <= BODY || !buffer.contains(&b'}') {
                taken += stream.read(&mut buffer).unwrap();
            }
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: [DONE]\n\n";
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let (jobs, shared) = prepared(load).await;
        let zero = clock::now();
        let mut round = Loop::new(&shared, 1)
            .unwrap()
            .round(jobs, zero, &CancellationToken::new());
        round.next_look = zero.plus(PAUSE);
        round.run();
        server.join().unwrap();
        let request = &round.done[0].request;
        let seconds = |at: Option<u64>| at.map(|at| at as f64 / 1e9);
        let (written, first_byte) = (seconds(request.written_ns), seconds(request.first_byte_ns));
        assert!(written.is_some_and(|at| at < PAUSE.as_secs_f64()), "{written:?}");
        assert!(first_byte.is_some(), "{:?}", request.failure);
    }
}
