//! Endpoints of attached servers, from their base URLs.

use std::path::Path;

use reqwest::header::HeaderMap;

use crate::base::control_client;
use crate::base::server_url::{ServerUrl, UrlFault, WebUrl};
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
pub(super) fn parse(url: &str, headers: HeaderMap, tls: Option<&TlsConfig>) -> Result<Endpoint, UrlFault> {
    let WebUrl {
        scheme,
        host,
        port,
        prefix,
    } = match ServerUrl::parse(url)? {
        ServerUrl::Unix(parts) => return Ok(unix_endpoint(parts, headers)),
        ServerUrl::Web(url) => url,
    };
    let base_url = format!("{scheme}://{host}:{port}{prefix}");
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
    }

    #[test]
    fn a_path_is_put_behind_the_prefix() {
        let endpoint = parse("http://h:1/p/", Default::default(), None).unwrap();
        assert_eq!(endpoint.url("/health"), "http://h:1/p/health");
    }
}
