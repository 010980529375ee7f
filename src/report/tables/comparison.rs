//! Engines side by side, one table for each model and scenario.

use super::columns;
use super::ratio::{best, ratio};
use super::{DEFINITIONS, Mark, Row, Shown, Table, Value, misread, notes, told_apart};
use crate::base::ids::ContentHash;
use crate::judge::metrics::{Flow, Metric};
use crate::results::record::search::{SearchEnding, SearchRecord};

/// What cells are compared by where they do not search.
pub(super) const COMPARED: Metric = Metric::Throughput(Flow::Output);
const BEST: &str = "[best]: the interval of its ratio to every other row that can be compared lies wholly above 1";

/// A table for each model and scenario, in the order of first appearance. `reference` names the engine that ratios refer to;
/// without it that is the first one of each table.
///
/// A ratio is given only where both cells are done and had the same prompts, precision and number of GPUs; otherwise a note
/// says what differs.
pub fn comparison(shown: &[Shown<'_>], reference: Option<&str>) -> Vec<Table> {
    groups(shown)
        .into_iter()
        .map(|(title, group)| table(title, &group, reference))
        .collect()
}

/// The cells that stand side by side, under the model and scenario that they share, in the order of first appearance.
pub fn groups<'s, 'a>(shown: &'s [Shown<'a>]) -> Vec<(String, Vec<&'s Shown<'a>>)> {
    let mut groups: Vec<(String, Vec<&Shown<'a>>)> = Vec::new();
    for one in shown {
        let title = format!("{} · {}", one.launch.model, one.scenario());
        match groups.iter_mut().find(|(known, _)| *known == title) {
            Some((_, group)) => group.push(one),
            None => groups.push((title, vec![one])),
        }
    }
    groups
}

/// The engine that the ratios of a group refer to: the one asked for, else the first.
pub fn reference_of<'a>(group: &[&Shown<'a>], reference: Option<&'a str>) -> &'a str {
    match reference {
        Some(name) => name,
        None => group.first().map_or("", |first| &first.launch.engine.name),
    }
}

fn table<'a>(title: String, group: &[&Shown<'a>], reference: Option<&'a str>) -> Table {
    let names = names(group);
    let reference = reference_of(group, reference);
    let best = best(group);
    let searches = columns::searches(group);
    let figures = columns::known(group);
    let mut columns = vec![columns::words("engine", 0)];
    columns.extend(columns::identity());
    columns.extend(searches.then(columns::found));
    columns.extend(columns::figures(&figures));
    columns.extend(columns::energy(group));
    columns.extend(columns::client());
    columns.push(columns::numbers(&format!("vs {reference}"), 0));
    let mut rows = Vec::new();
    let mut refusals = Vec::new();
    for (at, (one, name)) in group.iter().zip(&names).enumerate() {
        let mut cells = vec![Value::text(name)];
        cells.extend(columns::identified(one));
        cells.extend(searches.then(|| columns::found_by(one)));
        cells.extend(columns::values(one, &figures));
        cells.extend(columns::energy_of(one, group));
        cells.extend(columns::client_error(one));
        cells.push(match ratio(one, group, reference) {
            // Its status and the note on its failure say why.
            _ if !one.is_done() => Value::Missing,
            Ok(ratio) => match ratio.interval {
                Some([least, most]) if !ratio.is_reference => Value::Spread {
                    median: ratio.value,
                    least,
                    most,
                    decimals: 2,
                },
                _ => Value::Number {
                    value: ratio.value,
                    decimals: 2,
                },
            },
            Err(why) => {
                refusals.push(format!("{name}: no ratio to {reference}: {why}"));
                Value::Missing
            }
        });
        let mut marks = one.marks();
        marks.extend((best == Some(at)).then_some(Mark::Best));
        rows.push(Row { cells, marks });
    }
    let named: Vec<(String, &Shown<'_>)> = names.into_iter().zip(group.iter().copied()).collect();
    let mut notes = notes(&named);
    notes.extend(misread(&named));
    notes.extend(refusals);
    notes.extend(best.map(|_| BEST.to_owned()));
    notes.push(DEFINITIONS.to_owned());
    Table {
        title,
        columns,
        rows,
        notes,
    }
}

/// What the rows of a group are called, each told from the others.
pub(crate) fn names(group: &[&Shown<'_>]) -> Vec<String> {
    let mut names: Vec<String> = group.iter().map(|one| one.engine()).collect();
    let engines = names.clone();
    let is_alike = |at: usize, other: usize| {
        let (a, b) = (group[at].launch, group[other].launch);
        engines[at] == engines[other]
            && (&a.precision, a.parallel, a.devices) == (&b.precision, b.parallel, b.devices)
    };
    told_apart(group, &mut names, &is_alike);
    names
}

/// What a ratio is of: output throughput, or what was found where the cell searches, as the points that were found differ in
/// their load.
pub(crate) fn compared(shown: &Shown<'_>) -> Metric {
    let search = shown.cell.scenario.search.as_ref();
    search.map_or(COMPARED, |search| Metric::Found(search.by))
}

/// What keeps two cells from being compared, each with both values.
pub(super) fn differences(one: &Shown<'_>, reference: &Shown<'_>) -> Vec<String> {
    let mut found = Vec::new();
    if !reference.is_done() {
        found.push(format!("{} is not done", reference.engine()));
        return found;
    }
    match (prompts(one), prompts(reference)) {
        (Some(ours), Some(theirs)) if ours == theirs => {}
        (Some(ours), Some(theirs)) => found.push(format!("prompts {ours} against {theirs}")),
        _ => found.push("the prompts are not known, or not the same in every measurement".to_owned()),
    }
    let precision = |shown: &Shown<'_>| {
        let known = shown.launch.precision.as_deref();
        known.unwrap_or("unknown").to_owned()
    };
    let (ours, theirs) = (precision(one), precision(reference));
    if ours != theirs {
        found.push(format!("precision {ours} against {theirs}"));
    }
    let (ours, theirs) = (one.launch.devices, reference.launch.devices);
    if ours != theirs {
        found.push(format!("{ours} GPUs against {theirs}"));
    }
    for shown in [one, reference] {
        let is_open = |record: &SearchRecord| record.ending != SearchEnding::Bracketed;
        let mut records = shown
            .summaries
            .iter()
            .filter_map(|summary| summary.search.as_ref());
        if records.any(is_open) {
            found.push(format!("the bound of {} is not bracketed", shown.engine()));
        }
    }
    if one.origin() != reference.origin() {
        found.push("only one of both is simulated or imported".to_owned());
    }
    found
}

/// The digest of what was sent, if all measurements sent the same.
pub(super) fn prompts<'a>(shown: &Shown<'a>) -> Option<&'a ContentHash> {
    let first = shown.summaries.first()?.prompts_hash.as_ref()?;
    shown
        .summaries
        .iter()
        .all(|summary| summary.prompts_hash.as_ref() == Some(first))
        .then_some(first)
}
