//! Endpoints of attached servers, from their base URLs.

use std::path::Path;

use reqwest::Url;
use reqwest::header::HeaderMap;

use crate::base::control_client;
use crate::base::tls::TlsConfig;
use crate::base::unix_url::{UNIX_HOST, UnixUrl};
use crate::engine::endpoint::Endpoint;
use crate::plan::AttachedServer;

/// The TLS settings of an attached server with their files; `None` for the CAs of this machine. Relative paths are
/// below `folder`. Fails with a message.
pub(super) fn tls_config(attach: &AttachedServer, folder: &Path) -> Result<Option<TlsConfig>, String> {
    if attach.tls.is_default() {
        return Ok(None);
    }
    let settings = attach.tls.settings(folder, |name| format!("`{name}`"))?;
    let config = TlsConfig::load(&settings).map_err(|error| error.to_string())?;
    Ok(Some(config))
}

/// The endpoint of a base URL. `tls` applies to `https://`.
pub(super) fn parse(
    url: &str,
    headers: HeaderMap,
    tls: Option<&TlsConfig>,
) -> Result<Endpoint, &'static str> {
    if let Some(parts) = UnixUrl::parse(url.trim()) {
        return parts.map(|parts| unix_endpoint(parts, headers));
    }
    let url = Url::parse(url.trim()).map_err(|_| "it is not a URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("only http, https and unix are supported");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it contains a user or a password; send them as `Authorization` in `headers:`");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or a fragment");
    }
    let host = url.host_str().ok_or("it names no host")?.to_owned();
    let port = url.port_or_known_default().ok_or("it names no port")?;
    let prefix = url.path().trim_end_matches('/');
    let base_url = format!("{}://{host}:{port}{prefix}", url.scheme());
    Ok(Endpoint {
        own_http: tls.map(|tls| control_client::server_client(Some(tls), None)),
        tls: tls.cloned(),
        ..Endpoint::new(host, port, base_url, headers)
    })
}

fn unix_endpoint(url: UnixUrl<'_>, headers: HeaderMap) -> Endpoint {
    const HTTP_PORT: u16 = 80;
    let base_url = match url.prefix {
        "" => format!("unix://{}", url.socket.display()),
        prefix => format!("unix://{}:{prefix}", url.socket.display()),
    };
    Endpoint {
        socket: Some(url.socket.to_owned()),
        own_http: Some(control_client::server_client(None, Some(url.socket))),
        ..Endpoint::new(UNIX_HOST.to_owned(), HTTP_PORT, base_url, headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_host_port_and_prefix() {
        let parsed =
            |url: &str| parse(url, Default::default(), None).map(|end| (end.host, end.port, end.base_url));
        assert_eq!(parsed("http://h"), Ok(("h".into(), 80, "http://h:80".into())));
        assert_eq!(
            parsed("https://h/v/"),
            Ok(("h".into(), 443, "https://h:443/v".into()))
        );
        assert_eq!(
            parsed("http://[::1]:8000/"),
            Ok(("[::1]".into(), 8000, "http://[::1]:8000".into()))
        );
        assert_eq!(
            parsed("unix:///run/a.sock:/v/"),
            Ok(("localhost".into(), 80, "unix:///run/a.sock:/v".into()))
        );
        for wrong in [
            "unix://a.sock",
            "h:8000",
            "ftp://h",
            "http://u:p@h",
            "http://h/?k=v",
            "http://",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_is_put_behind_the_prefix() {
        let endpoint = parse("http://h:1/p/", Default::default(), None).unwrap();
        assert_eq!(endpoint.url("/health"), "http://h:1/p/health");
    }
}
