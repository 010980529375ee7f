//! What a server does of the work of an engine: everything, a part of it, or passing requests on. Plain values.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::base::server_url::ServerUrl;

/// The part of the work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// Computes prompts and outputs.
    #[default]
    Engine,
    /// Computes prompts for decode servers, or continues after prompts that prefill servers computed.
    Disaggregated(DisaggregationMode),
    /// Computes nothing, and sends requests to prefill and decode servers.
    Router(RouterTargets),
}

/// The part of a server whose prompts and outputs are computed by different servers. The names are SGLang's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DisaggregationMode {
    /// Computes prompts.
    Prefill,
    /// Receives the KV cache of prompts and computes outputs.
    Decode,
}

impl fmt::Display for DisaggregationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        })
    }
}

/// The servers behind a router, at least one of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouterTargets {
    pub(crate) prefill: Vec<UpstreamUrl>,
    pub(crate) decode: Vec<UpstreamUrl>,
}

/// The address of a server behind the router, such as `http://10.0.0.1:8000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamUrl {
    /// A name or an address; an IPv6 address has brackets.
    host: String,
    port: u16,
}

impl UpstreamUrl {
    /// Host and port as a socket takes them.
    pub(crate) fn socket(&self) -> (&str, u16) {
        let host = self
            .host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        (host.unwrap_or(&self.host), self.port)
    }

    /// The value of the header `host`.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

impl FromStr for UpstreamUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = ServerUrl::parse(text);
        match parsed.map_err(|fault| format!("{}; {}", fault.reason, fault.help))? {
            ServerUrl::Web(url) if url.scheme == "http" && url.prefix.is_empty() => Ok(Self {
                host: url.host,
                port: url.port,
            }),
            ServerUrl::Web(url) if url.scheme == "http" => Err(format!(
                "the URL has the path `{}`, but the router appends the path of each request; write `http://{}:{}`",
                url.prefix, url.host, url.port
            )),
            ServerUrl::Web(_) | ServerUrl::Unix(_) => {
                Err("the router speaks plain HTTP only; write `http://host:8000`".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_an_http_address_without_a_path() {
        let url: UpstreamUrl = "http://[::1]:8000/".parse().unwrap();
        assert_eq!(url.socket(), ("::1", 8000));
        assert_eq!(url.to_string(), "http://[::1]:8000");
        let url: UpstreamUrl = "http://node1".parse().unwrap();
        assert_eq!(
            (url.socket(), url.authority()),
            (("node1", 80), "node1:80".to_owned())
        );
        for (text, part) in [
            ("https://h", "plain HTTP only"),
            ("unix:///run/a.sock", "plain HTTP only"),
            ("http://h:1/v1", "write `http://h:1`"),
            ("h:8000", "did you mean `http://h:8000`?"),
            ("http://h:0", "its port is invalid"),
        ] {
            let error = text.parse::<UpstreamUrl>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
