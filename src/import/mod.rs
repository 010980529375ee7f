//! Imports results of other tools: text in, cells and warnings out.
//!
//! Values are found by label, not by position. The format is found by content, not by file name:
//!
//! - console logs of bench_serving in every layout, and of `vllm bench serve`, one or several in a file, with
//!   any text around them;
//! - Markdown reports with such blocks below headings;
//! - result lines of bench_serving, result objects of `vllm bench serve`;
//! - the CSV of LMDeploy's fork of bench_serving.
//!
//! Facts that a file lacks stay unknown. Contradictory figures are kept as they are, with a [`Warning`] and
//! its line.

mod args;
mod block;
mod checks;
mod csv;
mod declared;
mod document;
mod json;
mod moments;
mod names;
mod run;
mod twins;

use std::collections::BTreeMap;

use args::ClientOptions;
pub(crate) use declared::DeclaredFacts;
pub(crate) use run::{ImportContent, ImportedRun, build_run};

use crate::analysis::metrics::Metric;
use crate::config::workload::Profile;
use crate::results::record::cell::MetricValues;
use crate::results::record::provenance::Tool;
use crate::results::record::validity::Reason;

/// The content of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImportedFile {
    /// File name without folders.
    file: String,
    results: Vec<ResultBlock>,
    declared: DeclaredFacts,
    /// Warnings about the file as a whole.
    warnings: Vec<Warning>,
}

/// Why a file gives no cell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no results found in `{file}`: {reason}; use a console log or a Markdown report with blocks of \
     bench_serving, its JSON lines or CSV, or the JSON of `vllm bench serve`"
)]
pub(crate) struct UnreadableFile {
    pub file: String,
    pub reason: String,
}

/// A contradiction, or something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    /// From 1.
    pub line: u32,
    pub message: String,
    pub subject: WarningSubject,
}

/// What a warning makes suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WarningSubject {
    /// The model, the version or the workload.
    Identity,
    /// The same, because the file contradicts a declared fact.
    Declared,
    Figures,
    /// The meaning of ITL, as chunks carry several tokens.
    Chunks,
    /// None of the read values; something was skipped.
    Nothing,
}

impl Warning {
    fn new(line: u32, subject: WarningSubject, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
            subject,
        }
    }

    /// The text with file and line.
    fn with_location(&self, file: &str) -> String {
        format!("{file}:{}: {}", self.line, self.message)
    }
}

/// One set of figures with all facts that its file has about it.
#[derive(Clone, Debug)]
struct ResultBlock {
    line: u32,
    tool: Tool,
    profile: Profile,
    engine: Option<EngineTitle>,
    /// The heading above that of the model, such as a backend of the engine.
    variant: Option<String>,
    /// Axis values that distinguish the cell from others of the engine, and its start (`start`), if `matrix`
    /// wrote the file.
    cell: Option<String>,
    start: Option<u32>,
    heading: Option<(u32, String)>,
    launch_info: LaunchInfo,
    options: ClientOptions,
    figures: BTreeMap<Metric, PrintedValue>,
    has_vision_line: bool,
    /// Whether the simulated engine was measured, and the reasons of its validity (`reasons`), if `matrix`
    /// wrote the file.
    is_simulated: bool,
    reasons: Vec<Reason>,
    /// Whether `matrix` wrote the file.
    is_from_matrix: bool,
    /// The figures under the definitions `matrix`, if `matrix` wrote them.
    matrix_figures: Option<MetricValues>,
    warnings: Vec<Warning>,
}

/// A figure as printed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PrintedValue {
    /// `None` if it was printed as a word such as `nan`.
    value: Option<f64>,
    /// Half a unit of the last digit; 0 for counts and for machine-readable formats, which normally have all
    /// digits.
    half_digit: f64,
    line: u32,
}

/// An engine as named by a title.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EngineTitle {
    name: String,
    version: Option<String>,
}

/// How an engine was started, as far as known.
#[derive(Clone, Debug, Default, PartialEq)]
struct LaunchInfo {
    image: Option<String>,
    package: Option<String>,
    command: Vec<String>,
    /// The line of the command; 0 if unknown.
    line: u32,
    model: Option<String>,
    /// The served model name, if it differs from the model.
    served_model_name: Option<String>,
    tp: Option<u32>,
    pp: Option<u32>,
    dp: Option<u32>,
    ep: Option<u32>,
    precision: Option<String>,
}

/// Reads one file; `file` is its name without folders.
///
/// # Errors
/// The file has no known format, or no complete result.
pub(crate) fn read(file: &str, text: &str) -> Result<ImportedFile, UnreadableFile> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let read = if text.trim_start().starts_with('{') {
        json::read(text)
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

impl ImportedFile {
    /// Sets the declared facts; those of the file have precedence.
    pub(crate) fn with_declared(self, declared: DeclaredFacts) -> Self {
        Self { declared, ..self }
    }
}

/// The result of a reader: sets of figures, and warnings about the file as a whole.
type Parsed = (Vec<ResultBlock>, Vec<Warning>);

impl ResultBlock {
    fn new(line: u32, tool: Tool, profile: Profile) -> Self {
        Self {
            line,
            tool,
            profile,
            engine: None,
            variant: None,
            cell: None,
            start: None,
            heading: None,
            launch_info: LaunchInfo::default(),
            options: ClientOptions::default(),
            figures: BTreeMap::new(),
            has_vision_line: false,
            is_simulated: false,
            reasons: Vec::new(),
            is_from_matrix: false,
            matrix_figures: None,
            warnings: Vec::new(),
        }
    }

    fn figure(&self, metric: Metric) -> Option<f64> {
        self.figures.get(&metric)?.value
    }

    fn warn(&mut self, line: u32, subject: WarningSubject, message: impl Into<String>) {
        self.warnings.push(Warning::new(line, subject, message));
    }
}

#[cfg(test)]
mod tests;
