//! The requests of greedy probes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};

use super::greedy::{count_tokens, greedy_fields};
use crate::base::ids::ContentHash;
use crate::config::quality::probes;
use crate::loadgen::dataset::Extras;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::{Content, PlannedRequest};
use crate::plan::Protocol;
use crate::results::record::request::Request;
use crate::runner::answers::checks::text_without_reasoning;

/// The requests of all probes, in order.
///
/// # Errors
/// The tokenizer fails.
pub(in crate::runner) fn probe_requests(
    protocol: Protocol,
    tokenizer: &Tokenizer,
) -> Result<Vec<PlannedRequest>, String> {
    let extras = Arc::new(Extras {
        body: greedy_fields(Map::new(), protocol, probes::MAX_TOKENS),
        ..Extras::default()
    });
    let request = |prompt: String| {
        let content = Content::Text(prompt.into());
        Ok(PlannedRequest {
            prompt_tokens: count_tokens(&content, tokenizer)?,
            content,
            requested_tokens: probes::MAX_TOKENS,
            due: Duration::ZERO,
            lora_adapter: None,
            extras: Some(Arc::clone(&extras)),
        })
    };
    probes::prompts().map(request).collect()
}

/// The digest of the probes. Answers with the same digest are to the same prompts.
pub(in crate::runner) fn probes_hash() -> ContentHash {
    let prompts: Vec<String> = probes::prompts().collect();
    ContentHash::from_value(&json!([prompts, probes::MAX_TOKENS]))
}

/// The text of an answer without its reasoning; `None` if the request failed or the answer has no text.
pub(in crate::runner) fn answer_text(request: &Request) -> Option<String> {
    let text = text_without_reasoning(request).filter(|_| !request.is_failed())?;
    (!text.trim().is_empty()).then_some(text)
}
