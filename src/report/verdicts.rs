//! A comparison of two sides as tables: what differs first, then a row for each gating figure of each cell.

use super::labels::Labels;
use super::{Align, Column, MISSING, Mark, Row, Table, Value};
use crate::base::ids::CellKey;
use crate::judge::compare::cells::{Comparison, Outcome, Row as Judged};
use crate::judge::compare::verdict::{Verdict, chance};
use crate::judge::metrics::{Statistics, Unit};
use crate::results::record::side::Varies;

/// The tables of a comparison: what differs besides figures, where anything does, and the verdicts.
pub fn tables(comparison: &Comparison, names: [&str; 2]) -> Vec<Table> {
    let mut tables = Vec::new();
    tables.extend((!comparison.differences.is_empty()).then(|| differences(comparison, names)));
    tables.push(verdicts(comparison, names));
    tables
}

fn differences(comparison: &Comparison, names: [&str; 2]) -> Table {
    let rows = comparison.differences.iter().map(|(difference, cells)| Row {
        cells: vec![
            Value::text(difference.kind.name()),
            Value::text(&difference.what),
            Value::text(&difference.before),
            Value::text(&difference.after),
            match cells.len() {
                0 => Value::text("all"),
                n => Value::Count(n as u64),
            },
        ],
        marks: Vec::new(),
    });
    let mut notes = vec!["a changed environment is an event with this name, not a regression".to_owned()];
    notes.retain(|_| {
        comparison
            .differences
            .iter()
            .any(|(difference, _)| difference.kind.forbids())
    });
    Table {
        title: "What differs".to_owned(),
        columns: vec![
            words("of the", 0),
            words("what", 0),
            words(names[0], 0),
            words(names[1], 0),
            numbers("cells", "", 1),
        ],
        rows: rows.collect(),
        notes,
    }
}

fn verdicts(comparison: &Comparison, names: [&str; 2]) -> Table {
    // What holds of several cells is said once.
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    let unpaired = comparison.unpaired.iter().map(|(cell, _)| cell);
    let labels = Labels::of(comparison.rows.iter().map(|row| &row.cell).chain(unpaired));
    let mut say = |cell, what: String| match said.iter_mut().find(|(known, _)| *known == what) {
        Some((_, cells)) => cells.push(cell),
        None => said.push((what, vec![cell])),
    };
    for row in &comparison.rows {
        let cell = labels.name(&row.cell);
        if row.outcome.verdict() != Some(Verdict::Same) {
            say(
                cell.clone(),
                format!("{}: {}", row.outcome.word(), row.outcome.reason()),
            );
        }
        for left in &row.left_out {
            say(cell.clone(), format!("left out: {left}"));
        }
    }
    let mut notes: Vec<String> = said
        .into_iter()
        .map(|(what, cells)| match &cells[..] {
            [cell] => format!("{cell}: {what}"),
            cells if cells.len() == comparison.rows.len() => format!("all {} cells: {what}", cells.len()),
            cells => format!("{what}: {}", cells.join("; ")),
        })
        .collect();
    let rows = comparison.rows.iter().map(|row| Row {
        cells: values(row, &labels.name(&row.cell)),
        marks: match row.outcome {
            Outcome::Refused(..) => vec![Mark::Failed],
            Outcome::Judged(..) => Vec::new(),
        },
    });
    let rows = rows.collect();
    for (cell, side) in &comparison.unpaired {
        notes.push(format!("{}: only in the {side}", labels.name(cell)));
    }
    notes.extend(labels.left_out.clone());
    notes.push(
        "a start of the engine is one observation; change: candidate relative to baseline with its 95 % interval; floor: the smallest \
         change that counts"
            .to_owned(),
    );
    if comparison.rows.iter().any(|row| row.known != [None, None]) {
        notes.push(
            "a percentile with two bounds: where the requests of one start alone let it lie, with 95 % confidence by order statistics"
                .to_owned(),
        );
    }
    if comparison.rows.iter().any(|row| !row.is_noise_known) {
        notes.push(
            "where ± is missing, the noise of this machine is not known: measure it with `matrix noise`"
                .to_owned(),
        );
    }
    Table {
        title: format!("{} against {}", names[1], names[0]),
        columns: vec![
            words("cell", 0),
            words("figure", 0),
            numbers(names[0], "", 1),
            numbers(names[1], "", 1),
            numbers("n", "", 2),
            numbers("change", "", 0),
            numbers("interval", "", 0),
            numbers("floor", "", 1),
            numbers("p", "", 3),
            words("test", 4),
            numbers("within / between", "", 4),
            words("verdict", 0),
        ],
        rows,
        notes,
    }
}

fn values(row: &Judged, name: &str) -> Vec<Value> {
    let effect = row.effect.as_ref();
    let told = |text: Option<String>| text.map_or(Value::Missing, Value::Text);
    let share = |variance: Option<f64>| {
        variance.map_or_else(
            || MISSING.to_owned(),
            |variance| format!("{:.2} %", variance.sqrt() * 100.0),
        )
    };
    vec![
        Value::text(name),
        Value::Text(format!("{}{}", row.metric.label(), unit(row.metric.unit()))),
        median(&row.first, row.known[0]),
        median(&row.second, row.known[1]),
        Value::Text(format!("{} / {}", row.first.len(), row.second.len())),
        told(effect.map(|effect| percent(effect.change))),
        told(effect.map(|effect| {
            format!(
                "{} … {}",
                percent(effect.interval.low),
                percent(effect.interval.high)
            )
        })),
        Value::Text(format!(
            "{}{:.1} %",
            if row.is_noise_known { "±" } else { "" },
            row.floor * 100.0
        )),
        told(effect.map(|effect| chance(effect.p))),
        told(effect.map(|effect| effect.test.name().to_owned())),
        Value::Text(format!(
            "{} / {}",
            share(row.spread.within),
            share(row.spread.between)
        )),
        Value::text(row.outcome.word()),
    ]
}

pub(super) fn unit(unit: Unit) -> String {
    match unit.symbol() {
        "" => String::new(),
        symbol => format!(", {symbol}"),
    }
}

fn median(starts: &[f64], known: Option<[f64; 2]>) -> Value {
    let Some(Statistics { median, .. }) = Statistics::of(starts) else {
        return Value::Missing;
    };
    match known {
        Some([least, most]) => Value::Spread {
            median,
            least,
            most,
            decimals: 2,
        },
        None => Value::Number {
            value: median,
            decimals: 2,
        },
    }
}

/// A share as people read a change.
pub fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

pub(super) fn words(head: &str, rank: u8) -> Column {
    column(head, "", Align::Left, rank)
}

pub(super) fn numbers(head: &str, unit: &'static str, rank: u8) -> Column {
    column(head, unit, Align::Right, rank)
}

fn column(head: &str, unit: &'static str, align: Align, rank: u8) -> Column {
    Column {
        head: head.to_owned(),
        unit,
        align,
        better: None,
        rank,
    }
}

/// A comparison as JSON, for machines.
pub fn json(comparison: &Comparison) -> serde_json::Value {
    let rows: Vec<serde_json::Value> = comparison
        .rows
        .iter()
        .map(|row| {
            serde_json::json!({
                "cell": row.cell,
                "figure": row.metric.name(),
                "verdict": row.outcome.verdict().map(Verdict::name),
                "refused": row.outcome.verdict().is_none().then(|| row.outcome.word()),
                "reason": row.outcome.reason(),
                "baseline_starts": row.first,
                "candidate_starts": row.second,
                "baseline_interval": row.known[0],
                "candidate_interval": row.known[1],
                "change_share": row.effect.map(|effect| effect.change),
                "interval_share": row.effect.map(|effect| [effect.interval.low, effect.interval.high]),
                "p": row.effect.map(|effect| effect.p),
                "test": row.effect.map(|effect| effect.test.name()),
                "floor_share": row.floor,
                "is_noise_known": row.is_noise_known,
                "within_share": row.spread.within.map(f64::sqrt),
                "between_share": row.spread.between.map(f64::sqrt),
                "left_out": row.left_out,
            })
        })
        .collect();
    let differences: Vec<serde_json::Value> = comparison
        .differences
        .iter()
        .map(|(difference, cells)| {
            serde_json::json!({
                "of": difference.kind.name(),
                "what": difference.what,
                "before": difference.before,
                "after": difference.after,
                "cells": cells,
            })
        })
        .collect();
    let unpaired: Vec<serde_json::Value> = comparison
        .unpaired
        .iter()
        .map(|(cell, side)| serde_json::json!({ "cell": cell, "only_in": side }))
        .collect();
    serde_json::json!({ "differences": differences, "rows": rows, "unpaired": unpaired })
}

/// What figures vary by though nothing changed: cell, figure, noise, and the smallest change that five starts against five show.
pub fn noise<'a>(rows: impl Iterator<Item = (&'a CellKey, &'a str, &'a Varies, f64)>) -> Table {
    let share = |share: f64| Value::Text(format!("{:.2} %", share * 100.0));
    let rows: Vec<_> = rows.collect();
    let labels = Labels::of(rows.iter().map(|(cell, ..)| *cell));
    let row = |(cell, figure, varies, visible): (&CellKey, &str, &Varies, f64)| Row {
        cells: vec![
            Value::Text(labels.name(cell)),
            Value::text(figure),
            Value::Count(varies.starts.into()),
            varies.within_share.map_or(Value::Missing, share),
            share(varies.between_share),
            Value::text(percent(varies.difference_share)),
            share(visible),
        ],
        marks: Vec::new(),
    };
    Table {
        title: "Noise of this machine".to_owned(),
        columns: vec![
            words("cell", 0),
            words("figure", 0),
            numbers("starts", "", 2),
            numbers("within starts", "", 1),
            numbers("between starts", "", 1),
            numbers("A against B", "", 1),
            numbers("visible change", "", 0),
        ],
        notes: labels
            .left_out
            .clone()
            .into_iter()
            .chain(["visible change: the smallest that five starts against five show nine times of ten; below it nothing is said".to_owned()])
            .collect(),
        rows: rows.into_iter().map(row).collect(),
    }
}
