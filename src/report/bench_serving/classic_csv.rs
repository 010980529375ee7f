//! The CSV result file of the profile `classic`: a row for each rate, with the columns of LMDeploy's fork.

use serde_json::{Map, Value, json};

use crate::report::bench_serving::bench_line::RequestedLoad;
use crate::report::bench_serving::jsonl::add_measured;
use crate::report::bench_serving::python;
use crate::results::record::cell::MetricValues;

const COLUMNS: [&str; 18] = [
    "backend",
    "dataset_name",
    "sharegpt_output_len",
    "random_input_len",
    "random_output_len",
    "random_range_ratio",
    "request_rate",
    "completed",
    "total_input_tokens",
    "total_output_tokens",
    "duration",
    "request_throughput",
    "input_throughput",
    "output_throughput",
    "mean_e2e_latency_ms",
    "mean_ttft_ms",
    "mean_tpot_ms",
    "mean_itl_ms",
];

/// The first line of a new file, with its line break.
pub(crate) fn header() -> String {
    format!("{}\r\n", COLUMNS.join(","))
}

/// The row of one bench, with its line break; missing values are empty.
pub(crate) fn row(requested: &RequestedLoad, figures: &MetricValues) -> String {
    let mut fields = Map::new();
    add_measured(&mut fields, figures);
    for (key, value) in [
        ("backend", json!(requested.backend)),
        ("dataset_name", json!(requested.dataset)),
        ("sharegpt_output_len", json!(requested.sharegpt_output_len)),
        ("random_input_len", json!(requested.random_input_len)),
        ("random_output_len", json!(requested.random_output_len)),
        ("random_range_ratio", json!(requested.random_range_ratio)),
        ("request_rate", json!(requested.rate.text())),
    ] {
        fields.insert(key.to_owned(), value);
    }
    let cells = COLUMNS.map(|column| match fields.get(column) {
        None | Some(Value::Null) => String::new(),
        // Names of backends and data sets and numbers contain nothing that CSV quotes.
        Some(Value::String(text)) => text.clone(),
        Some(value) => python::json(value),
    });
    format!("{}\r\n", cells.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::RequestRate;
    use crate::report::bench_serving::traffic::Traffic;

    #[test]
    fn a_row_has_a_cell_for_each_column_and_what_was_not_asked_is_empty() {
        let requested = RequestedLoad {
            tag: None,
            backend: "vllm".to_owned(),
            dataset: "sharegpt".to_owned(),
            rate: Traffic::Rate(RequestRate::INFINITE),
            concurrency: None,
            sharegpt_output_len: None,
            random_input_len: None,
            random_output_len: Some(8),
            random_range_ratio: 0.0,
            slo: None,
        };
        let row = row(&requested, &MetricValues::default());
        assert!(row.starts_with("vllm,sharegpt,,,8,0.0,inf,"), "{row}");
        assert!(row.ends_with("\r\n"));
        assert_eq!(row.matches(',').count(), 17);
        assert_eq!(header().matches(',').count(), 17);
    }
}
