//! Addresses of servers, as a matrix gives them: `http://host:8000/prefix`, `https://…` or `unix:///…`.

use reqwest::Url;

use crate::base::unix_url::UnixUrl;

/// The parts of an `http://` or `https://` address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebUrl {
    /// `http` or `https`.
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Empty, or with a slash at the front and none at the end.
    pub(crate) prefix: String,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerUrl<'u> {
    Web(WebUrl),
    Unix(UnixUrl<'u>),
}

/// Why a text is not the address of a server, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlFault {
    /// A sentence about the address, such as `it has a query`.
    pub(crate) reason: String,
    pub(crate) help: String,
}

impl UrlFault {
    fn new(reason: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            help: help.into(),
        }
    }
}

const FORM: &str = "write it as `http://host:8000`";

impl<'u> ServerUrl<'u> {
    /// Reads an address.
    ///
    /// # Errors
    /// It cannot be used.
    pub(crate) fn parse(text: &'u str) -> Result<Self, UrlFault> {
        let text = text.trim();
        if let Some(parts) = UnixUrl::parse(text) {
            let unix =
                parts.map_err(|reason| UrlFault::new(reason, "write it as `unix:///run/engine.sock`"))?;
            return Ok(Self::Unix(unix));
        }
        if text.is_empty() {
            return Err(UrlFault::new("it is empty", FORM));
        }
        if !text.contains("://") {
            return Err(UrlFault::new(
                "it has no scheme",
                format!("did you mean `http://{text}`?"),
            ));
        }
        let url = Url::parse(text).map_err(|error| malformed(text, &error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UrlFault::new(
                "only the schemes http, https and unix are supported",
                FORM,
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlFault::new(
                "the URL contains a user name or a password",
                "send user name and password as `Authorization` in `headers:`",
            ));
        }
        if let Some(part) = [
            url.query().map(|_| "a query"),
            url.fragment().map(|_| "a fragment"),
        ]
        .into_iter()
        .flatten()
        .next()
        {
            return Err(UrlFault::new(
                format!("it has {part}"),
                "remove what follows `?` or `#`: `matrix` appends request paths to the address, and API keys belong in `headers:`",
            ));
        }
        let host = url
            .host_str()
            .ok_or_else(|| UrlFault::new("it names no host", FORM))?;
        let port = url.port_or_known_default();
        let port = port.filter(|port| *port > 0).ok_or_else(bad_port)?;
        Ok(Self::Web(WebUrl {
            scheme: url.scheme().to_owned(),
            host: host.to_owned(),
            port,
            prefix: url.path().trim_end_matches('/').to_owned(),
        }))
    }
}

fn bad_port() -> UrlFault {
    UrlFault::new(
        "its port is invalid",
        "a port is a number from 1 to 65535, as in `http://host:8000`",
    )
}

/// Explains the error of the parser.
fn malformed(text: &str, error: &str) -> UrlFault {
    match error {
        "invalid port number" => bad_port(),
        _ if text.contains(char::is_whitespace) => UrlFault::new(
            "it contains a space",
            "write several addresses as a list: `urls: [http://a, http://b]`",
        ),
        _ => UrlFault::new(format!("the address is not a URL: {error}"), FORM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_falls_into_its_parts() {
        let web = |text: &str| match ServerUrl::parse(text).unwrap() {
            ServerUrl::Web(url) => (url.scheme, url.host, url.port, url.prefix),
            ServerUrl::Unix(url) => panic!("{url:?}"),
        };
        let expected = |scheme: &str, host: &str, port: u16, prefix: &str| {
            (scheme.to_owned(), host.to_owned(), port, prefix.to_owned())
        };
        assert_eq!(web("http://h"), expected("http", "h", 80, ""));
        assert_eq!(web(" https://H/v/ "), expected("https", "h", 443, "/v"));
        assert_eq!(web("http://[::1]:8000/"), expected("http", "[::1]", 8000, ""));
        assert!(matches!(
            ServerUrl::parse("unix:///run/a.sock:/v/"),
            Ok(ServerUrl::Unix(UnixUrl { prefix: "/v", .. }))
        ));
    }

    #[test]
    fn an_address_that_cannot_be_used_comes_with_the_correction_of_its_fault() {
        for (text, reason, help) in [
            ("", "it is empty", "http://host"),
            ("h:8000", "it has no scheme", "did you mean `http://h:8000`?"),
            ("ftp://h", "only the schemes http, https and unix", "http://host"),
            ("http://a b", "it contains a space", "urls: ["),
            ("http://h:99999", "its port is invalid", "1 to 65535"),
            ("http://h:x", "its port is invalid", "1 to 65535"),
            ("http://h:0", "its port is invalid", "1 to 65535"),
            ("http://h:1?k=v", "it has a query", "remove what follows"),
            ("http://h:1/#a", "it has a fragment", "remove what follows"),
            ("http://u:p@h", "a user name or a password", "`headers:`"),
            ("http://", "the address is not a URL", "http://host"),
            ("unix://a.sock", "not absolute", "unix:///"),
        ] {
            let fault = ServerUrl::parse(text).unwrap_err();
            assert!(fault.reason.contains(reason), "{text}: {fault:?}");
            assert!(fault.help.contains(help), "{text}: {fault:?}");
        }
    }
}
