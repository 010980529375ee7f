//! A scripted server on the loopback interface, for tests of this module. It uses TLS if the client does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::base::tls::{TlsConfig, TlsSettings, Trust};
use crate::loadgen::target::{Address, Headers, Target};
use crate::plan::{ClientStyle, Protocol, ProtocolSpec, UsageRequest};

/// What the server does on a connection, in order; then it closes the connection.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Write(Vec<u8>),
    WriteByByte(Vec<u8>),
    Pause(Duration),
    /// Closes the connection for writing; with TLS it sends close_notify first.
    Shutdown,
    /// Sends close_notify and keeps the connection.
    CloseNotify,
    /// Changes the keys of a TLS connection and asks the client to do the same.
    UpdateKeys,
    /// Resets the connection instead of closing it.
    Reset,
    /// Sends nothing more and keeps the connection.
    Hang,
    /// Writes these bytes repeatedly until the client is gone.
    Forever(Vec<u8>),
}

/// First byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 22;
/// A self-signed certificate for `localhost`, valid for a hundred years and used only in tests.
const CERTIFICATE: &[u8] = include_bytes!("tls/localhost.crt");
const KEY: &[u8] = include_bytes!("tls/localhost.key");

/// Returns the TLS settings of a server for these versions.
pub(super) fn server_config(versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()],
            PrivateKeyDer::from_pem_slice(KEY).unwrap(),
        )
        .unwrap();
    // The server prefers HTTP/2.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// Returns the settings of a client that trusts the server's certificate.
pub(super) fn trusting_config() -> TlsConfig {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/loadgen/tls/localhost.crt");
    let settings = TlsSettings {
        trust: Trust::File(file.into()),
        identity: None,
    };
    TlsConfig::load(&settings).unwrap()
}

trait Stream: AsyncRead + AsyncWrite + Unpin {
    fn tcp(&self) -> &TcpStream;

    /// Does nothing without TLS.
    fn update_keys(&mut self) {}

    fn close_notify(&mut self) {}
}

impl Stream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Stream for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }

    fn update_keys(&mut self) {
        self.get_mut().1.refresh_traffic_keys().unwrap();
    }

    fn close_notify(&mut self) {
        self.get_mut().1.send_close_notify();
    }
}

type Script = dyn Fn(&str) -> Vec<Act> + Send + Sync;

/// Requests under way: now, at most, and in total.
#[derive(Default)]
pub(super) struct ServerStats {
    running: AtomicUsize,
    max_running: AtomicUsize,
    total: AtomicUsize,
    /// Connections on which the server does nothing more.
    ended: AtomicUsize,
    handshakes: Mutex<Vec<Handshake>>,
}

/// The negotiated protocol, and whether the session was resumed.
type Handshake = (Option<Vec<u8>>, Option<HandshakeKind>);

impl ServerStats {
    pub(super) fn max_running(&self) -> usize {
        self.max_running.load(Ordering::SeqCst)
    }

    pub(super) fn handshakes(&self) -> Vec<Handshake> {
        self.handshakes.lock().unwrap().clone()
    }

    pub(super) fn total(&self) -> usize {
        self.total.load(Ordering::SeqCst)
    }
}

pub(super) struct Server {
    pub(super) port: u16,
    pub(super) stats: Arc<ServerStats>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Waits until the server has ended with so many connections, because their script is over or they are closed.
    pub(super) async fn wait_for_ends(&self, count: usize) {
        while self.stats.ended.load(Ordering::SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Answers each request with the actions that the script returns for its text.
    pub(super) async fn start(script: impl Fn(&str) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (script, stats): (Arc<Script>, _) = (Arc::new(script), Arc::<ServerStats>::default());
        let mut tasks = JoinSet::new();
        let counted = Arc::clone(&stats);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, stats) = (Arc::clone(&script), Arc::clone(&counted));
                connections.spawn(async move {
                    serve(stream, &*script, &stats).await;
                    stats.ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            port,
            stats,
            _tasks: tasks,
        }
    }

    pub(super) async fn answering(acts: Vec<Act>) -> Self {
        Self::start(move |_| acts.clone()).await
    }
}

async fn serve(stream: TcpStream, script: &Script, stats: &ServerStats) {
    stream.set_nodelay(true).unwrap();
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first[0] == TLS_HANDSHAKE => {
            let acceptor = TlsAcceptor::from(Arc::new(server_config(rustls::ALL_VERSIONS)));
            if let Ok(stream) = acceptor.accept(stream).await {
                let connection = stream.get_ref().1;
                let alpn = connection.alpn_protocol().map(<[u8]>::to_vec);
                let kind = connection.handshake_kind();
                stats.handshakes.lock().unwrap().push((alpn, kind));
                serve_script(stream, script, stats).await;
            }
        }
        _ => serve_script(stream, script, stats).await,
    }
}

async fn serve_script(mut stream: impl Stream, script: &Script, stats: &ServerStats) {
    let Some(request) = read_request(&mut stream).await else {
        return;
    };
    stats.total.fetch_add(1, Ordering::SeqCst);
    let now = stats.running.fetch_add(1, Ordering::SeqCst) + 1;
    stats.max_running.fetch_max(now, Ordering::SeqCst);
    // The count decreases before the last action; otherwise the client could send its next request before it
    // does.
    let acts = script(&request);
    let last = acts.len().saturating_sub(1);
    for (place, act) in acts.into_iter().enumerate() {
        if place == last {
            stats.running.fetch_sub(1, Ordering::SeqCst);
        }
        if perform(&mut stream, act).await.is_err() {
            return;
        }
    }
}

async fn perform(stream: &mut impl Stream, act: Act) -> std::io::Result<()> {
    match act {
        Act::Write(bytes) => {
            stream.write_all(&bytes).await?;
            stream.flush().await
        }
        Act::WriteByByte(bytes) => {
            for byte in bytes {
                stream.write_all(&[byte]).await?;
                stream.flush().await?;
                tokio::task::yield_now().await;
            }
            Ok(())
        }
        Act::Pause(time) => {
            tokio::time::sleep(time).await;
            Ok(())
        }
        Act::Reset => stream.tcp().set_zero_linger(),
        Act::Shutdown => stream.shutdown().await,
        Act::CloseNotify => {
            stream.close_notify();
            stream.flush().await
        }
        Act::UpdateKeys => {
            stream.update_keys();
            stream.flush().await
        }
        Act::Hang => std::future::pending().await,
        Act::Forever(bytes) => loop {
            stream.write_all(&bytes).await?;
        },
    }
}

async fn read_request(stream: &mut impl Stream) -> Option<String> {
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

pub(super) fn target(port: u16, protocol: Protocol) -> Target {
    Target {
        address: Address::local(port),
        headers: Headers::default(),
        dialect: ProtocolSpec {
            protocol,
            path: None,
            usage: UsageRequest::Unasked,
            body: serde_json::Map::new(),
            routing_key_header: None,
            embeddings: Default::default(),
            style: ClientStyle::BenchServing,
        },
        model: "m".to_owned(),
        connections: Default::default(),
    }
}

/// Returns a complete chunked answer of these lines.
pub(super) fn stream(lines: &[&str]) -> Vec<u8> {
    let mut bytes = partial_stream(lines);
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// Returns an incomplete chunked answer of these lines.
pub(super) fn partial_stream(lines: &[&str]) -> Vec<u8> {
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

pub(super) fn plain_response(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
