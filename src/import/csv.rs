//! Reads the CSV result file of LMDeploy's fork of bench_serving, with a row for each rate.
//!
//! Source: docs/bench-serving.md 12.4.

use std::collections::BTreeMap;

use serde_json::Value;

use super::args::ClientOptions;
use super::document::exact_value;
use super::result_block::{Parsed, ResultBlock, Warning, WarningSubject};
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, Statistic::Mean, TokenCount};
use crate::config::workload::Profile;
use crate::results::record::provenance::Tool;

const FIGURES: [(&str, Metric); 11] = [
    ("completed", Metric::Completed),
    ("total_input_tokens", Metric::Tokens(TokenCount::Input)),
    ("total_output_tokens", Metric::Tokens(TokenCount::Output)),
    ("duration", Metric::Duration),
    ("request_throughput", Metric::Throughput(Quantity::Requests)),
    ("input_throughput", Metric::Throughput(Quantity::Input)),
    ("output_throughput", Metric::Throughput(Quantity::Output)),
    ("mean_e2e_latency_ms", Metric::Time(Mean, LatencyKind::E2e)),
    ("mean_ttft_ms", Metric::Time(Mean, LatencyKind::Ttft)),
    ("mean_tpot_ms", Metric::Time(Mean, LatencyKind::Tpot)),
    ("mean_itl_ms", Metric::Time(Mean, LatencyKind::Itl)),
];

/// Whether a text is such a file: its first line has the known columns.
pub(super) fn is_csv(text: &str) -> bool {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .is_some_and(is_header)
}

fn is_header(line: &str) -> bool {
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    ["backend", "completed", "duration"]
        .iter()
        .all(|column| columns.contains(column))
}

pub(super) fn read(text: &str) -> Parsed {
    let (mut results, mut warnings) = (Vec::new(), Vec::new());
    let mut columns: Vec<&str> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.trim().is_empty() {
            continue;
        }
        // Concatenated files have the header several times.
        if is_header(line) {
            columns = line.split(',').map(str::trim).collect();
            continue;
        }
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if cells.len() != columns.len() {
            let says = format!(
                "the row has {} values, but the header has {} columns; the row is ignored",
                cells.len(),
                columns.len()
            );
            warnings.push(Warning::new(number, WarningSubject::Nothing, says));
            continue;
        }
        let row: BTreeMap<String, Value> = columns
            .iter()
            .zip(&cells)
            .filter(|(_, cell)| !cell.is_empty())
            .map(|(column, cell)| ((*column).to_owned(), Value::String((*cell).to_owned())))
            .collect();
        results.push(result_from_row(number, &row));
    }
    (results, warnings)
}

fn result_from_row(line: u32, row: &BTreeMap<String, Value>) -> ResultBlock {
    let mut result = ResultBlock::new(line, Tool::BenchServing, Profile::Classic);
    result.options = ClientOptions::from_options(line, row);
    for (column, metric) in FIGURES {
        let Some(Value::String(cell)) = row.get(column) else {
            continue;
        };
        match cell.parse::<f64>() {
            Ok(value) => drop(result.figures.insert(metric, exact_value(line, Some(value)))),
            Err(_) => result.warn(
                line,
                WarningSubject::Figures,
                format!("`{cell}` is not a number for the column `{column}`; the value is ignored"),
            ),
        }
    }
    result
}
