//! Imports results of other tools: text in, cells and warnings out.
//!
//! Values are found by label, not by position. The format is found by content, not by file name:
//!
//! - console logs of bench_serving in every layout, and of `vllm bench serve`, one or several in a file, with
//!   any text around them;
//! - Markdown reports with such blocks below headings;
//! - result lines of bench_serving, result objects of `vllm bench serve`;
//! - the CSV of LMDeploy's fork of bench_serving;
//! - result files of AIPerf, GuideLLM, InferenceX, inference-perf, genai-bench and llm-d's benchmark reports.
//!
//! Facts that a file lacks stay unknown. Contradictory figures are kept as they are, with a warning and
//! its line.

mod args;
mod block;
mod checks;
mod csv;
mod declared;
mod document;
mod imported_file;
mod json;
mod moments;
mod names;
mod result_block;
mod run;
mod tools;
mod twins;

pub(crate) use declared::DeclaredFacts;
pub(crate) use imported_file::ImportedFile;
use result_block::WarningSubject;
pub(crate) use run::{ImportContent, ImportedRun, build_run};

/// Why a file gives no cell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no results found in `{file}`: {reason}; use a console log or a Markdown report that contains the printed \
     results of bench_serving, or the JSON lines or CSV of bench_serving. Also supported are the JSON of \
     `vllm bench serve`, and result files of AIPerf, GuideLLM, InferenceX, inference-perf, genai-bench and llm-d"
)]
pub(crate) struct UnreadableFile {
    pub(crate) file: String,
    pub(crate) reason: String,
}

/// Reads one file; `file` is its name without folders.
///
/// # Errors
/// The file has no known format, or no complete result.
pub(crate) fn read(file: &str, text: &str) -> Result<ImportedFile, UnreadableFile> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let read = if is_json(text) {
        json::read(text)
    } else if let Some(parsed) = tools::read_yaml(text) {
        parsed
    } else if csv::is_csv(text) {
        Ok(csv::read(text))
    } else {
        document::read(text)
    };
    let unread = |why: String| UnreadableFile {
        file: file.to_owned(),
        reason: why,
    };
    let (mut results, warnings) = read.map_err(unread)?;
    if results.is_empty() {
        return Err(unread("no result is complete".to_owned()));
    }
    for one in &mut results {
        let mut warnings = checks::find_contradictions(one);
        // Token counts measured by `matrix` have precedence over those that it writes for scripts.
        warnings.retain(|warning| {
            one.matrix_figures.is_none()
                || matches!(
                    warning.subject,
                    WarningSubject::Identity | WarningSubject::Figures
                )
        });
        one.warnings.extend(warnings);
    }
    Ok(ImportedFile {
        file: file.to_owned(),
        results,
        declared: DeclaredFacts::default(),
        warnings,
    })
}

/// Whether a text is JSON: an object, or a list of objects. A log may begin with a bracket too.
fn is_json(text: &str) -> bool {
    let text = text.trim_start();
    let list = text.strip_prefix('[').map(str::trim_start);
    list.unwrap_or(text).starts_with('{')
}

#[cfg(test)]
mod tests;
