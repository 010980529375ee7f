//! Values of a JSON document by path, and the figures that they become.

use serde_json::Value;

use crate::analysis::metrics::{LatencyKind, Metric, Statistic};
use crate::import::args::parse_number;
use crate::import::result_block::{PrintedValue, ResultBlock, WarningSubject};

/// The names that tools give statistics.
const STATISTIC_KEYS: [(&str, Statistic); 17] = [
    ("mean", Statistic::Mean),
    ("avg", Statistic::Mean),
    ("median", Statistic::Median),
    ("p50", Statistic::Median),
    ("std", Statistic::Std),
    ("std_dev", Statistic::Std),
    ("stddev", Statistic::Std),
    ("p90", Statistic::P90),
    ("percentiles/p90", Statistic::P90),
    ("p95", Statistic::P95),
    ("percentiles/p95", Statistic::P95),
    ("p99", Statistic::P99),
    ("percentiles/p99", Statistic::P99),
    ("p99.9", Statistic::P999),
    ("p99p9", Statistic::P999),
    ("percentiles/p999", Statistic::P999),
    ("max", Statistic::Max),
];

/// The finite number at a JSON pointer.
pub(super) fn number(document: &Value, pointer: &str) -> Option<f64> {
    parse_number(document.pointer(pointer)?).filter(|value| value.is_finite())
}

/// The whole number at a JSON pointer.
pub(super) fn count(document: &Value, pointer: &str) -> Option<u64> {
    number(document, pointer)
        .filter(|value| *value >= 0.0 && value.fract() == 0.0)
        .map(|value| value as u64)
}

/// The same, where `matrix` needs no more than 32 bits.
pub(super) fn small_count(document: &Value, pointer: &str) -> Option<u32> {
    count(document, pointer).and_then(|value| u32::try_from(value).ok())
}

/// The largest number of GPUs of an engine that is believed.
pub(super) const MAX_GPUS: u32 = 65_536;

/// A number of GPUs, or a parallel size.
pub(super) fn gpu_count(document: &Value, pointer: &str) -> Option<u32> {
    small_count(document, pointer).filter(|gpus| *gpus <= MAX_GPUS)
}

/// The text at a JSON pointer, if it is not empty.
pub(super) fn text(document: &Value, pointer: &str) -> Option<String> {
    let text = document.pointer(pointer)?.as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The first text at several JSON pointers, which versions of a tool use for one fact.
pub(super) fn first_text(document: &Value, pointers: &[&str]) -> Option<String> {
    pointers.iter().find_map(|pointer| text(document, pointer))
}

/// The first number at several JSON pointers.
pub(super) fn first_number(document: &Value, pointers: &[&str]) -> Option<f64> {
    pointers.iter().find_map(|pointer| number(document, pointer))
}

/// Milliseconds in a unit of time, also in one for each token; `None` for a word that names no such unit.
pub(super) fn ms_per_unit(unit: &str) -> Option<f64> {
    let unit = unit.trim().trim_end_matches("/token");
    match unit.to_lowercase().as_str() {
        "ns" | "nanoseconds" => Some(1e-6),
        "us" | "microseconds" => Some(1e-3),
        "ms" | "milliseconds" => Some(1.0),
        "s" | "sec" | "seconds" => Some(1000.0),
        _ => None,
    }
}

/// Whether a unit is a rate per second, such as `tokens/sec`.
pub(super) fn is_per_second(unit: &str) -> bool {
    let unit = unit.trim().to_lowercase();
    ["/s", "/sec", "/second"].iter().any(|end| unit.ends_with(end))
}

/// The warning about a file whose format is of a version that is not known.
pub(super) fn unknown_format(tool: &str, version: &str, known: &str) -> String {
    format!(
        "the file has format {version} of {tool}, but `matrix` knows only format {known}: compare the imported figures with those of {tool}"
    )
}

/// The warning about requests of which a file says neither that they succeeded nor that they failed.
pub(super) fn no_outcome(missing: f64, all: f64) -> String {
    format!(
        "{missing} of {all} requests have no outcome: they are counted neither as successful nor as failed"
    )
}

/// Whether two values are one figure but for rounding.
pub(super) fn are_close(one: f64, other: f64, share: f64) -> bool {
    (one - other).abs() <= share * one.abs().max(other.abs())
}

/// Sets a figure, if there is a value.
pub(super) fn put(result: &mut ResultBlock, metric: Metric, value: Option<f64>) {
    put_scaled(result, metric, value, 1.0);
}

/// Sets a figure that the file gives in another unit; `factor` leads to ours.
pub(super) fn put_scaled(result: &mut ResultBlock, metric: Metric, value: Option<f64>, factor: f64) {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return;
    };
    if value < 0.0 {
        let message = format!("{} is negative ({value}); it is not imported", metric.label());
        result.warn(result.line, WarningSubject::Figures, message);
        return;
    }
    let printed = PrintedValue {
        value: Some(value * factor),
        half_digit: match factor == 1.0 {
            true => 0.0,
            // The digits of the file end elsewhere than those of the product.
            false => half_digit(value) * factor,
        },
        line: result.line,
    };
    result.figures.insert(metric, printed);
}

/// Half a unit of the last digit of a number. A whole number counts as one with one decimal.
fn half_digit(value: f64) -> f64 {
    let written = value.to_string();
    let decimals = written.split_once('.').map_or(1, |(_, digits)| digits.len());
    0.5 * 0.1_f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX))
}

/// Sets the statistics of a latency. Tools write zeros for one that they did not measure, such as TTFT without
/// streaming; those are left out.
pub(super) fn put_times(
    result: &mut ResultBlock,
    kind: LatencyKind,
    statistics: Option<&Value>,
    factor: f64,
) {
    let Some(statistics) = statistics.filter(|statistics| number(statistics, "/max") != Some(0.0)) else {
        return;
    };
    for (key, statistic) in STATISTIC_KEYS {
        let value = number(statistics, &format!("/{key}"));
        put_scaled(result, Metric::Time(statistic, kind), value, factor);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::workload::Profile;
    use crate::results::record::provenance::Tool;

    #[test]
    fn statistics_have_the_names_and_units_of_ours() {
        let mut result = ResultBlock::new(1, Tool::Aiperf, Profile::Current);
        let statistics = json!({"mean": 0.02, "median": 0.019, "std_dev": 0.001, "max": 0.5, "p99.9": 0.4,
            "percentiles": {"p90": 0.1, "p95": 0.2, "p99": 0.3, "p999": 0.4}});
        put_times(&mut result, LatencyKind::Ttft, Some(&statistics), 1000.0);
        let value = |statistic| result.figure(Metric::Time(statistic, LatencyKind::Ttft));
        assert_eq!(value(Statistic::Mean), Some(20.0));
        assert_eq!(value(Statistic::Median), Some(19.0));
        assert_eq!(value(Statistic::Std), Some(1.0));
        assert_eq!(value(Statistic::P90), Some(100.0));
        assert_eq!(value(Statistic::P95), Some(200.0));
        assert_eq!(value(Statistic::P99), Some(300.0));
        assert_eq!(value(Statistic::P999), Some(400.0));
        assert_eq!(value(Statistic::Max), Some(500.0));
        let mean = result.figures[&Metric::Time(Statistic::Mean, LatencyKind::Ttft)];
        assert!((mean.half_digit - 5.0).abs() < 1e-9, "{mean:?}");
    }

    #[test]
    fn zeros_of_what_was_not_measured_are_no_figures() {
        let mut result = ResultBlock::new(1, Tool::Aiperf, Profile::Current);
        let zeros = json!({"mean": 0.0, "max": 0.0});
        put_times(&mut result, LatencyKind::Ttft, Some(&zeros), 1.0);
        assert!(result.figures.is_empty());
    }

    #[test]
    fn units_of_time_are_known_by_any_of_their_names() {
        assert_eq!(ms_per_unit("sec"), Some(1000.0));
        assert_eq!(ms_per_unit("s/token"), Some(1000.0));
        assert_eq!(ms_per_unit("ms/token"), Some(1.0));
        assert_eq!(ms_per_unit("ns"), Some(1e-6));
        assert_eq!(ms_per_unit("tokens/s"), None);
    }
}
