//! Draws the comparison of two sides: a headline, the differences, and a row for each gating metric of each
//! cell.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::labels::Labels;
use super::{Align, Column, MISSING, Mark, Row, Table, Value};
use crate::analysis::compare::decision::{EQUIVALENCE_LEVEL, Estimate, LEVEL, Outcome};
use crate::analysis::compare::pairwise::{Comparison, Row as Judged, Suspicion};
use crate::analysis::compare::verdict::{Verdict, chance};
use crate::analysis::metrics::Unit;
use crate::base::ids::CellKey;
use crate::base::text::counted;
use crate::results::record::cell_stats::Varies;

/// One line with the number of metrics that were not judged and the verdicts of the others, then the reasons
/// and the failures.
pub(crate) fn headline(comparison: &Comparison) -> String {
    let (all, judged) = (comparison.figures(), comparison.judged());
    let counts = [Verdict::Worse, Verdict::Better, Verdict::Unclear, Verdict::Same]
        .map(|verdict| (comparison.count(verdict), verdict.name()));
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
    let rows = comparison.rows.iter();
    let doubtful = rows.filter(|row| row.verdict().is_some() && !row.suspect.is_empty());
    let counts = match doubtful.count() {
        0 => counts.join(", "),
        doubtful => format!("{} ({doubtful} on suspect measurements)", counts.join(", ")),
    };
    let missing = all - judged;
    let mut out = match (missing, judged) {
        (0, _) => format!("{judged} of {all} metrics judged: {counts}\n"),
        (_, 0) => format!("{missing} of {all} metrics not judged\n"),
        _ => format!("{missing} of {all} metrics not judged, {judged} judged: {counts}\n"),
    };
    for (why, count) in not_judged(comparison) {
        let _ = writeln!(out, "- {count}: {why}");
    }
    for ((is_regression, what), cells) in failed(comparison) {
        let word = if is_regression { "less reliable" } else { "unclear" };
        let _ = writeln!(out, "{word}: {what}: {cells}");
    }
    out
}

/// Losses of reliability with the cells that show them, by whether they are a regression and by their text.
fn failed(comparison: &Comparison) -> BTreeMap<(bool, &str), String> {
    let labels = Labels::of(comparison.rows.iter().map(|row| &row.cell));
    let mut found: BTreeMap<(bool, &str), String> = BTreeMap::new();
    for failure in &comparison.failures {
        let cells = found.entry((failure.is_regression, &failure.text)).or_default();
        if !cells.is_empty() {
            cells.push_str("; ");
        }
        cells.push_str(&labels.name(&failure.cell));
    }
    found
}

/// Why metrics were not judged, with the number of metrics for each reason, the most frequent first.
fn not_judged(comparison: &Comparison) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in &comparison.rows {
        if let Outcome::NotJudged(gap) = &row.answer.outcome {
            *counts.entry(gap.reason().to_owned()).or_default() += 1;
        }
    }
    for lost in comparison.lost() {
        *counts
            .entry("the candidate lacks the cell".to_owned())
            .or_default() += lost.gates;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// The tables of a comparison: differences besides figures, if any, and the verdicts.
pub(crate) fn tables(comparison: &Comparison, names: [&str; 2]) -> Vec<Table> {
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
    // A note that holds for several cells is printed once.
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    let unpaired = comparison.unpaired.iter().map(|unpaired| &unpaired.cell);
    let labels = Labels::of(comparison.rows.iter().map(|row| &row.cell).chain(unpaired));
    let mut say = |cell, what: String| match said.iter_mut().find(|(known, _)| *known == what) {
        Some((_, cells)) => cells.push(cell),
        None => said.push((what, vec![cell])),
    };
    for row in &comparison.rows {
        let cell = labels.name(&row.cell);
        if row.verdict() != Some(Verdict::Same) || row.attached.contains(&true) {
            say(cell.clone(), format!("{}: {}", row.word(), row.reason()));
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
    notes.extend(suspicions(comparison, &labels));
    let rows = comparison.rows.iter().map(|row| Row {
        cells: values(row, &labels.name(&row.cell)),
        marks: marks(row),
    });
    let rows = rows.collect();
    for unpaired in &comparison.unpaired {
        notes.push(format!(
            "{}: only in the {}",
            labels.name(&unpaired.cell),
            unpaired.side
        ));
    }
    notes.extend(labels.left_out.clone());
    notes.push(format!(
        "a start of the engine (of a running server, a repeat) is one observation, a value the geometric mean of these; change: candidate relative to baseline with its {:.0} % \
         interval; worse, better: beyond the practical bound of {:.1} % and beyond chance among all metrics; same: the {:.0} % interval lies within \
         the bound; can show: the smallest loss that these starts show nine times of ten",
        LEVEL * 100.0,
        comparison.bound * 100.0,
        EQUIVALENCE_LEVEL * 100.0,
    ));
    if comparison.rows.iter().any(|row| row.known != [None, None]) {
        notes.push(
            "a percentile with two bounds: where the requests of one start alone let it lie, with 95 % confidence by order statistics"
                .to_owned(),
        );
    }
    let mut judged = comparison.rows.iter().filter(|row| row.verdict().is_some());
    if judged.any(|row| !row.answer.knows_drift()) {
        notes.push(
            "the sides were not measured in turn: what the host changes by from one to the other is in no error, and can look like a change of the \
             engine; `matrix compare RUN --arms` on a run whose engines or versions alternate takes it out"
                .to_owned(),
        );
    }
    // Noise is not used between two attached servers.
    let may_use_noise = |row: &Judged| row.attached != [true; 2] && row.noise.is_none();
    if comparison.rows.iter().any(may_use_noise) {
        notes.push(
            "where noise is missing, that of this host is not known: measure it with `matrix noise`, and three starts per side are enough"
                .to_owned(),
        );
    }
    Table {
        title: format!("{} against {}", names[1], names[0]),
        columns: vec![
            words("cell", 0),
            words("figure", 0),
            numbers(names[0], "", 0),
            numbers(names[1], "", 0),
            numbers("n", "", 1),
            numbers("change", "", 0),
            numbers("interval", "", 0),
            numbers("p", "", 2),
            numbers("can show", "", 2),
            numbers("noise", "", 3),
            numbers("within / between", "", 4),
            words("verdict", 0),
        ],
        rows,
        notes,
    }
}

/// Reasons for which measurements are suspect: a line for each code on each side, with the number of cells.
/// `--format json` lists all.
fn suspicions(comparison: &Comparison, labels: &Labels) -> Vec<String> {
    let mut found: BTreeMap<(&str, &str), BTreeMap<&CellKey, Vec<&Suspicion>>> = BTreeMap::new();
    for row in &comparison.rows {
        for suspicion in &row.suspect {
            let cells = found.entry((suspicion.side, suspicion.code())).or_default();
            let known = cells.entry(&row.cell).or_default();
            // Several metrics of a cell have the same suspicion.
            if !known.contains(&suspicion) {
                known.push(suspicion);
            }
        }
    }
    let line = |((side, _), cells): (&(&str, &str), &BTreeMap<&CellKey, Vec<&Suspicion>>)| {
        let (cell, of_cell) = cells.iter().next()?;
        let first = of_cell.first()?;
        let starts = |found: &Vec<&Suspicion>| {
            let starts: BTreeSet<u32> = found.iter().flat_map(|one| one.starts.iter().copied()).collect();
            starts.len()
        };
        let all: usize = cells.values().map(starts).sum();
        Some(match (cells.len(), of_cell.len()) {
            (1, 1) => format!("{}: suspect: {first}", labels.name(cell)),
            (1, _) => format!(
                "{}: suspect: {side}, {}: {} and the like",
                labels.name(cell),
                counted(all, "start", "starts"),
                first.reason
            ),
            (count, _) => format!(
                "suspect: {side}, {} of {count} cells: {} and the like",
                counted(all, "start", "starts"),
                first.reason
            ),
        })
    };
    found.iter().filter_map(line).collect()
}

fn marks(row: &Judged) -> Vec<Mark> {
    let refused = row.refused.map(|_| Mark::Failed);
    let suspect = (!row.suspect.is_empty()).then_some(Mark::Suspect);
    refused.into_iter().chain(suspect).collect()
}

fn values(row: &Judged, name: &str) -> Vec<Value> {
    let estimate = row.estimate();
    let told = |text: Option<String>| text.map_or(Value::Missing, Value::Text);
    let share = |share: f64| format!("{:.2} %", share * 100.0);
    let deviation = |variance: Option<f64>| {
        variance.map_or_else(|| MISSING.to_owned(), |variance| share(variance.sqrt()))
    };
    let p = |estimate: Estimate| {
        let precision = estimate.precision?;
        Some(chance(precision.adjusted_p.unwrap_or(precision.p)))
    };
    let between = |estimate: Estimate| {
        let interval = estimate.interval(LEVEL)?;
        Some(format!("{} … {}", percent(interval.low), percent(interval.high)))
    };
    vec![
        Value::text(name),
        Value::Text(format!("{}{}", row.metric.label(), unit(row.metric.unit()))),
        value(row.value(0), row.known[0]),
        value(row.value(1), row.known[1]),
        Value::Text(format!("{} / {}", row.answer.starts[0], row.answer.starts[1])),
        told(
            row.change_of_zero()
                .map(str::to_owned)
                .or_else(|| Some(percent(estimate?.change()))),
        ),
        told(
            estimate
                .filter(|_| row.change_of_zero().is_none())
                .and_then(between),
        ),
        told(estimate.and_then(p)),
        told(
            estimate
                .and_then(|_| row.answer.visible_loss())
                .map(|loss| format!("{:.1} %", loss * 100.0)),
        ),
        told(row.noise.map(|noise| share(noise.sigma))),
        Value::Text(format!(
            "{} / {}",
            deviation(row.spread.within),
            deviation(row.spread.between)
        )),
        Value::text(row.word()),
    ]
}

pub(super) fn unit(unit: Unit) -> String {
    match unit.symbol() {
        "" => String::new(),
        symbol => format!(", {symbol}"),
    }
}

fn value(value: Option<f64>, known: Option<[f64; 2]>) -> Value {
    match (value, known) {
        (None, _) => Value::Missing,
        // The bounds are those of one start; the mean of several starts may lie outside, and is then printed
        // alone.
        (Some(median), Some([least, most])) if (least..=most).contains(&median) => Value::Spread {
            median,
            least,
            most,
            decimals: 2,
        },
        (Some(value), _) => Value::Number { value, decimals: 2 },
    }
}

/// Formats a change in percent, with its sign.
pub(crate) fn percent(share: f64) -> String {
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

pub(crate) fn json(comparison: &Comparison) -> serde_json::Value {
    let rows: Vec<serde_json::Value> = comparison.rows.iter().map(judged).collect();
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
        .map(|unpaired| serde_json::json!({ "cell": unpaired.cell, "only_in": unpaired.side }))
        .collect();
    serde_json::json!({
        "figures": comparison.figures(),
        "judged": comparison.judged(),
        "bound_share": comparison.bound,
        "failures": comparison.failures.iter().map(|failure| serde_json::json!({
            "cell": failure.cell, "text": failure.text, "is_regression": failure.is_regression,
        })).collect::<Vec<_>>(),
        "differences": differences,
        "rows": rows,
        "unpaired": unpaired,
    })
}

fn judged(row: &Judged) -> serde_json::Value {
    let answer = &row.answer;
    let precision = row.estimate().and_then(|estimate| estimate.precision);
    let starts = |at: usize| -> Vec<f64> {
        let value = |log: &f64| if row.is_zero[at] { 0.0 } else { log.exp() };
        row.samples[at].logs.iter().map(value).collect()
    };
    let estimate = row.estimate().filter(|_| row.change_of_zero().is_none());
    let interval = estimate.and_then(|estimate| estimate.interval(LEVEL));
    let to_zero = (row.is_zero == [false, true]).then_some(-1.0);
    let gap = match &answer.outcome {
        Outcome::Judged(_) => None,
        Outcome::NotJudged(gap) => Some(gap.name()),
    };
    serde_json::json!({
        "cell": row.cell,
        "figure": row.metric.name(),
        "verdict": answer.verdict().map(Verdict::name),
        "not_judged": gap,
        "refused": row.refused.map(|_| row.word()),
        "reason": row.reason(),
        "baseline_starts": starts(0),
        "candidate_starts": starts(1),
        "baseline": row.value(0),
        "candidate": row.value(1),
        "baseline_interval": row.known[0],
        "candidate_interval": row.known[1],
        "change_share": estimate.map(|estimate| estimate.change()).or(to_zero),
        "interval_share": interval.map(|interval| [interval.low, interval.high]),
        "p": precision.map(|precision| precision.p),
        "adjusted_p": precision.and_then(|precision| precision.adjusted_p),
        "df": precision.map(|precision| precision.df),
        "visible_loss_share": precision.and_then(|_| answer.visible_loss()),
        "starts_to_decide": answer.starts_to_decide(),
        "knows_drift": answer.knows_drift(),
        "is_noise_known": row.noise.is_some(),
        "noise_share": row.noise.map(|noise| noise.sigma),
        "within_share": row.spread.within.map(f64::sqrt),
        "between_share": row.spread.between.map(f64::sqrt),
        "left_out": row.left_out,
        "suspect": row.suspect.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// Noise of figures between unchanged runs: cell, metric, noise, and the smallest change that five starts
/// against five can show.
pub(crate) fn noise<'a>(rows: impl Iterator<Item = (&'a CellKey, &'a str, &'a Varies, f64)>) -> Table {
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
            varies.bound_share.map_or(Value::Missing, share),
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
            numbers("at most", "", 1),
            numbers("A against B", "", 1),
            numbers("visible change", "", 0),
        ],
        notes: labels
            .left_out
            .clone()
            .into_iter()
            .chain(["at most: what all starts vary by, its upper bound at 80 % confidence; visible change: with that, the smallest that five starts against five show nine times of ten".to_owned()])
            .collect(),
        rows: rows.into_iter().map(row).collect(),
    }
}
