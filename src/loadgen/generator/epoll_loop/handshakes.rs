//! TLS handshakes on threads of their own, so that the thread that sends and reads neither checks certificates nor waits for them.
//!
//! A handshake takes a few hundred microseconds of processor time: a thousand requests that are due together would
//! otherwise delay each other, and every stream under way, by a third of a second.

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

/// At most so many threads shake hands for one thread that sends.
const MAX_THREADS: usize = 4;
/// How often handshakes that take too long are looked for.
const SWEEP: Duration = Duration::from_millis(100);
/// The wait of a thread without a handshake.
const IDLE: Duration = Duration::from_secs(3600);
/// How many sockets are served before the inbox is looked at again.
const SOCKETS: usize = 64;
/// The place of the bell among the sockets.
const BELL: u64 = u64::MAX;

/// A connection that is asked for.
struct Asked {
    place: usize,
    to: SocketAddr,
    /// When it is given up. Whoever asked has given it up then too.
    deadline: Moment,
}

/// A connection that stands, or why it does not.
pub(super) struct Shaken {
    /// The place of the stream that asked for it.
    pub(super) place: usize,
    pub(super) socket: io::Result<Socket>,
    /// When the handshake was done.
    pub(super) at: Moment,
}

/// The threads that shake hands for one thread that sends. They end when this is dropped.
pub(super) struct Handshakes {
    workers: Vec<Worker>,
    next: usize,
    shaken: Receiver<Shaken>,
    bell: Arc<Bell>,
}

struct Worker {
    /// `None` once it is to end.
    inbox: Option<Sender<Asked>>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Handshakes {
    /// Starts threads; `senders` threads of the load share the processors.
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

    /// Rings when a connection stands or failed.
    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Asks for a connection to an address.
    pub(super) fn ask(&mut self, place: usize, to: SocketAddr, deadline: Moment) {
        let worker = &self.workers[self.next];
        self.next = (self.next + 1) % self.workers.len();
        if let Some(inbox) = &worker.inbox {
            // A thread that died answers nothing; the request then runs out of time.
            let _ = inbox.send(Asked { place, to, deadline });
            worker.bell.ring();
        }
    }

    /// The next connection that stands or failed.
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

/// What one thread works on.
struct Desk {
    tls: Tls,
    epoll: OwnedFd,
    asked: Receiver<Asked>,
    /// Connections in the making and their deadlines, by the place of their stream.
    pending: HashMap<usize, (Socket, Moment)>,
    out: Sender<Shaken>,
    /// Rung when something went out.
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
        // Nobody hears it once the load has ended.
        if self.out.send(shaken).is_ok() {
            self.done.ring();
        }
    }
}
