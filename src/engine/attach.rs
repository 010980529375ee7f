//! An engine that someone else started: nothing is started, nothing is stopped, its death shows only in requests.

use reqwest::Url;

use crate::base::clock;
use crate::engine::{Context, Devices, Endpoint, Executor, Log, Running, StartError, contact};
use crate::matrix::plan::{Attach, Launch};

/// The address of an engine that someone else started, without secrets.
pub(super) struct Engine {
    shown: String,
}

pub(super) fn start(launch: &Launch, attach: &Attach, context: &Context) -> Result<Running, StartError> {
    let url = context.reveal(None, &attach.url, "`url:`")?;
    let headers = contact::headers(launch, context)?;
    let endpoint = endpoint(&url, headers).map_err(|reason| StartError::Url {
        url: attach.url.as_str().to_owned(),
        reason: reason.to_owned(),
    })?;
    Ok(Running {
        executor: Executor::Attach(Engine {
            shown: context.redactor.redact(&endpoint.base_url).into_owned(),
        }),
        endpoint,
        log: Log::silent(&context.redactor),
        devices: Devices::Remote,
        began: clock::now(),
        install_seconds: None,
        shm: None,
    })
}

impl Engine {
    pub(super) fn identity(&self) -> String {
        self.shown.clone()
    }

    pub(super) fn stop(self) -> String {
        "it goes on: someone else started it".to_owned()
    }
}

fn endpoint(url: &str, headers: reqwest::header::HeaderMap) -> Result<Endpoint, &'static str> {
    let url = Url::parse(url.trim()).map_err(|_| "it is no URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("only http and https are spoken");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user or a password; send them as `Authorization` in `headers:`");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or a fragment");
    }
    let host = url.host_str().ok_or("it names no host")?.to_owned();
    let port = url.port_or_known_default().ok_or("it names no port")?;
    let prefix = url.path().trim_end_matches('/');
    let base_url = format!("{}://{host}:{port}{prefix}", url.scheme());
    Ok(Endpoint {
        host,
        port,
        base_url,
        headers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_host_port_and_prefix() {
        let of = |url: &str| endpoint(url, Default::default()).map(|end| (end.host, end.port, end.base_url));
        assert_eq!(of("http://h"), Ok(("h".into(), 80, "http://h:80".into())));
        assert_eq!(
            of("https://h/v/"),
            Ok(("h".into(), 443, "https://h:443/v".into()))
        );
        assert_eq!(
            of("http://[::1]:8000/"),
            Ok(("[::1]".into(), 8000, "http://[::1]:8000".into()))
        );
        for wrong in ["h:8000", "ftp://h", "http://u:p@h", "http://h/?k=v", "http://"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_is_put_behind_the_prefix() {
        let endpoint = endpoint("http://h:1/p/", Default::default()).unwrap();
        assert_eq!(endpoint.url("/health"), "http://h:1/p/health");
    }
}
