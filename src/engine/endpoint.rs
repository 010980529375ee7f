use reqwest::Client;
use reqwest::header::HeaderMap;

use crate::base::control_client::ControlClient;

/// Address of an engine, and the headers of requests to it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Host name or address; IPv6 in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Scheme, host, port and path prefix, without a slash at the end. It may hold a secret.
    pub(crate) base_url: String,
    pub(super) headers: HeaderMap,
}

impl Endpoint {
    /// The endpoint of a server without a launch.
    pub(crate) const fn new(host: String, port: u16, base_url: String, headers: HeaderMap) -> Self {
        Self {
            host,
            port,
            base_url,
            headers,
        }
    }

    /// Headers of every request; they may hold a secret.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The client for untimed requests.
    pub(crate) fn control_client(&self, http: &Client) -> ControlClient {
        ControlClient::new(http.clone(), self.base_url.clone(), self.headers.clone())
    }

    /// The URL of a path, which may include a query.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{}", self.base_url, path.trim_start_matches('/'))
    }
}

/// GPUs of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Devices {
    /// GPUs of this host.
    Local(Vec<u32>),
    /// Elsewhere or unknown: only the engine itself reports about them.
    Remote,
}
