//! HTTP for everything that is not timed: what a server says of itself, its metrics, emptying its caches.

use std::error::Error as _;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, RequestBuilder, Response, StatusCode};
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

impl ControlError {
    /// A refusal with this body.
    pub(crate) fn refusal(url: String, status: StatusCode, body: &str) -> Self {
        let message = body.trim().chars().take(QUOTED).collect();
        Self::Status { url, status, message }
    }

    /// Whether the server is up, and wants a key or does not know the path.
    pub(crate) fn is_refusal(&self) -> bool {
        self.wants_key()
            || matches!(
                self,
                Self::Status {
                    status: StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED,
                    ..
                }
            )
    }

    /// Whether the server wants a key, or another one.
    pub(crate) const fn wants_key(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN,
                ..
            }
        )
    }
}

/// What HTTP does not allow in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Name,
    Value,
}

/// A header whose value `Debug` does not show.
///
/// # Errors
/// The part that HTTP does not allow.
pub(crate) fn secret_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), HeaderFault> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| HeaderFault::Name)?;
    let mut value = HeaderValue::from_str(value).map_err(|_| HeaderFault::Value)?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// The client of one server: its base URL, and the headers of every request.
#[derive(Clone, Debug)]
pub(crate) struct ControlClient {
    http: Client,
    base_url: String,
    headers: HeaderMap,
}

impl ControlClient {
    /// A client of the server at a base URL without a slash at its end.
    pub(crate) const fn new(http: Client, base_url: String, headers: HeaderMap) -> Self {
        Self {
            http,
            base_url,
            headers,
        }
    }

    /// The same server, asked without headers.
    pub(crate) fn without_headers(&self) -> Self {
        Self {
            headers: HeaderMap::new(),
            ..self.clone()
        }
    }

    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The headers of every request; they may hold a secret.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The URL of a path, or of a path with its query; the base URL for an empty path.
    pub(crate) fn url(&self, path: &str) -> String {
        match path {
            "" => self.base_url.clone(),
            path => format!("{}/{}", self.base_url, path.trim_start_matches('/')),
        }
    }

    /// Sends a request without a body.
    ///
    /// # Errors
    /// The server cannot be reached in time.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        limit: Duration,
    ) -> Result<Answer, ControlError> {
        self.send(method, path, limit, |request| request).await
    }

    /// Asks for a path.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub(crate) async fn get(&self, path: &str, limit: Duration) -> Result<Answer, ControlError> {
        self.request(Method::GET, path, limit).await
    }

    /// Asks for a path that answers with JSON.
    ///
    /// # Errors
    /// The server cannot be reached in time, refuses, or answers with something else.
    pub(crate) async fn json(&self, path: &str, limit: Duration) -> Result<Value, ControlError> {
        self.get(path, limit).await?.json().await
    }

    /// Sends JSON to a path; the body of the answer is not used.
    ///
    /// # Errors
    /// The server cannot be reached in time, or refuses.
    pub(crate) async fn post_json(
        &self,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<(), ControlError> {
        let answer = self.send(Method::POST, path, limit, |request| request.json(body));
        answer.await?.accepted_text().await.map(drop)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        limit: Duration,
        with_body: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Answer, ControlError> {
        let url = self.url(path);
        let request = self.http.request(method, &url).headers(self.headers.clone());
        ask(url, with_body(request).timeout(limit)).await
    }
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

    /// The body, where the server does not refuse.
    pub(crate) async fn accepted_text(self) -> Result<String, ControlError> {
        let (url, status) = (self.url.clone(), self.status);
        let text = self.text().await?;
        if !status.is_success() {
            return Err(ControlError::refusal(url, status, &text));
        }
        Ok(text)
    }

    /// The body as JSON, where the server does not refuse.
    pub(crate) async fn json(self) -> Result<Value, ControlError> {
        let url = self.url.clone();
        let text = self.accepted_text().await?;
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
        let base = url.strip_suffix("/models").unwrap().to_owned();
        let client = ControlClient::new(client(), base, HeaderMap::new());
        client.json("models", Duration::from_secs(5)).await
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_refused_without_its_value() {
        let fault = secret_header("authorization", "hush\r\nx: y").unwrap_err();
        assert_eq!(fault, HeaderFault::Value);
        assert_eq!(secret_header("a b", "c").unwrap_err(), HeaderFault::Name);
        let (_, value) = secret_header("authorization", "hush").unwrap();
        assert!(!format!("{value:?}").contains("hush"));
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

    #[tokio::test]
    async fn a_server_that_refuses_is_told_from_one_that_fails() {
        for (head, is_refusal, wants_key) in [
            ("401 Unauthorized", true, true),
            ("404 Not Found", true, false),
            ("503 Service Unavailable", false, false),
        ] {
            let error = json(&server(head, "")).await.unwrap_err();
            assert_eq!(
                (error.is_refusal(), error.wants_key()),
                (is_refusal, wants_key),
                "{head}"
            );
        }
        let silent = json("http://127.0.0.1:1/models").await.unwrap_err();
        assert!(!silent.is_refusal());
    }
}
