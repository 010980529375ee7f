//! The route to an engine: its resolved addresses, and TLS if the scheme requires it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use thiserror::Error;
use tokio::net::TcpStream;

use crate::base::tls::{TlsConfig, TlsSettings};
use crate::config::connections::Balance;
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

/// The way to all addresses of a target.
pub(super) struct Route {
    endpoints: Vec<Endpoint>,
    balance: Balance,
    next_index: AtomicUsize,
}

/// The way to one address of a target.
struct Endpoint {
    /// The addresses that accept connections, in the order of the resolver; or the Unix socket.
    peers: Vec<Peer>,
    next_index: AtomicUsize,
    tls: Option<Arc<TlsClient>>,
    /// Requests under way; counted if there are several endpoints.
    in_flight: AtomicUsize,
}

/// Timeout for testing whether one of several addresses listens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

impl Route {
    /// Resolves the host names of a target. Connections rotate over the addresses that listen, so that all
    /// replicas behind a name get requests.
    pub(super) async fn find(address: &Address, connections: &Connections) -> Result<Self, RouteError> {
        let mut endpoints = Vec::new();
        for address in [address].into_iter().chain(&connections.other_addresses) {
            endpoints.push(Endpoint::find(address, connections).await?);
        }
        Ok(Self {
            endpoints,
            balance: connections.balance,
            next_index: AtomicUsize::new(0),
        })
    }

    #[cfg(test)]
    pub(super) fn from_peers(peers: Vec<Peer>, tls: Option<TlsClient>) -> Self {
        Self {
            endpoints: vec![Endpoint::new(peers, tls)],
            balance: Balance::default(),
            next_index: AtomicUsize::new(0),
        }
    }

    pub(super) fn uses_tls(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.tls.is_some())
    }

    pub(super) fn has_several(&self) -> bool {
        self.endpoints.len() > 1
    }

    pub(super) fn endpoint_count(&self) -> usize {
        self.endpoints.len()
    }

    /// Chooses the endpoint of a request; `fixed` is that of its conversation or routing key.
    pub(super) fn choose(&self, fixed: Option<usize>) -> usize {
        if !self.has_several() {
            return 0;
        }
        if let Some(fixed) = fixed {
            return fixed;
        }
        let count = self.endpoints.len();
        let first = self.next_index.fetch_add(1, Ordering::Relaxed) % count;
        match self.balance {
            Balance::RoundRobin | Balance::Sticky => first,
            Balance::LeastLoaded => (first..count)
                .chain(0..first)
                .min_by_key(|place| self.endpoints[*place].in_flight.load(Ordering::Relaxed))
                .unwrap_or(first),
        }
    }

    /// Returns the endpoint of all requests with a routing key, if there are several.
    pub(super) fn of_routing_key(&self, key: &str) -> Option<usize> {
        let is_sticky = self.has_several() && self.balance == Balance::Sticky;
        is_sticky.then(|| {
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            (hasher.finish() % self.endpoints.len() as u64) as usize
        })
    }

    /// Returns the endpoint of the next round of a conversation.
    pub(super) fn of_next_round(&self, endpoint: usize) -> Option<usize> {
        (self.has_several() && self.balance == Balance::Sticky).then_some(endpoint)
    }

    pub(super) fn tls(&self, endpoint: usize) -> Option<&Arc<TlsClient>> {
        self.endpoints[endpoint].tls.as_ref()
    }

    pub(super) fn next_peer(&self, endpoint: usize) -> &Peer {
        let endpoint = &self.endpoints[endpoint];
        let turn = match endpoint.peers.len() {
            1 => 0,
            count => endpoint.next_index.fetch_add(1, Ordering::Relaxed) % count,
        };
        &endpoint.peers[turn]
    }

    /// Counts a request to an endpoint.
    pub(super) fn begin_request(&self, endpoint: usize) {
        if self.has_several() {
            self.endpoints[endpoint].in_flight.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn end_request(&self, endpoint: usize) {
        if self.has_several() {
            self.endpoints[endpoint].in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Endpoint {
    fn new(peers: Vec<Peer>, tls: Option<TlsClient>) -> Self {
        Self {
            peers,
            next_index: AtomicUsize::new(0),
            tls: tls.map(Arc::new),
            in_flight: AtomicUsize::new(0),
        }
    }

    async fn find(address: &Address, connections: &Connections) -> Result<Self, RouteError> {
        if let Some(socket) = &address.socket {
            return Ok(Self::new(vec![Peer::Unix(Arc::from(socket.as_path()))], None));
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
        Ok(Self::new(peers.collect(), tls))
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
