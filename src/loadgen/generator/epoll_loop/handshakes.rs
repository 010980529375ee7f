//! Makes TLS handshakes on separate threads, so that the sending thread neither checks certificates nor waits
//! for them.
//!
//! A handshake takes a few hundred microseconds of processor time. Without these threads, a thousand requests
//! that are due together would delay each other, and every stream under way, by a third of a second.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::wait::wait_for;
use super::waker::LoopWaker;
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::socket::{Peer, Socket};
use crate::loadgen::tls::TlsClient;

/// Maximum number of handshake threads per sending thread.
const MAX_THREADS: usize = 4;
/// Interval of the check for handshakes past their deadline.
const DEADLINE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout of a wait while there is no handshake.
const IDLE_WAIT: Duration = Duration::from_secs(3600);
/// Number of sockets that are served before the inbox is checked again.
const MAX_EPOLL_EVENTS: usize = 64;
/// The epoll key of the waker.
const WAKER_TOKEN: u64 = u64::MAX;

struct HandshakeRequest {
    index: usize,
    peer: Peer,
    tls: Arc<TlsClient>,
    /// When the handshake is given up. Its request has timed out by then.
    deadline: MonotonicTime,
}

/// An established connection, or why it failed.
pub(super) struct HandshakeResult {
    pub(super) index: usize,
    pub(super) socket: io::Result<Socket>,
    /// When the handshake ended.
    pub(super) done_at: MonotonicTime,
}

/// The handshake threads of one sending thread. They end when this is dropped.
pub(super) struct Handshakes {
    workers: Vec<Worker>,
    next: usize,
    results: Receiver<HandshakeResult>,
    waker: Arc<LoopWaker>,
}

struct Worker {
    /// `None` tells the thread to end.
    inbox: Option<Sender<HandshakeRequest>>,
    waker: Arc<LoopWaker>,
    thread: Option<JoinHandle<()>>,
}

impl Handshakes {
    /// Starts the threads; `senders` is the number of sending threads that share the processors.
    ///
    /// # Errors
    /// The kernel has no room for a thread or a file.
    pub(super) fn start(senders: usize) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let count = (cores / (2 * senders.max(1))).clamp(1, MAX_THREADS);
        let (out, result) = mpsc::channel();
        let waker = Arc::new(LoopWaker::new()?);
        let workers = (0..count)
            .map(|_| Worker::start(out.clone(), Arc::clone(&waker)))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            workers,
            next: 0,
            results: result,
            waker,
        })
    }

    /// The waker that fires when a connection is established or has failed.
    pub(super) fn waker(&self) -> &LoopWaker {
        &self.waker
    }

    pub(super) fn request(&mut self, index: usize, to: &Peer, tls: &Arc<TlsClient>, deadline: MonotonicTime) {
        let worker = &self.workers[self.next];
        self.next = (self.next + 1) % self.workers.len();
        if let Some(inbox) = &worker.inbox {
            // A dead thread does not answer; then the request times out.
            let _ = inbox.send(HandshakeRequest {
                index,
                peer: to.clone(),
                tls: Arc::clone(tls),
                deadline,
            });
            worker.waker.notify();
        }
    }

    /// Returns the next connection that is established or has failed.
    pub(super) fn next_result(&self) -> Option<HandshakeResult> {
        self.results.try_recv().ok()
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.inbox = None;
            worker.waker.notify();
        }
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            let _ = thread.join();
        }
    }
}

impl Worker {
    fn start(out: Sender<HandshakeResult>, done: Arc<LoopWaker>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = Arc::new(LoopWaker::new()?);
        let interest = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &*waker, epoll::EventData::new_u64(WAKER_TOKEN), interest)?;
        let (inbox, request) = mpsc::channel();
        let handshake_loop = HandshakeLoop {
            epoll,
            requests: request,
            pending: HashMap::new(),
            results: out,
            result_waker: done,
        };
        let own_bell = Arc::clone(&waker);
        let thread = thread::Builder::new()
            .name("handshake".to_owned())
            .spawn(move || handshake_loop.run(&own_bell))?;
        Ok(Self {
            inbox: Some(inbox),
            waker,
            thread: Some(thread),
        })
    }
}

/// The state of one handshake thread.
struct HandshakeLoop {
    epoll: OwnedFd,
    requests: Receiver<HandshakeRequest>,
    /// Connections being established and their deadlines, by the place of their stream.
    pending: HashMap<usize, (Socket, MonotonicTime)>,
    results: Sender<HandshakeResult>,
    /// Wakes the sending thread after a result was sent.
    result_waker: Arc<LoopWaker>,
}

impl HandshakeLoop {
    fn run(mut self, waker: &LoopWaker) {
        let mut events = Vec::with_capacity(MAX_EPOLL_EVENTS);
        let mut swept = clock::now();
        loop {
            events.clear();
            let wait = if self.pending.is_empty() {
                IDLE_WAIT
            } else {
                DEADLINE_CHECK_INTERVAL
            };
            wait_for(&self.epoll, &mut events, wait);
            for event in &events {
                match event.data.u64() {
                    WAKER_TOKEN => waker.clear(),
                    index => self.continue_handshake(usize::try_from(index).unwrap_or(usize::MAX)),
                }
            }
            loop {
                match self.requests.try_recv() {
                    Ok(request) => self.begin(&request),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let now = clock::now();
            if now.since(swept) >= DEADLINE_CHECK_INTERVAL {
                swept = now;
                self.pending.retain(|_, (_, deadline)| *deadline > now);
            }
        }
    }

    fn begin(&mut self, request: &HandshakeRequest) {
        let socket = Socket::connect(&request.peer)
            .and_then(|socket| Ok(socket.with_tls(request.tls.session()?)))
            .and_then(|socket| {
                let interest = epoll::EventFlags::IN
                    | epoll::EventFlags::OUT
                    | epoll::EventFlags::RDHUP
                    | epoll::EventFlags::ET;
                let index = epoll::EventData::new_u64(request.index as u64);
                epoll::add(&self.epoll, &socket, index, interest)?;
                Ok(socket)
            });
        match socket {
            Ok(socket) => {
                self.pending.insert(request.index, (socket, request.deadline));
                self.continue_handshake(request.index);
            }
            Err(error) => self.end(request.index, Err(error)),
        }
    }

    fn continue_handshake(&mut self, index: usize) {
        let Some((socket, _)) = self.pending.get_mut(&index) else {
            return;
        };
        let result = match socket.connect_error() {
            Ok(None) => socket.continue_handshake(),
            Ok(Some(error)) | Err(error) => Err(socket.handshake_error(error)),
        };
        let result = match result {
            Ok(false) => return,
            result => result,
        };
        let Some((socket, _)) = self.pending.remove(&index) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &socket);
        self.end(index, result.map(|_| socket));
    }

    fn end(&mut self, index: usize, socket: io::Result<Socket>) {
        let result = HandshakeResult {
            index,
            socket,
            done_at: clock::now(),
        };
        // After the load has ended there is no receiver.
        if self.results.send(result).is_ok() {
            self.result_waker.notify();
        }
    }
}
