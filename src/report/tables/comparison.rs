//! Engines side by side, one table for each model and scenario.

use super::columns;
use super::ratio::{Held, best, held};
use super::{DEFINITIONS, Mark, Row, Shown, Table, Value, certain, misread, notes, queue_bound, told_apart};

const BEST: &str =
    "[best]: the interval of its ratio to every other row that can be compared lies wholly above 1";

/// A table for each model and scenario, in the order of first appearance. `reference` names the engine that ratios refer to;
/// without it that is the first one of each table.
///
/// A ratio is given only where both cells are done and may stand side by side (`judge::compare::comparable`); a note says what differs.
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
    columns.extend(columns::client());
    columns.push(columns::numbers(&format!("vs {reference}"), 0));
    let mut rows = Vec::new();
    let mut refusals = Vec::new();
    for (at, (one, name)) in group.iter().zip(&names).enumerate() {
        let mut cells = vec![Value::text(name)];
        cells.extend(columns::identified(one));
        cells.extend(searches.then(|| columns::found_by(one)));
        cells.extend(columns::values(one, &figures));
        cells.extend(columns::client_error(one));
        cells.push(match held(one, group, reference) {
            // Its status and the note on its failure say why.
            _ if !one.is_done() => Value::Missing,
            Held::Ratio(ratio, beside) => {
                if !beside.is_empty() {
                    refusals.push(format!(
                        "{name}: held against {reference} with differences: {}",
                        beside.join(", ")
                    ));
                }
                match ratio.interval {
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
                }
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
        let mut marks = one.marks();
        marks.extend((best == Some(at)).then_some(Mark::Best));
        rows.push(Row { cells, marks });
    }
    let named: Vec<(String, &Shown<'_>)> = names.into_iter().zip(group.iter().copied()).collect();
    let mut notes = notes(&named);
    notes.extend(misread(&named));
    notes.extend(queue_bound(&named));
    notes.extend(certain(&named));
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
