//! The record of a search in words, and its files.

use std::path::Path;

use anyhow::Context;

use super::search::Search;
use crate::analysis::tune::{Point, Tuner};
use crate::commands::error::CommandError;
use crate::commands::output::redactor;
use crate::report::tune::{TunePage, entry_yaml};
use crate::results::record::tune::{ContributionRecord, TuneRecord};
use crate::results::store::{self, atomic};

pub(super) const MARKDOWN_FILE: &str = "tune.md";

/// Writes the record, and the page once there is a result.
pub(super) fn write(folder: &Path, record: &TuneRecord) -> Result<(), CommandError> {
    let json = serde_json::to_string_pretty(record).expect("a record is JSON");
    let mut files = vec![(store::TUNE, format!("{json}\n"))];
    if record.result.is_some() {
        files.push((MARKDOWN_FILE, TunePage::new(record).markdown()));
    }
    for (name, text) in files {
        let path = folder.join(name);
        atomic::write(&path, redactor().redact(&text).as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(CommandError::unwritable)?;
    }
    Ok(())
}

/// The settings in which a configuration differs from the default one.
pub(super) fn settings_in_words(search: &Search<'_>, point: &Point) -> String {
    let changed = search
        .knobs
        .iter()
        .zip(point)
        .filter(|(knob, at)| knob.default != **at);
    let words: Vec<String> = changed
        .map(|(knob, at)| format!("{}={}", knob.name, knob.values[*at].label))
        .collect();
    words.join(" ")
}

/// The winner as an entry of a matrix.
pub(super) fn entry(search: &Search<'_>, winner: &Point) -> String {
    let set = search.set("winner", winner, None);
    entry_yaml(&search.tuned.engine, &set, search.tuned.replaced_args.as_deref())
}

/// What each setting contributes, by the model of the search.
pub(super) fn contributions(search: &Search<'_>, tuner: &Tuner, winner: &Point) -> Vec<ContributionRecord> {
    let all = tuner.contributions().into_iter();
    let known = all.filter_map(|contribution| {
        let knob = search.knobs.get(contribution.knob)?;
        let at = *winner.get(contribution.knob)?;
        Some(ContributionRecord {
            setting: knob.name.clone(),
            value: knob.values.get(at)?.label.clone(),
            default: knob.values[knob.default].label.clone(),
            change: contribution.ratio.map(|ratio| ratio - 1.0),
        })
    });
    known.collect()
}
