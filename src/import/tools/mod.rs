//! Reads result files of tools that write one JSON or YAML document: AIPerf, GuideLLM, InferenceX,
//! inference-perf, genai-bench and llm-d's benchmark reports.
//!
//! Each reader takes the figures that its tool defines as bench_serving does, under the names of
//! bench_serving, and leaves out the others. `docs/importing.md` says which those are.

mod aiperf;
mod fields;
mod genai_bench;
mod guidellm;
mod inference_perf;
mod inferencex;
mod llmd_report;

use serde_json::Value;

use super::block::TITLE;
use super::result_block::Parsed;

/// Reads a document of one of these tools; `None` if it is of another one.
pub(super) fn read(document: &Value, text: &str) -> Option<Result<Parsed, String>> {
    if guidellm::is_report(document) {
        Some(guidellm::read(document, text))
    } else if aiperf::is_export(document) {
        Some(aiperf::read(document))
    } else if inferencex::is_aggregate(document) {
        Some(inferencex::read(document))
    } else if inference_perf::is_report(document) {
        Some(inference_perf::read(document))
    } else if genai_bench::is_experiment(document) {
        Some(genai_bench::read(document))
    } else if llmd_report::is_report(document) {
        Some(llmd_report::read(document))
    } else {
        None
    }
}

/// Reads a YAML document of one of these tools; `None` if the text is something else.
pub(super) fn read_yaml(text: &str) -> Option<Result<Parsed, String>> {
    // A Markdown report may quote YAML beside its blocks.
    if text.contains(TITLE) {
        return None;
    }
    let has = |keys: &[&str]| {
        text.lines()
            .any(|line| keys.iter().any(|key| line.starts_with(key)))
    };
    if !has(&["version:"]) || !has(&["scenario:", "results:"]) {
        return None;
    }
    match serde_yaml::from_str::<Value>(text) {
        Ok(document) => read(&document, text),
        Err(error) => Some(Err(format!("the file is not valid YAML: {error}"))),
    }
}

#[cfg(test)]
mod misleading_tests;
#[cfg(test)]
mod tests;
