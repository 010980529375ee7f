//! A set of figures with what its file says about them, as every reader gives it.

use std::collections::BTreeMap;

use super::args::ClientOptions;
use crate::analysis::metrics::Metric;
use crate::config::workload::Profile;
use crate::results::record::cell::MetricValues;
use crate::results::record::provenance::Tool;
use crate::results::record::validity::Reason;

/// A contradiction, or something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    /// From 1.
    pub(crate) line: u32,
    pub(crate) message: String,
    pub(crate) subject: WarningSubject,
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
    pub(super) fn new(line: u32, subject: WarningSubject, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
            subject,
        }
    }

    /// The text with file and line.
    pub(super) fn with_location(&self, file: &str) -> String {
        format!("{file}:{}: {}", self.line, self.message)
    }
}

/// One set of figures with all facts that its file has about it.
#[derive(Clone, Debug)]
pub(super) struct ResultBlock {
    pub(super) line: u32,
    pub(super) tool: Tool,
    /// The version of the tool, if the file has it.
    pub(super) tool_version: Option<String>,
    /// The tool's name for the prompts, if they are of no data set that `matrix` knows.
    pub(super) workload: Option<String>,
    pub(super) profile: Profile,
    pub(super) engine: Option<EngineTitle>,
    /// The heading above that of the model, such as a backend of the engine.
    pub(super) variant: Option<String>,
    /// Axis values that distinguish the cell from others of the engine, and its start (`start`), if `matrix`
    /// wrote the file.
    pub(super) cell: Option<String>,
    pub(super) start: Option<u32>,
    pub(super) heading: Option<(u32, String)>,
    pub(super) launch_info: LaunchInfo,
    pub(super) options: ClientOptions,
    pub(super) figures: BTreeMap<Metric, PrintedValue>,
    pub(super) has_vision_line: bool,
    /// Whether E2E ends at the last token, as that of `matrix` does, and not at the last line.
    pub(super) e2e_ends_at_token: bool,
    /// Whether the simulated engine was measured, and the reasons of its validity (`reasons`), if `matrix`
    /// wrote the file.
    pub(super) is_simulated: bool,
    pub(super) reasons: Vec<Reason>,
    /// Whether `matrix` wrote the file.
    pub(super) is_from_matrix: bool,
    /// The figures under the definitions `matrix`, if `matrix` wrote them.
    pub(super) matrix_figures: Option<MetricValues>,
    pub(super) warnings: Vec<Warning>,
}

/// A figure as printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PrintedValue {
    /// `None` if it was printed as a word such as `nan`.
    pub(super) value: Option<f64>,
    /// Half a unit of the last digit; 0 for counts and for machine-readable formats, which normally have all
    /// digits.
    pub(super) half_digit: f64,
    pub(super) line: u32,
}

/// An engine as named by a title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EngineTitle {
    pub(super) name: String,
    pub(super) version: Option<String>,
}

/// How an engine was started, as far as known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LaunchInfo {
    pub(super) image: Option<String>,
    pub(super) package: Option<String>,
    pub(super) command: Vec<String>,
    /// The line of the command; 0 if unknown.
    pub(super) line: u32,
    pub(super) model: Option<String>,
    /// The served model name, if it differs from the model.
    pub(super) served_model_name: Option<String>,
    pub(super) tp: Option<u32>,
    pub(super) pp: Option<u32>,
    pub(super) dp: Option<u32>,
    pub(super) ep: Option<u32>,
    pub(super) precision: Option<String>,
    /// The number of GPUs and their kind, if the file has them.
    pub(super) gpus: Option<u32>,
    pub(super) gpu: Option<String>,
}

/// The result of a reader: sets of figures, and warnings about the file as a whole.
pub(super) type Parsed = (Vec<ResultBlock>, Vec<Warning>);

impl ResultBlock {
    pub(super) fn new(line: u32, tool: Tool, profile: Profile) -> Self {
        Self {
            line,
            tool,
            tool_version: None,
            workload: None,
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
            e2e_ends_at_token: false,
            is_simulated: false,
            reasons: Vec::new(),
            is_from_matrix: false,
            matrix_figures: None,
            warnings: Vec::new(),
        }
    }

    pub(super) fn figure(&self, metric: Metric) -> Option<f64> {
        self.figures.get(&metric)?.value
    }

    /// Adds words to the variant.
    pub(super) fn append_to_variant(&mut self, words: &str) {
        self.variant = Some(match self.variant.take() {
            Some(variant) => format!("{variant} {words}"),
            None => words.to_owned(),
        });
    }

    pub(super) fn warn(&mut self, line: u32, subject: WarningSubject, message: impl Into<String>) {
        self.warnings.push(Warning::new(line, subject, message));
    }
}
