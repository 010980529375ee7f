//! A server that sends as fast as the kernel takes it: one thread, epoll, events made beforehand. It knows the one kind
//! of request that this bench sends. The simulated engine has more to do per event and would be measured instead.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// So many different events, all of one length.
pub const EVENTS: usize = 512;
/// What an answer begins with.
pub const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
/// The event that it ends with.
pub const ENDING: &str = "data: [DONE]\n\n";

/// A client of such a server.
pub struct Peer {
    pub stream: TcpStream,
    request: Vec<u8>,
    /// Bytes of tokens that were sent, and that are to be sent.
    pub sent: usize,
    pub total: usize,
    pub has_begun: bool,
    is_queued: bool,
}

impl Peer {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_nonblocking(true).expect("a socket can do that");
        stream.set_nodelay(true).expect("a socket can do that");
        Self {
            stream,
            request: Vec::new(),
            sent: 0,
            total: 0,
            has_begun: false,
            is_queued: false,
        }
    }
}

/// Serves until it is killed; prints its port first. `burst` is the most that one write takes; 0 for an event each.
pub fn serve(burst: usize) -> ! {
    let listener = listen();
    println!("{}", listener.local_addr().expect("it is bound").port());
    listener.set_nonblocking(true).expect("a socket can do that");
    let (pattern, length) = pattern();
    let ending = framed(ENDING) + "0\r\n\r\n";
    let epoll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    epoll::add(&epoll, &listener, EventData::new_u64(u64::MAX), EventFlags::IN).expect("epoll");
    let mut peers: Vec<Option<Peer>> = Vec::new();
    let mut sending = VecDeque::new();
    let mut events: Vec<Event> = Vec::with_capacity(1024);
    loop {
        events.clear();
        let wait = rustix::time::Timespec {
            tv_sec: if sending.is_empty() { 3600 } else { 0 },
            tv_nsec: 0,
        };
        let _ = epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait));
        for event in &events {
            if event.data.u64() == u64::MAX {
                while let Ok((stream, _)) = listener.accept() {
                    let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
                    let data = EventData::new_u64(peers.len() as u64);
                    let peer = Peer::new(stream);
                    epoll::add(&epoll, &peer.stream, data, flags).expect("epoll");
                    peers.push(Some(peer));
                }
                continue;
            }
            let place = event.data.u64() as usize;
            let Some(peer) = &mut peers[place] else { continue };
            if peer.has_begun {
                if !peer.is_queued {
                    peer.is_queued = true;
                    sending.push_back(place);
                }
            } else if let Some(tokens) = asked(peer) {
                peer.stream.write_all(HEAD).expect("an empty buffer takes a head");
                (peer.total, peer.has_begun, peer.is_queued) = (tokens * length, true, true);
                sending.push_back(place);
            }
        }
        // A while of sending, one write each in turn, before new requests are looked at.
        for _ in 0..4096 {
            let Some(place) = sending.pop_front() else { break };
            let Some(peer) = &mut peers[place] else { continue };
            let piece = if peer.sent < peer.total {
                let from = peer.sent % (EVENTS * length);
                let most = if burst == 0 {
                    length - peer.sent % length
                } else {
                    burst
                };
                &pattern[from..from + most.min(peer.total - peer.sent)]
            } else {
                &ending.as_bytes()[peer.sent - peer.total..]
            };
            match peer.stream.write(piece) {
                Ok(taken) => peer.sent += taken,
                // The edge tells when there is room again.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    peer.is_queued = false;
                    continue;
                }
                Err(_) => {
                    peers[place] = None;
                    continue;
                }
            }
            if peer.sent == peer.total + ending.len() {
                peers[place] = None;
            } else {
                sending.push_back(place);
            }
        }
    }
}

pub fn listen() -> TcpListener {
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen, socket};
    use std::os::fd::AsRawFd;
    let fd = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .expect("a socket");
    bind(fd.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).expect("a free port");
    listen(&fd, Backlog::new(4096).expect("it is small")).expect("listening");
    TcpListener::from(fd)
}

/// The tokens that a whole request asks for.
pub fn asked(peer: &mut Peer) -> Option<usize> {
    let mut buffer = [0; 8192];
    while let Ok(length @ 1..) = peer.stream.read(&mut buffer) {
        peer.request.extend_from_slice(&buffer[..length]);
    }
    tokens_asked(&peer.request)
}

/// The tokens that a request asks for, if it is whole.
pub fn tokens_asked(request: &[u8]) -> Option<usize> {
    let request = std::str::from_utf8(request).ok()?;
    let (_, rest) = request.split_once("\"max_tokens\":")?;
    let digits = rest.find(|byte: char| !byte.is_ascii_digit())?;
    request.ends_with('}').then(|| rest[..digits].parse().ok())?
}

/// Events one after another, their number doubled so that a burst may begin anywhere, and the length of one.
pub fn pattern() -> (Vec<u8>, usize) {
    let events: Vec<String> = (0..EVENTS)
        .map(|word| {
            framed(&format!(
                "data: {{\"id\":\"cmpl-0123456789abcdef0123456789abcdef\",\"object\":\"text_completion\",\
                 \"created\":1732170000,\"model\":\"m\",\"choices\":[{{\"index\":0,\"text\":\" w{word:03x}\",\
                 \"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}}],\"usage\":null}}\n\n"
            ))
        })
        .collect();
    let length = events[0].len();
    (events.concat().into_bytes().repeat(2), length)
}

pub fn framed(event: &str) -> String {
    format!("{:x}\r\n{event}\r\n", event.len())
}
