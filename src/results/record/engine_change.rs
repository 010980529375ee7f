//! Differences between what an engine reports and what it reported at an earlier measurement of the same run.
//! Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::engine_facts::EngineFacts;

/// Settings of a live configuration that stay the same while a server runs and when it is restarted.
const STABLE_SETTINGS: [&str; 14] = [
    "model_path",
    "model_alias",
    "tokenizer_path",
    "build_info",
    "total_slots",
    "tp_size",
    "dp_size",
    "pp_size",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "context_length",
    "attention_backend",
    "speculative_algorithm",
];

/// Longest model list that is compared. A longer one is a gateway's catalogue, which changes although no
/// server does.
const MAX_OWN_MODELS: usize = 16;

/// Name of the fact that holds the model list.
const MODELS_FACT: &str = "models";

/// One reported fact that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EngineChange {
    /// Name of the fact, such as `version`.
    pub(crate) what: String,
    /// Value at the earlier measurement.
    pub(crate) before: String,
    pub(crate) after: String,
}

impl EngineChange {
    /// Whether the same server may tell it: models are added to a server that runs.
    pub(crate) fn is_model_list(&self) -> bool {
        self.what == MODELS_FACT
    }

    /// The change in words.
    pub(crate) fn describe(&self) -> String {
        format!("{} {} → {}", self.what, self.before, self.after)
    }
}

/// Lists the facts that differ. A fact that only one side reports is no difference.
pub(crate) fn find_changes(before: &EngineFacts, after: &EngineFacts) -> Vec<EngineChange> {
    let mut changes = Vec::new();
    let mut compare = |what: &str, before: Option<String>, after: Option<String>| {
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            changes.push(EngineChange {
                what: what.to_owned(),
                before,
                after,
            });
        }
    };
    compare("version", before.version.clone(), after.version.clone());
    for (name, value) in &before.served {
        compare(name, Some(value.clone()), after.served.get(name).cloned());
    }
    for name in STABLE_SETTINGS {
        compare(name, setting(before, name), setting(after, name));
    }
    compare(MODELS_FACT, models(before), models(after));
    changes
}

/// Returns a setting of the live configuration; `None` if the engine does not report it, or without a value.
pub(crate) fn setting(facts: &EngineFacts, name: &str) -> Option<String> {
    match facts.info.as_ref()?.get(name)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The listed models in alphabetical order; `None` if there are none or too many.
fn models(facts: &EngineFacts) -> Option<String> {
    let mut models = facts.models.clone();
    models.sort();
    models.dedup();
    (!models.is_empty() && models.len() <= MAX_OWN_MODELS).then(|| models.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(version: &str, models: &[&str], info: Value) -> EngineFacts {
        EngineFacts {
            version: Some(version.to_owned()),
            models: models.iter().map(|&name| name.to_owned()).collect(),
            served: [("max_model_len".to_owned(), "4096".to_owned())].into(),
            info: Some(info),
            ..EngineFacts::default()
        }
    }

    #[test]
    fn a_server_that_was_started_again_has_not_changed() {
        let before = facts(
            "1",
            &["m", "lora"],
            json!({"tp_size": 2, "random_seed": 1, "dtype": null}),
        );
        let after = facts(
            "1",
            &["lora", "m"],
            json!({"tp_size": 2, "random_seed": 2, "dtype": "bf16"}),
        );
        assert_eq!(find_changes(&before, &after), []);
        let silent = EngineFacts::default();
        assert_eq!(find_changes(&before, &silent), []);
        assert_eq!(find_changes(&silent, &after), []);
    }

    #[test]
    fn another_build_model_or_setting_is_a_change() {
        let before = facts("1", &["m"], json!({"tp_size": 2}));
        let mut after = facts("2", &["m", "n"], json!({"tp_size": 4}));
        after.served.insert("max_model_len".to_owned(), "8192".to_owned());
        let actual: Vec<String> = find_changes(&before, &after)
            .iter()
            .map(EngineChange::describe)
            .collect();
        assert_eq!(
            actual,
            [
                "version 1 → 2",
                "max_model_len 4096 → 8192",
                "tp_size 2 → 4",
                "models m → m, n"
            ]
        );
    }

    #[test]
    fn the_catalogue_of_a_gateway_is_no_server() {
        let many: Vec<String> = (0..40).map(|at| format!("m{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let (before, after) = (
            facts("1", &many[1..], Value::Null),
            facts("1", &many, Value::Null),
        );
        assert_eq!(find_changes(&before, &after), []);
    }
}
