//! How to talk to an engine: protocols, and the paths that a recipe names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A protocol that `matrix` speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// SGLang's own: `POST /generate`, cumulative text.
    SglangNative,
    /// OpenAI completions: `POST /v1/completions`.
    Completions,
    /// OpenAI chat: `POST /v1/chat/completions`.
    Chat,
    /// TensorRT-LLM behind Triton: `POST /v2/models/ensemble/generate_stream`.
    Trt,
    /// Truss: `POST /v1/models/model:predict`, answered like completions.
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

/// How an engine is asked for its token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UsageRequest {
    /// It always tells, or it cannot be asked.
    #[default]
    Unasked,
    /// `stream_options: {"include_usage": true}` brings one event at the end.
    StreamOptions,
}

/// A value to be read from a JSON answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JsonField {
    /// The path to ask.
    pub path: String,
    /// Where the value stands, as a JSON pointer such as `/version`.
    pub pointer: String,
}

/// How a prefix cache is emptied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheResetSpec {
    /// `GET` or `POST`.
    pub method: String,
    /// The path to call.
    pub path: String,
    /// Where a JSON answer says `true` for success, as a JSON pointer; without it status 200 counts.
    #[serde(default)]
    pub success: Option<String>,
}
