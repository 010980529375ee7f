//! Draws the comparison of two sides: a headline, the differences, and a row for each gating metric of each
//! cell.

pub(crate) mod json;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::labels::Labels;
use super::table::{Align, Column, MISSING, Mark, Row, Table, Value};
use crate::analysis::compare::decision::{CONFIDENCE, EQUIVALENCE_CONFIDENCE, Estimate, Outcome};
use crate::analysis::compare::pairwise::Comparison;
use crate::analysis::compare::pairwise::row::Row as Judged;
use crate::analysis::compare::pairwise::suspect_starts::SuspectStarts;
use crate::analysis::compare::verdict::{Verdict, p_in_words};
use crate::analysis::metrics::Unit;
use crate::base::ids::CellKey;
use crate::base::text::pluralize;

/// The headline of a comparison, and its tables separated by empty lines.
pub(crate) fn text(compared: &Comparison, names: [&str; 2], draw: impl Fn(&Table) -> String) -> String {
    let tables: Vec<String> = tables(compared, names).iter().map(draw).collect();
    format!("{}\n{}", headline(compared), tables.join("\n"))
}

/// One line with the number of metrics that were not judged and the verdicts of the others, then the reasons
/// and the failures.
pub(crate) fn headline(comparison: &Comparison) -> String {
    let (total, judged) = (comparison.figure_count(), comparison.judged_count());
    let counts = [Verdict::Worse, Verdict::Better, Verdict::Unclear, Verdict::Same]
        .map(|verdict| (comparison.count_verdict(verdict), verdict.name()));
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
    let rows = comparison.rows.iter();
    let doubtful = rows.filter(|row| row.verdict().is_some() && !row.suspect_starts.is_empty());
    let counts = match doubtful.count() {
        0 => counts.join(", "),
        doubtful => format!("{} ({doubtful} on suspect measurements)", counts.join(", ")),
    };
    let missing = total - judged;
    let mut out = match (missing, judged) {
        (0, _) => format!("{judged} of {total} metrics judged: {counts}\n"),
        (_, 0) => format!("{missing} of {total} metrics not judged\n"),
        _ => format!("{missing} of {total} metrics not judged, {judged} judged: {counts}\n"),
    };
    for (why, count) in unjudged_reasons(comparison) {
        let _ = writeln!(out, "- {count}: {why}");
    }
    for ((is_regression, what), cells) in failures_with_cells(comparison) {
        let word = if is_regression { "less reliable" } else { "unclear" };
        let _ = writeln!(out, "{word}: {what}: {cells}");
    }
    out
}

/// Losses of reliability with the cells that show them, by whether they are a regression and by their text.
fn failures_with_cells(comparison: &Comparison) -> BTreeMap<(bool, &str), String> {
    let labels = Labels::from_keys(comparison.rows.iter().map(|row| &row.cell));
    let mut cells_by_failure: BTreeMap<(bool, &str), String> = BTreeMap::new();
    for failure in &comparison.failures {
        let cells = cells_by_failure
            .entry((failure.is_regression, &failure.text))
            .or_default();
        if !cells.is_empty() {
            cells.push_str("; ");
        }
        cells.push_str(&labels.name(&failure.cell));
    }
    cells_by_failure
}

/// Why metrics were not judged, with the number of metrics for each reason, the most frequent first.
fn unjudged_reasons(comparison: &Comparison) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in &comparison.rows {
        if let Outcome::NotJudged(gap) = &row.answer.outcome {
            *counts.entry(gap.reason().to_owned()).or_default() += 1;
        }
    }
    for lost in comparison.lost_cells() {
        *counts
            .entry("the cell is missing in the candidate".to_owned())
            .or_default() += lost.gating_metrics;
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
    let mut notes = vec!["if the environment or the load differs, no verdict is possible; this is reported as a difference, not as a regression".to_owned()];
    notes.retain(|_| {
        comparison
            .differences
            .iter()
            .any(|(difference, _)| difference.kind.forbids_verdict())
    });
    Table {
        title: "Differences".to_owned(),
        columns: vec![
            text_column("kind", 0),
            text_column("what", 0),
            text_column(names[0], 0),
            text_column(names[1], 0),
            number_column("cells", "", 1),
        ],
        rows: rows.collect(),
        notes,
    }
}

fn verdicts(comparison: &Comparison, names: [&str; 2]) -> Table {
    let unpaired = comparison.unpaired_cells.iter().map(|unpaired| &unpaired.cell);
    let labels = Labels::from_keys(comparison.rows.iter().map(|row| &row.cell).chain(unpaired));
    let mut notes = row_notes(comparison, &labels);
    notes.extend(suspect_notes(comparison, &labels));
    let rows = comparison.rows.iter().map(|row| Row {
        cells: values(row, &labels.name(&row.cell)),
        marks: row_marks(row),
    });
    let rows = rows.collect();
    for unpaired in &comparison.unpaired_cells {
        notes.push(format!(
            "{}: only in the {}",
            labels.name(&unpaired.cell),
            unpaired.side
        ));
    }
    notes.extend(labels.left_out.clone());
    notes.extend(legend_notes(comparison));
    Table {
        title: format!("{} against {}", names[1], names[0]),
        columns: vec![
            text_column("cell", 0),
            text_column("figure", 0),
            number_column(names[0], "", 0),
            number_column(names[1], "", 0),
            number_column("n", "", 1),
            number_column("change", "", 0),
            number_column("interval", "", 0),
            number_column("p", "", 2),
            number_column("can show", "", 2),
            number_column("noise", "", 3),
            number_column("within / between", "", 4),
            text_column("verdict", 0),
        ],
        rows,
        notes,
    }
}

/// Reasons for the verdicts, and measurements that were left out.
fn row_notes(comparison: &Comparison, labels: &Labels) -> Vec<String> {
    // A note that holds for several cells is printed once.
    let mut remarks: Vec<(String, Vec<String>)> = Vec::new();
    let mut say = |cell, what: String| match remarks.iter_mut().find(|(known, _)| *known == what) {
        Some((_, cells)) => cells.push(cell),
        None => remarks.push((what, vec![cell])),
    };
    for row in &comparison.rows {
        let cell = labels.name(&row.cell);
        if row.verdict() != Some(Verdict::Same) || row.are_attached.contains(&true) {
            say(cell.clone(), format!("{}: {}", row.verdict_word(), row.reason()));
        }
        for measurement in &row.excluded_measurements {
            say(cell.clone(), format!("left out: {measurement}"));
        }
    }
    remarks
        .into_iter()
        .map(|(what, cells)| match &cells[..] {
            [cell] => format!("{cell}: {what}"),
            cells if cells.len() == comparison.rows.len() => format!("all {} cells: {what}", cells.len()),
            cells => format!("{what}: {}", cells.join("; ")),
        })
        .collect()
}

/// What the columns mean, and what the verdicts do not cover.
fn legend_notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = vec![format!(
        "a value is the geometric mean over starts of the engine (over repeats on an attached server). The change is that of the candidate relative to the baseline, \
         with its {:.0} % interval. Worse or better: the change exceeds the practical bound of {:.1} % and is significant among all metrics. Same: the {:.0} % \
         interval is within the bound. Can show: the smallest loss that this number of starts detects with 90 % probability",
        CONFIDENCE * 100.0,
        comparison.bound * 100.0,
        EQUIVALENCE_CONFIDENCE * 100.0,
    )];
    if comparison
        .rows
        .iter()
        .any(|row| row.percentile_bounds != [None, None])
    {
        notes.push(
            "the two bounds after a percentile are its 95 % confidence interval within one start, computed by order statistics"
                .to_owned(),
        );
    }
    let mut judged = comparison.rows.iter().filter(|row| row.verdict().is_some());
    if judged.any(|row| !row.answer.knows_drift()) {
        notes.push(
            "the two sides were not measured alternately, so a drift of the host can look like a change of \
             the engine; to prevent this, alternate the engines or versions in one run and use `matrix compare RUN --arms`"
                .to_owned(),
        );
    }
    // Noise is not used between two attached servers.
    let may_use_noise = |row: &Judged| row.are_attached != [true; 2] && row.noise.is_none();
    if comparison.rows.iter().any(may_use_noise) {
        notes.push(
            "where no noise is shown, the noise of this host was not measured; measure it with `matrix noise`, and then three starts per side are enough"
                .to_owned(),
        );
    }
    notes
}

/// Reasons for which measurements are suspect: a line for each code on each side, with the number of cells.
/// `--format json` lists all.
fn suspect_notes(comparison: &Comparison, labels: &Labels) -> Vec<String> {
    let mut starts_by_code: BTreeMap<(&str, &str), BTreeMap<&CellKey, Vec<&SuspectStarts>>> = BTreeMap::new();
    for row in &comparison.rows {
        for suspicion in &row.suspect_starts {
            let cells = starts_by_code
                .entry((suspicion.side, suspicion.code()))
                .or_default();
            let known = cells.entry(&row.cell).or_default();
            // Several metrics of a cell have the same suspicion.
            if !known.contains(&suspicion) {
                known.push(suspicion);
            }
        }
    }
    let line = |((side, _), cells): (&(&str, &str), &BTreeMap<&CellKey, Vec<&SuspectStarts>>)| {
        let (cell, of_cell) = cells.iter().next()?;
        let first = of_cell.first()?;
        let starts = |starts_by_code: &Vec<&SuspectStarts>| {
            let starts: BTreeSet<u32> = starts_by_code
                .iter()
                .flat_map(|one| one.starts.iter().copied())
                .collect();
            starts.len()
        };
        let total: usize = cells.values().map(starts).sum();
        Some(match (cells.len(), of_cell.len()) {
            (1, 1) => format!("{}: suspect: {first}", labels.name(cell)),
            (1, _) => format!(
                "{}: measurements of the {side} are suspect on {}; for example: {}",
                labels.name(cell),
                pluralize(total, "start", "starts"),
                first.reason
            ),
            (count, _) => format!(
                "measurements of the {side} are suspect on {} in {count} cells; for example: {}",
                pluralize(total, "start", "starts"),
                first.reason
            ),
        })
    };
    starts_by_code.iter().filter_map(line).collect()
}

fn row_marks(row: &Judged) -> Vec<Mark> {
    let refused = row.refusal_cause.map(|_| Mark::Failed);
    let suspect = (!row.suspect_starts.is_empty()).then_some(Mark::Suspect);
    refused.into_iter().chain(suspect).collect()
}

fn values(row: &Judged, name: &str) -> Vec<Value> {
    let estimate = row.estimate();
    let optional_text = |text: Option<String>| text.map_or(Value::Missing, Value::Text);
    let share = |share: f64| format!("{:.2} %", share * 100.0);
    let deviation = |variance: Option<f64>| {
        variance.map_or_else(|| MISSING.to_owned(), |variance| share(variance.sqrt()))
    };
    let p = |estimate: Estimate| {
        let precision = estimate.precision?;
        Some(p_in_words(precision.adjusted_p.unwrap_or(precision.p)))
    };
    let between = |estimate: Estimate| {
        let interval = estimate.interval(CONFIDENCE)?;
        Some(format!("{} … {}", percent(interval.low), percent(interval.high)))
    };
    vec![
        Value::text(name),
        Value::Text(format!("{}{}", row.metric.label(), unit(row.metric.unit()))),
        value(row.value(0), row.percentile_bounds[0]),
        value(row.value(1), row.percentile_bounds[1]),
        Value::Text(format!("{} / {}", row.answer.starts[0], row.answer.starts[1])),
        optional_text(
            row.change_from_zero()
                .map(str::to_owned)
                .or_else(|| Some(percent(estimate?.change()))),
        ),
        optional_text(
            estimate
                .filter(|_| row.change_from_zero().is_none())
                .and_then(between),
        ),
        optional_text(estimate.and_then(p)),
        optional_text(
            estimate
                .and_then(|_| row.answer.smallest_detectable_loss())
                .map(|loss| format!("{:.1} %", loss * 100.0)),
        ),
        optional_text(row.noise.map(|noise| share(noise.sigma))),
        Value::Text(format!(
            "{} / {}",
            deviation(row.variance_components.within),
            deviation(row.variance_components.between)
        )),
        Value::text(row.verdict_word()),
    ]
}

pub(super) fn unit(unit: Unit) -> String {
    match unit.symbol() {
        "" => String::new(),
        symbol => format!(", {symbol}"),
    }
}

fn value(value: Option<f64>, bounds: Option<[f64; 2]>) -> Value {
    match (value, bounds) {
        (None, _) => Value::Missing,
        // The bounds are those of one start; the mean of several starts may lie outside, and is then printed
        // alone.
        (Some(median), Some([low, high])) if (low..=high).contains(&median) => Value::Spread {
            median,
            least: low,
            most: high,
            decimals: 2,
        },
        (Some(value), _) => Value::Number { value, decimals: 2 },
    }
}

/// Formats a change in percent, with its sign.
pub(crate) fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

pub(super) fn text_column(head: &str, rank: u8) -> Column {
    column(head, "", Align::Left, rank)
}

pub(super) fn number_column(head: &str, unit: &'static str, rank: u8) -> Column {
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
