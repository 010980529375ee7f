use std::path::PathBuf;

use reqwest::Client;
use reqwest::header::HeaderMap;

use crate::base::control_client::ControlClient;
use crate::base::tls::TlsConfig;
use crate::base::unix_url::join_path;

/// Address of an engine, and the headers of requests to it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Host name or address; IPv6 in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Scheme, host, port and path prefix, without a slash at the end. It may hold a secret.
    pub(crate) base_url: String,
    pub(super) headers: HeaderMap,
    /// The Unix socket that the engine listens on, instead of host and port.
    pub(crate) socket: Option<PathBuf>,
    /// TLS settings other than the CAs of this machine.
    pub(crate) tls: Option<TlsConfig>,
    /// The client for untimed requests, if the one of the run cannot reach it.
    pub(super) own_http: Option<Client>,
}

impl Endpoint {
    /// The endpoint of a server without a launch.
    pub(crate) const fn new(host: String, port: u16, base_url: String, headers: HeaderMap) -> Self {
        Self {
            host,
            port,
            base_url,
            headers,
            socket: None,
            tls: None,
            own_http: None,
        }
    }

    /// The same endpoint on a Unix socket, if it listens on one.
    pub(crate) fn on_socket(self, socket: Option<PathBuf>) -> Self {
        Self { socket, ..self }
    }

    /// The client for untimed requests; `http` is that of the run.
    pub(crate) fn http(&self, http: &Client) -> Client {
        self.own_http.as_ref().unwrap_or(http).clone()
    }

    /// Headers of every request; they may hold a secret.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The client for untimed requests.
    pub(crate) fn control_client(&self, http: &Client) -> ControlClient {
        ControlClient::new(self.http(http), self.base_url.clone(), self.headers.clone())
    }

    /// The URL of a path, which may include a query.
    pub(crate) fn url(&self, path: &str) -> String {
        join_path(&self.base_url, path)
    }
}

/// A server of an engine that requests are not sent to, such as a decode server behind a router.
#[derive(Clone, Debug)]
pub(crate) struct OtherServer {
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
    /// The path that returns status 200 when it is healthy.
    pub(crate) health: String,
}

/// GPUs of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Devices {
    /// GPUs of this host.
    Local(Vec<u32>),
    /// Elsewhere or unknown: only the engine itself reports about them.
    Remote,
}
