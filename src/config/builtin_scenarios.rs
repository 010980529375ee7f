//! The four built-in scenarios.

use crate::config::dataset::DatasetName;
use crate::config::forms::Named;
use crate::config::matrix::ScenarioEntry;

/// Names of the built-in scenarios, which the published reports use.
pub(crate) const NAMES: [&str; 4] = ["sharegpt", "random-1k-1k", "random-2k-6k", "random-6k-2k"];

/// The built-in scenario of that name: 10 000 prompts of ShareGPT; 2 000 × 1024/1024, 500 × 2000/6000 and 500
/// × 6000/2000 tokens of random text with `range_ratio` 1. Rate, seed and the rest have the usual defaults.
pub(crate) fn by_name(name: &str) -> Option<ScenarioEntry> {
    let random = |prompts: u32, input_len: u32, output_len: u32| ScenarioEntry {
        dataset: Some(DatasetName::Random),
        prompts: Some(prompts.into()),
        input_len: Some(input_len),
        output_len: Some(output_len),
        range_ratio: Some(1.0.into()),
        ..ScenarioEntry::default()
    };
    match name {
        "sharegpt" => Some(ScenarioEntry {
            dataset: Some(DatasetName::Sharegpt),
            prompts: Some(10_000.into()),
            ..ScenarioEntry::default()
        }),
        "random-1k-1k" => Some(random(2_000, 1_024, 1_024)),
        "random-2k-6k" => Some(random(500, 2_000, 6_000)),
        "random-6k-2k" => Some(random(500, 6_000, 2_000)),
        _ => None,
    }
}

/// The entry with what it leaves open taken from the standard scenario of its name; the number of prompts follows from the arrivals too,
/// and is resolved with them.
pub(crate) fn completed(named: &Named<ScenarioEntry>) -> ScenarioEntry {
    let mut entry = named.value.clone();
    if let Some(standard) = by_name(&named.name.value) {
        entry.dataset = entry.dataset.or(standard.dataset);
        entry.input_len = entry.input_len.or(standard.input_len);
        entry.output_len = entry.output_len.or(standard.output_len);
        entry.range_ratio = entry.range_ratio.or(standard.range_ratio);
    }
    entry
}
