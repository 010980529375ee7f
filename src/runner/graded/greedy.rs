//! What the requests of items and of probes have in common.

use serde_json::{Map, Value, json};

use crate::config::api::SamplingFields;
use crate::loadgen::Content;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::plan::Protocol;

/// Number of tokens of a prompt, without a chat template.
pub(super) fn count_tokens(content: &Content, tokenizer: &Tokenizer) -> Result<u32, String> {
    let count = match content {
        Content::Text(text) => tokenizer.count(text, false),
        Content::Messages(messages) => {
            let texts = messages.iter().filter_map(|message| message["content"].as_str());
            texts.map(|text| tokenizer.count(text, false)).sum()
        }
        _ => Ok(0),
    };
    let count = count.map_err(|error| error.to_string())?;
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Fields of a row that make its answer greedy and let it end where the model ends it, whatever the load does.
pub(super) fn greedy_fields(
    mut fields: Map<String, Value>,
    protocol: Protocol,
    max_tokens: u32,
) -> Map<String, Value> {
    match protocol.facts().sampling {
        SamplingFields::Nested(parent) => {
            let nested = json!({"temperature": 0, "max_new_tokens": max_tokens, "ignore_eos": false});
            fields.insert(parent.to_owned(), nested);
        }
        SamplingFields::TopLevel => {
            fields.insert("temperature".to_owned(), json!(0));
            if matches!(protocol, Protocol::Completions | Protocol::Chat) {
                fields.insert("ignore_eos".to_owned(), json!(false));
            }
        }
        SamplingFields::None => {}
    }
    fields
}
