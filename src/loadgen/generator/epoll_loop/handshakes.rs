//! Makes TLS handshakes on separate threads, so that the sending thread neither checks certificates nor waits
//! for them.
//!
//! A handshake takes a few hundred microseconds of processor time. Without these threads, a thousand requests
//! that are due together would delay each other, and every stream under way, by a third of a second.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::wait::wait_for;
use super::waker::Bell;
use crate::base::clock::{self, Moment};
use crate::loadgen::socket::Socket;
use crate::loadgen::tls::Tls;

/// Maximum number of handshake threads per sending thread.
const MAX_THREADS: usize = 4;
/// Interval of the check for handshakes past their deadline.
const SWEEP: Duration = Duration::from_millis(100);
/// Timeout of a wait while there is no handshake.
const IDLE: Duration = Duration::from_secs(3600);
/// Number of sockets that are served before the inbox is checked again.
const SOCKETS: usize = 64;
/// The epoll key of the waker.
const BELL: u64 = u64::MAX;

struct Asked {
    place: usize,
    to: SocketAddr,
    /// When the handshake is given up. Its request has timed out by then.
    deadline: Moment,
}

/// An established connection, or why it failed.
pub(super) struct Shaken {
    pub(super) place: usize,
    pub(super) socket: io::Result<Socket>,
    /// When the handshake ended.
    pub(super) at: Moment,
}

/// The handshake threads of one sending thread. They end when this is dropped.
pub(super) struct Handshakes {
    workers: Vec<Worker>,
    next: usize,
    shaken: Receiver<Shaken>,
    bell: Arc<Bell>,
}

struct Worker {
    /// `None` tells the thread to end.
    inbox: Option<Sender<Asked>>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Handshakes {
    /// Starts the threads; `senders` is the number of sending threads that share the processors.
    ///
    /// # Errors
    /// The kernel has no room for a thread or a file.
    pub(super) fn start(tls: &Tls, senders: usize) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let count = (cores / (2 * senders.max(1))).clamp(1, MAX_THREADS);
        let (out, shaken) = mpsc::channel();
        let bell = Arc::new(Bell::new()?);
        let workers = (0..count)
            .map(|_| Worker::start(tls.clone(), out.clone(), Arc::clone(&bell)))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            workers,
            next: 0,
            shaken,
            bell,
        })
    }

    /// The waker that fires when a connection is established or has failed.
    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(super) fn ask(&mut self, place: usize, to: SocketAddr, deadline: Moment) {
        let worker = &self.workers[self.next];
        self.next = (self.next + 1) % self.workers.len();
        if let Some(inbox) = &worker.inbox {
            // A dead thread does not answer; then the request times out.
            let _ = inbox.send(Asked { place, to, deadline });
            worker.bell.ring();
        }
    }

    /// Returns the next connection that is established or has failed.
    pub(super) fn take(&self) -> Option<Shaken> {
        self.shaken.try_recv().ok()
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.inbox = None;
            worker.bell.ring();
        }
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            let _ = thread.join();
        }
    }
}

impl Worker {
    fn start(tls: Tls, out: Sender<Shaken>, done: Arc<Bell>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Arc::new(Bell::new()?);
        let interest = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &*bell, epoll::EventData::new_u64(BELL), interest)?;
        let (inbox, asked) = mpsc::channel();
        let desk = Desk {
            tls,
            epoll,
            asked,
            pending: HashMap::new(),
            out,
            done,
        };
        let own_bell = Arc::clone(&bell);
        let thread = thread::Builder::new()
            .name("handshake".to_owned())
            .spawn(move || desk.run(&own_bell))?;
        Ok(Self {
            inbox: Some(inbox),
            bell,
            thread: Some(thread),
        })
    }
}

/// The state of one handshake thread.
struct Desk {
    tls: Tls,
    epoll: OwnedFd,
    asked: Receiver<Asked>,
    /// Connections being established and their deadlines, by the place of their stream.
    pending: HashMap<usize, (Socket, Moment)>,
    out: Sender<Shaken>,
    /// Wakes the sending thread after a result was sent.
    done: Arc<Bell>,
}

impl Desk {
    fn run(mut self, bell: &Bell) {
        let mut events = Vec::with_capacity(SOCKETS);
        let mut swept = clock::now();
        loop {
            events.clear();
            let wait = if self.pending.is_empty() { IDLE } else { SWEEP };
            wait_for(&self.epoll, &mut events, wait);
            for event in &events {
                match event.data.u64() {
                    BELL => bell.hush(),
                    place => self.go_on(usize::try_from(place).unwrap_or(usize::MAX)),
                }
            }
            loop {
                match self.asked.try_recv() {
                    Ok(asked) => self.begin(&asked),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let now = clock::now();
            if now.since(swept) >= SWEEP {
                swept = now;
                self.pending.retain(|_, (_, deadline)| *deadline > now);
            }
        }
    }

    fn begin(&mut self, asked: &Asked) {
        let socket = Socket::connect(asked.to)
            .and_then(|socket| Ok(socket.encrypted(self.tls.session()?)))
            .and_then(|socket| {
                let interest = epoll::EventFlags::IN
                    | epoll::EventFlags::OUT
                    | epoll::EventFlags::RDHUP
                    | epoll::EventFlags::ET;
                let place = epoll::EventData::new_u64(asked.place as u64);
                epoll::add(&self.epoll, &socket, place, interest)?;
                Ok(socket)
            });
        match socket {
            Ok(socket) => {
                self.pending.insert(asked.place, (socket, asked.deadline));
                self.go_on(asked.place);
            }
            Err(error) => self.end(asked.place, Err(error)),
        }
    }

    fn go_on(&mut self, place: usize) {
        let Some((socket, _)) = self.pending.get_mut(&place) else {
            return;
        };
        let shaken = match socket.fault() {
            Ok(None) => socket.shake_hands(),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        let shaken = match shaken {
            Ok(false) => return,
            shaken => shaken,
        };
        let Some((socket, _)) = self.pending.remove(&place) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &socket);
        self.end(place, shaken.map(|_| socket));
    }

    fn end(&mut self, place: usize, socket: io::Result<Socket>) {
        let shaken = Shaken {
            place,
            socket,
            at: clock::now(),
        };
        // After the load has ended there is no receiver.
        if self.out.send(shaken).is_ok() {
            self.done.ring();
        }
    }
}
