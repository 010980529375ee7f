//! Tables of engines side by side, one for each model and scenario.

use super::columns::Measured;
use super::family::Group;
use super::overview_matrix::{is_striking, striking};
use super::ratio::{Held, better};
use super::{
    DEFINITIONS, Mark, Row, Shown, Table, Value, certain, columns, grouped, misread, notes, queue_bound,
    rough, told_apart, units,
};
use crate::analysis::metrics::{Better, Metric};
use crate::report::Column;

const BEST: &str = "[best]: better than every other row, by the decision rule of `matrix compare`";

/// Draws a table for each model and scenario.
///
/// A ratio is given only if both cells are done and comparable (`analysis::compare::comparable`); a note
/// names the differences.
pub(crate) fn comparison(groups: &[Group<'_, '_>]) -> Vec<Table> {
    groups.iter().map(table).collect()
}

/// Groups cells by model and scenario, in the order of first appearance.
pub(crate) fn groups<'s, 'a>(shown: &'s [Shown<'a>]) -> Vec<(String, Vec<&'s Shown<'a>>)> {
    let title = |one: &Shown<'_>| format!("{} · {}", one.launch.model, one.scenario());
    grouped(shown.iter().map(|one| (title(one), one)))
}

fn table(of: &Group<'_, '_>) -> Table {
    let group = &of.rows[..];
    let searches = columns::searches(group);
    let label = of.metric().label();
    let is_measured = group.iter().any(|one| one.value(of.metric()).is_some());
    let figures = match is_measured {
        true => with_compared(columns::known(group), of.metric(), &label),
        false => columns::known(group),
    };
    let mut columns = vec![columns::words("engine", 0), ratio_column(of)];
    columns.extend(columns::identity());
    columns.extend(searches.then(columns::found));
    columns.extend(columns::figures(&figures));
    columns.extend(columns::client());
    let mut rows = Vec::new();
    let mut said = Vec::new();
    for (at, (one, name)) in group.iter().zip(&of.names).enumerate() {
        let mut cells = vec![Value::text(name)];
        cells.push(match &of.held[at] {
            // The status and the note on the failure explain the missing ratio.
            _ if !one.is_done() => Value::Missing,
            Held::Ratio(ratio, beside) => {
                if is_striking(ratio.value) {
                    said.push(format!("{name}: {}", striking()));
                }
                if ratio.is_reference && !beside.is_empty() {
                    said.push(format!("{name}: a reference of its own: {}", beside.join(", ")));
                } else if !beside.is_empty() {
                    said.push(format!(
                        "{name}: compared with {} with differences: {}",
                        of.reference,
                        beside.join(", ")
                    ));
                }
                Value::Ratio {
                    value: ratio.value,
                    interval: ratio.interval,
                    is_of_one_start: ratio.is_of_one_start(),
                }
            }
            Held::Refused(why, per_gpu) => {
                let per_gpu = per_gpu.map_or_else(String::new, |ratio| {
                    format!("; per GPU it has {ratio:.2} of its {}", of.metric().label())
                });
                let why = why.join(", ");
                let reference = match one.launch.engine.name == of.reference {
                    true => String::new(),
                    false => format!(" to {}", of.reference),
                };
                said.push(format!("{name}: no ratio{reference}: {why}{per_gpu}"));
                Value::Missing
            }
        });
        cells.extend(columns::identified(one));
        cells.extend(searches.then(|| columns::found_by(one)));
        cells.extend(columns::values(one, &figures));
        cells.extend(columns::client_error(one));
        let mut marks = one.marks();
        marks.extend((of.best == Some(at)).then_some(Mark::Best));
        rows.push(Row { cells, marks });
    }
    let named: Vec<(String, &Shown<'_>)> = of.names.iter().cloned().zip(group.iter().copied()).collect();
    let mut notes = notes(&named);
    notes.extend(misread(&named));
    notes.extend(queue_bound(&named));
    notes.extend(certain(&named));
    notes.extend(said);
    notes.extend(ratios_explained(of));
    notes.extend(of.best.map(|_| BEST.to_owned()));
    notes.extend(rough(&rows));
    notes.push(DEFINITIONS.to_owned());
    units::fit(Table {
        title: of.title.clone(),
        columns,
        rows,
        notes,
    })
}

/// Makes sure that the metric of the ratios is among the columns and is dropped last. A search result has its
/// own column.
fn with_compared<'h>(mut figures: Vec<Measured<'h>>, compared: Metric, label: &'h str) -> Vec<Measured<'h>> {
    match figures.iter_mut().find(|(metric, ..)| *metric == compared) {
        Some((.., rank)) => *rank = 0,
        None if matches!(compared, Metric::Found(_)) => {}
        None => figures.insert(0, (compared, label, 1, 0)),
    }
    figures
}

/// The column of ratios; its heading names the reference, the metric and the better direction.
fn ratio_column(of: &Group<'_, '_>) -> Column {
    let metric = of.metric();
    Column {
        unit: match better(metric) {
            Better::Higher => "more is better",
            Better::Lower => "less is better",
        },
        better: metric.better(),
        ..columns::numbers(&format!("vs {}, {}", of.reference, metric.label()), 0)
    }
}

/// The note on the marks beside ratios, if there are any.
fn ratios_explained(of: &Group<'_, '_>) -> Option<String> {
    let ratios = of.held.iter().filter_map(|held| match held {
        Held::Ratio(ratio, _) => Some(ratio),
        Held::Refused(..) => None,
    });
    let (mut words, mut has_interval, mut is_of_one_start) = (Vec::new(), false, false);
    for ratio in ratios {
        has_interval |= ratio.interval.is_some();
        is_of_one_start |= ratio.is_of_one_start();
    }
    if has_interval {
        words.push("[a, b]: 95 % interval of the ratio; (a–b): the least and the most of the measurements");
    }
    if is_of_one_start {
        words.push("n=1: of a single start on one side, so nothing tells how far off it is");
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// Names of the rows of a group, each different from the others.
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
