//! Connections that serve several requests, over bare and encrypted connections.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::config::connections::ConnectionLifetime;

/// What the server does with one request of a connection.
#[derive(Clone)]
enum Reply {
    /// Sends these pieces, and reads the next request.
    Keep(Vec<Vec<u8>>),
    /// Sends these bytes, and closes the connection without a word.
    Close(Vec<u8>),
}

type Script = dyn Fn(usize, usize) -> Reply + Send + Sync;

/// A server that answers several requests of a connection.
struct KeepAliveServer {
    port: u16,
    connections: Arc<AtomicUsize>,
    /// The bodies of all requests, in the order in which they came.
    bodies: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl KeepAliveServer {
    /// `script` gets the number of the connection, and of the request on it, both from 0.
    async fn start(is_bare: bool, script: impl Fn(usize, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let script: Arc<Script> = Arc::new(script);
        let (connections, bodies) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::<Mutex<Vec<String>>>::default(),
        );
        let (count, heard) = (Arc::clone(&connections), Arc::clone(&bodies));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut served = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (script, heard) = (Arc::clone(&script), Arc::clone(&heard));
                served.spawn(async move {
                    if is_bare {
                        serve(stream, number, &*script, &heard).await;
                    } else {
                        let config = test_server::server_config(rustls::ALL_VERSIONS);
                        let acceptor = TlsAcceptor::from(Arc::new(config));
                        if let Ok(stream) = acceptor.accept(stream).await {
                            serve(stream, number, &*script, &heard).await;
                        }
                    }
                });
            }
        });
        Self {
            port,
            connections,
            bodies,
            _tasks: tasks,
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// One request after another, over reused connections.
    async fn load(&self, requests: usize, is_bare: bool) -> LoadResult {
        let mut load = load(self.port, &vec![0; requests]);
        load.concurrency = NonZeroU32::new(1);
        self.send(load, is_bare).await
    }

    /// Requests some time apart, over reused connections.
    async fn spaced_load(&self, requests: u64, is_bare: bool) -> LoadResult {
        let dues: Vec<u64> = (0..requests).map(|place| 300 * place).collect();
        self.send(load(self.port, &dues), is_bare).await
    }

    async fn send(&self, mut load: LoadSpec, is_bare: bool) -> LoadResult {
        load.connections.lifetime = ConnectionLifetime::Load;
        let route = match is_bare {
            true => Route::find(&load.target.address, &load.target.connections)
                .await
                .unwrap(),
            false => encrypted_route(self.port),
        };
        let stop = CancellationToken::new();
        run_over_route(route, load, Arc::default(), stop).await.unwrap()
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    connection: usize,
    script: &Script,
    heard: &Mutex<Vec<String>>,
) {
    let mut received = Vec::new();
    for request in 0.. {
        let Some(body) = read_body(&mut stream, &mut received).await else {
            return;
        };
        heard.lock().unwrap().push(body);
        match script(connection, request) {
            Reply::Keep(pieces) => {
                for piece in pieces {
                    stream.write_all(&piece).await.unwrap();
                    stream.flush().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            Reply::Close(bytes) => {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.flush().await;
                return;
            }
        }
    }
}

/// Reads one request, and checks that it does not ask to close the connection.
async fn read_body<S: AsyncRead + Unpin>(stream: &mut S, received: &mut Vec<u8>) -> Option<String> {
    loop {
        let text = String::from_utf8_lossy(received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            assert!(!head.to_lowercase().contains("connection:"), "{head}");
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length.unwrap().parse().unwrap();
            if body.len() >= length {
                received.drain(..head.len() + 4 + length);
                return Some(body[..length].to_owned());
            }
        }
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        received.extend_from_slice(&buffer[..count]);
    }
}

fn whole() -> Vec<u8> {
    stream(&[A, END, DONE])
}

fn reused(result: &LoadResult) -> Vec<bool> {
    result
        .records
        .iter()
        .map(|record| record.connection.is_reused)
        .collect()
}

fn assert_complete(result: &LoadResult) {
    for record in &result.records {
        assert_eq!(record.failure, None);
        assert_eq!(record.text.clone(), Some("ab".into()));
        assert!(is_in_order(record), "{record:?}");
    }
}

#[tokio::test]
async fn one_connection_serves_all_requests_that_follow_each_other() {
    for is_bare in [true, false] {
        let server = KeepAliveServer::start(is_bare, |_, _| Reply::Keep(vec![whole()])).await;
        let result = server.load(4, is_bare).await;
        assert_complete(&result);
        assert_eq!(reused(&result), [false, true, true, true]);
        assert_eq!(
            (server.connections(), result.surplus, result.left_open),
            (1, 0, 0)
        );
    }
}

/// Servers often send the last chunk apart from `[DONE]`, which ends the answer for its record.
#[tokio::test]
async fn a_connection_is_reused_after_the_end_of_the_framing_that_follows_done() {
    for is_bare in [true, false] {
        let pieces = || {
            let bytes = whole();
            let (content, last_chunk) = bytes.split_at(bytes.len() - 5);
            vec![content.to_vec(), last_chunk.to_vec()]
        };
        let server = KeepAliveServer::start(is_bare, move |_, _| Reply::Keep(pieces())).await;
        let result = server.spaced_load(3, is_bare).await;
        assert_complete(&result);
        assert_eq!(reused(&result), [false, true, true]);
        assert_eq!((server.connections(), result.left_open), (1, 0));
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_not_used() {
    for is_bare in [true, false] {
        let server = KeepAliveServer::start(is_bare, |_, _| Reply::Close(whole())).await;
        let result = server.spaced_load(2, is_bare).await;
        assert_complete(&result);
        assert_eq!((reused(&result), server.connections()), (vec![false, false], 2));
    }
}

/// The server closes the connection exactly when the next request is written: it is replaced once.
#[tokio::test]
async fn a_connection_that_ends_before_the_answer_is_replaced_once() {
    for is_bare in [true, false] {
        let server = KeepAliveServer::start(is_bare, |_, request| match request {
            0 => Reply::Keep(vec![whole()]),
            _ => Reply::Close(Vec::new()),
        })
        .await;
        let result = server.load(3, is_bare).await;
        assert_complete(&result);
        let reconnected: Vec<bool> = result
            .records
            .iter()
            .map(|record| record.connection.is_reconnected)
            .collect();
        assert_eq!(reconnected, [false, true, true]);
        assert_eq!(
            result
                .records
                .iter()
                .map(|record| record.connection.retries)
                .max(),
            Some(0)
        );
        assert_eq!(
            server.bodies.lock().unwrap().len(),
            5,
            "two requests were sent twice"
        );
        assert_eq!(server.connections(), 3);
        // A new connection that ends too is a failure.
        let server = KeepAliveServer::start(is_bare, |connection, request| match (connection, request) {
            (0, 0) => Reply::Keep(vec![whole()]),
            _ => Reply::Close(Vec::new()),
        })
        .await;
        let result = server.load(2, is_bare).await;
        assert_eq!(class(&result.records[1]), Some(RequestFailureClass::Reset));
        assert_eq!(server.connections(), 2);
    }
}

#[tokio::test]
async fn an_answer_that_began_is_never_asked_for_again() {
    for is_bare in [true, false] {
        let server = KeepAliveServer::start(is_bare, |_, request| match request {
            0 => Reply::Keep(vec![whole()]),
            _ => Reply::Close(partial_stream(&[A])),
        })
        .await;
        let result = server.load(2, is_bare).await;
        assert_eq!(class(&result.records[1]), Some(RequestFailureClass::Reset));
        assert!(!result.records[1].connection.is_reconnected);
        assert_eq!(server.bodies.lock().unwrap().len(), 2);
    }
}

/// Bytes behind an answer would otherwise be the answer to the next request.
#[tokio::test]
async fn bytes_that_belong_to_no_request_are_never_an_answer() {
    for is_bare in [true, false] {
        for is_together in [true, false] {
            let server = KeepAliveServer::start(is_bare, move |_, _| {
                let wrong = stream(&["data: {\"choices\":[{\"text\":\"WRONG\"}]}", DONE]);
                Reply::Keep(match is_together {
                    true => vec![[whole(), wrong].concat()],
                    false => vec![whole(), wrong],
                })
            })
            .await;
            let result = server.spaced_load(3, is_bare).await;
            assert_complete(&result);
            assert_eq!((reused(&result), server.connections()), (vec![false; 3], 3));
            // What follows the last answer is noticed only if it came together with it.
            assert!(result.surplus >= 2, "{}", result.surplus);
        }
    }
}

#[tokio::test]
async fn answers_that_end_with_their_connection_or_close_it_are_not_followed_by_a_request() {
    let without_length = format!("HTTP/1.1 200 OK\r\n\r\n{A}\n\n{END}\n\n{DONE}\n\n").into_bytes();
    let closing = {
        let text = String::from_utf8(whole()).unwrap();
        text.replacen("\r\n", "\r\nConnection: close\r\n", 1).into_bytes()
    };
    let old = {
        let body = format!("{A}\n\n{END}\n\n{DONE}\n\n");
        format!("HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    for bytes in [without_length, closing, old] {
        let server = KeepAliveServer::start(true, move |_, _| Reply::Keep(vec![bytes.clone()])).await;
        let result = server.load(2, true).await;
        assert_complete(&result);
        assert_eq!((reused(&result), server.connections()), (vec![false; 2], 2));
    }
}

#[tokio::test]
async fn refusals_leave_their_connection_to_the_next_request() {
    let server = KeepAliveServer::start(true, |_, request| {
        Reply::Keep(vec![match request {
            0 => plain_response("500 Oh", "no"),
            _ => whole(),
        }])
    })
    .await;
    let result = server.load(2, true).await;
    assert_eq!(class(&result.records[0]), Some(RequestFailureClass::Status));
    assert_eq!(result.records[1].failure, None);
    assert_eq!((reused(&result), server.connections()), (vec![false, true], 1));
}
