//! Draws documents as CSV (RFC 4180).
//!
//! Text that a spreadsheet would take for a formula begins with `'`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::analysis::metrics::{Direction, Metric};
use crate::report::document::{CellFacts, ComparisonRow, ComparisonTable, Document, Figure, label, unit};
use crate::report::history::History;
use crate::report::table::single_line;
use crate::report::tables::{
    AnswerResult, AnswerScore, AnswersVersusReference, CapacityInterval, TierCapacity,
};
use crate::results::record::cell::{Definitions, Origin};

/// How many of [`REPORT_COLUMNS`] describe the cell.
const CELL_COLUMNS: usize = 26;

const REPORT_COLUMNS: [&str; 35] = [
    "run",
    "cell",
    "engine",
    "version",
    "model",
    "checkpoint",
    "precision",
    "tp",
    "pp",
    "dp",
    "ep",
    "gpus",
    "executor",
    "scenario",
    "rate_req_s",
    "concurrency",
    "prompts",
    "prompts_hash",
    "status",
    "origin",
    "validity",
    "findings",
    "reference",
    "ratio_to_reference",
    "ratio_least",
    "ratio_most",
    "definitions",
    "figure",
    "label",
    "unit",
    "better",
    "value",
    "least",
    "most",
    "measurements",
];

/// One row for each cell.
pub(super) fn report(document: &Document) -> String {
    cell_rows(document).into_iter().map(csv_line).collect()
}

/// One row for each figure of each cell.
pub(super) fn long_report(document: &Document) -> String {
    report_rows(document).into_iter().map(csv_line).collect()
}

pub(super) fn history(history: &History<'_>) -> String {
    history_rows(history).into_iter().map(csv_line).collect()
}

/// A header, then a row for each cell: what describes it, then its figures in the order of their names. Those under the definitions
/// `matrix`, for imported cells under those that they have; capacities have the ends of their interval beside them.
fn cell_rows(document: &Document) -> Vec<Vec<String>> {
    let placed = placed_rows(document);
    let values: Vec<BTreeMap<String, String>> = document.cells.iter().map(cell_values).collect();
    let names: BTreeSet<&String> = values.iter().flat_map(BTreeMap::keys).collect();
    let mut header: Vec<String> = REPORT_COLUMNS[..CELL_COLUMNS]
        .iter()
        .map(|&name| name.to_owned())
        .collect();
    header.extend(names.iter().map(|name| without_formulas(name)));
    let mut rows = vec![header];
    for (at, (cell, values)) in document.cells.iter().zip(&values).enumerate() {
        let mut row = cell_fields(cell, placed.get(&at).copied());
        row.extend(
            names
                .iter()
                .map(|name| values.get(*name).cloned().unwrap_or_default()),
        );
        rows.push(row);
    }
    rows
}

/// The figures of a cell, by the name of their column.
fn cell_values(cell: &CellFacts) -> BTreeMap<String, String> {
    let sets: &[Definitions] = match cell.origin {
        Origin::Imported => &[Definitions::Matrix, Definitions::Classic, Definitions::Current],
        Origin::Measured | Origin::Simulated => &[Definitions::Matrix],
    };
    let mut values = BTreeMap::new();
    for figures in sets.iter().rev().filter_map(|set| cell.figures.get(set)) {
        values.extend(
            figures
                .iter()
                .map(|(name, figure)| (name.clone(), figure.value.to_string())),
        );
    }
    for tier in &cell.capacities {
        for (suffix, capacity) in [("", &tier.capacity), ("_per_gpu", &tier.per_gpu)] {
            let Some(capacity) = capacity else { continue };
            let name = format!("{}{suffix}", tier.figure);
            values.insert(format!("{name}_least"), capacity.low.to_string());
            values.insert(format!("{name}_most"), capacity.high.to_string());
            values.insert(name, capacity.value.to_string());
        }
    }
    if let Some(cost) = &cell.cost {
        let costs = [
            ("cost_output_usd_per_million", Some(cost.output_usd_per_million)),
            ("cost_total_usd_per_million", cost.total_usd_per_million),
            ("cost_energy_usd_per_million", cost.energy_usd_per_million),
        ];
        let known = costs
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_string())));
        values.extend(known);
        values.insert(
            "cost_prices".to_owned(),
            without_formulas(&cost.prices.join("; ")),
        );
    }
    for score in &cell.answers {
        values.insert(
            format!("{}_correct_share", single_line(&score.task)),
            score.correct_share.to_string(),
        );
    }
    values
}

/// The row of each cell in the comparisons.
fn placed_rows(document: &Document) -> HashMap<usize, (&ComparisonTable, &ComparisonRow)> {
    let placed = document.comparisons.iter().flat_map(|comparison| {
        let rows = comparison.rows.iter();
        rows.map(move |row| (row.cell, (comparison, row)))
    });
    placed.collect()
}

/// A header, then a row for each cell, definition set and figure. A cell without figures has one row, so that
/// it is not overlooked.
pub(super) fn report_rows(document: &Document) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = vec![REPORT_COLUMNS.map(str::to_owned).into()];
    let placed = placed_rows(document);
    for (at, cell) in document.cells.iter().enumerate() {
        let leading_fields = cell_fields(cell, placed.get(&at).copied());
        let mut has_figures = false;
        for (definitions, figures) in &cell.figures {
            for (name, figure) in figures {
                has_figures = true;
                let mut fields = leading_fields.clone();
                fields.extend(figure_fields(*definitions, name, figure));
                rows.push(fields);
            }
        }
        let capacities = cell.capacities.iter().flat_map(capacity_fields);
        for row in capacities.chain(cell.answers.iter().flat_map(answer_fields)) {
            has_figures = true;
            let mut fields = leading_fields.clone();
            fields.extend(row);
            rows.push(fields);
        }
        if !has_figures {
            let mut fields = leading_fields;
            fields.resize(REPORT_COLUMNS.len(), String::new());
            rows.push(fields);
        }
    }
    rows
}

/// The fields that all rows of a cell share.
fn cell_fields(cell: &CellFacts, placed: Option<(&ComparisonTable, &ComparisonRow)>) -> Vec<String> {
    let mut findings: Vec<&str> = cell
        .measurements
        .iter()
        .flat_map(|measurement| &measurement.reasons)
        .map(|reason| reason.code.name())
        .collect();
    findings.sort_unstable();
    findings.dedup();
    let ratio = placed.and_then(|(_, row)| row.ratio.as_ref());
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let whole = |value: Option<u32>| value.map_or_else(String::new, |value| value.to_string());
    let text = |value: &Option<String>| without_formulas(value.as_deref().unwrap_or_default());
    vec![
        without_formulas(&cell.run),
        without_formulas(&cell.cell),
        without_formulas(&cell.engine_name),
        text(&cell.version),
        without_formulas(&cell.model),
        without_formulas(&cell.checkpoint),
        text(&cell.precision),
        whole(cell.tp),
        cell.pp.to_string(),
        cell.dp.to_string(),
        cell.ep.to_string(),
        whole(cell.gpus),
        cell.executor.clone(),
        without_formulas(&cell.scenario),
        number(cell.rate_req_s),
        whole(cell.concurrency),
        cell.prompts.to_string(),
        text(&cell.prompts_hash),
        without_formulas(&cell.status),
        cell.origin.name().to_owned(),
        match cell.measurements.iter().any(|one| one.ending == "done") {
            true => cell.validity.name().to_owned(),
            false => String::new(),
        },
        findings.join(" "),
        placed.map_or_else(String::new, |(comparison, _)| {
            without_formulas(&comparison.reference)
        }),
        number(ratio.map(|ratio| ratio.value)),
        number(ratio.and_then(|ratio| ratio.least)),
        number(ratio.and_then(|ratio| ratio.most)),
    ]
}

fn figure_fields(definitions: Definitions, name: &str, figure: &Figure) -> Vec<String> {
    let better = Metric::from_name(name).and_then(Metric::direction);
    vec![
        definitions.name().to_owned(),
        without_formulas(name),
        without_formulas(&label(name)),
        unit(name).to_owned(),
        match better {
            Some(Direction::Higher) => "higher".to_owned(),
            Some(Direction::Lower) => "lower".to_owned(),
            None => String::new(),
        },
        figure.value.to_string(),
        figure.least.to_string(),
        figure.most.to_string(),
        figure.values.len().to_string(),
    ]
}

/// The rows of the capacity for a tier, with its 95 % interval: as a whole, and for each GPU. None without a capacity.
fn capacity_fields(tier: &TierCapacity) -> Vec<Vec<String>> {
    let fields = |suffix: &str, words: &str, capacity: &CapacityInterval| {
        vec![
            "capacity".to_owned(),
            format!("{}{suffix}", tier.figure),
            without_formulas(&format!("capacity{words}: {}", tier.slo)),
            tier.unit.clone(),
            "higher".to_owned(),
            capacity.value.to_string(),
            capacity.low.to_string(),
            capacity.high.to_string(),
            capacity.starts.to_string(),
        ]
    };
    let whole = tier.capacity.iter().map(|capacity| fields("", "", capacity));
    let per_gpu = tier.per_gpu.iter();
    whole
        .chain(per_gpu.map(|capacity| fields("_per_gpu", " per GPU", capacity)))
        .collect()
}

/// The rows of a graded task: its share of correct answers with the 95 % interval, and the difference to the reference.
fn answer_fields(score: &AnswerScore) -> Vec<Vec<String>> {
    let fields = |name: &str, label: &str, value: f64, interval: [f64; 2], measurements: u32| {
        vec![
            "answers".to_owned(),
            without_formulas(&format!("{}_{name}", score.task)),
            without_formulas(&format!("{label}: {}", score.task)),
            String::new(),
            "higher".to_owned(),
            value.to_string(),
            interval[0].to_string(),
            interval[1].to_string(),
            measurements.to_string(),
        ]
    };
    let mut rows = vec![fields(
        "correct_share",
        "correct answers",
        score.correct_share,
        score.interval,
        score.measurements,
    )];
    if let Some(AnswersVersusReference {
        result: AnswerResult::Compared(found),
        ..
    }) = &score.versus_reference
    {
        rows.push(fields(
            "difference_share",
            "share of correct answers, difference to the reference",
            found.difference,
            found.interval,
            found.measurements,
        ));
    }
    rows
}

const HISTORY_COLUMNS: [&str; 13] = [
    "night",
    "run",
    "cell",
    "figure",
    "label",
    "unit",
    "better",
    "value",
    "starts",
    "baseline",
    "change_share",
    "change_p",
    "what",
];

/// A header, then a row for every nightly run of every series. A run without the figure has no value; the
/// column `what` says why, and names other changes. `change_share` is on the first run of a new level.
pub(super) fn history_rows(history: &History<'_>) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = vec![HISTORY_COLUMNS.map(str::to_owned).into()];
    for series in &history.series {
        let better = match series.metric.direction() {
            Some(Direction::Higher) => "higher",
            Some(Direction::Lower) => "lower",
            None => "",
        };
        let row = |at: &str, run: &str, [value, starts, baseline, change, p, what]: [String; 6]| {
            let known = [
                without_formulas(at),
                without_formulas(run),
                without_formulas(series.cell.as_str()),
                series.metric.name(),
                series.metric.label(),
                series.metric.unit().symbol().to_owned(),
                better.to_owned(),
            ];
            let rest = [value, starts, baseline, change, p, without_formulas(&what)];
            known.into_iter().chain(rest).collect()
        };
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let mut gaps = series.gaps.iter().peekable();
        for at in 0..=series.nights.len() {
            while let Some(gap) = gaps.next_if(|gap| gap.index <= at) {
                let none = [const { String::new() }; 5];
                let [value, starts, baseline, change, p] = none;
                rows.push(row(
                    &gap.at,
                    "",
                    [value, starts, baseline, change, p, gap.reason.clone()],
                ));
            }
            let Some(night) = series.nights.get(at) else {
                continue;
            };
            let step = series.changes.iter().find(|step| step.index == at);
            let turns = series.context_changes.iter().filter(|turn| turn.index == at);
            let what: Vec<&str> = turns.map(|turn| turn.text.as_str()).collect();
            let fields = [
                night.value.to_string(),
                night.starts.to_string(),
                number(night.baseline),
                number(step.map(|step| step.change)),
                number(step.map(|step| step.p)),
                what.join("; "),
            ];
            rows.push(row(&night.at, night.run.as_str(), fields));
        }
    }
    rows
}

/// Text from elsewhere on one line, with `'` before text that a spreadsheet would take for a formula.
fn without_formulas(text: &str) -> String {
    let text = single_line(text);
    match text.trim_start().starts_with(['=', '+', '-', '@']) {
        true => format!("'{text}"),
        false => text,
    }
}

/// Formats a record of RFC 4180, with its line break.
fn csv_line(fields: Vec<String>) -> String {
    let quoted = fields.into_iter().map(|field| {
        match field.contains([',', '"', '\r', '\n']) || field.starts_with(' ') || field.ends_with(' ') {
            true => format!("\"{}\"", field.replace('"', "\"\"")),
            false => field,
        }
    });
    format!("{}\r\n", quoted.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::tests::TestRun;
    use crate::report::testing::Case;
    use crate::results::record::cell::Phase;

    /// "valid" would say that figures were judged which are not there.
    #[test]
    fn a_row_without_a_measurement_has_no_validity() {
        let failed = Case::new("a", "bf16", 1, 10.0).with_failure(Phase::Launch, "no GPU");
        let rows = cell_rows(&TestRun::new("one", vec![failed]).document());
        let at = rows[0].iter().position(|head| head == "validity");
        assert_eq!(rows[1][at.expect("it is a column")], "");
    }

    #[test]
    fn foreign_text_is_neither_a_formula_nor_a_second_field() {
        assert_eq!(without_formulas("=1+1"), "'=1+1");
        assert_eq!(without_formulas(" @x"), "' @x");
        assert_eq!(without_formulas("a-b"), "a-b");
        assert_eq!(
            csv_line(vec![
                "a,b".to_owned(),
                "say \"x\"".to_owned(),
                without_formulas("c\nd")
            ]),
            "\"a,b\",\"say \"\"x\"\"\",c d\r\n"
        );
    }
}
