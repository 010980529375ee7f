//! The timed path's sockets: connect, write, read, each read with its moment.
//!
//! A read gives the moment of arrival, whose clock took it, and bytes: nothing else happens in between. This is the way
//! for encrypted connections and for single requests; a load over bare TCP goes through `loadgen::socket`. There is one connection per request, as bench_serving has it; no pooling, redirects, proxies or compression.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::base::clock::{self, Moment};
use crate::loadgen::protocol;
use crate::loadgen::target::{Address, Scheme, Target};

/// Whose clock took a moment of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The kernel's, when the bytes came in: our own queueing is not in it.
    Kernel,
    /// Ours, right after the read returned: our own queueing is in it.
    User,
}

impl Stamp {
    /// The word in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}

/// What a read brought, besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// When it arrived.
    pub(super) at: Moment,
    /// Whose clock says so.
    pub(super) stamp: Stamp,
    /// How many bytes; 0 when the other side ended the connection.
    pub(super) length: usize,
}

/// Why no request can be sent to an address at all.
#[derive(Debug, Error)]
pub enum RouteError {
    /// The name has no address.
    #[error("the host `{host}` cannot be found: {source}")]
    Name {
        /// The name.
        host: String,
        /// What the system said.
        source: io::Error,
    },
    /// No encrypted connection can be made.
    #[error("no encrypted connection to `{host}` can be made: {why}")]
    Tls {
        /// The name.
        host: String,
        /// The reason.
        why: String,
    },
}

/// The way to an engine: its addresses, looked up once.
pub(super) struct Route {
    /// The addresses that take connections, in the order in which the system names them.
    sockets: Vec<SocketAddr>,
    /// How many connections were made so far.
    turn: AtomicUsize,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// How long one of several addresses may take to prove that it listens.
const TRIAL: Duration = Duration::from_secs(2);

impl Route {
    /// Looks the name up. Connections take turns over the addresses that listen, so that a name that stands for several replicas reaches
    /// all of them.
    pub(super) async fn find(address: &Address) -> Result<Self, RouteError> {
        let name = |source| RouteError::Name {
            host: address.host.clone(),
            source,
        };
        let sockets: Vec<SocketAddr> = tokio::net::lookup_host((address.host.as_str(), address.port))
            .await
            .map_err(name)?
            .collect();
        if sockets.is_empty() {
            return Err(name(io::ErrorKind::NotFound.into()));
        }
        let tls = match address.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(encrypted(&address.host, native_roots())?),
        };
        Ok(Self::over(listening(sockets).await, tls))
    }

    fn over(sockets: Vec<SocketAddr>, tls: Option<(TlsConnector, ServerName<'static>)>) -> Self {
        Self {
            sockets,
            turn: AtomicUsize::new(0),
            tls,
        }
    }

    /// Whether connections carry bare bytes.
    pub(super) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Where the next connection goes.
    pub(super) fn next(&self) -> SocketAddr {
        let turn = match self.sockets.len() {
            1 => 0,
            count => self.turn.fetch_add(1, Ordering::Relaxed) % count,
        };
        self.sockets[turn]
    }

    /// Connects; for `https` the connection stands when the handshake is done.
    pub(super) async fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(self.next()).await?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Connection::Plain(stream),
            Some((connector, name)) => {
                Connection::Tls(Box::new(connector.connect(name.clone(), stream).await?))
            }
        })
    }
}

/// Of several addresses those that take a connection, of one kind: `localhost` may name two servers, one for each kind. The first
/// address where none does.
async fn listening(sockets: Vec<SocketAddr>) -> Vec<SocketAddr> {
    if sockets.len() == 1 {
        return sockets;
    }
    let trials = sockets.iter().map(|socket| async {
        let trial = tokio::time::timeout(TRIAL, TcpStream::connect(*socket)).await;
        matches!(trial, Ok(Ok(_))).then_some(*socket)
    });
    let listening: Vec<SocketAddr> = join_all(trials).await.into_iter().flatten().collect();
    let first = listening.first().unwrap_or(&sockets[0]);
    let mut all: Vec<SocketAddr> = Vec::with_capacity(sockets.len());
    for socket in listening.iter().chain([first]) {
        if socket.is_ipv4() == first.is_ipv4() && !all.contains(socket) {
            all.push(*socket);
        }
    }
    all
}

fn native_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn encrypted(host: &str, roots: RootCertStore) -> Result<(TlsConnector, ServerName<'static>), RouteError> {
    let wrong = |why: String| RouteError::Tls {
        host: host.to_owned(),
        why,
    };
    if roots.is_empty() {
        return Err(wrong(
            "this machine has no root certificates; install `ca-certificates`, or set `SSL_CERT_FILE`"
                .to_owned(),
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let configuration = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(error.to_string()))?;
    Ok((TlsConnector::from(Arc::new(configuration)), name))
}

/// A connection that stands.
pub(super) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Hands all bytes to the kernel.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        async fn all(mut stream: impl AsyncWrite + Unpin, bytes: &[u8]) -> io::Result<()> {
            stream.write_all(bytes).await?;
            stream.flush().await
        }
        match self {
            Self::Plain(stream) => all(stream, bytes).await,
            Self::Tls(stream) => all(stream, bytes).await,
        }
    }

    /// Waits for bytes. The moment is taken before anybody looks at them.
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<Arrival> {
        async fn once(mut stream: impl AsyncRead + Unpin, buffer: &mut [u8]) -> io::Result<usize> {
            stream.read(buffer).await
        }
        let read = match self {
            Self::Plain(stream) => once(stream, buffer).await,
            Self::Tls(stream) => once(stream, buffer).await,
        };
        let at = clock::now();
        let length = match read {
            // A peer that ends a TLS connection without saying so; the framing of the answer knows whether it was whole.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            read => read?,
        };
        Ok(Arrival {
            at,
            stamp: Stamp::User,
            length,
        })
    }
}

/// The bytes of one request: head and body.
pub(super) fn compose(target: &Target, routing_key: Option<&str>, body: &[u8]) -> Vec<u8> {
    let address = &target.address;
    let mut head = format!(
        "POST {}{} HTTP/1.1\r\n",
        address.prefix,
        protocol::path(&target.dialect)
    );
    let length = body.len().to_string();
    let ours = [
        ("Host", address.authority()),
        (
            "User-Agent",
            concat!("matrix/", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
        ("Accept", "*/*".to_owned()),
        // A compressed stream would arrive in the compressor's blocks instead of the engine's.
        ("Accept-Encoding", "identity".to_owned()),
        ("Content-Type", "application/json".to_owned()),
    ];
    let kept = ours.iter().filter(|(name, _)| !target.headers.has(name));
    let headers = kept
        .map(|(name, value)| (*name, value.as_str()))
        .chain([("Content-Length", length.as_str()), ("Connection", "close")])
        .chain(target.headers.iter())
        .chain(routing_key.map(|key| (protocol::ROUTING_KEY, key)));
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    request
}

#[cfg(test)]
mod tests;
