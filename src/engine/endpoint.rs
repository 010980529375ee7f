//! Where an engine answers, and where its devices are.

use reqwest::Client;
use reqwest::header::HeaderMap;

use crate::base::control_client::ControlClient;

/// Where an engine answers.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Host name or address, an IPv6 one in brackets.
    pub host: String,
    pub port: u16,
    /// Scheme, host, port and the path that precedes every path of a request; no slash at its end. It may hold a secret.
    pub base_url: String,
    /// The headers that go with every request.
    pub(super) headers: HeaderMap,
}

impl Endpoint {
    /// The endpoint of a server that needs no launch to be reached.
    pub(crate) const fn new(host: String, port: u16, base_url: String, headers: HeaderMap) -> Self {
        Self {
            host,
            port,
            base_url,
            headers,
        }
    }

    /// The headers that go with every request; they may hold a secret.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The client for every untimed request to it.
    pub(crate) fn control_client(&self, http: &Client) -> ControlClient {
        ControlClient::new(http.clone(), self.base_url.clone(), self.headers.clone())
    }

    /// The URL of a path, or of a path with its query.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{}", self.base_url, path.trim_start_matches('/'))
    }
}

/// Where the devices of an engine are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Devices {
    /// On this host: the leased ones.
    Local(Vec<u32>),
    /// Elsewhere, or unknown: only the engine itself can tell about them.
    Remote,
}
