//! A section of a Markdown report: its heading, and the facts that it adds to the blocks below.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::config::builtin_scenarios;
use crate::import::result_block::{LaunchInfo, ResultBlock};

/// A heading with the facts below it.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) level: usize,
    pub(super) line: u32,
    pub(super) text: String,
    pub(super) launch_info: Option<LaunchInfo>,
    /// Options quoted in the text below the heading, with their lines.
    pub(super) command_options: Vec<(u32, BTreeMap<String, Value>)>,
    /// Entries of a list below the heading, such as `model: Qwen/Qwen3-8B`.
    pub(super) facts: BTreeMap<String, String>,
}

/// The text of a heading without Markdown escapes and code marks.
pub(super) fn without_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => out.extend(letters.next()),
            '`' => {}
            letter => out.push(letter),
        }
    }
    out.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

/// Reads facts from the list below a heading, in the form of `matrix` reports.
pub(super) fn apply_facts(result: &mut ResultBlock, section: &Section) {
    let fact = |name: &str| section.facts.get(name);
    let size = |name: &str| fact(name).and_then(|size| size.parse().ok());
    if let Some(checkpoint) = fact("checkpoint").or_else(|| fact("model")) {
        result.launch_info.model = Some(checkpoint.clone());
    }
    if let Some(precision) = fact("precision") {
        result.launch_info.precision = Some(precision.clone());
    }
    result.launch_info.tp = size("tensor-parallel size").or(result.launch_info.tp);
    if result.options.prompts.is_none() {
        let prompts = fact("prompts").and_then(|prompts| prompts.parse().ok());
        result.options.prompts = prompts;
    }
}

/// If the heading names a built-in scenario, takes missing settings of the workload from it.
pub(super) fn apply_standard_workload(result: &mut ResultBlock, heading: &str) {
    let Some(standard) = builtin_scenarios::by_name(heading) else {
        return;
    };
    let client_options = &mut result.options;
    if let Some(dataset) = standard.dataset.filter(|_| client_options.dataset.is_none()) {
        client_options.dataset = Some(dataset.bench_serving_name().to_owned());
        client_options.input_len = standard.input_len;
        client_options.output_len = standard.output_len;
        client_options.range_ratio = standard.range_ratio.map(|ratio| ratio.value);
    }
}
