//! The built-in scenarios: the four of the published reports, and a sweep of loads.

use std::num::NonZeroU32;

use crate::base::units::HumanDuration;
use crate::config::dataset::DatasetName;
use crate::config::forms::{Named, OneOrMany};
use crate::config::matrix::ScenarioEntry;
use crate::config::yaml::Spanned;

/// Names of the built-in scenarios. The published reports use the first four.
pub(crate) const NAMES: [&str; 5] = ["sharegpt", "random-1k-1k", "random-2k-6k", "random-6k-2k", SWEEP];

const SWEEP: &str = "sweep";
/// Numbers of concurrent requests of the sweep, and how long each is measured.
const SWEEP_CONCURRENCY: [u32; 5] = [1, 4, 16, 64, 256];
const SWEEP_DURATION: HumanDuration = HumanDuration::from_secs(90);
/// More than an engine answers in that time.
const SWEEP_PROMPTS: u32 = 8_000;

/// The built-in scenario of that name: 10 000 prompts of ShareGPT; 2 000 × 1024/1024, 500 × 2000/6000 and 500
/// × 6000/2000 tokens of random text with `range_ratio` 1; a sweep of concurrent requests of 1024/1024 tokens. Rate, seed and the
/// rest have the usual defaults.
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
        SWEEP => Some(ScenarioEntry {
            concurrency: Some(Spanned::from(OneOrMany(sweep_concurrency()))),
            duration: Some(SWEEP_DURATION),
            ..random(SWEEP_PROMPTS, 1_024, 1_024)
        }),
        _ => None,
    }
}

fn sweep_concurrency() -> Vec<NonZeroU32> {
    SWEEP_CONCURRENCY
        .into_iter()
        .filter_map(NonZeroU32::new)
        .collect()
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
        let has_load = entry.rate.is_some()
            || entry.ramp.is_some()
            || entry.stages.is_some()
            || entry.search.is_some()
            || entry.concurrency.is_some();
        if !has_load {
            entry.concurrency = standard.concurrency;
        }
        entry.duration = entry.duration.or(standard.duration);
    }
    entry
}
