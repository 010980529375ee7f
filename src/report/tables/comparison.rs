//! Engines side by side, one table for each model and scenario.

use super::columns::{self, FIGURES};
use super::{DEFINITIONS, Row, Shown, Table, Value, misread, notes, told_apart};
use crate::base::ids::ContentHash;
use crate::judge::metrics::{Flow, Metric};
use crate::results::record::search::{SearchEnding, SearchRecord};

const COMPARED: Metric = Metric::Throughput(Flow::Output);

/// A table for each model and scenario, in the order of first appearance. `reference` names the engine that ratios refer to;
/// without it that is the first one of each table.
///
/// A ratio is given only where both cells are done and had the same prompts, precision and number of GPUs; otherwise a note
/// says what differs.
pub fn comparison(shown: &[Shown<'_>], reference: Option<&str>) -> Vec<Table> {
    let mut groups: Vec<(String, Vec<&Shown<'_>>)> = Vec::new();
    for one in shown {
        let title = format!("{} · {}", one.launch.model, one.scenario());
        match groups.iter_mut().find(|(known, _)| *known == title) {
            Some((_, group)) => group.push(one),
            None => groups.push((title, vec![one])),
        }
    }
    groups
        .into_iter()
        .map(|(title, group)| table(title, &group, reference))
        .collect()
}

fn table(title: String, group: &[&Shown<'_>], reference: Option<&str>) -> Table {
    let names = names(group);
    let reference = match reference {
        Some(name) => name,
        None => group.first().map_or("", |first| &first.launch.engine.name),
    };
    let searches = columns::searches(group);
    let energy = columns::energy(group);
    let mut columns = vec![columns::words("engine", 0)];
    columns.extend(columns::identity());
    columns.extend(searches.then(columns::found));
    columns.extend(columns::figures(&FIGURES));
    columns.extend(columns::figures(energy));
    columns.extend(columns::client());
    columns.push(columns::numbers(&format!("vs {reference}"), 0));
    let mut rows = Vec::new();
    let mut refusals = Vec::new();
    for (one, name) in group.iter().zip(&names) {
        let mut cells = vec![Value::text(name)];
        cells.extend(columns::identified(one));
        cells.extend(searches.then(|| columns::found_by(one)));
        cells.extend(columns::values(one, &FIGURES));
        cells.extend(columns::values(one, energy));
        cells.extend(columns::client_error(one));
        cells.push(match ratio(one, group, reference) {
            // Its status and the note on its failure say why.
            _ if !one.is_done() => Value::Missing,
            Ok(value) => Value::Number { value, decimals: 2 },
            Err(why) => {
                refusals.push(format!("{name}: no ratio to {reference}: {why}"));
                Value::Missing
            }
        });
        rows.push(Row {
            cells,
            marks: one.marks(),
        });
    }
    let named: Vec<(String, &Shown<'_>)> = names.into_iter().zip(group.iter().copied()).collect();
    let mut notes = notes(&named);
    notes.extend(misread(&named));
    notes.extend(refusals);
    notes.push(DEFINITIONS.to_owned());
    Table {
        title,
        columns,
        rows,
        notes,
    }
}

fn names(group: &[&Shown<'_>]) -> Vec<String> {
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
fn compared(shown: &Shown<'_>) -> Metric {
    let search = shown.cell.scenario.search.as_ref();
    search.map_or(COMPARED, |search| Metric::Found(search.by))
}

/// Output throughput, or what was found, relative to the row of the reference engine that this one can be held against.
fn ratio(one: &Shown<'_>, group: &[&Shown<'_>], reference: &str) -> Result<f64, String> {
    let references: Vec<&&Shown<'_>> = group
        .iter()
        .filter(|other| other.launch.engine.name == reference)
        .collect();
    if references.is_empty() {
        return Err("it is not in this table".to_owned());
    }
    let differing: Vec<Vec<String>> = references.iter().map(|other| differences(one, other)).collect();
    // A row of the reference engine is its own measure, whatever other rows that engine has.
    let own = references.iter().position(|other| std::ptr::eq(**other, one));
    let fit = own
        .filter(|&at| differing[at].is_empty())
        .or_else(|| differing.iter().position(Vec::is_empty));
    let Some(fit) = fit else {
        return Err(differing[0].join(", "));
    };
    let compared = compared(one);
    match (one.median(compared), references[fit].median(compared)) {
        (Some(ours), Some(theirs)) if theirs > 0.0 => Ok(ours / theirs),
        _ => Err(format!("{} is not known", compared.label())),
    }
}

/// What keeps two cells from being compared, each with both values.
fn differences(one: &Shown<'_>, reference: &Shown<'_>) -> Vec<String> {
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
fn prompts<'a>(shown: &Shown<'a>) -> Option<&'a ContentHash> {
    let first = shown.summaries.first()?.prompts_hash.as_ref()?;
    shown
        .summaries
        .iter()
        .all(|summary| summary.prompts_hash.as_ref() == Some(first))
        .then_some(first)
}
