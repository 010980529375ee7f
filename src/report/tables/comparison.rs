//! Tables of engines side by side, one for each model and scenario.

use super::columns::MetricColumn;
use super::cost::{cost_columns, cost_values, price_notes};
use super::family::Group;
use super::notes::{
    DEFINITIONS, approximate_note, burst_ttft_note, caveat_notes, precision_notes, row_notes,
};
use super::overview_matrix::{implausible_ratio_note, is_implausible};
use super::ratio::{RatioOrReason, ratio_direction};
use super::report_cell::ReportCell;
use super::{capacity, columns, units};
use crate::analysis::metrics::{Direction, Metric};
use crate::report::table::Column;
use crate::report::table::{Mark, Row, Table, Value};

const BEST_NOTE: &str = "[best]: better than every other row, by the decision rule of `matrix compare`";

/// Draws a table for each model and scenario.
///
/// A ratio is given only if both cells are done and comparable (`analysis::compare::comparable`); a note
/// names the differences.
pub(crate) fn comparison_tables(groups: &[Group<'_, '_>]) -> Vec<Table> {
    groups.iter().map(table).collect()
}

fn table(comparison_group: &Group<'_, '_>) -> Table {
    let group = &comparison_group.rows[..];
    let searches = capacity::has_search(group);
    let label = comparison_group.metric().label();
    let is_measured = group
        .iter()
        .any(|cell| cell.value(comparison_group.metric()).is_some());
    let figures = match is_measured {
        true => with_ratio_metric(
            columns::comparison_columns(group),
            comparison_group.metric(),
            &label,
        ),
        false => columns::comparison_columns(group),
    };
    let mut columns = vec![columns::text_column("engine", 0), ratio_column(comparison_group)];
    columns.extend(columns::identity_columns());
    columns.extend(searches.then(capacity::search_column));
    columns.extend(columns::metric_columns(&figures));
    let costs = cost_columns(group);
    let cost_count = costs.len();
    columns.extend(costs);
    columns.extend(columns::client_error_columns());
    let mut rows = Vec::new();
    let mut ratio_remarks = Vec::new();
    for (at, (cell, name)) in group.iter().zip(&comparison_group.names).enumerate() {
        let mut cells = vec![
            Value::text(name),
            ratio_value(comparison_group, at, &mut ratio_remarks),
        ];
        cells.extend(columns::identity_values(cell));
        cells.extend(searches.then(|| capacity::search_value(cell)));
        cells.extend(columns::metric_values(cell, &figures));
        cells.extend(cost_values(cell, cost_count));
        cells.extend(columns::client_error(cell));
        let mut marks = cell.marks();
        marks.extend((comparison_group.best == Some(at)).then_some(Mark::Best));
        rows.push(Row { cells, marks });
    }
    let named: Vec<(String, &ReportCell<'_>)> = comparison_group
        .names
        .iter()
        .cloned()
        .zip(group.iter().copied())
        .collect();
    let mut notes = row_notes(&named);
    notes.extend(caveat_notes(&named));
    notes.extend(burst_ttft_note(&named));
    notes.extend(precision_notes(&named));
    notes.extend(ratio_remarks);
    notes.extend(ratio_notes(comparison_group));
    notes.extend(comparison_group.best.map(|_| BEST_NOTE.to_owned()));
    notes.extend(approximate_note(&rows));
    notes.extend(price_notes(group));
    notes.push(DEFINITIONS.to_owned());
    units::fit_time_units(Table {
        title: comparison_group.title.clone(),
        columns,
        rows,
        notes,
    })
}

/// The ratio of a row to the reference. What restricts or prevents it is added to `remarks`.
fn ratio_value(group: &Group<'_, '_>, at: usize, remarks: &mut Vec<String>) -> Value {
    let (cell, name) = (group.rows[at], &group.names[at]);
    match &group.ratios[at] {
        // The status and the note on the failure explain the missing ratio.
        _ if !cell.is_done() => Value::Missing,
        RatioOrReason::Ratio(ratio, differences) => {
            if is_implausible(ratio.value) {
                remarks.push(format!("{name}: {}", implausible_ratio_note()));
            }
            if ratio.is_reference && !differences.is_empty() {
                remarks.push(format!("{name}: separate reference: {}", differences.join(", ")));
            } else if !differences.is_empty() {
                remarks.push(format!(
                    "{name}: compared with {} despite differences: {}",
                    group.reference,
                    differences.join(", ")
                ));
            }
            Value::Ratio {
                value: ratio.value,
                interval: ratio.interval,
                is_of_one_start: ratio.is_single_start(),
            }
        }
        RatioOrReason::Refused(why, per_gpu) => {
            let per_gpu = per_gpu.map_or_else(String::new, |ratio| {
                format!("; ratio of {} per GPU: {ratio:.2}", group.metric().label())
            });
            let why = why.join(", ");
            let reference = match cell.launch.engine.name == group.reference {
                true => String::new(),
                false => format!(" to {}", group.reference),
            };
            remarks.push(format!("{name}: no ratio{reference}: {why}{per_gpu}"));
            Value::Missing
        }
    }
}

/// Makes sure that the metric of the ratios is among the columns and is dropped last. A search result has its
/// own column.
fn with_ratio_metric<'h>(
    mut figures: Vec<MetricColumn<'h>>,
    ratio_metric: Metric,
    label: &'h str,
) -> Vec<MetricColumn<'h>> {
    match figures.iter_mut().find(|(metric, ..)| *metric == ratio_metric) {
        Some((.., rank)) => *rank = 0,
        None if matches!(ratio_metric, Metric::Found(..)) => {}
        None => figures.insert(0, (ratio_metric, label, 1, 0)),
    }
    figures
}

/// The column of ratios; its heading names the reference, the metric and the better direction.
fn ratio_column(comparison_group: &Group<'_, '_>) -> Column {
    let metric = comparison_group.metric();
    Column {
        unit: match ratio_direction(metric) {
            Direction::Higher => "more is better",
            Direction::Lower => "less is better",
        },
        better: metric.direction(),
        ..columns::number_column(
            &format!("vs {}, {}", comparison_group.reference, metric.label()),
            0,
        )
    }
}

/// The note on the marks beside ratios, if there are any.
fn ratio_notes(comparison_group: &Group<'_, '_>) -> Option<String> {
    let ratios = comparison_group
        .ratios
        .iter()
        .filter_map(|ratio_or_reason| match ratio_or_reason {
            RatioOrReason::Ratio(ratio, _) => Some(ratio),
            RatioOrReason::Refused(..) => None,
        });
    let (mut words, mut has_interval, mut is_of_one_start) = (Vec::new(), false, false);
    for ratio in ratios {
        has_interval |= ratio.interval.is_some();
        is_of_one_start |= ratio.is_single_start();
    }
    if has_interval {
        words.push("[a, b]: 95 % interval of the ratio; (a–b): minimum and maximum of the measurements");
    }
    if is_of_one_start {
        words.push("n=1: one side has a single start, so the error of the ratio is unknown");
    }
    (!words.is_empty()).then(|| words.join("; "))
}
