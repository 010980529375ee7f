//! The destination of requests: an engine's base URL, headers, protocol settings and model name.

use std::fmt;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use crate::base::secrets::MASK;
use crate::base::unix_url::{UNIX_HOST, UnixUrl};
use crate::config::connections::header_name_error;
use crate::loadgen::connections::Connections;
use crate::plan::ProtocolSpec;

/// An engine as requests see it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where the engine listens.
    pub address: Address,
    /// Headers of every request, with secrets resolved.
    pub headers: Headers,
    /// How requests are encoded and answers decoded.
    pub dialect: ProtocolSpec,
    /// The model name in requests.
    pub model: String,
    /// How connections are made.
    pub connections: Connections,
}

impl Target {
    /// A target for each of its addresses.
    pub(crate) fn by_address(&self) -> Vec<Self> {
        let addresses = std::iter::once(&self.address).chain(&self.connections.other_addresses);
        let only = |address: &Address| Self {
            address: address.clone(),
            connections: Connections {
                other_addresses: Vec::new(),
                ..self.connections.clone()
            },
            ..self.clone()
        };
        addresses.map(only).collect()
    }
}

/// A base URL or a header that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The base URL is invalid.
    #[error("`{url}` is not a base URL: {reason}; write it like `http://host:8000`")]
    Url {
        /// The URL as given, without user, password and query.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The header cannot be sent. The error does not show its value, which may be a secret.
    #[error("the header `{name}` cannot be sent: {reason}")]
    Header {
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// A base URL, split into parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Whether the connection is encrypted.
    pub scheme: Scheme,
    /// A name or an IP address; IPv6 without brackets.
    pub host: String,
    /// TCP port of the server.
    pub port: u16,
    /// Prefix of every path: empty, or with a slash at the front and none at the end.
    pub prefix: String,
    /// The Unix socket that takes the connections; requests then only name `host` and `port`.
    pub socket: Option<PathBuf>,
}

/// The supported URL schemes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP over a bare connection.
    Http,
    /// HTTP over a TLS connection.
    Https,
}

impl Address {
    /// Creates an address on this host with plain HTTP and no prefix.
    pub fn local(port: u16) -> Self {
        Self {
            scheme: Scheme::Http,
            host: "127.0.0.1".to_owned(),
            port,
            prefix: String::new(),
            socket: None,
        }
    }

    /// Creates an address on a Unix socket of this host.
    fn unix(url: UnixUrl<'_>) -> Self {
        Self {
            scheme: Scheme::Http,
            host: UNIX_HOST.to_owned(),
            port: 80,
            prefix: url.prefix.to_owned(),
            socket: Some(url.socket.to_owned()),
        }
    }

    /// Returns the value of the `Host` header.
    pub(crate) fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.scheme, self.port) {
            (Scheme::Http, 80) | (Scheme::Https, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(socket) = &self.socket {
            write!(f, "unix://{}", socket.display())?;
            return match self.prefix.as_str() {
                "" => Ok(()),
                prefix => write!(f, ":{prefix}"),
            };
        }
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}{}", self.authority(), self.prefix)
    }
}

impl FromStr for Address {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
        let url_error = |reason| TargetError::Url {
            url: without_secrets(url),
            reason,
        };
        let url = url.trim();
        if let Some(parts) = UnixUrl::parse(url) {
            return parts.map(Self::unix).map_err(|reason| TargetError::Url {
                url: url.to_owned(),
                reason,
            });
        }
        let (scheme, rest) = if let Some(rest) = url.strip_prefix("http://") {
            (Scheme::Http, rest)
        } else if let Some(rest) = url.strip_prefix("https://") {
            (Scheme::Https, rest)
        } else {
            return Err(url_error(
                "the URL must begin with `http://`, `https://` or `unix:///`",
            ));
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        if authority.contains('@') {
            return Err(url_error(
                "the URL must not contain credentials; send them in a header",
            ));
        }
        if rest.bytes().any(|byte| !byte.is_ascii_graphic()) || rest.contains(['?', '#']) {
            return Err(url_error("the URL must not contain spaces, `?` or `#`"));
        }
        let bad_port = || url_error("the port must be a number from 1 to 65535");
        let bracketed = authority.strip_prefix('[').map(|rest| rest.split_once(']'));
        let (host, port) = match bracketed {
            Some(None) => return Err(url_error("the IPv6 address has no `]`")),
            Some(Some((host, ""))) => (host, None),
            Some(Some((host, port))) => (host, Some(port.strip_prefix(':').ok_or_else(bad_port)?)),
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let default = match scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        };
        if host.is_empty() {
            return Err(url_error("it has no host"));
        }
        Ok(Self {
            scheme,
            host: host.to_owned(),
            port: match port {
                None => default,
                Some(port) => port.parse::<NonZeroU16>().map_err(|_| bad_port())?.get(),
            },
            prefix: path.trim_end_matches('/').to_owned(),
            socket: None,
        })
    }
}

/// The text of a URL that is refused, without its user, password and query.
fn without_secrets(url: &str) -> String {
    let (head, rest) = url.find(['?', '#']).map_or((url, ""), |at| url.split_at(at));
    let hidden = if rest.is_empty() { "" } else { MASK };
    let mark = &rest[..rest.len().min(1)];
    match (head.rsplit_once('@'), rest.contains('@')) {
        (Some((_, host)), _) => format!("{host}{mark}{hidden}"),
        (None, false) => format!("{head}{mark}{hidden}"),
        // The mark may be part of a password.
        (None, true) => MASK.to_owned(),
    }
}

/// Headers that can be sent. `Debug` shows no value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Checks that the headers are valid and do not affect the framing of requests.
    pub(crate) fn new(headers: Vec<(String, String)>) -> Result<Self, TargetError> {
        for (name, value) in &headers {
            let header_error = |reason| {
                Err(TargetError::Header {
                    name: name.clone(),
                    reason,
                })
            };
            if let Some(reason) = header_name_error(name) {
                return header_error(reason);
            }
            if value
                .bytes()
                .any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f)
            {
                return header_error("the header value contains a line break or another control character");
            }
        }
        Ok(Self(headers))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_falls_into_its_parts_and_back() {
        for (url, shown) in [
            ("http://host:8000/", "http://host:8000"),
            ("http://host/api/v2//", "http://host/api/v2"),
            ("https://[::1]:8443", "https://[::1]:8443"),
            ("http://[fe80::1]", "http://[fe80::1]"),
            ("https://host:443", "https://host"),
            ("unix:///run/a.sock", "unix:///run/a.sock"),
            ("unix:///run/a.sock:/v2/", "unix:///run/a.sock:/v2"),
        ] {
            assert_eq!(url.parse::<Address>().unwrap().to_string(), shown);
        }
        assert_eq!("https://host".parse::<Address>().unwrap().port, 443);
    }

    #[test]
    fn a_wrong_base_url_says_what_is_wrong_and_tells_no_password() {
        for (url, reason) in [
            ("host:8000", "must begin"),
            ("http://", "no host"),
            ("http://:80", "no host"),
            ("http://host:port", "from 1 to 65535"),
            ("http://host:99999", "from 1 to 65535"),
            ("http://host:0", "from 1 to 65535"),
            ("http://[::1]8000", "from 1 to 65535"),
            (
                "http://[::1",
                "`http://[::1` is not a base URL: the IPv6 address has no `]`",
            ),
            ("http://host:1/?key=hush", "http://host:1/?***`"),
            ("http://host:1/#hush", "http://host:1/#***`"),
            ("http://host:1/?key=a@hush", "***"),
            ("http://user:hush?hush@host", "***"),
            ("http://user:hush@host/?key=hush", "host/?***"),
            ("http://host/?a=b", "must not contain"),
            ("http://user:hush@host", "header"),
            ("unix://run/a.sock", "not absolute"),
        ] {
            let error = url.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason) && !error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn a_header_can_neither_smuggle_nor_leak() {
        for (name, value) in [
            ("a b", "x"),
            ("", "x"),
            ("x", "1\r\ny: 2"),
            ("Content-Length", "0"),
        ] {
            let error = Headers::new(vec![(name.to_owned(), value.to_owned())]).unwrap_err();
            assert!(!error.to_string().contains("y: 2"));
        }
        let headers = Headers::new(vec![("Authorization".to_owned(), "Bearer hush".to_owned())]).unwrap();
        assert!(headers.has("authorization"));
        assert_eq!(format!("{headers:?}"), "[\"Authorization\"]");
    }
}
