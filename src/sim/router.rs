//! A router: sends each prompt to a prefill server, then the request to a decode server whose answer it passes on.
//!
//! It computes nothing and has no queue. The servers of each kind take turns. What it passes on are the bytes of the
//! upstream as they arrive, head and framing included.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::sim::connection::{Connection, KeepAlive, Reply, Request};
use crate::sim::engine::Engine;
use crate::sim::handler::{error_reply, not_found};
use crate::sim::role::{DisaggregationMode, RouterTargets, UpstreamUrl};
use crate::sim::upstream::{Upstream, UpstreamError, UpstreamResponse};

/// How long a server may take for its health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Headers that concern one connection only, or the form of the body, which the router writes itself.
const OWN_HEADERS: &[&str] = &[
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "content-length",
    "transfer-encoding",
];

/// The servers behind a router.
#[derive(Debug)]
pub(crate) struct Router {
    prefill: Group,
    decode: Group,
}

/// Servers of one kind, which take turns.
#[derive(Debug)]
struct Group {
    mode: DisaggregationMode,
    /// At least one.
    servers: Vec<Upstream>,
    turn: AtomicUsize,
}

impl Group {
    fn new(mode: DisaggregationMode, urls: &[UpstreamUrl]) -> Self {
        Self {
            mode,
            servers: urls.iter().cloned().map(Upstream::new).collect(),
            turn: AtomicUsize::new(0),
        }
    }

    fn next(&self) -> &Upstream {
        &self.servers[self.turn.fetch_add(1, Relaxed) % self.servers.len()]
    }
}

impl Router {
    pub(crate) fn new(targets: &RouterTargets) -> Self {
        Self {
            prefill: Group::new(DisaggregationMode::Prefill, &targets.prefill),
            decode: Group::new(DisaggregationMode::Decode, &targets.decode),
        }
    }

    pub(crate) async fn answer(
        &self,
        connection: &mut Connection<'_>,
        engine: &Engine,
        request: &Request,
        keep_alive: KeepAlive,
    ) -> std::io::Result<KeepAlive> {
        let reply = match (request.head.method.as_str(), request.head.path.as_str()) {
            ("POST", "/v1/completions" | "/v1/chat/completions") => {
                return self.generate(connection, engine, request, keep_alive).await;
            }
            ("GET", "/v1/models" | "/version") => {
                let server = &self.decode.servers[0];
                return self.relay(connection, engine, request, server, keep_alive).await;
            }
            ("POST", "/reset_prefix_cache") => match self.reset(request).await {
                Ok(response) => return pass_on(connection, &response, keep_alive).await,
                Err(error) => error_reply(engine, 502, &error),
            },
            ("GET" | "HEAD", "/health") => self.health(engine, request).await,
            _ => not_found(),
        };
        connection.reply(request, &reply, keep_alive).await?;
        Ok(keep_alive)
    }

    /// Has the prompt computed, then passes on the answer of a decode server.
    async fn generate(
        &self,
        connection: &mut Connection<'_>,
        engine: &Engine,
        request: &Request,
        keep_alive: KeepAlive,
    ) -> std::io::Result<KeepAlive> {
        let server = self.prefill.next();
        // A body that cannot be read is passed on as it is: the server says what is wrong with it.
        let body = prefill_body(&request.body).unwrap_or_else(|| request.body.clone());
        let message = message(request, &server.url, &body);
        let computed = tokio::select! {
            biased;
            computed = server.call(&message) => computed,
            () = connection.wait_for_close() => return Ok(KeepAlive::Close),
        };
        match computed {
            Ok(response) if response.status == 200 => {
                let server = self.decode.next();
                self.relay(connection, engine, request, server, keep_alive).await
            }
            Ok(response) => pass_on(connection, &response, keep_alive).await,
            Err(error) => {
                let reply = bad_gateway(engine, self.prefill.mode, server, &error);
                connection.reply(request, &reply, keep_alive).await?;
                Ok(keep_alive)
            }
        }
    }

    /// Sends the request to a decode server and passes its answer on as it arrives. An answer that breaks off breaks the
    /// client's connection.
    async fn relay(
        &self,
        connection: &mut Connection<'_>,
        engine: &Engine,
        request: &Request,
        server: &Upstream,
        keep_alive: KeepAlive,
    ) -> std::io::Result<KeepAlive> {
        let message = message(request, &server.url, &request.body);
        let started = tokio::select! {
            biased;
            started = server.send(&message) => started,
            () = connection.wait_for_close() => return Ok(KeepAlive::Close),
        };
        let mut response = match started {
            Ok(response) => response,
            Err(error) => {
                let reply = bad_gateway(engine, self.decode.mode, server, &error);
                connection.reply(request, &reply, keep_alive).await?;
                return Ok(keep_alive);
            }
        };
        let mut has_begun = false;
        loop {
            let bytes = tokio::select! {
                biased;
                bytes = response.next() => bytes,
                () = connection.wait_for_close() => return Ok(KeepAlive::Close),
            };
            match bytes {
                Ok(Some(bytes)) => connection.write(bytes).await?,
                Ok(None) => break,
                Err(error) if has_begun => return Err(std::io::Error::other(error)),
                Err(error) => {
                    let reply = bad_gateway(engine, self.decode.mode, server, &error);
                    connection.reply(request, &reply, keep_alive).await?;
                    return Ok(keep_alive);
                }
            }
            has_begun = true;
        }
        Ok(if response.finish() {
            keep_alive
        } else {
            KeepAlive::Close
        })
    }

    /// Healthy if every server is, which is asked now.
    async fn health(&self, engine: &Engine, request: &Request) -> Reply {
        let check = async |mode: DisaggregationMode, server: &Upstream| {
            let message = message(request, &server.url, b"");
            let fault = match tokio::time::timeout(HEALTH_TIMEOUT, server.call(&message)).await {
                Ok(Ok(response)) if response.status == 200 => return None,
                Ok(Ok(response)) => format!("the health check answers {}", response.status),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!(
                    "the health check takes longer than {} s",
                    HEALTH_TIMEOUT.as_secs()
                ),
            };
            Some(format!(
                "the {mode} server {} is not healthy: {fault}",
                server.url
            ))
        };
        let checks = self.servers().map(|(mode, server)| check(mode, server));
        let faults: Vec<String> = join_all(checks).await.into_iter().flatten().collect();
        match faults.as_slice() {
            [] => Reply::text(200, ""),
            faults => error_reply(engine, 503, &faults.join("; ")),
        }
    }

    /// Has every server empty its prefix cache. Returns the response of one that did not, or of the last one. The error
    /// is a sentence.
    async fn reset(&self, request: &Request) -> Result<UpstreamResponse, String> {
        let reset = async |mode: DisaggregationMode, server: &Upstream| {
            let message = message(request, &server.url, &request.body);
            let response = server.call(&message).await;
            response.map_err(|error| failure(mode, server, &error))
        };
        let resets = self.servers().map(|(mode, server)| reset(mode, server));
        let mut last = Err("there is no server".to_owned());
        for response in join_all(resets).await {
            last = Ok(response?);
            if let Ok(response) = &last
                && !has_reset(response)
            {
                break;
            }
        }
        last
    }

    fn servers(&self) -> impl Iterator<Item = (DisaggregationMode, &Upstream)> {
        [&self.prefill, &self.decode]
            .into_iter()
            .flat_map(|group| group.servers.iter().map(|server| (group.mode, server)))
    }
}

/// Whether a prefix cache was emptied: by status, and by the body where it says so.
fn has_reset(response: &UpstreamResponse) -> bool {
    let body: Option<Value> = serde_json::from_slice(&response.body).ok();
    response.status == 200 && body.is_none_or(|body| body["success"] != Value::Bool(false))
}

/// The request that computes the prompt: the same, for one token and without a stream. `None` if it is not a JSON object.
fn prefill_body(body: &[u8]) -> Option<Vec<u8>> {
    // Values stay texts, because prompts are long.
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(body).ok()?;
    let raw = |text: &str| RawValue::from_string(text.to_owned()).ok();
    fields.insert("max_tokens".to_owned(), raw("1")?);
    fields.insert("stream".to_owned(), raw("false")?);
    // Engines reject these beside the two above.
    fields.remove("stream_options");
    for limit in ["max_completion_tokens", "min_tokens"] {
        if let Some(value) = fields.get_mut(limit) {
            *value = raw("1")?;
        }
    }
    serde_json::to_vec(&fields).ok()
}

/// The request as the router sends it to a server.
fn message(request: &Request, server: &UpstreamUrl, body: &[u8]) -> Vec<u8> {
    let head = &request.head;
    // A body without a length, for a client without chunks, ends with its connection.
    let version = if head.is_http11 { "1.1" } else { "1.0" };
    let query = if head.query.is_empty() { "" } else { "?" };
    let method = if head.method == "HEAD" {
        "GET"
    } else {
        &head.method
    };
    let start = format!(
        "{method} {}{query}{} HTTP/{version}\r\nhost: {}\r\ncontent-length: {}\r\n",
        head.path,
        head.query,
        server.authority(),
        body.len()
    );
    let mut out = Vec::with_capacity(start.len() + body.len() + 512);
    out.extend_from_slice(start.as_bytes());
    for (name, value) in head.headers() {
        if !OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}

/// Writes a complete response as it arrived.
async fn pass_on(
    connection: &mut Connection<'_>,
    response: &UpstreamResponse,
    keep_alive: KeepAlive,
) -> std::io::Result<KeepAlive> {
    connection.write(&response.raw).await?;
    Ok(if response.is_persistent {
        keep_alive
    } else {
        KeepAlive::Close
    })
}

fn failure(mode: DisaggregationMode, server: &Upstream, error: &UpstreamError) -> String {
    format!("the {mode} server {} failed: {error}", server.url)
}

fn bad_gateway(engine: &Engine, mode: DisaggregationMode, server: &Upstream, error: &UpstreamError) -> Reply {
    error_reply(engine, 502, &failure(mode, server, error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_is_computed_for_one_token_without_a_stream() {
        let body = br#"{"prompt":[1,2],"max_tokens":50,"min_tokens":50,"stream":true,"stream_options":{"include_usage":true}}"#;
        let prefill: Value = serde_json::from_slice(&prefill_body(body).unwrap()).unwrap();
        let expected = json!({ "prompt": [1, 2], "max_tokens": 1, "min_tokens": 1, "stream": false });
        assert_eq!(prefill, expected);
        let chat = br#"{"messages":[],"max_completion_tokens":9}"#;
        let prefill: Value = serde_json::from_slice(&prefill_body(chat).unwrap()).unwrap();
        let expected =
            json!({ "messages": [], "max_completion_tokens": 1, "max_tokens": 1, "stream": false });
        assert_eq!(prefill, expected);
        assert_eq!(prefill_body(b"[]"), None);
        assert_eq!(prefill_body(b"{"), None);
    }
}
