//! HTTP for everything that is not timed: what a server says of itself, its metrics, emptying its caches.

use std::error::Error as _;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use thiserror::Error;

use crate::base::body::{self, BodyError};
use crate::base::tls;

/// How much of a refusal is kept, in characters.
const QUOTED: usize = 500;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// A server did not do what it was asked for.
#[derive(Debug, Error)]
pub(crate) enum ControlError {
    /// It cannot be reached, or broke off.
    #[error("{url} does not answer: {}", innermost(error))]
    Silent { url: String, error: reqwest::Error },
    /// Its answer is too long to be read.
    #[error("{url} does not answer: {}", BodyError::Long)]
    TooLong { url: String },
    /// It refuses.
    #[error("{url} answered with status {}: {message}", status.as_u16())]
    Status {
        url: String,
        status: StatusCode,
        /// What it said, shortened.
        message: String,
    },
    /// Its answer is not the one that is understood.
    #[error("the answer of {url} is not understood: {reason}")]
    Garbled { url: String, reason: String },
}

/// An answer whose body is not read yet.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    url: String,
    response: Response,
}

/// Sends a request; `url` is how errors name it.
pub(crate) async fn ask(url: String, request: RequestBuilder) -> Result<Answer, ControlError> {
    match request.send().await {
        Ok(response) => Ok(Answer {
            status: response.status(),
            url,
            response,
        }),
        Err(error) => Err(ControlError::Silent { url, error }),
    }
}

impl Answer {
    /// The body, whatever the status is.
    pub(crate) async fn text(self) -> Result<String, ControlError> {
        let url = self.url;
        body::text(self.response).await.map_err(|error| match error {
            BodyError::Http(error) => ControlError::Silent { url, error },
            BodyError::Long => ControlError::TooLong { url },
        })
    }

    /// The body as JSON, where the server does not refuse.
    pub(crate) async fn json(self) -> Result<Value, ControlError> {
        let (url, status) = (self.url.clone(), self.status);
        let text = self.text().await?;
        if !status.is_success() {
            let message = text.trim().chars().take(QUOTED).collect();
            return Err(ControlError::Status { url, status, message });
        }
        serde_json::from_str(&text).map_err(|error| ControlError::Garbled {
            url,
            reason: error.to_string(),
        })
    }
}

/// The client for servers of a run. It uses no proxy, as the load does not, and keeps no connection open.
pub(crate) fn client() -> Client {
    let builder = || Client::builder().no_proxy().pool_max_idle_per_host(0);
    build(builder).expect("a client without trusted certificates needs nothing from the host")
}

/// The client for what lies beyond this host, such as a webhook: it uses the proxies that the environment names. A redirect is
/// not followed: who answers it would get an address that is a secret, and no body.
///
/// # Errors
/// A proxy that cannot be understood.
pub(crate) fn proxied_client() -> Result<Client, reqwest::Error> {
    build(|| Client::builder().redirect(Policy::none()))
}

fn build(builder: impl Fn() -> ClientBuilder) -> Result<Client, reqwest::Error> {
    // It fails only where a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || builder().connect_timeout(CONNECT);
    // A host without any trusted certificate can still speak http.
    builder()
        .build()
        .or_else(|_| builder().tls_certs_only([]).build())
}

/// The innermost reason of an error: what the system said. It holds no URL, which may hold a secret.
pub(crate) fn innermost(error: &reqwest::Error) -> String {
    causes(error).last().cloned().unwrap_or_else(|| error.to_string())
}

/// The causes of an error, which its own words leave out, from the outermost to the innermost.
pub(crate) fn causes(error: &reqwest::Error) -> Vec<String> {
    let mut causes = Vec::new();
    let mut cause = error.source();
    while let Some(inner) = cause {
        causes.push(tls::describe_cause(inner));
        cause = inner.source();
    }
    causes
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// A server that gives one answer; its address.
    fn server(head: &'static str, body: &'static str) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/models", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let head = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(body.as_bytes());
        });
        url
    }

    async fn json(url: &str) -> Result<Value, ControlError> {
        ask(url.to_owned(), client().get(url)).await?.json().await
    }

    #[tokio::test]
    async fn an_error_names_the_url_and_what_is_wrong() {
        let words = |result: Result<Value, ControlError>| result.unwrap_err().to_string();
        assert_eq!(
            words(json("http://127.0.0.1:1/models").await),
            "http://127.0.0.1:1/models does not answer: Connection refused (os error 111)"
        );
        let url = server("401 Unauthorized", " no key\n");
        assert_eq!(
            words(json(&url).await),
            format!("{url} answered with status 401: no key")
        );
        let url = server("200 OK", "<html>");
        assert_eq!(
            words(json(&url).await),
            format!("the answer of {url} is not understood: expected value at line 1 column 1")
        );
        let url = server("200 OK", "[1]");
        assert_eq!(json(&url).await.unwrap(), serde_json::json!([1]));
    }
}
