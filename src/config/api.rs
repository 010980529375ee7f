//! How to talk to an engine: protocols, and the paths that a recipe names.

use serde::{Deserialize, Serialize};

/// The wire format of requests and responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// SGLang's own protocol: `POST /generate`, with cumulative text.
    SglangNative,
    /// OpenAI completions: `POST /v1/completions`.
    #[default]
    #[serde(alias = "openai")]
    Completions,
    /// OpenAI chat: `POST /v1/chat/completions`.
    #[serde(alias = "openai-chat")]
    Chat,
    /// TensorRT-LLM behind Triton: `POST /v2/models/ensemble/generate_stream`.
    Trt,
    /// Truss: `POST /v1/models/model:predict`, with responses like completions.
    Truss,
    /// OpenAI embeddings: `POST /v1/embeddings`.
    Embeddings,
    /// Anthropic Messages: `POST /v1/messages`.
    Messages,
    /// OpenAI Responses: `POST /v1/responses`.
    Responses,
    /// Rerank, as Jina and Cohere have it: `POST /v1/rerank`.
    Rerank,
    /// OpenAI audio transcription: `POST /v1/audio/transcriptions`.
    Transcription,
}

/// What a protocol can carry, and how its requests and answers look. Everything that asks what a protocol can do
/// reads this table; `loadgen::protocol` writes bodies and reads answers.
pub(crate) struct ProtocolFacts {
    /// Its name, as recipes write it.
    pub(crate) name: &'static str,
    /// Path of requests, unless the recipe names one.
    pub(crate) path: &'static str,
    /// The form of request bodies.
    pub(crate) body: BodyForm,
    /// What requests can carry besides text.
    pub(crate) carries: &'static [Feature],
    pub(crate) template: ServerTemplate,
    /// Whether answers consist of text. Otherwise they are vectors or scores, without output tokens.
    pub(crate) generates_text: bool,
    /// Whether a request decides how many output tokens it gets. Otherwise its input does, and a number is only a limit.
    pub(crate) fixes_length: bool,
    /// Whether the field `stream` turns streaming off.
    pub(crate) stream_field: bool,
    pub(crate) end_mark: EndMark,
    /// Whether the field `stream_options` requests token counts.
    pub(crate) stream_options: bool,
    /// Headers that requests need, unless the user sets them.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    pub(crate) sampling: SamplingFields,
    /// Fields with the maximum of output tokens, beside the sampling fields; the first that is set applies.
    pub(crate) limit_fields: &'static [&'static str],
    pub(crate) bench_serving_tokens: CountedAs,
}

/// The form of request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyForm {
    Json,
    /// `multipart/form-data`, with a file.
    Multipart,
}

/// What a request may carry besides text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Chat messages, and so conversations.
    Messages,
    TokenIds,
    Images,
    /// A query with documents to rank, and nothing else.
    Documents,
    /// A recording, and nothing else.
    Audio,
    LoraName,
    RoutingKey,
}

/// Whether the server applies the model's chat template to prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerTemplate {
    Applied,
    NotApplied,
    /// The server's configuration decides.
    Unknown,
}

/// How a complete stream marks its end, besides `[DONE]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndMark {
    /// Not reliably.
    None,
    /// By a finish reason or a usage report.
    FinishOrUsage,
    /// By its last event, such as `message_stop`. A stream without it was cut.
    LastEvent,
    /// By its last event or `[DONE]`. A stream without either was cut.
    LastEventOrDone,
}

/// Where a body has `temperature` and `top_p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SamplingFields {
    TopLevel,
    /// In the object with this name.
    Nested(&'static str),
    None,
}

/// The number of output tokens that bench_serving's `current` rules use. Source: docs/bench-serving.md 2.2 to 2.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedAs {
    /// The requested number; the usage of the server is not read.
    Requested,
    /// The reported number, at the end or in the last event with one. An answer without output counts as requested.
    Reported,
    /// The number in the last event.
    LastEvent,
    /// The reported number, if the server sends it without a request.
    UnaskedUsage,
}

/// The facts of a protocol with plain text prompts and no further marks; each protocol states what differs.
const USUAL_FACTS: ProtocolFacts = ProtocolFacts {
    name: "",
    path: "",
    body: BodyForm::Json,
    carries: &[Feature::TokenIds],
    template: ServerTemplate::Unknown,
    generates_text: true,
    fixes_length: true,
    stream_field: true,
    end_mark: EndMark::None,
    stream_options: false,
    headers: &[],
    sampling: SamplingFields::TopLevel,
    limit_fields: &["max_tokens"],
    bench_serving_tokens: CountedAs::Requested,
};

impl Protocol {
    /// Its name, as recipes write it.
    pub(crate) const fn name(self) -> &'static str {
        self.facts().name
    }

    pub(crate) fn carries(self, feature: Feature) -> bool {
        self.facts().carries.contains(&feature)
    }

    pub(crate) const fn facts(self) -> ProtocolFacts {
        use Feature::{Audio, Documents, Images, LoraName, Messages, RoutingKey, TokenIds};
        match self {
            Self::SglangNative => ProtocolFacts {
                name: "sglang-native",
                path: "/generate",
                carries: &[TokenIds, Images, LoraName, RoutingKey],
                template: ServerTemplate::NotApplied,
                sampling: SamplingFields::Nested("sampling_params"),
                limit_fields: &["max_new_tokens"],
                bench_serving_tokens: CountedAs::Reported,
                ..USUAL_FACTS
            },
            Self::Completions => ProtocolFacts {
                name: "completions",
                path: "/v1/completions",
                carries: &[TokenIds, Images, LoraName, RoutingKey],
                template: ServerTemplate::NotApplied,
                end_mark: EndMark::FinishOrUsage,
                stream_options: true,
                bench_serving_tokens: CountedAs::LastEvent,
                ..USUAL_FACTS
            },
            Self::Chat => ProtocolFacts {
                name: "chat",
                path: "/v1/chat/completions",
                carries: &[Messages, Images, LoraName, RoutingKey],
                template: ServerTemplate::Applied,
                end_mark: EndMark::FinishOrUsage,
                stream_options: true,
                limit_fields: &["max_completion_tokens", "max_tokens"],
                bench_serving_tokens: CountedAs::UnaskedUsage,
                ..USUAL_FACTS
            },
            Self::Trt => ProtocolFacts {
                name: "trt",
                path: "/v2/models/ensemble/generate_stream",
                stream_field: false,
                ..USUAL_FACTS
            },
            Self::Truss => ProtocolFacts {
                name: "truss",
                path: "/v1/models/model:predict",
                ..USUAL_FACTS
            },
            Self::Embeddings => ProtocolFacts {
                name: "embeddings",
                path: "/v1/embeddings",
                carries: &[TokenIds, LoraName, RoutingKey],
                generates_text: false,
                stream_field: false,
                sampling: SamplingFields::None,
                limit_fields: &[],
                ..USUAL_FACTS
            },
            Self::Messages => ProtocolFacts {
                name: "messages",
                path: "/v1/messages",
                carries: &[Messages, Images, LoraName, RoutingKey],
                template: ServerTemplate::Applied,
                end_mark: EndMark::LastEvent,
                headers: &[("anthropic-version", "2023-06-01")],
                bench_serving_tokens: CountedAs::Reported,
                ..USUAL_FACTS
            },
            Self::Responses => ProtocolFacts {
                name: "responses",
                path: "/v1/responses",
                carries: &[Messages, Images, LoraName, RoutingKey],
                template: ServerTemplate::Applied,
                end_mark: EndMark::LastEvent,
                limit_fields: &["max_output_tokens"],
                bench_serving_tokens: CountedAs::Reported,
                ..USUAL_FACTS
            },
            Self::Rerank => ProtocolFacts {
                name: "rerank",
                path: "/v1/rerank",
                carries: &[Documents, RoutingKey],
                generates_text: false,
                stream_field: false,
                sampling: SamplingFields::None,
                limit_fields: &[],
                ..USUAL_FACTS
            },
            Self::Transcription => ProtocolFacts {
                name: "transcription",
                path: "/v1/audio/transcriptions",
                body: BodyForm::Multipart,
                carries: &[Audio, LoraName, RoutingKey],
                fixes_length: false,
                end_mark: EndMark::LastEventOrDone,
                limit_fields: &["max_completion_tokens"],
                bench_serving_tokens: CountedAs::Reported,
                ..USUAL_FACTS
            },
        }
    }
}

/// How token counts are requested from an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UsageRequest {
    /// No request field: the engine always reports token counts, or never.
    #[default]
    Unasked,
    /// `stream_options: {"include_usage": true}`: the engine reports token counts in an event at the end.
    StreamOptions,
}

/// The published load generator whose requests are sent: its body fields and their order, its warm-up, its order of draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientStyle {
    /// `sglang.bench_serving`.
    #[default]
    BenchServing,
    /// `vllm bench serve`.
    VllmServe,
}

impl ClientStyle {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The fields of a request of embeddings in the form of `vllm bench serve`, which differ between servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddingsForm {
    /// OpenAI's `input`.
    #[default]
    Input,
    /// vLLM's `messages`.
    Messages,
    /// Infinity's `input`, which is not cut.
    Infinity,
    /// vLLM's pooling.
    Pooling,
}

impl EmbeddingsForm {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A value in a JSON response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct JsonField {
    /// Path of the request.
    pub(crate) path: String,
    /// JSON pointer to the value, such as `/version`.
    pub(crate) pointer: String,
}

/// The request that empties a prefix cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct CacheResetSpec {
    /// HTTP method, `GET` or `POST`.
    pub(crate) method: String,
    /// Path of the request.
    pub(crate) path: String,
    /// JSON pointer to a value that is `true` on success; default: status 200 means success, unless the response has `success: false`.
    #[serde(default)]
    pub(crate) success: Option<String>,
}
