//! What transformers does beyond the `tokenizer.json`.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The part of `tokenizer_config.json` that is used. Unknown fields are allowed, because the format is not
/// ours.
#[derive(Default, Deserialize)]
pub(super) struct TokenizerConfig {
    #[serde(default)]
    pub(super) clean_up_tokenization_spaces: Option<bool>,
}

/// Hugging Face's `clean_up_tokenization`: removes spaces before punctuation and contractions, in this order.
pub(super) fn clean_up_spaces(text: &str) -> String {
    const REPLACED: [(&str, &str); 10] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    REPLACED
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Returns the special tokens in a tokenizer's settings, as transformers collects them.
pub(super) fn special_tokens(settings: &Map<String, Value>) -> Vec<String> {
    let text = |value: &Value| {
        value
            .as_str()
            .or_else(|| value.get("content")?.as_str())
            .map(str::to_owned)
    };
    let single = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"];
    let single = single
        .iter()
        .filter_map(|name| settings.get(&format!("{name}_token")));
    let names = ["additional_special_tokens", "extra_special_tokens"];
    let names = names
        .iter()
        .filter_map(|name| settings.get(*name))
        .flat_map(|value| match value {
            Value::Array(values) => values.iter().collect(),
            Value::Object(values) => values.values().collect::<Vec<_>>(),
            _ => Vec::new(),
        });
    single.chain(names).filter_map(text).collect()
}
