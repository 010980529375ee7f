//! The results of each engine, and the overview with a row for every cell at the end of a run.

use super::columns;
use super::{
    DEFINITIONS, Row, Shown, Table, Value, certain, grouped, misread, notes, queue_bound, units, value_of,
};
use crate::analysis::metrics::Metric;
use crate::results::record::cell::Summary;
use crate::results::record::request::by_class;

/// Draws a table for each engine and version, with a row for each of its cells.
pub(crate) fn engine_results(shown: &[Shown<'_>]) -> Vec<Table> {
    grouped(shown.iter().map(|one| (one.engine(), one)))
        .into_iter()
        .map(|(engine, group)| results(engine, &group))
        .collect()
}

fn results(engine: String, group: &[&Shown<'_>]) -> Table {
    let searches = columns::searches(group);
    let figures = columns::known(group);
    let mut columns = vec![columns::words("model", 0), columns::words("scenario", 0)];
    columns.extend(columns::identity());
    columns.extend(searches.then(columns::found));
    columns.extend(columns::figures(&figures));
    columns.extend(columns::client());
    let row = |one: &&Shown<'_>| {
        let mut cells = vec![Value::text(&one.launch.model), Value::Text(one.scenario())];
        cells.extend(columns::identified(one));
        cells.extend(searches.then(|| columns::found_by(one)));
        cells.extend(columns::values(one, &figures));
        cells.extend(columns::client_error(one));
        Row {
            cells,
            marks: one.marks(),
        }
    };
    Table {
        title: engine,
        columns,
        rows: group.iter().map(row).collect(),
        notes: noted(group, misread),
    }
}

/// Draws a row for each cell: status, the most important figures, and failures by class.
pub(crate) fn overview(shown: &[Shown<'_>]) -> Table {
    let has_runs = shown.iter().any(|one| one.run != shown[0].run);
    let mut columns = vec![columns::words("engine", 0)];
    columns.extend(has_runs.then(|| columns::words("run", 0)));
    columns.extend([
        columns::words("model", 0),
        columns::words("scenario", 0),
        columns::words("precision", 4),
        columns::numbers("GPUs", 5),
        columns::words("status", 0),
    ]);
    let group: Vec<&Shown<'_>> = shown.iter().collect();
    let searches = columns::searches(&group);
    columns.extend(searches.then(columns::found));
    let figures = columns::few(&group);
    columns.extend(columns::figures(&figures));
    columns.push(columns::words("failed requests", 3));
    let row = |one: &Shown<'_>| {
        let [precision, _, devices, status, _] = columns::identified(one);
        let mut cells = vec![Value::Text(one.engine())];
        cells.extend(has_runs.then(|| Value::text(one.run)));
        cells.extend([
            Value::text(&one.launch.model),
            Value::Text(one.scenario()),
            precision,
            devices,
            status,
        ]);
        cells.extend(searches.then(|| columns::found_by(one)));
        cells.extend(columns::values(one, &figures));
        cells.push(failures(one));
        Row {
            cells,
            marks: one.marks(),
        }
    };
    let title = if has_runs {
        "Cells of these runs"
    } else {
        "Cells of this run"
    };
    units::fit(Table {
        title: title.to_owned(),
        columns,
        rows: shown.iter().map(row).collect(),
        notes: noted(&group, |_| Vec::new()),
    })
}

/// The notes of a table; `more` adds those on the figures that it shows.
fn noted(group: &[&Shown<'_>], more: fn(&[(String, &Shown<'_>)]) -> Vec<String>) -> Vec<String> {
    let named: Vec<(String, &Shown<'_>)> = group.iter().map(|one| (one.name(), *one)).collect();
    let mut notes = notes(&named);
    notes.extend(more(&named));
    notes.extend(queue_bound(&named));
    notes.extend(certain(&named));
    notes.push(DEFINITIONS.to_owned());
    notes
}

/// Failed requests of all measurements by class; missing if nothing was measured.
fn failures(shown: &Shown<'_>) -> Value {
    let is_counted = |summary: &&Summary| !(summary.figures.is_empty() && summary.failures.is_empty());
    if !shown.summaries.iter().any(is_counted) {
        return Value::Missing;
    }
    let failures = shown.summaries.iter().flat_map(|summary| &summary.failures);
    let words = by_class(failures.map(|(class, count)| (*class, *count)));
    // An import has at most the total number of failures, without classes.
    let failed: Vec<f64> = shown
        .summaries
        .iter()
        .filter_map(|summary| value_of(summary, Metric::Failed))
        .collect();
    match (words.is_empty(), failed.is_empty()) {
        (false, _) => Value::Text(words),
        (true, true) => Value::Missing,
        (true, false) => match failed.iter().sum::<f64>() {
            0.0 => Value::text("none"),
            failed => Value::Text(format!("{failed:.0}")),
        },
    }
}
