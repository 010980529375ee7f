//! Requests and answers of each dialect: parses bodies, renders events and complete answers. Pure.

pub(crate) mod request;
mod rerank;
mod response;
pub(crate) mod transcription;
mod typed_events;

pub(crate) use request::{GenerationRequest, RequestError};
pub(crate) use rerank::{Pair, RerankRequest};
pub(crate) use response::{FinishReason, ResponseWriter};

use crate::sim::options::Dialect;

/// API of a generation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// SGLang's own API: `POST /generate`.
    Native,
    Completions,
    Chat,
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
    /// OpenAI audio transcription.
    Transcription,
}

impl Endpoint {
    /// Whether events name their type, and the last one ends the stream without `[DONE]`.
    const fn names_events(self) -> bool {
        matches!(self, Self::Messages | Self::Responses)
    }
}

/// Everything that a client can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Generate(Endpoint),
    /// Scores of documents for a query; nothing is generated.
    Rerank,
    Health,
    /// SGLang's health check that generates a token. Here it generates none, so that polling does not disturb
    /// the load.
    HealthGenerate,
    Models,
    Metrics,
    ResetCache,
    Version,
    ServerInfo,
    ModelInfo,
    Truth,
    ClearTruth,
    WrongMethod,
    Unknown,
}

impl Route {
    pub(crate) fn resolve(dialect: Dialect, method: &str, path: &str) -> Self {
        let is_sglang = dialect == Dialect::Sglang;
        let is_vllm = dialect == Dialect::Vllm;
        let (route, methods): (Self, &[&str]) = match path {
            "/generate" if is_sglang => (Self::Generate(Endpoint::Native), &["POST", "PUT"]),
            "/v1/completions" => (Self::Generate(Endpoint::Completions), &["POST"]),
            "/v1/chat/completions" => (Self::Generate(Endpoint::Chat), &["POST"]),
            "/v1/messages" if is_sglang || is_vllm => (Self::Generate(Endpoint::Messages), &["POST"]),
            "/v1/responses" if dialect != Dialect::Lmdeploy => {
                (Self::Generate(Endpoint::Responses), &["POST"])
            }
            "/v1/audio/transcriptions" if is_sglang || is_vllm => {
                (Self::Generate(Endpoint::Transcription), &["POST"])
            }
            "/v1/rerank" if is_sglang || is_vllm => (Self::Rerank, &["POST"]),
            "/health" => (Self::Health, &["GET"]),
            "/health_generate" if is_sglang => (Self::HealthGenerate, &["GET"]),
            "/v1/models" => (Self::Models, &["GET"]),
            "/metrics" if dialect != Dialect::Openai => (Self::Metrics, &["GET"]),
            "/flush_cache" if is_sglang => (Self::ResetCache, &["GET", "POST"]),
            "/reset_prefix_cache" if is_vllm => (Self::ResetCache, &["POST"]),
            "/version" if is_vllm => (Self::Version, &["GET"]),
            "/server_info" if is_sglang || is_vllm => (Self::ServerInfo, &["GET"]),
            "/get_server_info" if is_sglang => (Self::ServerInfo, &["GET"]),
            "/model_info" | "/get_model_info" if is_sglang => (Self::ModelInfo, &["GET"]),
            "/sim/truth" if method == "DELETE" => (Self::ClearTruth, &["DELETE"]),
            "/sim/truth" => (Self::Truth, &["GET"]),
            _ => return Self::Unknown,
        };
        if methods.contains(&method) || (method == "HEAD" && methods.contains(&"GET")) {
            route
        } else {
            Self::WrongMethod
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_its_own_paths() {
        let is_known = |dialect, method, path| Route::resolve(dialect, method, path) != Route::Unknown;
        for (path, sglang, vllm, lmdeploy, openai) in [
            ("/generate", true, false, false, false),
            ("/v1/completions", true, true, true, true),
            ("/v1/messages", true, true, false, false),
            ("/v1/responses", true, true, false, true),
            ("/v1/audio/transcriptions", true, true, false, false),
            ("/v1/rerank", true, true, false, false),
            ("/metrics", true, true, true, false),
            ("/flush_cache", true, false, false, false),
            ("/reset_prefix_cache", false, true, false, false),
            ("/version", false, true, false, false),
            ("/nowhere", false, false, false, false),
        ] {
            assert_eq!(is_known(Dialect::Sglang, "POST", path), sglang, "{path}");
            assert_eq!(is_known(Dialect::Vllm, "POST", path), vllm, "{path}");
            assert_eq!(is_known(Dialect::Lmdeploy, "POST", path), lmdeploy, "{path}");
            assert_eq!(is_known(Dialect::Openai, "POST", path), openai, "{path}");
        }
        assert_eq!(
            Route::resolve(Dialect::Vllm, "GET", "/reset_prefix_cache"),
            Route::WrongMethod
        );
    }
}
