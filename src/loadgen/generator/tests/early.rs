//! Servers that answer a request that has not been sent wholly, over bare and encrypted connections.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::config::connections::ConnectionLifetime;

/// The buffers of a connection hold less than this.
const LENGTH: usize = 12 << 20;

/// What a server does with the request of each attempt.
#[derive(Clone)]
struct Early {
    /// What it sends when it has read the head of the request.
    first: Vec<u8>,
    /// It reads the body when the client has seen so many events of the load.
    events: u64,
    /// What it sends between the pieces of the body.
    between: Vec<u8>,
    /// What it sends when it has read the whole body.
    last: Vec<u8>,
}

struct EarlyServer {
    port: u16,
    connections: Arc<AtomicUsize>,
    progress: Arc<Progress>,
    _tasks: JoinSet<()>,
}

impl EarlyServer {
    /// `script` says what is done with each request, by its number.
    async fn start(is_bare: bool, script: impl Fn(usize) -> Early + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, progress) = (Arc::<AtomicUsize>::default(), Arc::<Progress>::default());
        let (count, seen) = (Arc::clone(&connections), Arc::clone(&progress));
        let (script, requests) = (Arc::new(script), Arc::<AtomicUsize>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut served = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let (script, requests, seen) =
                    (Arc::clone(&script), Arc::clone(&requests), Arc::clone(&seen));
                served.spawn(async move {
                    let next = || script(requests.fetch_add(1, Ordering::SeqCst));
                    // The client closes connections whenever it likes.
                    let _ = if is_bare {
                        serve(stream, next, &seen).await
                    } else {
                        let config = test_server::server_config(rustls::ALL_VERSIONS);
                        match TlsAcceptor::from(Arc::new(config)).accept(stream).await {
                            Ok(stream) => serve(stream, next, &seen).await,
                            Err(error) => Err(error),
                        }
                    };
                });
            }
        });
        Self {
            port,
            connections,
            progress,
            _tasks: tasks,
        }
    }

    /// Sends one large request after another, over reused connections.
    async fn load(&self, is_bare: bool, requests: usize, retries: u32) -> Vec<Request> {
        let mut load = load(self.port, &vec![0; requests]);
        for planned in &mut load.requests {
            planned.content = Content::Text("x".repeat(LENGTH).into());
        }
        load.concurrency = NonZeroU32::new(1);
        load.connections.lifetime = ConnectionLifetime::Load;
        load.connections.retries = retries;
        let route = match is_bare {
            true => Route::find(&load.target.address, &load.target.connections)
                .await
                .unwrap(),
            false => encrypted_route(self.port),
        };
        let result = run_over_route(route, load, Arc::clone(&self.progress), CancellationToken::new()).await;
        result.unwrap().records
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    next: impl Fn() -> Early,
    progress: &Progress,
) -> std::io::Result<()> {
    let mut received = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (head, length) = loop {
            let text = String::from_utf8_lossy(&received);
            if let Some((head, _)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("Content-Length: "));
                break (head.len() + 4, length.unwrap().parse::<usize>().unwrap());
            }
            let count = stream.read(&mut buffer[..512]).await?;
            if count == 0 {
                return Ok(());
            }
            received.extend_from_slice(&buffer[..count]);
        };
        let early = next();
        stream.write_all(&early.first).await?;
        stream.flush().await?;
        while progress.events() < early.events {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut left = (head + length).saturating_sub(received.len());
        received.drain(..received.len().min(head + length));
        while left > 0 {
            let room = left.min(buffer.len());
            match stream.read(&mut buffer[..room]).await? {
                0 => return Ok(()),
                count => left -= count,
            }
            stream.write_all(&early.between).await?;
            stream.flush().await?;
        }
        stream.write_all(&early.last).await?;
        stream.flush().await?;
    }
}

/// The end of a stream that has begun.
fn rest(lines: &[&str]) -> Vec<u8> {
    stream(lines).split_off(partial_stream(&[]).len())
}

fn honest() -> Early {
    Early {
        first: Vec::new(),
        events: 0,
        between: Vec::new(),
        last: stream(&[A, END, DONE]),
    }
}

#[tokio::test]
async fn tokens_before_the_whole_request_was_sent_are_no_answer() {
    for is_bare in [true, false] {
        let server = EarlyServer::start(is_bare, |request| match request {
            0 => honest(),
            // Only the end waits for the request.
            1 => Early {
                first: partial_stream(&[A, END]),
                events: 4,
                last: rest(&[DONE]),
                ..honest()
            },
            _ => honest(),
        })
        .await;
        let records = server.load(is_bare, 3, 0).await;
        let classes: Vec<_> = records.iter().map(class).collect();
        assert_eq!(classes, [None, Some(RequestFailureClass::Garbled), None]);
        let message = &records[1].failure.as_ref().unwrap().message;
        assert_eq!(message, "the server answered before the whole request was sent");
        assert!(records[1].first_byte_ns < records[1].written_ns);
        // The answers end by their framing after their requests, so that all go over one connection.
        assert_eq!(server.connections.load(Ordering::SeqCst), 1, "{is_bare}");
    }
}

/// What is left of such a request would swallow the next one.
#[tokio::test]
async fn a_connection_is_not_reused_before_its_request_was_wholly_sent() {
    let busy = String::from_utf8(plain_response("503 Busy", "{}")).unwrap();
    let busy = busy.replacen("\r\n", "\r\nRetry-After: 0\r\n", 1).into_bytes();
    for is_bare in [true, false] {
        for first in [
            stream(&[A, END, DONE]),
            partial_stream(&[A, END, DONE]),
            busy.clone(),
        ] {
            let is_turned_away = first.starts_with(b"HTTP/1.1 503");
            let server = EarlyServer::start(is_bare, move |request| match request {
                0 => Early {
                    first: first.clone(),
                    events: u64::MAX,
                    ..honest()
                },
                _ => honest(),
            })
            .await;
            let records = server.load(is_bare, 2, 1).await;
            let classes: Vec<_> = records.iter().map(class).collect();
            let early = (!is_turned_away).then_some(RequestFailureClass::Garbled);
            assert_eq!(classes, [early, None], "{is_bare}");
            assert_eq!(records[0].connection.retries, u32::from(is_turned_away));
            assert_eq!(server.connections.load(Ordering::SeqCst), 2, "{is_bare}");
        }
    }
}

/// Comments keep the connection alive while a server reads. Through TLS, reading them also sends parts of the request.
#[tokio::test]
async fn servers_that_read_the_request_before_the_first_token_are_never_early() {
    for is_bare in [true, false] {
        let server = EarlyServer::start(is_bare, |_| Early {
            first: partial_stream(&[": ping"]),
            between: test_server::chunk(": ping\n\n"),
            last: rest(&[A, END, DONE]),
            ..honest()
        })
        .await;
        for record in server.load(is_bare, 4, 0).await {
            assert_eq!(record.failure, None);
            let first = record.chunks.first().map(|chunk| chunk.at_ns);
            assert!(
                record.written_ns.is_some() && record.written_ns <= first,
                "{record:?}"
            );
        }
    }
}
