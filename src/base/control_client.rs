//! HTTP client for everything untimed: server information, metrics, cache resets, webhooks.

use std::error::Error as _;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use thiserror::Error;

use crate::base::body::{self, BodyError};
use crate::base::secrets::mask_redirect_secrets;
use crate::base::tls::{self, TlsConfig};
use crate::base::unix_url::{join_path, wire_url};

/// Maximum number of characters quoted from a refusal.
const MAX_QUOTED_CHARS: usize = 500;

/// Number of redirects of a server to itself that are followed; more are a loop.
const MAX_REDIRECTS: usize = 5;

/// Timeout for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub(crate) enum ControlError {
    /// The server cannot be reached, or the connection broke.
    #[error("{url} does not respond: {}{}", root_cause(error), tls_hint(error))]
    Silent { url: String, error: reqwest::Error },
    #[error("{url} does not respond: {}", BodyError::TooLong)]
    TooLong { url: String },
    #[error("{url} returned status {}: {message}", status.as_u16())]
    Status {
        url: String,
        status: StatusCode,
        /// The body of the answer, shortened.
        message: String,
    },
    /// The body of the answer has an unexpected form.
    #[error("unexpected response from {url}: {reason}")]
    Garbled { url: String, reason: String },
}

impl ControlError {
    pub(crate) fn from_refusal(url: String, status: StatusCode, body: &str) -> Self {
        let message = body.trim().chars().take(MAX_QUOTED_CHARS).collect();
        Self::Status { url, status, message }
    }

    /// Returns true if the server is up but wants a key or does not know the path.
    pub(crate) fn is_refusal(&self) -> bool {
        self.requires_key()
            || matches!(
                self,
                Self::Status {
                    status: StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED,
                    ..
                }
            )
    }

    /// Returns true if a server answered, although not as it should, so that starting it does not help.
    pub(crate) fn has_answered(&self) -> bool {
        let Self::Silent { error, .. } = self else {
            return true;
        };
        let is_https = error.url().is_some_and(|url| url.scheme() == "https");
        let is_cut = |inner: &std::io::Error| tls::is_sudden_end(inner);
        let mut cause = error.source();
        while let Some(inner) = cause {
            let text = inner.to_string();
            if tls::is_tls_error(inner) || text.starts_with("invalid HTTP") || is_https && text == NOT_READY {
                return true;
            }
            cause = inner.source();
        }
        // A handshake that the server ended.
        is_https && innermost(error).downcast_ref().is_some_and(is_cut)
    }

    /// Returns true if the certificate of the server was refused.
    pub(crate) fn is_certificate_error(&self) -> bool {
        let Self::Silent { error, .. } = self else {
            return false;
        };
        let mut cause = error.source();
        while let Some(inner) = cause {
            if tls::is_certificate_error(inner) {
                return true;
            }
            cause = inner.source();
        }
        false
    }

    /// Returns true if the server wants a key, or another key.
    pub(crate) const fn requires_key(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN,
                ..
            }
        )
    }
}

/// The part of a header that HTTP does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Name,
    Value,
}

/// Creates a header whose value `Debug` does not show.
///
/// # Errors
/// The name or the value is not allowed in HTTP.
pub(crate) fn secret_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), HeaderError> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| HeaderError::Name)?;
    let mut value = HeaderValue::from_str(value).map_err(|_| HeaderError::Value)?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// A client for one server, with its base URL and the headers of every request.
#[derive(Clone, Debug)]
pub(crate) struct ControlClient {
    http: Client,
    base_url: String,
    headers: HeaderMap,
}

impl ControlClient {
    /// Creates a client; `base_url` has no slash at its end.
    pub(crate) const fn new(http: Client, base_url: String, headers: HeaderMap) -> Self {
        Self {
            http,
            base_url,
            headers,
        }
    }

    pub(crate) fn without_headers(&self) -> Self {
        Self {
            headers: HeaderMap::new(),
            ..self.clone()
        }
    }

    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The headers of every request, which may hold a secret.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the URL of a path, with its query if it has one; the base URL for an empty path.
    pub(crate) fn url(&self, path: &str) -> String {
        match path {
            "" => self.base_url.clone(),
            path => join_path(&self.base_url, path),
        }
    }

    /// Sends a request without a body. It fails only if the server cannot be reached within `limit`.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        limit: Duration,
    ) -> Result<ControlResponse, ControlError> {
        self.send(method, path, limit, |request| request).await
    }

    pub(crate) async fn get(&self, path: &str, limit: Duration) -> Result<ControlResponse, ControlError> {
        self.request(Method::GET, path, limit).await
    }

    /// Sends a GET request and reads the answer as JSON.
    ///
    /// # Errors
    /// The server cannot be reached within `limit`, answers with an error status, or the body is not JSON.
    pub(crate) async fn json(&self, path: &str, limit: Duration) -> Result<Value, ControlError> {
        self.get(path, limit).await?.json().await
    }

    /// Sends JSON to a path and ignores the body of the answer.
    ///
    /// # Errors
    /// The server cannot be reached within `limit`, or answers with an error status.
    pub(crate) async fn post_json(
        &self,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<(), ControlError> {
        let answer = self.send(Method::POST, path, limit, |request| request.json(body));
        answer.await?.success_text().await.map(drop)
    }

    /// Sends JSON to a path and reads the answer as JSON.
    ///
    /// # Errors
    /// The server cannot be reached within `limit`, answers with an error status, or the body is not JSON.
    pub(crate) async fn ask_json(
        &self,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<Value, ControlError> {
        let answer = self.send(Method::POST, path, limit, |request| request.json(body));
        answer.await?.json().await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        limit: Duration,
        with_body: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<ControlResponse, ControlError> {
        let url = self.url(path);
        let request = self
            .http
            .request(method, wire_url(&url))
            .headers(self.headers.clone());
        send_request(url, with_body(request).timeout(limit)).await
    }
}

/// An answer whose body is not read yet.
pub(crate) struct ControlResponse {
    pub(crate) status: StatusCode,
    url: String,
    response: Response,
}

/// Sends a request; errors name `url`.
pub(crate) async fn send_request(
    url: String,
    request: RequestBuilder,
) -> Result<ControlResponse, ControlError> {
    match request.send().await {
        Ok(response) => Ok(ControlResponse {
            status: response.status(),
            url,
            response,
        }),
        Err(error) => Err(ControlError::Silent { url, error }),
    }
}

impl ControlResponse {
    /// Reads the body, whatever the status is.
    pub(crate) async fn text(self) -> Result<String, ControlError> {
        let url = self.url;
        body::read_text(self.response).await.map_err(|error| match error {
            BodyError::Http(error) => ControlError::Silent { url, error },
            BodyError::TooLong => ControlError::TooLong { url },
        })
    }

    /// Reads the body; fails if the status is not a success.
    pub(crate) async fn success_text(self) -> Result<String, ControlError> {
        let (url, status) = (self.url.clone(), self.status);
        let location = self
            .response
            .headers()
            .get(LOCATION)
            .filter(|_| status.is_redirection());
        let location = location.map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned());
        let from = self.response.url().clone();
        let text = self.text().await?;
        if let Some(location) = location {
            let shown = mask_redirect_secrets(&location);
            // A redirect of the server to itself is not followed only after too many of them.
            let is_loop = from.join(&location).is_ok_and(|to| to.origin() == from.origin());
            let message = match is_loop {
                true => format!(
                    "the server redirects in a loop: {MAX_REDIRECTS} redirects were followed, and the next leads to `{shown}`; \
                     correct the redirects of the server or of its proxy"
                ),
                false => format!(
                    "the server redirects to `{shown}`, but `matrix` does not follow this redirect; use the base URL of that address"
                ),
            };
            return Err(ControlError::Status { url, status, message });
        }
        if !status.is_success() {
            return Err(ControlError::from_refusal(url, status, &text));
        }
        Ok(text)
    }

    /// Reads the body as JSON; fails if the status is not a success.
    pub(crate) async fn json(self) -> Result<Value, ControlError> {
        let url = self.url.clone();
        let read_text = self.success_text().await?;
        serde_json::from_str(&read_text).map_err(|error| ControlError::Garbled {
            url,
            reason: error.to_string(),
        })
    }
}

/// Creates the client for servers of a run. It uses no proxy, as the load does, and keeps no connection open.
pub(crate) fn client() -> Client {
    server_client(None, None)
}

/// Creates the client for one server of a run, with its TLS settings, and the Unix socket that it listens on.
pub(crate) fn server_client(tls: Option<&TlsConfig>, socket: Option<&Path>) -> Client {
    let builder = || {
        let builder = Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(0)
            .redirect(redirects_within_server());
        let builder = match socket {
            Some(socket) => builder.unix_socket(socket),
            None => builder,
        };
        match tls {
            Some(tls) => builder.tls_backend_preconfigured((*tls.client_config()).clone()),
            None => builder,
        }
    };
    build(builder).expect("a client without trusted certificates needs nothing from the host")
}

/// Follows redirects of a server to itself, as from `/metrics` to `/metrics/`. Another server would learn the
/// headers, which may hold secrets, and is not the one that is measured.
fn redirects_within_server() -> Policy {
    Policy::custom(|attempt| {
        let is_within = attempt
            .previous()
            .first()
            .is_some_and(|first| first.origin() == attempt.url().origin());
        match is_within && attempt.previous().len() <= MAX_REDIRECTS {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    })
}

/// Creates the client for servers beyond this host, such as a webhook. It uses the proxies of the
/// environment.
///
/// It follows no redirect: the redirect's target would learn the webhook's address, which is a secret, and
/// would not get the body.
///
/// # Errors
/// The environment names an invalid proxy.
pub(crate) fn proxied_client() -> Result<Client, reqwest::Error> {
    build(|| Client::builder().redirect(Policy::none()))
}

fn build(builder: impl Fn() -> ClientBuilder) -> Result<Client, reqwest::Error> {
    // This fails only if a provider is installed already, which is just as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || builder().connect_timeout(CONNECT_TIMEOUT);
    // A host without trusted certificates can still use plain HTTP.
    builder()
        .build()
        .or_else(|_| builder().tls_certs_only([]).build())
}

/// Returns the innermost cause of an error. It contains no URL, which could hold a secret.
pub(crate) fn root_cause(error: &reqwest::Error) -> String {
    let cause = causes(error).pop().unwrap_or_else(|| error.to_string());
    match error.url().map(|url| url.scheme()) {
        // A TLS server answers with an alert instead of a status line.
        Some("http") if cause.starts_with("invalid HTTP") => {
            format!("{cause}{TLS_HINT}")
        }
        Some("https") => match innermost(error).downcast_ref() {
            Some(inner) if tls::is_sudden_end(inner) => tls::describe_sudden_end(inner),
            // The connection ended between its handshake and its first request.
            _ if cause == NOT_READY => tls::describe_sudden_end(&ErrorKind::ConnectionReset.into()),
            _ => cause,
        },
        _ => cause,
    }
}

const TLS_HINT: &str = "; if the server speaks TLS, use `https://`";

/// The hint for a connection that ended before its answer: some TLS servers say nothing to a client that does not speak
/// TLS. Empty for other errors.
fn tls_hint(error: &reqwest::Error) -> &'static str {
    let is_plain = error.url().is_some_and(|url| url.scheme() == "http");
    let is_cut = |inner: &std::io::Error| tls::is_sudden_end(inner);
    let cause = innermost(error);
    let is_closed = cause.to_string() == INCOMPLETE || cause.downcast_ref().is_some_and(is_cut);
    match is_plain && is_closed && !error.is_connect() {
        true => TLS_HINT,
        false => "",
    }
}

/// What the HTTP client says of a connection that ended before its answer did.
const INCOMPLETE: &str = "connection closed before message completed";
/// What the HTTP client says of a connection that ended before it was used.
const NOT_READY: &str = "connection was not ready";

fn innermost(error: &reqwest::Error) -> &(dyn std::error::Error + 'static) {
    let mut innermost: &(dyn std::error::Error + 'static) = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost
}

/// Returns the causes of an error, from the outermost to the innermost, without the error itself.
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

    /// Starts a server that gives one answer; returns its address.
    fn server(head: &'static str, body: &'static str) -> String {
        server_of(1, head, body)
    }

    /// Starts a server that gives the same answer a number of times.
    fn server_of(answers: usize, head: &'static str, body: &'static str) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/models", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for _ in 0..answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let head = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n");
                let _ = stream.write_all(head.as_bytes());
                let _ = stream.write_all(body.as_bytes());
            }
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
        assert_eq!(fault, HeaderError::Value);
        assert_eq!(secret_header("a b", "c").unwrap_err(), HeaderError::Name);
        let (_, value) = secret_header("authorization", "hush").unwrap();
        assert!(!format!("{value:?}").contains("hush"));
    }

    #[tokio::test]
    async fn an_error_names_the_url_and_what_is_wrong() {
        let words = |result: Result<Value, ControlError>| result.unwrap_err().to_string();
        assert_eq!(
            words(json("http://127.0.0.1:1/models").await),
            "http://127.0.0.1:1/models does not respond: Connection refused (os error 111)"
        );
        let url = server("401 Unauthorized", " no key\n");
        assert_eq!(
            words(json(&url).await),
            format!("{url} returned status 401: no key")
        );
        let url = server("200 OK", "<html>");
        assert_eq!(
            words(json(&url).await),
            format!("unexpected response from {url}: expected value at line 1 column 1")
        );
        let url = server("200 OK", "[1]");
        assert_eq!(json(&url).await.unwrap(), serde_json::json!([1]));
    }

    #[tokio::test]
    async fn a_redirect_to_another_server_is_named_and_a_loop_ends() {
        let url = server(
            "302 Found\r\nlocation: https://u:hush@elsewhere/v1/models?token=hush",
            "",
        );
        let error = json(&url).await.unwrap_err().to_string();
        assert!(
            error.contains("redirects to `https://") && error.contains("elsewhere"),
            "{error}"
        );
        assert!(!error.contains("hush"), "{error}");
        // The server has gone when it is asked again.
        let url = server("307 Temporary Redirect\r\nlocation: /models", "");
        let error = json(&url).await.unwrap_err();
        assert!(matches!(error, ControlError::Silent { .. }), "{error}");
        let endless = server_of(10, "302 Found\r\nlocation: /models?token=hush", "");
        let error = json(&endless).await.unwrap_err().to_string();
        assert!(
            error.contains(
                "redirects in a loop: 5 redirects were followed, and the next leads to `/models?token=****`"
            ),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_connection_that_ends_without_an_answer_may_be_one_to_a_tls_server() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/models", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
        });
        let error = json(&url).await.unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("if the server speaks TLS, use `https://`"),
            "{error}"
        );
        assert!(!error.has_answered());
        // Nobody listens there now.
        let error = json(&url).await.unwrap_err();
        assert!(!error.to_string().contains("TLS"), "{error}");
        let error = json(&server("500 Oh", "")).await.unwrap_err();
        assert!(error.has_answered());
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
                (error.is_refusal(), error.requires_key()),
                (is_refusal, wants_key),
                "{head}"
            );
        }
        let silent = json("http://127.0.0.1:1/models").await.unwrap_err();
        assert!(!silent.is_refusal());
    }
}
