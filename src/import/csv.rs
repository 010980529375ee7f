//! Reads the CSV result file of LMDeploy's fork of bench_serving, with a row for each rate.
//!
//! Source: docs/bench-serving.md 12.4.

use std::collections::BTreeMap;

use serde_json::Value;

use super::args::Asked;
use super::document::exact;
use super::{About, Found, Parts, Warning};
use crate::analysis::metrics::{Count, Flow, Metric, Sample, Statistic::Mean};
use crate::config::workload::Profile;
use crate::results::record::provenance::Tool;

const FIGURES: [(&str, Metric); 11] = [
    ("completed", Metric::Completed),
    ("total_input_tokens", Metric::Tokens(Count::Input)),
    ("total_output_tokens", Metric::Tokens(Count::Output)),
    ("duration", Metric::Duration),
    ("request_throughput", Metric::Throughput(Flow::Requests)),
    ("input_throughput", Metric::Throughput(Flow::Input)),
    ("output_throughput", Metric::Throughput(Flow::Output)),
    ("mean_e2e_latency_ms", Metric::Time(Mean, Sample::E2e)),
    ("mean_ttft_ms", Metric::Time(Mean, Sample::Ttft)),
    ("mean_tpot_ms", Metric::Time(Mean, Sample::Tpot)),
    ("mean_itl_ms", Metric::Time(Mean, Sample::Itl)),
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

pub(super) fn read(text: &str) -> Parts {
    let (mut found, mut warnings) = (Vec::new(), Vec::new());
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
                "the row has {} cells, the columns are {}; it is left out",
                cells.len(),
                columns.len()
            );
            warnings.push(Warning::new(number, About::Rest, says));
            continue;
        }
        let row: BTreeMap<String, Value> = columns
            .iter()
            .zip(&cells)
            .filter(|(_, cell)| !cell.is_empty())
            .map(|(column, cell)| ((*column).to_owned(), Value::String((*cell).to_owned())))
            .collect();
        found.push(of_row(number, &row));
    }
    (found, warnings)
}

fn of_row(line: u32, row: &BTreeMap<String, Value>) -> Found {
    let mut found = Found::new(line, Tool::BenchServing, Profile::Classic);
    found.asked = Asked::of(line, row);
    for (column, metric) in FIGURES {
        let Some(Value::String(cell)) = row.get(column) else {
            continue;
        };
        match cell.parse::<f64>() {
            Ok(value) => drop(found.figures.insert(metric, exact(line, Some(value)))),
            Err(_) => found.warn(
                line,
                About::Figures,
                format!("`{cell}` is no number for `{column}`, it is left out"),
            ),
        }
    }
    found
}
