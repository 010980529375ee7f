//! One short real request, which proves that an engine is ready and serves the requested model.
//!
//! The probe is a load of one request, so whatever would fail every request fails here first. It tries once;
//! the caller waits and retries.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::base::units::HumanDuration;
use crate::config::scenario::LoadLimits;
use crate::loadgen::dataset::Content;
use crate::loadgen::generator::{LoadError, LoadSpec, PlannedRequest, run_load};
use crate::loadgen::protocol::EncodeError;
use crate::loadgen::request::COMPRESSED_MESSAGE;
use crate::loadgen::target::Target;
use crate::results::record::request::{Request, RequestFailureClass, Usage};

const PROBE_PROMPT: &str = "The capital of France is";
const PROBE_TOKENS: u32 = 4;

/// The answer of an engine that is ready.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProbeAnswer {
    /// The model that the answer names. Some servers only repeat the requested name.
    pub(crate) model: Option<String>,
    /// The text. It is empty only if the tokens have no text.
    pub(crate) text: String,
    pub(crate) usage: Option<Usage>,
    /// From sending to the end of the answer.
    pub(crate) seconds: f64,
}

#[derive(Debug, Error)]
pub(crate) enum ProbeError {
    #[error("{address} cannot be reached: {reason}")]
    Unreachable {
        address: String,
        /// The error of the system.
        reason: String,
    },
    #[error("{address} does not serve the model `{model}` (status {status}): {message}")]
    WrongModel {
        address: String,
        model: String,
        status: u16,
        message: String,
    },
    #[error("{address} answered the first request with status {status}: {message}")]
    Status {
        address: String,
        status: u16,
        message: String,
    },
    #[error("{address} answered the first request, but the answer has no output token: {message}")]
    NoToken { address: String, message: String },
    #[error("{address} did not answer the first request within {limit}: {message}")]
    Timeout {
        address: String,
        limit: HumanDuration,
        /// How far the answer came.
        message: String,
    },
    /// The answer is compressed although the request did not allow it. Later answers would be too.
    #[error(
        "the first request to {address} failed: {message}. The arrival times of tokens cannot be measured; turn \
         off compression in the server or in the proxy in front of it"
    )]
    Compressed { address: String, message: String },
    /// The answer broke off, could not be parsed, or held an error.
    #[error("the first request to {address} failed ({}): {message}", class.name())]
    Broken {
        address: String,
        class: RequestFailureClass,
        message: String,
    },
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// Asks the engine for a few tokens.
pub(crate) async fn probe(target: &Target, limit: Duration) -> Result<ProbeAnswer, ProbeError> {
    let load = LoadSpec {
        target: target.clone(),
        requests: vec![PlannedRequest {
            content: Content::Text(PROBE_PROMPT.to_owned().into()),
            prompt_tokens: 0,
            requested_tokens: PROBE_TOKENS,
            due: Duration::ZERO,
            lora_adapter: None,
            extras: None,
        }],
        concurrency: None,
        sessions: None,
        connections: Default::default(),
        cancel: None,
        limits: LoadLimits {
            first_byte: HumanDuration(limit),
            request: HumanDuration(limit),
            ..LoadLimits::default()
        },
        body: Map::new(),
        // An answer that may end at the model's end token might be empty and would prove nothing.
        stop_at_eos: false,
        sink: None,
        watch: None,
        spill: None,
        threads: NonZeroUsize::MIN,
    };
    let unreachable = |reason: String| ProbeError::Unreachable {
        address: target.address.to_string(),
        reason,
    };
    let result = match run_load(load, Arc::default(), CancellationToken::new()).await {
        Ok(result) => result,
        Err(LoadError::Encode { source, .. }) => return Err(source.into()),
        Err(error @ (LoadError::Route(_) | LoadError::Thread(_))) => {
            return Err(unreachable(error.to_string()));
        }
    };
    match result.records.into_iter().next() {
        Some(request) => check_answer(target, limit, request),
        None => Err(unreachable("the request was never sent".to_owned())),
    }
}

fn check_answer(target: &Target, limit: Duration, request: Request) -> Result<ProbeAnswer, ProbeError> {
    let Some(failure) = request.failure else {
        let seconds = request.end_ns.saturating_sub(request.sent_ns.unwrap_or(0)) as f64 / 1e9;
        return Ok(ProbeAnswer {
            model: request.models.into_iter().next(),
            text: request
                .text
                .map(|text| text.read().into_owned())
                .unwrap_or_default(),
            usage: request.usage,
            seconds,
        });
    };
    let (address, message) = (target.address.to_string(), failure.message);
    Err(match (failure.class, request.status) {
        (RequestFailureClass::Connect | RequestFailureClass::Refused, _) => ProbeError::Unreachable {
            address,
            reason: message,
        },
        (RequestFailureClass::Status, Some(status)) if is_about_model(status, &message) => {
            ProbeError::WrongModel {
                address,
                model: target.model.clone(),
                status,
                message,
            }
        }
        (RequestFailureClass::Status, Some(status)) => ProbeError::Status {
            address,
            status,
            message,
        },
        (RequestFailureClass::Empty, _) => ProbeError::NoToken { address, message },
        (RequestFailureClass::TimeoutBeforeFirst | RequestFailureClass::TimeoutAfterFirst, _) => {
            ProbeError::Timeout {
                address,
                limit: HumanDuration(limit),
                message,
            }
        }
        (RequestFailureClass::Garbled, Some(200)) if message.starts_with(COMPRESSED_MESSAGE) => {
            ProbeError::Compressed { address, message }
        }
        (class, _) => ProbeError::Broken {
            address,
            class,
            message,
        },
    })
}

/// Returns true if a rejection is about the model's name. Unknown paths also give 404 and invalid bodies also
/// give 400, so the server's message decides.
fn is_about_model(status: u16, message: &str) -> bool {
    let message = message.to_lowercase();
    let is_missing = [
        "not exist",
        "not found",
        "not served",
        "unknown",
        "no model",
        "invalid",
    ]
    .iter()
    .any(|words| message.contains(words));
    matches!(status, 400 | 404 | 422) && message.contains("model") && is_missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadgen::test_server::{self, Act, Server, partial_stream, plain_response, stream};
    use crate::plan::Protocol;

    async fn probe_server(acts: Vec<Act>) -> Result<ProbeAnswer, ProbeError> {
        let server = Server::answering(acts).await;
        let target = test_server::target(server.port, Protocol::Chat);
        probe(&target, Duration::from_millis(200)).await
    }

    fn compressed(status: &str) -> Vec<u8> {
        let answer = String::from_utf8(plain_response(status, "")).unwrap();
        let encoded = answer.replacen("\r\n", "\r\nContent-Encoding: gzip\r\n", 1);
        encoded.into_bytes()
    }

    fn error_text(probed: Result<ProbeAnswer, ProbeError>) -> String {
        format!("{:?}", probed.unwrap_err())
    }

    #[tokio::test]
    async fn a_real_token_proves_an_engine() {
        let token = r#"data: {"model":"served","choices":[{"delta":{"content":"Paris"}}],"usage":{"completion_tokens":1}}"#;
        let answer = probe_server(vec![Act::Write(stream(&[token, "data: [DONE]"]))])
            .await
            .unwrap();
        assert_eq!(
            (answer.text.as_str(), answer.model.as_deref()),
            ("Paris", Some("served"))
        );
        assert_eq!(answer.usage.unwrap().completion, Some(1));
        assert!(answer.seconds > 0.0);
    }

    #[tokio::test]
    async fn what_is_no_proof_is_told_apart() {
        let missing = r#"{"error":{"message":"The model `m` does not exist."}}"#;
        let error = r#"data: {"error":{"message":"oom"}}"#;
        for (acts, variant, words) in [
            (
                vec![Act::Write(plain_response("404 Not Found", missing))],
                "WrongModel",
                "does not exist",
            ),
            (
                vec![Act::Write(plain_response("503 Busy", "loading"))],
                "Status",
                "503",
            ),
            (
                vec![Act::Write(stream(&["data: [DONE]"]))],
                "NoToken",
                "no output",
            ),
            (vec![Act::Hang], "Timeout", "200ms"),
            (
                vec![Act::Write(partial_stream(&[])), Act::Hang],
                "Timeout",
                "200ms",
            ),
            (vec![Act::Write(stream(&[error]))], "Broken", "oom"),
            (vec![Act::Write(compressed("200 OK"))], "Compressed", "`gzip`"),
            // A proxy's own error page while the server behind it is not up.
            (vec![Act::Write(compressed("502 Bad Gateway"))], "Status", "502"),
        ] {
            let message = error_text(probe_server(acts).await);
            assert!(
                message.starts_with(variant) && message.contains(words),
                "{message}"
            );
        }
    }

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_unreachable() {
        let port = Server::answering(Vec::new()).await.port;
        let probed = probe(&test_server::target(port, Protocol::Chat), Duration::from_secs(5)).await;
        assert!(error_text(probed).starts_with("Unreachable"));
    }

    #[test]
    fn a_refusal_is_about_the_model_only_if_it_says_so() {
        let vllm = r#"Not Found: {"error":{"message":"The model `m` does not exist.","code":404}}"#;
        assert!(is_about_model(404, vllm));
        assert!(!is_about_model(404, r#"Not Found: {"detail":"Not Found"}"#));
        assert!(!is_about_model(
            400,
            "Bad Request: this model's maximum context length is 8 tokens"
        ));
        assert!(!is_about_model(500, "Internal Server Error: model not found"));
    }
}
