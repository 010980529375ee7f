//! Draws a document as CSV, with a row for every figure of every cell.

use std::collections::HashMap;

use super::document::{CellFacts, ComparisonRow, ComparisonTable, Document, Figure, label, unit};
use super::table::single_line;
use crate::analysis::metrics::{Direction, Metric};
use crate::results::record::cell::Definitions;

const COLUMNS: [&str; 35] = [
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

/// The document as CSV (RFC 4180): a header, then a row for each cell, definition set and figure. A cell
/// without figures has one row, so that it is not overlooked.
///
/// Text that a spreadsheet would take for a formula begins with `'`.
pub(crate) fn draw(document: &Document) -> String {
    let mut text = csv_line(COLUMNS.map(str::to_owned).into());
    let placed = document.comparisons.iter().flat_map(|comparison| {
        let rows = comparison.rows.iter();
        rows.map(move |row| (row.cell, (comparison, row)))
    });
    let placed: HashMap<usize, (&ComparisonTable, &ComparisonRow)> = placed.collect();
    for (at, cell) in document.cells.iter().enumerate() {
        let leading_fields = cell_fields(cell, placed.get(&at).copied());
        let mut has_figures = false;
        for (definitions, figures) in &cell.figures {
            for (name, figure) in figures {
                has_figures = true;
                let mut fields = leading_fields.clone();
                fields.extend(figure_fields(*definitions, name, figure));
                text.push_str(&csv_line(fields));
            }
        }
        if !has_figures {
            let mut fields = leading_fields;
            fields.resize(COLUMNS.len(), String::new());
            text.push_str(&csv_line(fields));
        }
    }
    text
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
        cell.validity.name().to_owned(),
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

/// Text from elsewhere on one line, with `'` before text that a spreadsheet would take for a formula.
pub(super) fn without_formulas(text: &str) -> String {
    let text = single_line(text);
    match text.trim_start().starts_with(['=', '+', '-', '@']) {
        true => format!("'{text}"),
        false => text,
    }
}

/// Formats a record of RFC 4180, with its line break.
pub(super) fn csv_line(fields: Vec<String>) -> String {
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
