//! The route to an engine: its resolved addresses, and TLS if the scheme requires it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use thiserror::Error;
use tokio::net::TcpStream;

use crate::base::tls::{TlsConfig, TlsSettings};
use crate::loadgen::connections::Connections;
use crate::loadgen::socket::Peer;
use crate::loadgen::target::{Address, Scheme};
use crate::loadgen::tls::TlsClient;

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
    /// The addresses that accept connections, in the order of the resolver; or the Unix socket.
    peers: Vec<Peer>,
    next_index: AtomicUsize,
    tls: Option<TlsClient>,
}

/// Timeout for testing whether one of several addresses listens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

impl Route {
    /// Resolves the host name. Connections rotate over the addresses that listen, so that all replicas behind
    /// a name get requests.
    pub(super) async fn find(address: &Address, connections: &Connections) -> Result<Self, RouteError> {
        if let Some(socket) = &address.socket {
            return Ok(Self::from_peers(
                vec![Peer::Unix(Arc::from(socket.as_path()))],
                None,
            ));
        }
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
            Scheme::Https => Some(tls_client(address, connections)?),
        };
        let peers = listening_sockets(sockets).await.into_iter().map(Peer::Tcp);
        Ok(Self::from_peers(peers.collect(), tls))
    }

    pub(super) fn from_peers(peers: Vec<Peer>, tls: Option<TlsClient>) -> Self {
        Self {
            peers,
            next_index: AtomicUsize::new(0),
            tls,
        }
    }

    pub(super) fn tls(&self) -> Option<&TlsClient> {
        self.tls.as_ref()
    }

    pub(super) fn next(&self) -> &Peer {
        let turn = match self.peers.len() {
            1 => 0,
            count => self.next_index.fetch_add(1, Ordering::Relaxed) % count,
        };
        &self.peers[turn]
    }
}

fn tls_client(address: &Address, connections: &Connections) -> Result<TlsClient, RouteError> {
    let tls_error = |reason| RouteError::Tls {
        host: address.host.clone(),
        reason,
    };
    let config = match &connections.tls {
        Some(config) => config.clone(),
        None => {
            let config = TlsConfig::load(&TlsSettings::default());
            config.map_err(|error| tls_error(error.to_string()))?
        }
    };
    TlsClient::new(&address.host, &config).map_err(tls_error)
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
