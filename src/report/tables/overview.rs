//! The results of each engine, and the overview with a row for every cell at the end of a run.

use super::grouping::{group_by_name, names_of_all, short_names};
use super::notes::{DEFINITIONS, burst_ttft_note, caveat_notes, precision_notes, row_notes};
use super::report_cell::{ReportCell, metric_value};
use super::units;
use super::{capacity, columns};
use crate::analysis::metrics::Metric;
use crate::report::table::{Row, Table, Value};
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::request::format_failures;

/// Draws a table for each engine and version, with a row for each of its cells.
pub(crate) fn engine_results(cells: &[ReportCell<'_>]) -> Vec<Table> {
    group_by_name(cells.iter().map(|cell| (cell.engine(), cell)))
        .into_iter()
        .map(|(engine, group)| results_table(engine, &group))
        .collect()
}

fn results_table(engine: String, group: &[&ReportCell<'_>]) -> Table {
    let searches = capacity::has_search(group);
    let figures = columns::comparison_columns(group);
    let mut columns = vec![
        columns::text_column("model", 0),
        columns::text_column("scenario", 0),
    ];
    columns.extend(columns::identity_columns());
    columns.extend(searches.then(capacity::search_column));
    columns.extend(columns::metric_columns(&figures));
    columns.extend(columns::client_error_columns());
    let row = |cell: &&ReportCell<'_>| {
        let mut cells = vec![Value::text(&cell.launch.model), Value::Text(cell.scenario())];
        cells.extend(columns::identity_values(cell));
        cells.extend(searches.then(|| capacity::search_value(cell)));
        cells.extend(columns::metric_values(cell, &figures));
        cells.extend(columns::client_error(cell));
        Row {
            cells,
            marks: cell.marks(),
        }
    };
    Table {
        title: engine,
        columns,
        rows: group.iter().map(row).collect(),
        notes: table_notes(group, caveat_notes),
    }
}

/// Draws a row for each cell: status, the most important figures, and failures by class.
pub(crate) fn overview(report_cells: &[ReportCell<'_>]) -> Table {
    let has_runs = report_cells.iter().any(|cell| cell.run != report_cells[0].run);
    let mut columns = vec![columns::text_column("engine", 0)];
    columns.extend(has_runs.then(|| columns::text_column("run", 0)));
    columns.extend([
        columns::text_column("model", 0),
        columns::text_column("scenario", 0),
        columns::text_column("precision", 4),
        columns::number_column("GPUs", 5),
        columns::text_column("status", 0),
    ]);
    let group: Vec<&ReportCell<'_>> = report_cells.iter().collect();
    let searches = capacity::has_search(&group);
    columns.extend(searches.then(capacity::search_column));
    let figures = columns::overview_columns(&group);
    columns.extend(columns::metric_columns(&figures));
    columns.push(columns::text_column("failed requests", 3));
    let row = |(cell, engine): (&ReportCell<'_>, String)| {
        let [precision, _, devices, status, _] = columns::identity_values(cell);
        let mut cells = vec![Value::Text(engine)];
        cells.extend(has_runs.then(|| Value::text(cell.run)));
        cells.extend([
            Value::text(&cell.launch.model),
            Value::Text(cell.scenario()),
            precision,
            devices,
            status,
        ]);
        cells.extend(searches.then(|| capacity::search_value(cell)));
        cells.extend(columns::metric_values(cell, &figures));
        cells.push(failures_by_class(cell));
        Row {
            cells,
            marks: cell.marks(),
        }
    };
    let title = if has_runs {
        "Cells of these runs"
    } else {
        "Cells of this run"
    };
    units::fit_time_units(Table {
        title: title.to_owned(),
        columns,
        rows: report_cells
            .iter()
            .zip(names_of_all(report_cells))
            .map(row)
            .collect(),
        notes: table_notes(&group, |_| Vec::new()),
    })
}

/// The notes of a table; `more` adds those on the figures that it shows.
fn table_notes(
    group: &[&ReportCell<'_>],
    more: fn(&[(String, &ReportCell<'_>)]) -> Vec<String>,
) -> Vec<String> {
    let names = short_names(group.iter().copied());
    let named: Vec<(String, &ReportCell<'_>)> = names.into_iter().zip(group.iter().copied()).collect();
    let mut notes = row_notes(&named);
    notes.extend(more(&named));
    notes.extend(burst_ttft_note(&named));
    notes.extend(precision_notes(&named));
    notes.push(DEFINITIONS.to_owned());
    notes
}

/// Failed requests of all measurements by class; missing if nothing was measured.
fn failures_by_class(cell: &ReportCell<'_>) -> Value {
    let is_counted =
        |summary: &&MeasurementSummary| !(summary.figures.is_empty() && summary.failures.is_empty());
    if !cell.summaries.iter().any(is_counted) {
        return Value::Missing;
    }
    let failures = cell.summaries.iter().flat_map(|summary| &summary.failures);
    let words = format_failures(failures.map(|(class, count)| (*class, *count)));
    // An import has at most the total number of failures, without classes.
    let failed: Vec<f64> = cell
        .summaries
        .iter()
        .filter_map(|summary| metric_value(summary, Metric::Failed))
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
