//! The route to an engine: its resolved addresses, and TLS if the scheme requires it.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use thiserror::Error;
use tokio::net::TcpStream;

use crate::loadgen::target::{Address, Scheme};
use crate::loadgen::tls::{TlsClient, native_roots};

#[derive(Debug, Error)]
pub enum RouteError {
    /// The name has no address.
    #[error("cannot resolve the host `{host}`: {source}")]
    Name {
        host: String,
        /// The error of the system.
        source: io::Error,
    },
    #[error("cannot make a TLS connection to `{host}`: {reason}")]
    Tls { host: String, reason: String },
}

pub(super) struct Route {
    /// The addresses that accept connections, in the order of the resolver.
    sockets: Vec<SocketAddr>,
    next_index: AtomicUsize,
    tls: Option<TlsClient>,
}

/// Timeout for testing whether one of several addresses listens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

impl Route {
    /// Resolves the host name. Connections rotate over the addresses that listen, so that all replicas behind
    /// a name get requests.
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
            Scheme::Https => {
                let tls = TlsClient::new(&address.host, native_roots());
                Some(tls.map_err(|reason| RouteError::Tls {
                    host: address.host.clone(),
                    reason,
                })?)
            }
        };
        Ok(Self::from_sockets(listening_sockets(sockets).await, tls))
    }

    pub(super) fn from_sockets(sockets: Vec<SocketAddr>, tls: Option<TlsClient>) -> Self {
        Self {
            sockets,
            next_index: AtomicUsize::new(0),
            tls,
        }
    }

    pub(super) fn tls(&self) -> Option<&TlsClient> {
        self.tls.as_ref()
    }

    pub(super) fn next(&self) -> SocketAddr {
        let turn = match self.sockets.len() {
            1 => 0,
            count => self.next_index.fetch_add(1, Ordering::Relaxed) % count,
        };
        self.sockets[turn]
    }
}

/// Returns the addresses that accept a connection, all of one family: `localhost` may name two servers, one
/// per family. Returns the first address if none accepts.
async fn listening_sockets(sockets: Vec<SocketAddr>) -> Vec<SocketAddr> {
    if sockets.len() == 1 {
        return sockets;
    }
    let trials = sockets.iter().map(|socket| async {
        let attempt = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(*socket)).await;
        matches!(attempt, Ok(Ok(_))).then_some(*socket)
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

#[cfg(test)]
mod tests;
