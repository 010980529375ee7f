//! The history of nightly runs: every gating metric of every cell, its level changes, and other changes with
//! their dates.

mod export;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(crate) use export::{csv, json};

use super::comparison::{numbers, percent, unit, words};
use super::labels::Labels;
use super::{Mark, Row, Table, Value, ascii_plot};
use crate::analysis::compare::time_series::{self, Event, Series, Step};
use crate::analysis::compare::verdict::chance;
use crate::base::date;
use crate::results::record::cell::Origin;
use crate::results::record::night::{Finding, Night};

/// Number of nightly runs in the trend beside a metric.
const TREND: usize = 30;
/// Maximum number of findings in a table.
const FINDINGS: usize = 300;

/// Consecutive nightly runs with their series and events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct History<'a> {
    pub matrix: &'a str,
    /// Oldest first.
    pub nights: &'a [Night],
    pub series: Vec<Series>,
    /// Changes besides figures.
    pub events: Vec<Event>,
    pub labels: Labels,
}

impl<'a> History<'a> {
    /// Computes series, level changes of at least `floor` (a share), and events of these nightly runs.
    pub(crate) fn of(matrix: &'a str, nights: &'a [Night], floor: f64) -> Self {
        let series = time_series::all(nights, floor);
        Self {
            matrix,
            nights,
            labels: Labels::of(nights.iter().flat_map(|night| night.cells.keys())),
            series,
            events: time_series::events(nights),
        }
    }
}

/// The date of a time; text that is no time stays as it is.
pub(super) fn day(moment: &str) -> String {
    date::days(moment).map_or_else(|| moment.to_owned(), |days| date::written(days, "%Y-%m-%d"))
}

/// Describes a level change.
pub(super) fn told(series: &Series, step: &Step) -> String {
    let since = day(&series.nights[step.at].at);
    format!("{} since {since}, p {}", percent(step.change), compared(step.p))
}

fn compared(p: f64) -> String {
    match chance(p) {
        small if small.starts_with('<') => small,
        other => format!("= {other}"),
    }
}

pub(super) fn starts(count: usize) -> String {
    match count {
        1 => "1 start".to_owned(),
        count => format!("{count} starts"),
    }
}

/// A row for each series: first and last value, trend, number of changes. The notes list level changes and
/// events.
pub(crate) fn table(history: &History<'_>) -> Table {
    let changes = history.series.iter().flat_map(|series| {
        let (cell, figure) = (history.labels.name(&series.cell), series.metric.label());
        let note = move |step: &Step| format!("{cell}: {figure}: {}", told(series, step));
        series.changes.iter().map(note)
    });
    let events = history.events.iter().map(|event| {
        let cells = of_cells(history, event);
        let cells = match event.cells.len() {
            0 => String::new(),
            _ => format!(" ({cells})"),
        };
        format!("{}: {}{cells}", day(&event.at), event.what)
    });
    let mut table = figures(history);
    table.notes = changes.chain(events).chain(table.notes).collect();
    table
}

/// A row for each series, with notes that explain the table only.
pub(crate) fn figures(history: &History<'_>) -> Table {
    let row = |series: &Series| {
        let level =
            |value: Option<f64>| value.map_or(Value::Missing, |value| Value::Number { value, decimals: 2 });
        let course: Vec<Option<f64>> = series.course().into_iter().map(|(_, value)| value).collect();
        let recent = &course[course.len().saturating_sub(TREND)..];
        Row {
            cells: vec![
                Value::Text(history.labels.name(&series.cell)),
                Value::Text(format!("{}{}", series.metric.label(), unit(series.metric.unit()))),
                Value::Count(series.nights.len() as u64),
                level(series.nights.first().map(|night| night.value)),
                level(series.nights.last().map(|night| night.value)),
                Value::Count(series.changes.len() as u64),
                Value::Text(ascii_plot::trend(recent)),
            ],
            marks: match series.origin {
                Some(Origin::Simulated) => vec![Mark::Simulated],
                Some(Origin::Imported) => vec![Mark::Imported],
                Some(Origin::Measured) | None => Vec::new(),
            },
        }
    };
    let explained = format!(
        "trend: the last {TREND} nights at most, the lowest to the highest of them; · where a night has no figure"
    );
    Table {
        title: format!("Nights of {}", history.matrix),
        columns: vec![
            words("cell", 0),
            words("figure", 0),
            numbers("nights", "", 1),
            numbers("first", "", 1),
            numbers("last", "", 0),
            numbers("changes", "", 0),
            words("trend", 9),
        ],
        rows: history.series.iter().map(row).collect(),
        notes: history
            .labels
            .left_out
            .clone()
            .into_iter()
            .chain([explained])
            .collect(),
    }
}

fn of_cells(history: &History<'_>, event: &Event) -> String {
    match &event.cells[..] {
        [] => "all".to_owned(),
        [only] => history.labels.name(only),
        several => format!("{} cells", several.len()),
    }
}

/// Events, the latest first.
pub(crate) fn events(history: &History<'_>) -> Table {
    let row = |event: &Event| Row {
        cells: vec![
            Value::Text(day(&event.at)),
            Value::text(&event.what),
            Value::Text(of_cells(history, event)),
        ],
        marks: Vec::new(),
    };
    Table {
        title: "What else changed".to_owned(),
        columns: vec![words("night", 0), words("event", 0), words("cells", 1)],
        rows: history.events.iter().rev().map(row).collect(),
        notes: Vec::new(),
    }
}

/// A finding that one or several consecutive nightly runs reported.
struct Told<'a> {
    first: usize,
    last: usize,
    finding: &'a Finding,
}

/// Findings of these nightly runs, the latest first. A finding of consecutive runs is printed once, in the
/// words of the last one.
pub(crate) fn findings(history: &History<'_>, nights: &[Night]) -> Table {
    let mut all: Vec<Told<'_>> = Vec::new();
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    for (at, night) in nights.iter().enumerate() {
        for finding in &night.findings {
            let known = open.get(&finding.identity()).copied();
            match known.filter(|known| all[*known].last + 1 >= at) {
                Some(known) => (all[known].last, all[known].finding) = (at, finding),
                None => {
                    open.insert(finding.identity(), all.len());
                    all.push(Told {
                        first: at,
                        last: at,
                        finding,
                    });
                }
            }
        }
    }
    all.sort_by_key(|told| (std::cmp::Reverse(told.last), told.finding.kind));
    let row = |told: &Told<'_>| {
        let finding = told.finding;
        let cell = finding.cell.as_ref();
        let when = [
            Value::Text(day(&nights[told.last].at)),
            Value::Text(day(&nights[told.first].at)),
            Value::Count((told.last - told.first + 1) as u64),
        ];
        let what = [
            Value::text(finding.kind.name()),
            Value::Text(cell.map_or_else(|| "all".to_owned(), |cell| history.labels.name(cell))),
            Value::text(&finding.text),
        ];
        Row {
            cells: when
                .into_iter()
                .filter(|_| nights.len() > 1)
                .chain(what)
                .collect(),
            marks: Vec::new(),
        }
    };
    let when = [words("last", 0), words("first", 0), numbers("nights", "", 0)];
    let what = [words("kind", 0), words("cell", 0), words("finding", 0)];
    let left_out = all.len().saturating_sub(FINDINGS);
    Table {
        title: "What nights found".to_owned(),
        columns: when
            .into_iter()
            .filter(|_| nights.len() > 1)
            .chain(what)
            .collect(),
        rows: all.iter().take(FINDINGS).map(row).collect(),
        notes: (left_out > 0)
            .then(|| format!("{left_out} older findings are left out"))
            .into_iter()
            .collect(),
    }
}
