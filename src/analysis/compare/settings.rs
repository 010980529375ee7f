//! Engine settings that metrics depend on, as comparable values. They come from command, environment and
//! image, or from what an attached server reports.

use crate::analysis::validity::precision_family;
use crate::config::template::Template;
use crate::plan::{Launch, Member};
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::cell_stats::Facts;
use crate::results::record::engine_change::setting;

/// Names of the same setting in all engines: a name for users, and the flags.
const SETTINGS: [(&str, &[&str]); 8] = [
    (
        "context length",
        &[
            "--max-model-len",
            "--context-length",
            "--session-len",
            "--ctx-size",
            "--max_seq_len",
        ],
    ),
    (
        "KV-cache dtype",
        &[
            "--kv-cache-dtype",
            "--quant-policy",
            "--cache-type-k",
            "--kv_cache_dtype",
        ],
    ),
    (
        "requests in a batch",
        &[
            "--max-num-seqs",
            "--max-running-requests",
            "--max-batch-size",
            "--parallel",
            "--max_batch_size",
        ],
    ),
    (
        "tokens in a batch",
        &[
            "--max-num-batched-tokens",
            "--chunked-prefill-size",
            "--max-prefill-tokens",
            "--max-prefill-token-num",
            "--max_num_tokens",
        ],
    ),
    (
        "speculative decoding",
        &[
            "--speculative-config",
            "--speculative-algorithm",
            "--speculative-algo",
            "--speculative-model",
            "--speculative-draft-model-path",
            "--model-draft",
        ],
    ),
    (
        "sampling defaults",
        &[
            "--generation-config",
            "--override-generation-config",
            "--sampling-defaults",
        ],
    ),
    (
        "quantization",
        &[
            "--quantization",
            "--model-format",
            "--load-format",
            "--dtype",
            "--torchao-config",
        ],
    ),
    (
        "sparse attention",
        &[
            "--enable-sparse-attention",
            "--double-sparsity-token-num",
            "--sparse-attention",
        ],
    ),
];

/// Settings for which any value but the default may change the answers of the model.
const LOSSY_SETTINGS: [&str; 4] = [
    "KV-cache dtype",
    "quantization",
    "sampling defaults",
    "sparse attention",
];

/// The same settings as servers report them: a name for users, and the keys of live configurations and model
/// lists.
const REPORTED_SETTINGS: [(&str, &[&str]); 9] = [
    ("attention backend", &["attention_backend"]),
    ("checkpoint", &["root", "model_path"]),
    ("context length", &["context_length", "max_model_len"]),
    ("dtype", &["dtype"]),
    ("KV-cache dtype", &["kv_cache_dtype"]),
    ("quantization", &["quantization"]),
    ("requests in a batch", &["max_running_requests", "total_slots"]),
    ("speculative decoding", &["speculative_algorithm"]),
    ("tokens in a batch", &["chunked_prefill_size"]),
];

/// Values that servers report as their quantization if none was chosen. The checkpoint then decides.
const UNQUANTIZED: [&str; 2] = ["auto", "none"];

/// Value of a setting that is not given.
pub(crate) const NOT_SET: &str = "not set";

/// Returns the settings of an engine: those that it was started with, or those that an attached server
/// reports.
pub(crate) fn launch_settings(launch: &Launch, summaries: &[&MeasurementSummary]) -> Facts {
    let mut facts = started_settings(launch);
    facts.extend(reported_settings(launch, summaries));
    facts
}

/// Returns every argument, variable, image and checkpoint of a launch, by name. Arguments with different
/// names in several engines get the common name. Empty for attached servers and imports.
fn started_settings(launch: &Launch) -> Facts {
    let mut facts = Facts::new();
    let Some(command) = launch.place.settings().command() else {
        return facts;
    };
    if let Some(image) = launch.place.settings().image() {
        facts.insert("image name".to_owned(), image.to_owned());
    }
    facts.insert("checkpoint".to_owned(), launch.checkpoint.clone());
    add_flags(&mut facts, command, "");
    for (name, value) in launch.place.settings().env() {
        facts.insert(format!("variable {name}"), value.to_string());
    }
    add_processes(&mut facts, launch);
    facts
}

/// Adds the flags of a command, whose names get the suffix.
fn add_flags(facts: &mut Facts, command: &[Template], suffix: &str) {
    let mut flag: Option<String> = None;
    for word in command.iter().map(Template::as_str) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if is_flag(name) => (name, Some(value)),
            _ => (word, None),
        };
        if is_flag(name) {
            let name = format!("{}{suffix}", setting_name(name));
            add_flag(facts, &name, value);
            flag = value.is_none().then_some(name);
        } else if let Some(flag) = &flag {
            add_flag(facts, flag, Some(word));
        }
    }
}

/// Adds what the processes of an engine with roles are and do, and the number of nodes.
fn add_processes(facts: &mut Facts, launch: &Launch) {
    let members = launch.members();
    if launch.nodes() > 1 {
        facts.insert("nodes".to_owned(), launch.nodes().to_string());
    }
    if launch.has_roles() {
        let names: Vec<String> = members.iter().map(describe_process).collect();
        facts.insert("processes".to_owned(), names.join(", "));
        // Further ranks differ from the first only as the recipe says.
        for member in members.iter().filter(|member| member.rank == 0) {
            let suffix = format!(" of {}", member.name);
            add_flags(facts, &member.command, &suffix);
            for (name, value) in &member.env {
                facts.insert(format!("variable {name}{suffix}"), value.to_string());
            }
        }
    }
}

/// A process with its GPUs, and its node if that is not the first.
fn describe_process(member: &Member) -> String {
    let gpus = match member.gpus {
        0 => None,
        1 => Some("1 GPU".to_owned()),
        gpus => Some(format!("{gpus} GPUs")),
    };
    let node = (member.node > 0).then(|| format!("node {}", member.node));
    let facts: Vec<String> = gpus.into_iter().chain(node).collect();
    match facts.is_empty() {
        true => member.name.clone(),
        false => format!("{} ({})", member.name, facts.join(", ")),
    }
}

/// Returns the settings that an attached server reports. Empty for other engines, whose settings are known.
fn reported_settings(launch: &Launch, summaries: &[&MeasurementSummary]) -> Facts {
    if !launch.is_attached() {
        return Facts::new();
    }
    let value = |keys: &[&str]| keys.iter().find_map(|key| reported_value(summaries, key));
    REPORTED_SETTINGS
        .iter()
        .filter_map(|(name, keys)| Some(((*name).to_owned(), value(keys)?)))
        .collect()
}

/// Returns the precision of the weights that a server reports: its quantization, or else what the name of its
/// checkpoint says.
pub(crate) fn reported_precision(summaries: &[&MeasurementSummary]) -> Option<String> {
    let family_name = |name: &str| precision_family(name).map(str::to_owned);
    let is_chosen =
        |quantization: &String| !UNQUANTIZED.contains(&quantization.to_ascii_lowercase().as_str());
    if let Some(quantization) = reported_value(summaries, "quantization").filter(is_chosen) {
        return family_name(&quantization).or(Some(quantization));
    }
    let checkpoint = reported_value(summaries, "root").or_else(|| reported_value(summaries, "model_path"))?;
    family_name(checkpoint.trim_end_matches('/').rsplit('/').next()?)
}

/// Returns the number of GPUs for each copy of the model, as a server reports it.
pub(crate) fn reported_parallel(summaries: &[&MeasurementSummary]) -> Option<String> {
    let tp = reported_value(summaries, "tp_size")?;
    let pp = reported_value(summaries, "pp_size").unwrap_or_else(|| "1".to_owned());
    Some(format!("tp {tp} pp {pp}"))
}

/// Returns a value of the live configuration, or else of the model list.
fn reported_value(summaries: &[&MeasurementSummary], key: &str) -> Option<String> {
    let mut engines = summaries.iter().map(|summary| &summary.engine);
    engines.find_map(|facts| setting(facts, key).or_else(|| facts.served.get(key).cloned()))
}

/// Returns the differences of settings as text, `ours` against `theirs`. Launches of one recipe are compared
/// in all settings, those of different recipes only in settings with a common name.
pub(crate) fn differing_settings(
    first_settings: &Facts,
    second_settings: &Facts,
    is_one_recipe: bool,
) -> Vec<String> {
    if first_settings.is_empty() || second_settings.is_empty() {
        return Vec::new();
    }
    let is_common = |name: &str| SETTINGS.iter().any(|(known, _)| *known == name);
    setting_pairs(first_settings, second_settings)
        .into_iter()
        .filter(|(name, ..)| is_one_recipe || is_common(name))
        .map(|(name, first_settings, second_settings)| {
            format!(
                "{}{name} {first_settings} against {second_settings}",
                lossy_mark(name)
            )
        })
        .collect()
}

/// Returns the settings in which two sides differ, with both values.
pub(crate) fn setting_pairs<'a>(
    first_settings: &'a Facts,
    second_settings: &'a Facts,
) -> Vec<(&'a str, &'a str, &'a str)> {
    let names: std::collections::BTreeSet<&String> =
        first_settings.keys().chain(second_settings.keys()).collect();
    let value = |facts: &'a Facts, name: &String| facts.get(name).map_or(NOT_SET, String::as_str);
    names
        .into_iter()
        .map(|name| {
            (
                name.as_str(),
                value(first_settings, name),
                value(second_settings, name),
            )
        })
        .filter(|(_, first_settings, second_settings)| first_settings != second_settings)
        .collect()
}

/// Returns the prefix for a setting that is not lossless.
pub(crate) fn lossy_mark(name: &str) -> &'static str {
    match LOSSY_SETTINGS.contains(&name) {
        true => "not lossless: ",
        false => "",
    }
}

/// Returns whether a setting keeps the answers of the model unchanged.
pub(crate) fn is_lossless(name: &str) -> bool {
    !LOSSY_SETTINGS.contains(&name)
}

fn is_flag(word: &str) -> bool {
    let letters = word.trim_start_matches('-');
    letters.len() < word.len() && letters.starts_with(|letter: char| letter.is_ascii_alphabetic())
}

fn setting_name(flag: &str) -> String {
    let known = SETTINGS.iter().find(|(_, flags)| flags.contains(&flag));
    known.map_or(flag, |(name, _)| *name).to_owned()
}

/// Adds a value of a flag. A flag without a value is `on`.
fn add_flag(facts: &mut Facts, name: &str, value: Option<&str>) {
    let values = facts.entry(name.to_owned()).or_default();
    match value {
        None if values.is_empty() => "on".clone_into(values),
        None => {}
        Some(value) if values.is_empty() || values == "on" => value.clone_into(values),
        Some(value) => {
            values.push(' ');
            values.push_str(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::store::testing::{plan, summary};

    fn facts(pairs: &[(&str, &str)]) -> Facts {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn flags_become_settings_with_their_values() {
        let mut settings = Facts::new();
        for (name, value) in [
            ("--enable-x", None),
            ("--cuda-graph-bs", None),
            ("--cuda-graph-bs", Some("1")),
            ("--cuda-graph-bs", Some("2")),
        ] {
            add_flag(&mut settings, name, value);
        }
        assert_eq!(
            settings,
            facts(&[("--enable-x", "on"), ("--cuda-graph-bs", "1 2")])
        );
        assert_eq!(setting_name("--session-len"), setting_name("--max-model-len"));
        assert!(is_flag("-tp") && !is_flag("-1") && !is_flag("0.9") && !is_flag("--"));
    }

    #[test]
    fn a_precision_is_reported_by_the_quantization_else_by_the_checkpoint() {
        let mut summary = summary(&plan().cells[0]);
        for (quantization, checkpoint, precision) in [
            (Some("fp8"), "org/m", Some("fp8")),
            (Some("gptq"), "org/m", Some("gptq")),
            (Some("auto"), "org/m-FP8/", Some("fp8")),
            (Some("None"), "/models/m-AWQ", Some("int4")),
            (None, "org/m", None),
        ] {
            summary.engine.info = Some(serde_json::json!({ "quantization": quantization }));
            summary.engine.served = Facts::from([("root".to_owned(), checkpoint.to_owned())]);
            let reported = reported_precision(&[&summary]);
            assert_eq!(reported.as_deref(), precision, "{quantization:?} {checkpoint}");
        }
    }

    #[test]
    fn engines_differ_in_what_both_call_the_same_and_builds_of_one_in_everything() {
        let first_settings = facts(&[
            ("context length", "4096"),
            ("--tpot", "10"),
            ("KV-cache dtype", "fp8"),
        ]);
        let second_settings = facts(&[("--tpot", "11"), ("context length", "8192")]);
        let common = [
            "not lossless: KV-cache dtype fp8 against not set",
            "context length 4096 against 8192",
        ];
        assert_eq!(
            differing_settings(&first_settings, &second_settings, false),
            common
        );
        let all = differing_settings(&first_settings, &second_settings, true);
        assert_eq!(all, ["--tpot 10 against 11", common[0], common[1]]);
        assert_eq!(
            differing_settings(&first_settings, &Facts::new(), true),
            Vec::<String>::new()
        );
    }
}
