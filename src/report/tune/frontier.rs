//! The configurations that no other one beats in throughput and latency.

use std::collections::BTreeMap;

use super::{is_rejected, settings_or_default};
use crate::analysis::tuning::frontier::is_on_frontier;
use crate::report::comparison::{number_column, text_column};
use crate::report::table::{Row, Table, Value};
use crate::results::record::tune::{TrialRecord, TrialResult, TuneRecord};

/// A configuration with the trials of all prompts.
struct Tried<'r> {
    trials: Vec<&'r TrialRecord>,
}

impl Tried<'_> {
    /// The mean of a figure over its starts; `None` if one lacks it.
    fn mean(&self, figure: impl Fn(&TrialRecord) -> Option<f64>) -> Option<f64> {
        let values: Option<Vec<f64>> = self.trials.iter().map(|trial| figure(trial)).collect();
        values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
    }

    fn throughput(&self) -> Option<f64> {
        self.mean(|trial| trial.throughput_per_gpu)
    }

    fn interactivity(&self) -> Option<f64> {
        self.mean(|trial| trial.interactivity)
    }

    fn ttft_ms(&self) -> Option<f64> {
        self.mean(|trial| trial.ttft_ms)
    }

    fn row(&self, best_for: &str) -> Row {
        let number = |value: Option<f64>| match value {
            Some(value) => Value::Number { value, decimals: 1 },
            None => Value::Missing,
        };
        let first = self.trials[0];
        Row {
            cells: vec![
                Value::text(&first.set),
                Value::Count(self.trials.len() as u64),
                number(self.throughput()),
                number(self.interactivity()),
                number(self.ttft_ms()),
                Value::text(best_for),
                Value::text(settings_or_default(first)),
            ],
            marks: Vec::new(),
        }
    }
}

/// Those that were measured with all prompts and may win.
fn tried(record: &TuneRecord) -> Vec<Tried<'_>> {
    let mut by_set: BTreeMap<&str, Vec<&TrialRecord>> = BTreeMap::new();
    for trial in record.trials.iter().filter(|trial| !trial.is_short) {
        by_set.entry(&trial.set).or_default().push(trial);
    }
    let counts = |trials: &Vec<&TrialRecord>| {
        let is_measured =
            |trial: &&TrialRecord| trial.outcome == TrialResult::Measured && !is_rejected(record, trial);
        trials.iter().all(is_measured)
    };
    let tried = by_set.into_values().filter(counts);
    tried.map(|trials| Tried { trials }).collect()
}

pub(crate) fn frontier_table(record: &TuneRecord) -> Table {
    let tried = tried(record);
    let speed = tried
        .iter()
        .map(|tried| Some([tried.throughput()?, tried.interactivity()?]));
    let ttft = tried
        .iter()
        .map(|tried| Some([tried.throughput()?, -tried.ttft_ms()?]));
    let by_speed = is_on_frontier(&speed.collect::<Vec<_>>());
    let by_ttft = is_on_frontier(&ttft.collect::<Vec<_>>());
    let mut rows: Vec<(f64, Row)> = Vec::new();
    for (at, tried) in tried.iter().enumerate() {
        let best_for = match (by_speed[at], by_ttft[at]) {
            (false, false) => continue,
            (true, false) => "interactivity",
            (false, true) => "TTFT",
            (true, true) => "interactivity, TTFT",
        };
        rows.push((tried.throughput().unwrap_or(0.0), tried.row(best_for)));
    }
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    Table {
        title: "Frontier".to_owned(),
        columns: vec![
            text_column("trial", 0),
            number_column("starts", "", 1),
            number_column("throughput per GPU", "tok/s", 0),
            number_column("interactivity", "tok/s", 0),
            number_column("median TTFT", "ms", 0),
            text_column("on the frontier of", 1),
            text_column("settings", 0),
        ],
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        notes: vec![
            "each row is a configuration on a frontier: no other one is better in both throughput and interactivity, or in both throughput and TTFT; values are means over its trials; an engine without GPUs counts as one GPU"
                .to_owned(),
        ],
    }
}
