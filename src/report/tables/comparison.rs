//! Engines side by side, one table for each model and scenario.

use super::columns::{self, FIGURES};
use super::{DEFINITIONS, Row, Shown, Table, Value, misread, notes, queue_bound, told_apart};
use crate::judge::compare::comparable::{self, Comparability, Side};
use crate::judge::metrics::{Flow, Metric};

pub(super) const COMPARED: Metric = Metric::Throughput(Flow::Output);

/// A table for each model and scenario, in the order of first appearance. `reference` names the engine that ratios refer to;
/// without it that is the first one of each table.
///
/// A ratio is given only where both cells are done and may stand side by side ([`comparable`]); a note says what differs.
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
    let mut columns = vec![columns::words("engine", 0)];
    columns.extend(columns::identity());
    columns.extend(searches.then(columns::found));
    columns.extend(columns::figures(&FIGURES));
    columns.extend(columns::client());
    columns.push(columns::numbers(&format!("vs {reference}"), 0));
    let mut rows = Vec::new();
    let mut refusals = Vec::new();
    for (one, name) in group.iter().zip(&names) {
        let mut cells = vec![Value::text(name)];
        cells.extend(columns::identified(one));
        cells.extend(searches.then(|| columns::found_by(one)));
        cells.extend(columns::values(one, &FIGURES));
        cells.extend(columns::client_error(one));
        cells.push(match held(one, group, reference) {
            // Its status and the note on its failure say why.
            _ if !one.is_done() => Value::Missing,
            Held::Ratio(value, beside) => {
                if !beside.is_empty() {
                    refusals.push(format!(
                        "{name}: held against {reference} with differences: {}",
                        beside.join(", ")
                    ));
                }
                Value::Number { value, decimals: 2 }
            }
            Held::Refused(why, per_gpu) => {
                let per_gpu = per_gpu.map_or_else(String::new, |ratio| {
                    format!("; per GPU it has {ratio:.2} of its output throughput")
                });
                let why = why.join(", ");
                refusals.push(format!("{name}: no ratio to {reference}: {why}{per_gpu}"));
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
    notes.extend(queue_bound(&named));
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

/// What a row is beside a row of the reference engine.
pub(super) enum Held {
    /// The ratio, with the differences that belong beside it.
    Ratio(f64, Vec<String>),
    /// None, and why; where only the numbers of GPUs are unequal, the ratio per GPU.
    Refused(Vec<String>, Option<f64>),
}

/// Output throughput, or what was found, relative to the row of the reference engine that this one can be held against.
pub(super) fn held(one: &Shown<'_>, group: &[&Shown<'_>], reference: &str) -> Held {
    let references: Vec<&Shown<'_>> = group
        .iter()
        .copied()
        .filter(|other| other.launch.engine.name == reference)
        .collect();
    if references.is_empty() {
        return Held::Refused(vec!["it is not in this table".to_owned()], None);
    }
    // A row of the reference engine is its own measure, whatever other rows that engine has.
    let own = references.iter().find(|other| std::ptr::eq(**other, one));
    let tried: Vec<Held> = own
        .into_iter()
        .chain(&references)
        .map(|other| against(one, other))
        .collect();
    let fit = tried.iter().position(|held| matches!(held, Held::Ratio(..)));
    let per_gpu = || {
        tried
            .iter()
            .position(|held| matches!(held, Held::Refused(_, Some(_))))
    };
    let chosen = fit.or_else(per_gpu).unwrap_or(0);
    tried.into_iter().nth(chosen).expect("there is a reference")
}

/// One row held against another.
fn against(one: &Shown<'_>, reference: &Shown<'_>) -> Held {
    if !reference.is_done() {
        return Held::Refused(vec![format!("{} is not done", reference.engine())], None);
    }
    let (ours, theirs) = (side(one), side(reference));
    let ratio = |metric: Metric| {
        let definitions = comparable::shared(&ours, &theirs)?;
        let value = |shown: &Shown<'_>| shown.median_by(definitions, metric);
        let (ours, theirs) = (value(one)?, value(reference)?);
        (theirs > 0.0).then(|| ours / theirs)
    };
    let compared = compared(one);
    let unknown = || vec![format!("{} is not known", compared.label())];
    match comparable::comparable(&ours, &theirs) {
        Comparability::Comparable => match ratio(compared) {
            Some(ratio) => Held::Ratio(ratio, Vec::new()),
            None => Held::Refused(unknown(), None),
        },
        // A row is not held against itself.
        Comparability::WithDifferences(said) => match ratio(compared) {
            Some(ratio) if std::ptr::eq(one, reference) => Held::Ratio(ratio, Vec::new()),
            Some(ratio) => Held::Ratio(ratio, said),
            None => Held::Refused(unknown(), None),
        },
        Comparability::PerGpuOnly(said) => {
            let devices = f64::from(reference.launch.devices) / f64::from(one.launch.devices.max(1));
            let is_known = one.launch.devices > 0 && reference.launch.devices > 0;
            let per_gpu = ratio(COMPARED).filter(|_| is_known && compared == COMPARED);
            Held::Refused(said, per_gpu.map(|ratio| ratio * devices))
        }
        Comparability::Not(said) => Held::Refused(said, None),
    }
}

fn side<'s>(shown: &'s Shown<'_>) -> Side<'s> {
    Side {
        launch: shown.launch,
        cell: shown.cell,
        summaries: &shown.summaries,
        machine: None,
    }
}
