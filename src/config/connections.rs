//! How a load uses connections, and how it distributes requests over the addresses of a server.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::tls::{ClientIdentity, TlsSettings, Trust};

/// How a load uses connections; by default as the Python tool does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadConnections {
    #[serde(default)]
    pub(crate) lifetime: ConnectionLifetime,
    /// How often a request is sent again if the server answers 429 or 503.
    #[serde(default)]
    pub(crate) retries: u32,
}

impl LoadConnections {
    /// Whether nothing is set.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How long a connection lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum ConnectionLifetime {
    /// For one request, as in the Python tool.
    #[default]
    #[serde(rename = "new")]
    Request,
    /// For all requests of a load that find it idle.
    #[serde(rename = "reuse")]
    Load,
}

impl ConnectionLifetime {
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::Request => "one for each request",
            Self::Load => "reused",
        }
    }
}

/// How requests are distributed over the addresses of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Balance {
    /// In turn.
    #[default]
    RoundRobin,
    /// To the address with the fewest requests of the load in flight.
    LeastLoaded,
    /// In turn, but all rounds of a conversation, and all requests with one routing key, to one address.
    Sticky,
}

impl Balance {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::LeastLoaded => "least-loaded",
            Self::Sticky => "sticky",
        }
    }
}

/// Says why requests cannot have a header of that name; `None` if they can.
pub(crate) fn header_name_error(name: &str) -> Option<&'static str> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Some("a header name may contain only letters, digits and `-`");
    }
    let own = ["content-length", "transfer-encoding", "connection"];
    let is_own = own.iter().any(|own| name.eq_ignore_ascii_case(own));
    is_own.then_some("the client sets this header itself")
}

/// Says why no routing key can be sent in a header of that name; `None` if it can. Headers of the client, of the protocols and
/// of keys have values of their own.
pub(crate) fn routing_key_header_error(name: &str) -> Option<&'static str> {
    const TAKEN: [&str; 9] = [
        "host",
        "user-agent",
        "accept",
        "accept-encoding",
        "content-type",
        "authorization",
        "x-api-key",
        "anthropic-version",
        "x-request-id",
    ];
    let is_taken = TAKEN.iter().any(|taken| name.eq_ignore_ascii_case(taken));
    // A number, or a switch that does not exist.
    let is_name = name.bytes().any(|byte| byte.is_ascii_alphabetic()) && !matches!(name, "true" | "false");
    header_name_error(name)
        .or((!is_name).then_some("a header name needs a letter and cannot be `true` or `false`"))
        .or(is_taken.then_some("the client uses this header for another purpose"))
}

/// How a server with an `https://` address is trusted, and how the client proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TlsOptions {
    /// Whether any certificate of the server is accepted, so that another server may be measured; default
    /// `false`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) insecure: bool,
    /// PEM file of the CAs that may have signed the server's certificate; default: those of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    /// PEM file of the client certificate, with its chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_cert: Option<PathBuf>,
    /// PEM file of the key of `client_cert`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_key: Option<PathBuf>,
}

impl TlsOptions {
    /// Whether nothing is set.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The names of the options that are set.
    pub(crate) fn set_names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        names.extend(self.insecure.then_some("insecure"));
        names.extend(self.files().map(|(name, _)| name));
        names
    }

    /// The files that are named, with the options that name them.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let files = [
            ("ca_file", &self.ca_file),
            ("client_cert", &self.client_cert),
            ("client_key", &self.client_key),
        ];
        files
            .into_iter()
            .filter_map(|(name, file)| Some((name, file.as_deref()?)))
    }

    /// The settings of connections; relative paths are below `folder`. `spelled` writes the name of an option as
    /// the user writes it.
    ///
    /// # Errors
    /// Two options contradict each other, or one lacks another.
    pub(crate) fn settings(
        &self,
        folder: &Path,
        spelled: impl Fn(&str) -> String,
    ) -> Result<TlsSettings, String> {
        let [insecure, ca_file, client_cert, client_key] =
            ["insecure", "ca_file", "client_cert", "client_key"].map(spelled);
        let trust = match (&self.ca_file, self.insecure) {
            (Some(_), true) => {
                return Err(format!(
                    "{insecure} and {ca_file} contradict each other: one skips the check that the other needs; leave one out"
                ));
            }
            (Some(file), false) => Trust::File(folder.join(file)),
            (None, true) => Trust::Any,
            (None, false) => Trust::System,
        };
        let identity = match (&self.client_cert, &self.client_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(ClientIdentity {
                certificate: folder.join(certificate),
                key: folder.join(key),
            }),
            (Some(_), None) => return Err(format!("{client_cert} needs its key; give {client_key}")),
            (None, Some(_)) => return Err(format!("{client_key} needs its certificate; give {client_cert}")),
        };
        Ok(TlsSettings { trust, identity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_routing_key_has_a_header_of_its_own() {
        for name in ["X-Session-ID", "X-SMG-Routing-Key", "Cookie"] {
            assert_eq!(routing_key_header_error(name), None, "{name}");
        }
        for name in [
            "Host",
            "user-agent",
            "Accept",
            "Accept-Encoding",
            "CONTENT-TYPE",
            "Authorization",
            "x-api-key",
            "Anthropic-Version",
            "X-Request-Id",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "a b",
        ] {
            assert!(routing_key_header_error(name).is_some(), "{name}");
        }
    }

    #[test]
    fn options_that_contradict_or_lack_each_other_are_refused_as_the_user_spells_them() {
        let settings = |yaml: serde_json::Value| {
            let options: TlsOptions = serde_json::from_value(yaml).unwrap();
            options.settings(Path::new("/m"), |name| format!("<{name}>"))
        };
        for (options, error) in [
            (
                serde_json::json!({"insecure": true, "ca_file": "a"}),
                "<insecure> and <ca_file> contradict",
            ),
            (serde_json::json!({"client_cert": "a"}), "give <client_key>"),
            (serde_json::json!({"client_key": "a"}), "give <client_cert>"),
        ] {
            let found = settings(options).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
        let files = settings(serde_json::json!({"ca_file": "a", "client_cert": "b", "client_key": "/c"}));
        let expected = TlsSettings {
            trust: Trust::File("/m/a".into()),
            identity: Some(ClientIdentity {
                certificate: "/m/b".into(),
                key: "/c".into(),
            }),
        };
        assert_eq!(files.unwrap(), expected);
        assert_eq!(settings(serde_json::json!({})).unwrap(), TlsSettings::default());
    }
}
