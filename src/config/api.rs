//! How to talk to an engine: protocols, and the paths that a recipe names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The wire format of requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// SGLang's own protocol: `POST /generate`, with cumulative text.
    SglangNative,
    /// OpenAI completions: `POST /v1/completions`.
    Completions,
    /// OpenAI chat: `POST /v1/chat/completions`.
    Chat,
    /// TensorRT-LLM behind Triton: `POST /v2/models/ensemble/generate_stream`.
    Trt,
    /// Truss: `POST /v1/models/model:predict`, with responses like completions.
    Truss,
    /// OpenAI embeddings: `POST /v1/embeddings`.
    Embeddings,
}

impl Protocol {
    /// Its name, as recipes write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SglangNative => "sglang-native",
            Self::Completions => "completions",
            Self::Chat => "chat",
            Self::Trt => "trt",
            Self::Truss => "truss",
            Self::Embeddings => "embeddings",
        }
    }
}

/// How token counts are requested from an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UsageRequest {
    /// No request field: the engine always reports token counts, or never.
    #[default]
    Unasked,
    /// `stream_options: {"include_usage": true}`: the engine reports token counts in an event at the end.
    StreamOptions,
}

/// A value in a JSON response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JsonField {
    /// Path of the request.
    pub path: String,
    /// JSON pointer to the value, such as `/version`.
    pub pointer: String,
}

/// The request that empties a prefix cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheResetSpec {
    /// HTTP method, `GET` or `POST`.
    pub method: String,
    /// Path of the request.
    pub path: String,
    /// JSON pointer to a value that is `true` on success; default: status 200 means success, unless the response has `success: false`.
    #[serde(default)]
    pub success: Option<String>,
}
