//! The backends of `matrix bench`: the Python tool's names of engines and protocols.

use super::api::Protocol;

/// Makes the enum of backends from a table.
macro_rules! backends {
    ($($(#[$doc:meta])* $name:ident = $tool_name:literal, $protocol:ident, $port:literal $(, $field:ident: $value:expr)*;)*) => {
        /// The Python tool's names of engines and protocols.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Backend {
            $($(#[$doc])* $name,)*
        }

        impl Backend {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            pub(crate) const fn facts(self) -> BackendFacts {
                match self {
                    $(Self::$name => {
                        let facts = BackendFacts::new($tool_name, Protocol::$protocol, $port);
                        $(let facts = BackendFacts { $field: $value, ..facts };)*
                        facts
                    })*
                }
            }
        }
    };
}

pub(crate) struct BackendFacts {
    pub(crate) name: &'static str,
    pub(crate) protocol: Protocol,
    /// The default port. Source: docs/bench-serving.md 1.1, T26 fixed.
    pub(crate) port: u16,
    /// The path that is requested until the server is ready.
    pub(crate) ready_path: &'static str,
    /// Whether the server reports the name of its model.
    pub(crate) reports_model: bool,
    /// Whether the rules of `classic` know the backend.
    pub(crate) is_classic: bool,
    pub(crate) key: KeyVariable,
}

/// The environment variables with a server's key, and the header that carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyVariable {
    /// `OPENAI_API_KEY` as a bearer token, or `API_KEY` as the `Authorization` header.
    OpenAi,
    /// `ANTHROPIC_API_KEY` as `x-api-key`. No other server gets this key, and Anthropic no other key.
    Anthropic,
}

impl BackendFacts {
    /// A backend with what most backends share.
    const fn new(name: &'static str, protocol: Protocol, port: u16) -> Self {
        Self {
            name,
            protocol,
            port,
            ready_path: "/v1/models",
            reports_model: true,
            is_classic: false,
            key: KeyVariable::OpenAi,
        }
    }
}

// Variant, name, protocol, port, and fields that differ from the defaults.
backends! {
    Sglang = "sglang", SglangNative, 30_000, is_classic: true;
    SglangNative = "sglang-native", SglangNative, 30_000, is_classic: true;
    SglangOai = "sglang-oai", Completions, 30_000, is_classic: true;
    SglangOaiChat = "sglang-oai-chat", Chat, 30_000;
    SglangMessages = "sglang-messages", Messages, 30_000;
    SglangResponses = "sglang-responses", Responses, 30_000;
    SglangTranscription = "sglang-transcription", Transcription, 30_000;
    SglangRerank = "sglang-rerank", Rerank, 30_000;
    SglangEmbedding = "sglang-embedding", Embeddings, 30_000;
    Vllm = "vllm", Completions, 8000, is_classic: true;
    VllmChat = "vllm-chat", Chat, 8000;
    VllmMessages = "vllm-messages", Messages, 8000;
    VllmResponses = "vllm-responses", Responses, 8000;
    Anthropic = "anthropic", Messages, 8000, key: KeyVariable::Anthropic;
    VllmRerank = "vllm-rerank", Rerank, 8000;
    VllmTranscription = "vllm-transcription", Transcription, 8000;
    VllmEmbedding = "vllm-embedding", Embeddings, 8000;
    Lmdeploy = "lmdeploy", Completions, 23_333, is_classic: true;
    LmdeployChat = "lmdeploy-chat", Chat, 23_333;
    Trt = "trt", Trt, 8000, ready_path: "", reports_model: false, is_classic: true;
    Gserver = "gserver", Trt, 9988, ready_path: "", is_classic: true;
    Truss = "truss", Truss, 8080, reports_model: false;
}

impl Backend {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|backend| backend.name() == name)
    }

    pub(crate) const fn name(self) -> &'static str {
        self.facts().name
    }

    pub(crate) const fn protocol(self) -> Protocol {
        self.facts().protocol
    }

    pub(crate) fn is_sglang(self) -> bool {
        self.name().contains("sglang")
    }
}
