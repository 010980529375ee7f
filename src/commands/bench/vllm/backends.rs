//! The backends of a bench like vLLM's.

use crate::cli::bench::{REFUSED_BACKENDS, VllmArgs};
use crate::config::api::EmbeddingsForm;
use crate::plan::Protocol;

/// The backends, with their protocols, the form of embeddings and the end of their paths.
const BACKENDS: [(&str, Protocol, EmbeddingsForm, &str); 10] = [
    (
        "vllm",
        Protocol::Completions,
        EmbeddingsForm::Input,
        "completions",
    ),
    (
        "openai",
        Protocol::Completions,
        EmbeddingsForm::Input,
        "completions",
    ),
    (
        "openai-chat",
        Protocol::Chat,
        EmbeddingsForm::Input,
        "chat/completions",
    ),
    (
        "openai-responses",
        Protocol::Responses,
        EmbeddingsForm::Input,
        "responses",
    ),
    (
        "openai-embeddings",
        Protocol::Embeddings,
        EmbeddingsForm::Input,
        "embeddings",
    ),
    (
        "openai-embeddings-chat",
        Protocol::Embeddings,
        EmbeddingsForm::Messages,
        "embeddings",
    ),
    (
        "infinity-embeddings",
        Protocol::Embeddings,
        EmbeddingsForm::Infinity,
        "embeddings",
    ),
    (
        "vllm-pooling",
        Protocol::Embeddings,
        EmbeddingsForm::Pooling,
        "pooling",
    ),
    (
        "openai-audio",
        Protocol::Transcription,
        EmbeddingsForm::Input,
        "audio/transcriptions",
    ),
    ("vllm-rerank", Protocol::Rerank, EmbeddingsForm::Input, "rerank"),
];

/// Whether answers are text; true for a backend that does not exist.
pub(super) fn generates_text(name: &str) -> bool {
    let backend = BACKENDS.iter().find(|(known, ..)| *known == name);
    backend.is_none_or(|(_, protocol, ..)| protocol.facts().generates_text)
}

/// Returns the protocol of the backend, and its form of embeddings.
pub(super) fn protocol(args: &VllmArgs) -> Result<(Protocol, EmbeddingsForm), Vec<String>> {
    let (name, endpoint) = (args.server.backend.as_str(), args.server.endpoint.as_str());
    if let Some((_, why)) = REFUSED_BACKENDS.iter().find(|(refused, _)| *refused == name) {
        return Err(vec![format!("`--backend {name}` is not supported: {why}")]);
    }
    let Some((_, protocol, form, end)) = BACKENDS.iter().find(|(known, ..)| *known == name) else {
        let known: Vec<String> = BACKENDS.iter().map(|(name, ..)| format!("`{name}`")).collect();
        return Err(vec![format!(
            "there is no backend `{name}`; use {}",
            known.join(", ")
        )]);
    };
    if !endpoint.ends_with(end) {
        return Err(vec![format!(
            "the backend `{name}` does not send to `{endpoint}`; write `--endpoint {}{end}`",
            if *form == EmbeddingsForm::Pooling {
                "/"
            } else {
                "/v1/"
            }
        )]);
    }
    Ok((*protocol, *form))
}
