//! When an engine was measured, and how to measure it again.

use std::collections::BTreeMap;

use crate::config::workload::Profile;
use crate::report::markdown::{code_block, list};
use crate::report::tables::{ReportCell, reason_in_words, summary_validity, suspect_reasons};
use crate::results::record::cell::{MeasurementSummary, Origin};
use crate::results::record::validity::Verdict;

pub(super) fn is_imported(cell: &ReportCell<'_>) -> bool {
    cell.summaries
        .iter()
        .any(|summary| summary.origin == Origin::Imported)
}

/// From when to when the engine was measured; empty if nothing was measured here.
pub(super) fn measured_period(cells: &[ReportCell<'_>]) -> String {
    let summaries = || cells.iter().flat_map(|cell| &cell.summaries);
    let measured = || summaries().filter(|summary| summary.imported.is_none());
    let began = measured().map(|summary| summary.began.as_str()).min();
    let ended = measured().map(|summary| summary.ended.as_str()).max();
    match began.zip(ended) {
        Some((began, ended)) => format!("Measured from {} to {}.\n\n", to_minute(began), to_minute(ended)),
        None => String::new(),
    }
}

/// Shortens an RFC 3339 time to its minute.
fn to_minute(moment: &str) -> String {
    match moment.split_once('T') {
        Some((day, time)) if time.len() >= 5 && time.is_char_boundary(5) => {
            format!("{day} {} UTC", &time[..5])
        }
        _ => moment.to_owned(),
    }
}

pub(super) const HEADING: &str = "How to reproduce";

/// How to measure the engine again; `None` if all cells are imported.
pub(super) fn reproduce_section(cells: &[ReportCell<'_>]) -> Option<String> {
    let own_cells: Vec<&ReportCell<'_>> = cells.iter().filter(|cell| !is_imported(cell)).collect();
    let name = &own_cells.first()?.launch.engine.name;
    let command = format!(
        "matrix run matrix.yaml --only {}",
        shell_quote(&format!("engine={name}"))
    );
    let mut sent: BTreeMap<String, String> = BTreeMap::new();
    for cell in own_cells {
        let scenario = &cell.cell.scenario;
        let rules = match scenario.profile {
            Profile::Classic => "classic",
            Profile::Current => "current",
        };
        let words = format!(
            "{} prompts, profile {rules}, seed {}",
            scenario.workload.prompts, scenario.seed
        );
        sent.insert(cell.scenario(), words);
    }
    let sent: Vec<String> = sent
        .into_iter()
        .map(|(scenario, words)| format!("{scenario}: {words}"))
        .collect();
    Some(format!(
        "## {HEADING}\n\nThe results folder contains the matrix of the run as `matrix.yaml`, and the recipes of its engines in `recipes/`. \
         Copy the matrix into the folder that its relative paths start from, then run:\n\n{}\nEqual digests of the prompts, listed above for \
         each workload, mean that the same prompts were sent:\n\n{}\n",
        code_block(&command, "shell"),
        list(&sent)
    ))
}

/// Quotes a word for a shell.
fn shell_quote(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.=/:@".contains(letter);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The validity of a measurement with every reason against it; empty if it was never judged.
pub(super) fn validity_lines(summary: &MeasurementSummary) -> Vec<String> {
    if summary.validity.is_none() {
        return Vec::new();
    }
    match summary_validity(summary) {
        Verdict::Valid => vec!["validity: valid".to_owned()],
        _ => suspect_reasons(summary)
            .map(|reason| format!("validity: {}", reason_in_words(reason)))
            .collect(),
    }
}
