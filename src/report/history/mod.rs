//! The history of nightly runs: every gating metric of every cell, its level changes, and other changes with
//! their dates.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::ascii_plot;
use super::comparison::{number_column, percent, text_column, unit};
use super::labels::Labels;
use super::table::{Mark, Row, Table, Value};
use crate::analysis::compare::time_series::{self, ContextEvent, LevelChange, Series};
use crate::analysis::compare::verdict::p_in_words;
use crate::base::date;
use crate::results::record::cell::Origin;
use crate::results::record::nightly::{Finding, NightlyRun};

/// Number of nightly runs in the trend beside a metric.
const TREND_NIGHTS: usize = 30;
/// Maximum number of findings in a table.
const MAX_FINDINGS: usize = 300;

/// Consecutive nightly runs with their series and events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct History<'a> {
    pub(crate) matrix: &'a str,
    /// Oldest first.
    pub(crate) nights: &'a [NightlyRun],
    pub(crate) series: Vec<Series>,
    pub(crate) events: Vec<ContextEvent>,
    pub(crate) labels: Labels,
}

impl<'a> History<'a> {
    /// Computes series, level changes of at least `floor` (a share), and events of these nightly runs.
    pub(crate) fn from_nights(matrix: &'a str, nights: &'a [NightlyRun], floor: f64) -> Self {
        let series = time_series::build_series(nights, floor);
        Self {
            matrix,
            nights,
            labels: Labels::from_keys(nights.iter().flat_map(|night| night.cells.keys())),
            series,
            events: time_series::context_events(nights),
        }
    }
}

/// The date of a time; text that is no time stays as it is.
pub(super) fn date(moment: &str) -> String {
    date::days_since_epoch(moment)
        .map_or_else(|| moment.to_owned(), |days| date::format_date(days, "%Y-%m-%d"))
}

/// Describes a level change.
pub(super) fn level_change_in_words(series: &Series, step: &LevelChange) -> String {
    let since = date(&series.nights[step.index].at);
    format!(
        "{} since {since}, p {}",
        percent(step.change),
        p_value_text(step.p)
    )
}

fn p_value_text(p: f64) -> String {
    match p_in_words(p) {
        small if small.starts_with('<') => small,
        other => format!("= {other}"),
    }
}

pub(super) fn starts_in_words(count: usize) -> String {
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
        let note =
            move |step: &LevelChange| format!("{cell}: {figure}: {}", level_change_in_words(series, step));
        series.changes.iter().map(note)
    });
    let events = history.events.iter().map(|event| {
        let cells = event_cells(history, event);
        let cells = match event.cells.len() {
            0 => String::new(),
            _ => format!(" ({cells})"),
        };
        format!("{}: {}{cells}", date(&event.at), event.text)
    });
    let mut table = series_table(history);
    table.notes = changes.chain(events).chain(table.notes).collect();
    table
}

/// A row for each series, with notes that explain the table only.
pub(crate) fn series_table(history: &History<'_>) -> Table {
    let row = |series: &Series| {
        let level =
            |value: Option<f64>| value.map_or(Value::Missing, |value| Value::Number { value, decimals: 2 });
        let course: Vec<Option<f64>> = series
            .values_by_night()
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        let recent = &course[course.len().saturating_sub(TREND_NIGHTS)..];
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
                Some(Origin::Imported) => vec![Mark::Imported(None)],
                Some(Origin::Measured) | None => Vec::new(),
            },
        }
    };
    let explained = format!(
        "trend: the last {TREND_NIGHTS} nightly runs at most, scaled from their lowest to their highest value; ·: no figure"
    );
    Table {
        title: format!("Nightly runs of {}", history.matrix),
        columns: vec![
            text_column("cell", 0),
            text_column("figure", 0),
            number_column("runs", "", 1),
            number_column("first", "", 1),
            number_column("last", "", 0),
            number_column("changes", "", 0),
            text_column("trend", 9),
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

fn event_cells(history: &History<'_>, event: &ContextEvent) -> String {
    match &event.cells[..] {
        [] => "all".to_owned(),
        [only] => history.labels.name(only),
        several => format!("{} cells", several.len()),
    }
}

/// Events, the latest first.
pub(crate) fn events_table(history: &History<'_>) -> Table {
    let row = |event: &ContextEvent| Row {
        cells: vec![
            Value::Text(date(&event.at)),
            Value::text(&event.text),
            Value::Text(event_cells(history, event)),
        ],
        marks: Vec::new(),
    };
    Table {
        title: "Other changes".to_owned(),
        columns: vec![
            text_column("date", 0),
            text_column("event", 0),
            text_column("cells", 1),
        ],
        rows: history.events.iter().rev().map(row).collect(),
        notes: Vec::new(),
    }
}

/// A finding that one or several consecutive nightly runs reported.
struct RepeatedFinding<'a> {
    first: usize,
    last: usize,
    finding: &'a Finding,
}

/// Findings of these nightly runs, the latest first. A finding of consecutive runs is printed once, in the
/// words of the last one.
pub(crate) fn findings_table(history: &History<'_>, nights: &[NightlyRun]) -> Table {
    let mut repeated_findings: Vec<RepeatedFinding<'_>> = Vec::new();
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    for (at, night) in nights.iter().enumerate() {
        for finding in &night.findings {
            let known = open.get(&finding.identity()).copied();
            match known.filter(|known| repeated_findings[*known].last + 1 >= at) {
                Some(known) => {
                    (repeated_findings[known].last, repeated_findings[known].finding) = (at, finding)
                }
                None => {
                    open.insert(finding.identity(), repeated_findings.len());
                    repeated_findings.push(RepeatedFinding {
                        first: at,
                        last: at,
                        finding,
                    });
                }
            }
        }
    }
    repeated_findings.sort_by_key(|repeated| (std::cmp::Reverse(repeated.last), repeated.finding.kind));
    let row = |repeated: &RepeatedFinding<'_>| {
        let finding = repeated.finding;
        let cell = finding.cell.as_ref();
        let when = [
            Value::Text(date(&nights[repeated.last].at)),
            Value::Text(date(&nights[repeated.first].at)),
            Value::Count((repeated.last - repeated.first + 1) as u64),
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
    let when = [
        text_column("last", 0),
        text_column("first", 0),
        number_column("runs", "", 0),
    ];
    let what = [
        text_column("kind", 0),
        text_column("cell", 0),
        text_column("finding", 0),
    ];
    let left_out = repeated_findings.len().saturating_sub(MAX_FINDINGS);
    Table {
        title: "Findings of nightly runs".to_owned(),
        columns: when
            .into_iter()
            .filter(|_| nights.len() > 1)
            .chain(what)
            .collect(),
        rows: repeated_findings.iter().take(MAX_FINDINGS).map(row).collect(),
        notes: (left_out > 0)
            .then(|| format!("{left_out} older findings are left out"))
            .into_iter()
            .collect(),
    }
}
