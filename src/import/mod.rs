//! What other tools wrote, read into cells of ours: text in, cells and doubts out.
//!
//! Everything is found by its label, never by its position, and the format by the content, never by the name of the file:
//!
//! - console logs of bench_serving in every layout, and of `vllm bench serve`, one or many in a file, whatever stands around them;
//! - Markdown reports with such blocks below headings;
//! - result lines of bench_serving, result objects of `vllm bench serve`;
//! - the CSV of the fork in lmdeploy.
//!
//! What a file does not tell stays unknown. What contradicts itself is kept as it stands, with a [`Warning`] that says where.

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

use args::Asked;
pub(crate) use declared::Declared;
pub(crate) use run::{Imports, Keep, run};

use crate::analysis::metrics::Metric;
use crate::config::workload::Profile;
use crate::results::record::cell::Figures;
use crate::results::record::provenance::Tool;
use crate::results::record::validity::Reason;

/// What one file gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    /// Its name, without folders.
    file: String,
    found: Vec<Found>,
    /// What somebody declared of it.
    declared: Declared,
    /// What is wrong with the file as a whole.
    warnings: Vec<Warning>,
}

/// Why a file gives no cell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{file}` holds no results that can be read: {why}; give a console log or a Markdown report with blocks of bench_serving, \
     its JSON lines or CSV, or the JSON of `vllm bench serve`"
)]
pub(crate) struct Unread {
    pub file: String,
    /// What was found instead.
    pub why: String,
}

/// Something that contradicts itself, or that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    /// The line of the file, from 1.
    pub line: u32,
    pub says: String,
    /// What it makes doubtful.
    pub about: About,
}

/// What a warning makes doubtful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    /// What was measured: the model, the version, the workload.
    Identity,
    /// What was measured, where the file contradicts what somebody declared of it.
    Declared,
    Figures,
    /// How times between tokens are to be read: events carry several tokens.
    Chunks,
    /// Nothing that was read; something was passed over.
    Rest,
}

impl Warning {
    fn new(line: u32, about: About, says: impl Into<String>) -> Self {
        Self {
            line,
            says: says.into(),
            about,
        }
    }

    /// What it says, with its place.
    fn at(&self, file: &str) -> String {
        format!("{file}:{}: {}", self.line, self.says)
    }
}

/// One set of figures with all that its file tells of it.
#[derive(Clone, Debug)]
struct Found {
    line: u32,
    tool: Tool,
    /// Whose definitions its figures follow.
    profile: Profile,
    engine: Option<Title>,
    /// The heading above that of the model, such as a back end of the engine.
    variant: Option<String>,
    /// What tells its cell apart from others of this engine, and on which start it was measured, where `matrix` wrote it.
    cell: Option<String>,
    start: Option<u32>,
    /// The heading of the model.
    heading: Option<(u32, String)>,
    started: Started,
    asked: Asked,
    figures: BTreeMap<Metric, Printed>,
    vision_line: bool,
    /// Whether it was measured on the simulated engine, and what was found of its validity then, where `matrix` wrote it.
    is_simulated: bool,
    reasons: Vec<Reason>,
    /// Whether `matrix` wrote it.
    is_ours: bool,
    /// The figures by the definitions of `matrix`, where it wrote them.
    measured: Option<Figures>,
    warnings: Vec<Warning>,
}

/// A figure as it was printed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Printed {
    /// Its value; `None` where it printed as no number.
    value: Option<f64>,
    /// Half of its last digit; 0 in formats that programs read, which have all digits unless somebody rounded them.
    half: f64,
    line: u32,
}

/// An engine as a title names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Title {
    name: String,
    version: Option<String>,
}

/// How an engine was started, as far as it is told.
#[derive(Clone, Debug, Default, PartialEq)]
struct Started {
    image: Option<String>,
    package: Option<String>,
    command: Vec<String>,
    /// The line of the command.
    line: u32,
    model: Option<String>,
    /// The name under which it serves the model, where that is another one.
    served: Option<String>,
    tp: Option<u32>,
    pp: Option<u32>,
    dp: Option<u32>,
    ep: Option<u32>,
    precision: Option<String>,
}

/// Reads one file; `file` is its name without folders.
///
/// # Errors
/// It holds nothing that is known.
pub(crate) fn read(file: &str, text: &str) -> Result<Reading, Unread> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let read = if text.trim_start().starts_with('{') {
        json::read(text)
    } else if csv::is_csv(text) {
        Ok(csv::read(text))
    } else {
        document::read(text)
    };
    let unread = |why: String| Unread {
        file: file.to_owned(),
        why,
    };
    let (mut found, warnings) = read.map_err(unread)?;
    if found.is_empty() {
        return Err(unread("none is complete".to_owned()));
    }
    for one in &mut found {
        let mut warnings = checks::contradictions(one);
        // Where `matrix` measured, its own count of tokens is believed, not the one that it wrote for scripts.
        warnings.retain(|warning| {
            one.measured.is_none() || matches!(warning.about, About::Identity | About::Figures)
        });
        one.warnings.extend(warnings);
    }
    Ok(Reading {
        file: file.to_owned(),
        found,
        declared: Declared::default(),
        warnings,
    })
}

impl Reading {
    /// The same, with what somebody knows of everything in it; what the file itself tells of its measurements is believed first.
    pub(crate) fn declared(self, declared: Declared) -> Self {
        Self { declared, ..self }
    }
}

/// What a reader of one format gives: the sets of figures, and what is wrong with the file as a whole.
type Parts = (Vec<Found>, Vec<Warning>);

impl Found {
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
            started: Started::default(),
            asked: Asked::default(),
            figures: BTreeMap::new(),
            vision_line: false,
            is_simulated: false,
            reasons: Vec::new(),
            is_ours: false,
            measured: None,
            warnings: Vec::new(),
        }
    }

    fn figure(&self, metric: Metric) -> Option<f64> {
        self.figures.get(&metric)?.value
    }

    fn warn(&mut self, line: u32, about: About, says: impl Into<String>) {
        self.warnings.push(Warning::new(line, about, says));
    }
}

#[cfg(test)]
mod tests;
