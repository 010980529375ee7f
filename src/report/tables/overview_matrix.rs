//! The table of all engines side by side, with a row for each model and scenario.

use std::collections::BTreeMap;

use super::columns::{self, SampleSize, sample_size};
use super::family::Group;
use super::notes::{approximate_mark_text, burst_ttft_note};
use super::ratio::{RatioOrReason, ratio_direction};
use super::report_cell::{ReportCell, is_unknown, status_in_words};
use crate::analysis::metrics::{Direction, Metric, Unit};
use crate::report::table::{Align, Column};
use crate::report::table::{Mark, Row, Table, Value};
use crate::results::record::cell::Origin;
use crate::results::record::provenance::UnknownFact;

/// A ratio beyond this factor, or below its inverse, gets a note.
const IMPLAUSIBLE_RATIO: f64 = 3.0;

pub(super) fn is_implausible(ratio: f64) -> bool {
    !(1.0 / IMPLAUSIBLE_RATIO..=IMPLAUSIBLE_RATIO).contains(&ratio)
}

/// The note on a striking ratio.
pub(super) fn implausible_ratio_note() -> String {
    format!(
        "a ratio beyond {IMPLAUSIBLE_RATIO:.0} is more often caused by a broken run than by a better engine: check both measurements"
    )
}

/// Draws the main metric of all engines, with a row for each model and scenario that several engines have.
///
/// A value comes with the precision and the number of GPUs if they differ within the row, the ratio to
/// the reference (`≠` if the cells are not comparable; the reasons are below the table), and the marks of
/// the cell.
pub(crate) fn overview_matrix(groups: &[Group<'_, '_>]) -> Table {
    let has_several = |group: &&Group<'_, '_>| {
        let first = column_name(group.rows[0]);
        group.rows.iter().any(|cell| column_name(cell) != first)
    };
    let rows: Vec<&Group<'_, '_>> = groups.iter().filter(has_several).collect();
    let mut engines: Vec<String> = Vec::new();
    for cell in rows.iter().flat_map(|group| &group.rows) {
        let engine = column_name(cell);
        if !engines.contains(&engine) {
            engines.push(engine);
        }
    }
    let rows_of_groups: Vec<&ReportCell<'_>> =
        rows.iter().flat_map(|group| group.rows.iter().copied()).collect();
    let first = rows_of_groups.first().map_or_else(Vec::new, |cell| cell.marks());
    let everywhere: Vec<Mark> = first
        .into_iter()
        .filter(|mark| matches!(mark, Mark::Simulated | Mark::Imported(_)))
        .filter(|mark| rows_of_groups.iter().all(|cell| cell.marks().contains(mark)))
        .collect();
    let mut columns = vec![
        columns::text_column("model", 0),
        columns::text_column("scenario", 0),
        columns::text_column("metric", 0),
        columns::text_column("precision", 2),
        columns::number_column("GPUs", 2),
    ];
    columns.extend(engines.iter().map(|engine| Column {
        align: Align::Right,
        ..columns::text_column(engine, 0)
    }));
    let mut reasons = Reasons::default();
    let drawn = rows.iter().map(|group| {
        let (precision, gpus) = (shared_fact(group, precision), shared_fact(group, gpu_count));
        let of_row = |value: &Option<Option<String>>| {
            let known = value.clone().flatten();
            known.map_or(Value::Missing, Value::Text)
        };
        let mut cells = vec![
            Value::text(&group.rows[0].launch.model),
            Value::Text(group.rows[0].scenario()),
            Value::Text(metric_heading(group.metric())),
            of_row(&precision),
            of_row(&gpus),
        ];
        let own = [precision.is_none(), gpus.is_none()];
        cells.extend(engines.iter().map(|engine| {
            let of_engine: Vec<String> = (0..group.rows.len())
                .filter(|at| column_name(group.rows[*at]) == *engine)
                .map(|at| cell_text(group, at, own, &everywhere, &mut reasons))
                .collect();
            match of_engine.is_empty() {
                true => Value::Missing,
                false => Value::Text(of_engine.join("; ")),
            }
        }));
        Row {
            cells,
            marks: Vec::new(),
        }
    });
    let drawn: Vec<Row> = drawn.collect();
    Table {
        title: "All engines side by side".to_owned(),
        columns,
        rows: drawn,
        notes: notes(&rows, &engines, groups.len() - rows.len(), &reasons, &everywhere),
    }
}

/// The name of a cell's column: the engine, with the run if there are several.
fn column_name(cell: &ReportCell<'_>) -> String {
    match cell.run {
        "" => cell.engine(),
        run => format!("{} {run}", cell.engine()),
    }
}

/// A metric with its unit and better direction.
fn metric_heading(metric: Metric) -> String {
    let unit = match metric.unit() {
        // Times carry their unit in each value.
        Unit::Millis => String::new(),
        unit => format!(", {}", unit.symbol()),
    };
    let less = match ratio_direction(metric) {
        Direction::Higher => "",
        Direction::Lower => ", less is better",
    };
    format!("{}{unit}{less}", metric.label())
}

/// Formats a value; times get a unit that suits their size.
fn value_with_unit(metric: Metric, value: f64) -> String {
    match metric.unit() {
        Unit::Millis if value >= 600_000.0 => format!("{:.1} min", value / 60_000.0),
        Unit::Millis if value >= 10_000.0 => format!("{:.1} s", value / 1000.0),
        Unit::Millis => format!("{value:.1} ms"),
        Unit::RequestsPerSecond => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

fn precision(cell: &ReportCell<'_>) -> Option<String> {
    cell.launch.precision.clone()
}

/// The number of GPUs; `?` if unknown, `None` without GPUs.
fn gpu_count(cell: &ReportCell<'_>) -> Option<String> {
    match (
        is_unknown(cell, UnknownFact::Gpus),
        cell.launch.gpus().unwrap_or(0),
    ) {
        (true, _) => Some("?".to_owned()),
        (false, 0) => None,
        (false, count) => Some(count.to_string()),
    }
}

/// The value that all rows of a group share; the outer `None` if they differ.
fn shared_fact(group: &Group<'_, '_>, fact: fn(&ReportCell<'_>) -> Option<String>) -> Option<Option<String>> {
    let first = fact(group.rows[0]);
    group.rows.iter().all(|cell| fact(cell) == first).then_some(first)
}

/// Reasons by engine, in the order of their first row, with the number of rows.
#[derive(Default)]
struct Reasons {
    order: Vec<(String, String)>,
    rows: BTreeMap<(String, String), usize>,
}

impl Reasons {
    fn add(&mut self, engine: String, reason: String) {
        let key = (engine, reason);
        if !self.order.contains(&key) {
            self.order.push(key.clone());
        }
        *self.rows.entry(key).or_default() += 1;
    }
}

/// A value with its ratio, marks and differences.
fn cell_text(
    group: &Group<'_, '_>,
    at: usize,
    [has_precision, has_gpus]: [bool; 2],
    everywhere: &[Mark],
    reasons: &mut Reasons,
) -> String {
    let cell = group.rows[at];
    let Some(value) = cell.value(group.metric()).filter(|_| cell.is_done()) else {
        return status_in_words(cell);
    };
    let valued = value_with_unit(group.metric(), value);
    let mut words = vec![match sample_size(cell, group.metric()) {
        SampleSize::Enough => valued,
        SampleSize::Few | SampleSize::TooFew => format!("~{valued}"),
    }];
    words.extend(precision(cell).filter(|_| has_precision));
    words.extend(
        gpu_count(cell)
            .filter(|_| has_gpus)
            .map(|count| match count.as_str() {
                "1" => "1 GPU".to_owned(),
                count => format!("{count} GPUs"),
            }),
    );
    match &group.ratios[at] {
        RatioOrReason::Ratio(ratio, apart) if ratio.is_reference => {
            if !apart.is_empty() {
                words.push("≠".to_owned());
                reasons.add(column_name(cell), format!("no ratio: {}", apart.join(", ")));
            }
        }
        RatioOrReason::Ratio(ratio, remarks) => {
            let of_one = if ratio.is_single_start() { " n=1" } else { "" };
            words.push(format!("{:.2}×{of_one}", ratio.value));
            if is_implausible(ratio.value) {
                reasons.add(column_name(cell), implausible_ratio_note());
            }
            if !remarks.is_empty() {
                reasons.add(
                    column_name(cell),
                    format!("with differences: {}", remarks.join(", ")),
                );
            }
        }
        RatioOrReason::Refused(why, per_gpu) => {
            let per_gpu = per_gpu.map(|ratio| format!("{ratio:.2}× per GPU"));
            words.push(per_gpu.unwrap_or_else(|| "≠".to_owned()));
            reasons.add(column_name(cell), format!("no ratio: {}", why.join(", ")));
        }
    }
    let mut marks = cell.marks();
    marks.retain(|mark| !everywhere.contains(mark));
    marks.extend((group.best == Some(at)).then_some(Mark::Best));
    let marks = marks.into_iter().filter_map(Mark::word);
    let marks: String = marks.map(|word| format!(" [{word}]")).collect();
    words.join(" · ") + &marks
}

fn notes(
    rows: &[&Group<'_, '_>],
    engines: &[String],
    alone: usize,
    reasons: &Reasons,
    everywhere: &[Mark],
) -> Vec<String> {
    let mut references: Vec<&str> = rows.iter().map(|group| group.reference.as_str()).collect();
    references.sort_unstable();
    references.dedup();
    let reference = match references[..] {
        [only] => only,
        _ => "the reference",
    };
    let mut notes = vec![format!(
        "×: ratio to {reference} in the same row; n=1: one side has a single start; ≠: the two are not comparable"
    )];
    if everywhere.contains(&Mark::Simulated) {
        notes.push(
            "every cell was measured on the simulated engine; the figures say nothing about a real one"
                .to_owned(),
        );
    }
    let is_rough = |group: &&Group<'_, '_>| {
        let mut cells = group.rows.iter().filter(|report_cell| report_cell.is_done());
        cells.any(|report_cell| sample_size(report_cell, group.metric()) != SampleSize::Enough)
    };
    notes.extend(rows.iter().any(is_rough).then(approximate_mark_text));
    for (engine, reason) in &reasons.order {
        let rows = reasons.rows[&(engine.clone(), reason.clone())];
        let rows = if rows == 1 {
            "1 row".to_owned()
        } else {
            format!("{rows} rows")
        };
        notes.push(format!("{engine}, {rows}: {reason}"));
    }
    let group: Vec<(String, &ReportCell<'_>)> = rows
        .iter()
        .flat_map(|group| {
            group
                .rows
                .iter()
                .map(|report_cell| (column_name(report_cell), *report_cell))
        })
        .collect();
    for engine in engines {
        let imported = group
            .iter()
            .filter(|(name, report_cell)| name == engine && report_cell.origin() == Origin::Imported);
        let mut sources: Vec<String> = imported
            .flat_map(|(_, report_cell)| &report_cell.summaries)
            .filter_map(|summary| summary.imported.as_ref())
            .map(|imported| {
                format!(
                    "read from {}, measured with {}",
                    imported.file,
                    imported.tool_in_words()
                )
            })
            .collect();
        sources.sort();
        sources.dedup();
        notes.extend(sources.into_iter().map(|source| format!("{engine}: {source}")));
    }
    notes.extend(burst_ttft_note(&group));
    if alone > 0 {
        notes.push(match alone {
            1 => "1 row with only one engine is not shown".to_owned(),
            _ => format!("{alone} rows with only one engine are not shown"),
        });
    }
    notes
}
