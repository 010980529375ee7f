//! The table of all engines side by side, with a row for each model and scenario.

use std::collections::BTreeMap;

use super::columns::{Sampled, sampled};
use super::family::Group;
use super::notes::rough_explained;
use super::ratio::{Held, better};
use super::{Mark, Row, Shown, Table, Value, columns, lacks, queue_bound};
use crate::analysis::metrics::{Better, Metric, Unit};
use crate::report::{Align, Column};
use crate::results::record::cell::Origin;
use crate::results::record::provenance::Unknown;

/// A ratio beyond this factor, or below its inverse, gets a note.
const STRIKING: f64 = 3.0;

pub(super) fn is_striking(ratio: f64) -> bool {
    !(1.0 / STRIKING..=STRIKING).contains(&ratio)
}

/// The note on a striking ratio.
pub(super) fn striking() -> String {
    format!("a ratio beyond {STRIKING:.0} is more often a broken run than a better engine: look at both")
}

/// Draws the main metric of all engines, with a row for each model and scenario that several engines have.
///
/// A value comes with the precision and the number of GPUs if they differ within the row, the ratio to
/// the reference (`≠` if the cells are not comparable; the reasons are below the table), and the marks of
/// the cell.
pub(crate) fn across(groups: &[Group<'_, '_>]) -> Table {
    let has_several = |group: &&Group<'_, '_>| {
        let first = column_of(group.rows[0]);
        group.rows.iter().any(|one| column_of(one) != first)
    };
    let rows: Vec<&Group<'_, '_>> = groups.iter().filter(has_several).collect();
    let mut engines: Vec<String> = Vec::new();
    for one in rows.iter().flat_map(|group| &group.rows) {
        let engine = column_of(one);
        if !engines.contains(&engine) {
            engines.push(engine);
        }
    }
    let all: Vec<&Shown<'_>> = rows.iter().flat_map(|group| group.rows.iter().copied()).collect();
    let everywhere: Vec<Mark> = [Mark::Simulated, Mark::Imported]
        .into_iter()
        .filter(|mark| all.iter().all(|one| one.marks().contains(mark)))
        .collect();
    let mut columns = vec![
        columns::words("model", 0),
        columns::words("scenario", 0),
        columns::words("metric", 0),
        columns::words("precision", 2),
        columns::numbers("GPUs", 2),
    ];
    columns.extend(engines.iter().map(|engine| Column {
        align: Align::Right,
        ..columns::words(engine, 0)
    }));
    let mut said = Reasons::default();
    let drawn = rows.iter().map(|group| {
        let (precision, gpus) = (shared(group, precision), shared(group, gpus));
        let of_row = |value: &Option<Option<String>>| {
            let known = value.clone().flatten();
            known.map_or(Value::Missing, Value::Text)
        };
        let mut cells = vec![
            Value::text(&group.rows[0].launch.model),
            Value::Text(group.rows[0].scenario()),
            Value::Text(described(group.metric())),
            of_row(&precision),
            of_row(&gpus),
        ];
        let own = [precision.is_none(), gpus.is_none()];
        cells.extend(engines.iter().map(|engine| {
            let of_engine: Vec<String> = (0..group.rows.len())
                .filter(|at| column_of(group.rows[*at]) == *engine)
                .map(|at| told(group, at, own, &everywhere, &mut said))
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
        notes: notes(&rows, &engines, groups.len() - rows.len(), &said, &everywhere),
    }
}

/// The name of a cell's column: the engine, with the run if there are several.
fn column_of(one: &Shown<'_>) -> String {
    match one.run {
        "" => one.engine(),
        run => format!("{} {run}", one.engine()),
    }
}

/// A metric with its unit and better direction.
fn described(metric: Metric) -> String {
    let unit = match metric.unit() {
        // Times carry their unit in each value.
        Unit::Millis => String::new(),
        unit => format!(", {}", unit.symbol()),
    };
    let less = match better(metric) {
        Better::Higher => "",
        Better::Lower => ", less is better",
    };
    format!("{}{unit}{less}", metric.label())
}

/// Formats a value; times get a unit that suits their size.
fn valued(metric: Metric, value: f64) -> String {
    match metric.unit() {
        Unit::Millis if value >= 600_000.0 => format!("{:.1} min", value / 60_000.0),
        Unit::Millis if value >= 10_000.0 => format!("{:.1} s", value / 1000.0),
        Unit::Millis => format!("{value:.1} ms"),
        Unit::RequestsPerSecond => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

fn precision(one: &Shown<'_>) -> Option<String> {
    one.launch.precision.clone()
}

/// The number of GPUs; `?` if unknown, `None` without GPUs.
fn gpus(one: &Shown<'_>) -> Option<String> {
    match (lacks(one, Unknown::Gpus), one.launch.gpus().unwrap_or(0)) {
        (true, _) => Some("?".to_owned()),
        (false, 0) => None,
        (false, count) => Some(count.to_string()),
    }
}

/// The value that all rows of a group share; the outer `None` if they differ.
fn shared(group: &Group<'_, '_>, of: fn(&Shown<'_>) -> Option<String>) -> Option<Option<String>> {
    let first = of(group.rows[0]);
    group.rows.iter().all(|one| of(one) == first).then_some(first)
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
fn told(
    group: &Group<'_, '_>,
    at: usize,
    [has_precision, has_gpus]: [bool; 2],
    everywhere: &[Mark],
    said: &mut Reasons,
) -> String {
    let one = group.rows[at];
    let Some(value) = one.value(group.metric()).filter(|_| one.is_done()) else {
        return super::status(one);
    };
    let valued = valued(group.metric(), value);
    let mut words = vec![match sampled(one, group.metric()) {
        Sampled::Enough => valued,
        Sampled::Few | Sampled::TooFew => format!("~{valued}"),
    }];
    words.extend(precision(one).filter(|_| has_precision));
    words.extend(gpus(one).filter(|_| has_gpus).map(|count| match count.as_str() {
        "1" => "1 GPU".to_owned(),
        count => format!("{count} GPUs"),
    }));
    match &group.held[at] {
        Held::Ratio(ratio, apart) if ratio.is_reference => {
            if !apart.is_empty() {
                words.push("≠".to_owned());
                said.add(column_of(one), format!("no ratio: {}", apart.join(", ")));
            }
        }
        Held::Ratio(ratio, beside) => {
            let of_one = if ratio.is_of_one_start() { " n=1" } else { "" };
            words.push(format!("{:.2}×{of_one}", ratio.value));
            if is_striking(ratio.value) {
                said.add(column_of(one), striking());
            }
            if !beside.is_empty() {
                said.add(column_of(one), format!("with differences: {}", beside.join(", ")));
            }
        }
        Held::Refused(why, per_gpu) => {
            let per_gpu = per_gpu.map(|ratio| format!("{ratio:.2}× per GPU"));
            words.push(per_gpu.unwrap_or_else(|| "≠".to_owned()));
            said.add(column_of(one), format!("no ratio: {}", why.join(", ")));
        }
    }
    let mut marks = one.marks();
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
    said: &Reasons,
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
        "×: of the metric of {reference} in the same row, n=1 of a single start on one side; ≠: the two may not be compared"
    )];
    if everywhere.contains(&Mark::Simulated) {
        notes.push(
            "every cell was measured on the simulated engine; says nothing about a real one".to_owned(),
        );
    }
    let is_rough = |group: &&Group<'_, '_>| {
        let mut shown = group.rows.iter().filter(|one| one.is_done());
        shown.any(|one| sampled(one, group.metric()) != Sampled::Enough)
    };
    notes.extend(rows.iter().any(is_rough).then(rough_explained));
    for (engine, reason) in &said.order {
        let rows = said.rows[&(engine.clone(), reason.clone())];
        let rows = if rows == 1 {
            "1 row".to_owned()
        } else {
            format!("{rows} rows")
        };
        notes.push(format!("{engine}, {rows}: {reason}"));
    }
    let group: Vec<(String, &Shown<'_>)> = rows
        .iter()
        .flat_map(|group| group.rows.iter().map(|one| (column_of(one), *one)))
        .collect();
    for engine in engines {
        let imported = group
            .iter()
            .filter(|(name, one)| name == engine && one.origin() == Origin::Imported);
        let mut sources: Vec<String> = imported
            .flat_map(|(_, one)| &one.summaries)
            .filter_map(|summary| summary.imported.as_ref())
            .map(|imported| {
                format!(
                    "read from {}, measured with {}",
                    imported.file,
                    imported.tool.name()
                )
            })
            .collect();
        sources.sort();
        sources.dedup();
        notes.extend(sources.into_iter().map(|source| format!("{engine}: {source}")));
    }
    notes.extend(queue_bound(&group));
    if alone > 0 {
        notes.push(format!(
            "{alone} more {} of one engine alone",
            if alone == 1 { "row is" } else { "rows are" }
        ));
    }
    notes
}
