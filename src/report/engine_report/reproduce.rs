//! When an engine was measured, and how to measure it again.

use std::collections::BTreeMap;

use super::is_imported;
use crate::config::workload::Profile;
use crate::report::Shown;
use crate::report::markdown::{fenced, list};
use crate::report::tables::{doubts, told, verdict_of};
use crate::results::record::cell::Summary;
use crate::results::record::validity::Verdict;

/// From when to when the engine was measured; empty if nothing was measured here.
pub(super) fn when(shown: &[Shown<'_>]) -> String {
    let all = || shown.iter().flat_map(|one| &one.summaries);
    let measured = || all().filter(|summary| summary.imported.is_none());
    let began = measured().map(|summary| summary.began.as_str()).min();
    let ended = measured().map(|summary| summary.ended.as_str()).max();
    match began.zip(ended) {
        Some((began, ended)) => format!("Measured from {} to {}.\n\n", minute(began), minute(ended)),
        None => String::new(),
    }
}

/// Shortens an RFC 3339 time to its minute.
fn minute(moment: &str) -> String {
    match moment.split_once('T') {
        Some((day, time)) if time.len() >= 5 && time.is_char_boundary(5) => {
            format!("{day} {} UTC", &time[..5])
        }
        _ => moment.to_owned(),
    }
}

pub(super) const HEADING: &str = "How to reproduce";

/// How to measure the engine again; `None` if all cells are imported.
pub(super) fn section(shown: &[Shown<'_>]) -> Option<String> {
    let ours: Vec<&Shown<'_>> = shown.iter().filter(|one| !is_imported(one)).collect();
    let name = &ours.first()?.launch.engine.name;
    let command = format!(
        "matrix run matrix.yaml --only {}",
        quoted(&format!("engine={name}"))
    );
    let mut sent: BTreeMap<String, String> = BTreeMap::new();
    for one in ours {
        let scenario = &one.cell.scenario;
        let rules = match scenario.profile {
            Profile::Classic => "classic",
            Profile::Current => "current",
        };
        let words = format!(
            "{} prompts by the rules {rules}, seed {}",
            scenario.workload.prompts, scenario.seed
        );
        sent.insert(one.scenario(), words);
    }
    let sent: Vec<String> = sent
        .into_iter()
        .map(|(scenario, words)| format!("{scenario}: {words}"))
        .collect();
    Some(format!(
        "## {HEADING}\n\nThe matrix as it was run lies with the results as `matrix.yaml`, the recipes of its engines beside it in `recipes/`. \
         Put it back into the folder where its paths begin, then:\n\n{}\nWhat was sent is the same where its digest, above in each \
         workload, is the same:\n\n{}\n",
        fenced(&command, "shell"),
        list(&sent)
    ))
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.=/:@".contains(letter);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The validity of a measurement with every reason against it; empty if it was never judged.
pub(super) fn validity(summary: &Summary) -> Vec<String> {
    if summary.validity.is_none() {
        return Vec::new();
    }
    match verdict_of(summary) {
        Verdict::Valid => vec!["validity: valid".to_owned()],
        _ => doubts(summary)
            .map(|reason| format!("validity: {}", told(reason)))
            .collect(),
    }
}
