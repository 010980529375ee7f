//! The yardstick: one thread with plain epoll that dechunks, parses every event into a typed struct and stamps it.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::TcpStream;

use matrix::base::clock::{self, MonotonicTime};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use serde::Deserialize;

use crate::{Measured, Work, cpu_seconds, peak_memory, tls};

#[derive(Deserialize)]
struct Token<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    text: Cow<'a, str>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
}

struct Stream {
    socket: Socket,
    sent: MonotonicTime,
    rest: Vec<u8>,
    has_head: bool,
    is_over: bool,
    stamps: Vec<MonotonicTime>,
    text_bytes: usize,
    is_finished: bool,
}

/// A connection, bare or through TLS.
enum Socket {
    Bare(TcpStream),
    Tls(TcpStream, Box<rustls::ClientConnection>),
}

impl Socket {
    /// A connection after its handshake.
    fn begin(mut stream: TcpStream, work: &Work) -> Self {
        if work.is_encrypted {
            let connection = tls::connect(&mut stream);
            Self::Tls(stream, Box::new(connection))
        } else {
            Self::Bare(stream)
        }
    }

    fn send(&mut self, request: &[u8]) {
        let sent = match self {
            Self::Bare(stream) => stream.write_all(request),
            Self::Tls(stream, connection) => {
                rustls::Stream::new(connection.as_mut(), stream).write_all(request)
            }
        };
        sent.expect("the server listens");
        let blocking = self.stream().set_nonblocking(true);
        blocking.expect("a socket can do that");
    }

    fn stream(&self) -> &TcpStream {
        match self {
            Self::Bare(stream) | Self::Tls(stream, _) => stream,
        }
    }

    /// Takes what is there; nothing is the end.
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Bare(stream) => stream.read(buffer),
            Self::Tls(stream, connection) => rustls::Stream::new(connection.as_mut(), stream).read(buffer),
        }
    }

    /// Whether bytes wait of which epoll knows nothing.
    fn holds_more(&self) -> bool {
        matches!(self, Self::Tls(..))
    }
}

/// Sends all requests at once and reads all answers.
pub fn measure(work: &Work) -> Measured {
    let body = format!(
        "{{\"model\":\"m\",\"prompt\":\"{}\",\"max_tokens\":{},\"stream\":true,\"ignore_eos\":true,\"temperature\":0.0}}",
        work.prompt, work.tokens
    );
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let cpu = cpu_seconds();
    let epoll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    let mut streams: Vec<Stream> = Vec::with_capacity(work.streams);
    for place in 0..work.streams {
        let sent = clock::now();
        let socket = TcpStream::connect(("127.0.0.1", work.port)).expect("the server listens");
        socket.set_nodelay(true).expect("a socket can do that");
        let mut socket = Socket::begin(socket, work);
        if !work.is_encrypted {
            socket.send(request.as_bytes());
        }
        epoll::add(
            &epoll,
            socket.stream(),
            EventData::new_u64(place as u64),
            EventFlags::IN,
        )
        .expect("epoll");
        streams.push(Stream {
            socket,
            sent,
            rest: Vec::new(),
            has_head: false,
            is_over: false,
            stamps: Vec::new(),
            text_bytes: 0,
            is_finished: false,
        });
    }
    // Handshakes come one after the other; with requests in between, the first streams would end before the last ones begin.
    for stream in streams.iter_mut().filter(|_| work.is_encrypted) {
        stream.socket.send(request.as_bytes());
    }
    let mut buffer = vec![0; 64 << 10];
    let mut events: Vec<Event> = Vec::with_capacity(1024);
    let mut left = work.streams;
    while left > 0 {
        events.clear();
        let _ = epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None);
        for event in &events {
            let stream = &mut streams[event.data.u64() as usize];
            while let Ok(length) = stream.socket.read(&mut buffer) {
                stream.take(&buffer[..length], clock::now());
                if length == 0 || stream.is_over {
                    epoll::delete(&epoll, stream.socket.stream()).expect("it was added");
                    left -= 1;
                    break;
                }
                if !stream.socket.holds_more() {
                    break;
                }
            }
        }
    }
    let cpu = cpu_seconds() - cpu;
    // Read, so that parsing it is not left out.
    assert!(
        streams
            .iter()
            .all(|stream| stream.text_bytes > 0 && !stream.is_finished || work.is_simulated)
    );
    Measured::of(
        streams
            .iter()
            .map(|stream| (stream.sent, stream.stamps.as_slice(), stream.is_over)),
        work,
        cpu,
        peak_memory(),
    )
}

impl Stream {
    fn take(&mut self, bytes: &[u8], at: MonotonicTime) {
        if self.rest.is_empty() && self.has_head {
            let taken = self.parse(bytes, at);
            self.rest.extend_from_slice(&bytes[taken..]);
        } else {
            let mut rest = std::mem::take(&mut self.rest);
            rest.extend_from_slice(bytes);
            let taken = self.parse(&rest, at);
            rest.drain(..taken);
            self.rest = rest;
        }
    }

    /// Reads whole chunks; how many bytes they took. In every answer here an event lies in one chunk.
    fn parse(&mut self, bytes: &[u8], at: MonotonicTime) -> usize {
        let mut start = 0;
        if !self.has_head {
            let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else {
                return 0;
            };
            assert!(
                bytes.starts_with(b"HTTP/1.1 200"),
                "{}",
                String::from_utf8_lossy(bytes)
            );
            (self.has_head, start) = (true, end + 4);
        }
        while let Some(end) = memchr::memchr(b'\n', &bytes[start..]) {
            let digits = &bytes[start..start + end - 1];
            let size = digits.iter().fold(0, |size, digit| {
                size << 4
                    | (*digit as char)
                        .to_digit(16)
                        .expect("a chunk begins with its size") as usize
            });
            let data = start + end + 1;
            if bytes.len() < data + size + 2 {
                break;
            }
            if size == 0 {
                self.is_over = true;
            }
            let mut lines = &bytes[data..data + size];
            while let Some(end) = memchr::memchr(b'\n', lines) {
                self.line(&lines[..end], at);
                lines = &lines[end + 1..];
            }
            start = data + size + 2;
        }
        start
    }

    fn line(&mut self, line: &[u8], at: MonotonicTime) {
        let Some(json) = line.strip_prefix(b"data: ").filter(|json| *json != b"[DONE]") else {
            return;
        };
        let json = std::str::from_utf8(json).expect("the server sends UTF-8");
        let token: Token<'_> = serde_json::from_str(json).expect("the server sends JSON");
        let Some(choice) = token.choices.first() else {
            return;
        };
        self.is_finished |= choice.finish_reason.is_some();
        if !choice.text.is_empty() {
            self.text_bytes += choice.text.len();
            self.stamps.push(at);
        }
    }
}
