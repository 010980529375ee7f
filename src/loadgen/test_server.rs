//! A scripted server on the loopback, for tests of this module only.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::loadgen::target::{Address, Headers, Target};
use crate::plan::{Dialect, Protocol, Usage};

/// What the server does on one connection, in order; then it closes it.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Write(Vec<u8>),
    /// Each byte in a write of its own.
    Drip(Vec<u8>),
    Pause(Duration),
    /// Breaks the connection instead of closing it.
    Reset,
    /// Says nothing more and keeps the connection.
    Hang,
    /// Writes this until the client has gone.
    Forever(Vec<u8>),
}

type Script = dyn Fn(&str) -> Vec<Act> + Send + Sync;

/// Requests under way: now, at most, and in all.
#[derive(Default)]
pub(super) struct Seen {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

impl Seen {
    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub(super) fn all(&self) -> usize {
        self.all.load(Ordering::SeqCst)
    }
}

pub(super) struct Server {
    pub(super) port: u16,
    pub(super) seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Serves each request by what the script says to its text.
    pub(super) async fn start(script: impl Fn(&str) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (script, seen): (Arc<Script>, _) = (Arc::new(script), Arc::<Seen>::default());
        let mut tasks = JoinSet::new();
        let counted = Arc::clone(&seen);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, seen) = (Arc::clone(&script), Arc::clone(&counted));
                connections.spawn(async move { serve(stream, &*script, &seen).await });
            }
        });
        Self {
            port,
            seen,
            _tasks: tasks,
        }
    }

    /// Always the same.
    pub(super) async fn saying(acts: Vec<Act>) -> Self {
        Self::start(move |_| acts.clone()).await
    }
}

async fn serve(mut stream: TcpStream, script: &Script, seen: &Seen) {
    stream.set_nodelay(true).unwrap();
    let Some(request) = read_request(&mut stream).await else {
        return;
    };
    seen.all.fetch_add(1, Ordering::SeqCst);
    let now = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
    seen.most.fetch_max(now, Ordering::SeqCst);
    // The count goes down before the last byte goes out, or a client could be back before it does.
    let acts = script(&request);
    let last = acts.len().saturating_sub(1);
    for (place, act) in acts.into_iter().enumerate() {
        if place == last {
            seen.now.fetch_sub(1, Ordering::SeqCst);
        }
        if perform(&mut stream, act).await.is_err() {
            return;
        }
    }
}

async fn perform(stream: &mut TcpStream, act: Act) -> std::io::Result<()> {
    match act {
        Act::Write(bytes) => stream.write_all(&bytes).await,
        Act::Drip(bytes) => {
            for byte in bytes {
                stream.write_all(&[byte]).await?;
                tokio::task::yield_now().await;
            }
            Ok(())
        }
        Act::Pause(time) => {
            tokio::time::sleep(time).await;
            Ok(())
        }
        Act::Reset => stream.set_zero_linger(),
        Act::Hang => std::future::pending().await,
        Act::Forever(bytes) => loop {
            stream.write_all(&bytes).await?;
        },
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
        request.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))?
                .parse()
                .ok()?;
            if body.len() == length {
                return Some(text.into_owned());
            }
        }
    }
}

/// A target on this host.
pub(super) fn target(port: u16, protocol: Protocol) -> Target {
    Target {
        address: Address::local(port),
        headers: Headers::default(),
        dialect: Dialect {
            protocol,
            path: None,
            usage: Usage::Unasked,
            body: serde_json::Map::new(),
        },
        model: "m".to_owned(),
    }
}

/// A chunked answer of these lines, whole.
pub(super) fn stream(lines: &[&str]) -> Vec<u8> {
    let mut bytes = begun(lines);
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// A chunked answer of these lines that did not end.
pub(super) fn begun(lines: &[&str]) -> Vec<u8> {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for line in lines {
        bytes.extend(chunk(&format!("{line}\n\n")));
    }
    bytes
}

pub(super) fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

/// An answer with a length.
pub(super) fn plain(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
