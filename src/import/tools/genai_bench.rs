//! Reads the file that genai-bench writes for each scenario and concurrency.

use serde_json::Value;

use super::fields::{are_close, ms_per_unit, no_outcome, number, put, put_times, small_count, text};
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, TokenCount};
use crate::config::workload::Profile;
use crate::import::result_block::{Parsed, ResultBlock, WarningSubject};
use crate::results::record::provenance::Tool;

/// Maximum relative difference between two sums of the same tokens.
const MAX_SUM_DIFFERENCE: f64 = 1e-6;

pub(super) fn is_experiment(document: &Value) -> bool {
    document.pointer("/aggregated_metrics/stats").is_some()
        && document
            .pointer("/aggregated_metrics/num_completed_requests")
            .is_some()
}

pub(super) fn read(document: &Value) -> Result<Parsed, String> {
    let none = Value::Null;
    let metrics = document.get("aggregated_metrics").unwrap_or(&none);
    // Before 0.0.3 there was no other unit.
    let unit = text(document, "/_time_unit").unwrap_or_else(|| "s".to_owned());
    let Some(factor) = ms_per_unit(&unit) else {
        return Err(format!(
            "`_time_unit` is `{unit}`, which is not a known unit of time such as `s` or `ms`"
        ));
    };
    let mut result = ResultBlock::new(1, Tool::GenaiBench, Profile::Current);
    for (key, metric) in [
        ("num_completed_requests", Metric::Completed),
        ("num_error_requests", Metric::Failed),
        // Always in seconds, whatever the unit of latencies.
        ("run_duration", Metric::Duration),
        ("requests_per_second", Metric::Throughput(Quantity::Requests)),
    ] {
        put(&mut result, metric, number(metrics, &format!("/{key}")));
    }
    if result
        .figure(Metric::Completed)
        .is_none_or(|completed| completed < 1.0)
    {
        return Err("genai-bench completed no request".to_owned());
    }
    for (key, kind) in [
        ("ttft", LatencyKind::Ttft),
        ("tpot", LatencyKind::Tpot),
        ("e2e_latency", LatencyKind::E2e),
    ] {
        put_times(
            &mut result,
            kind,
            metrics.pointer(&format!("/stats/{key}")),
            factor,
        );
    }
    put_tokens(&mut result, document, metrics);
    warn_about_counts(&mut result, metrics);
    let share = number(metrics, "/error_rate").filter(|share| *share > 0.0);
    if let Some(share) = share.filter(|_| result.figure(Metric::Failed) == Some(0.0)) {
        let message = format!("the error rate is {share}, but no request is counted as failed");
        result.warn(1, WarningSubject::Figures, message);
    }
    let options = &mut result.options;
    options.line = 1;
    options.rate = Some(f64::INFINITY);
    if text(metrics, "/iteration_type").is_none_or(|kind| kind == "num_concurrency") {
        options.concurrency = small_count(metrics, "/num_concurrency").filter(|limit| *limit > 0);
    }
    options.warmup = Some(0);
    result.workload = text(metrics, "/scenario");
    Ok((vec![result], Vec::new()))
}

/// Warns if requests have no outcome, or errors are not counted as failures.
fn warn_about_counts(result: &mut ResultBlock, metrics: &Value) {
    let figure = |metric| result.figure(metric).unwrap_or(0.0);
    let (ended, failed) = (
        figure(Metric::Completed) + figure(Metric::Failed),
        figure(Metric::Failed),
    );
    let mut messages = Vec::new();
    if let Some(all) = number(metrics, "/num_requests").filter(|all| *all > ended) {
        messages.push(no_outcome(all - ended, all));
    }
    let codes = metrics.get("error_codes_frequency").and_then(Value::as_object);
    let errors: f64 = codes
        .into_iter()
        .flatten()
        .filter_map(|(_, count)| count.as_f64())
        .sum();
    if errors > failed {
        messages.push(format!(
            "the file lists {errors} requests with an error code, but counts {failed} as failed"
        ));
    }
    for message in messages {
        result.warn(1, WarningSubject::Figures, message);
    }
}

/// Sets token sums and throughput, unless requests of a warm-up or cool-down were left out of the sums:
/// genai-bench divides such sums by the whole duration all the same.
fn put_tokens(result: &mut ResultBlock, document: &Value, metrics: &Value) {
    let sums = ["num_input_tokens", "num_output_tokens"];
    let both = |key: &'static str| {
        let sum = number(metrics, &format!("/stats/{key}/sum"))?;
        let all = sum_of_requests(document, key)?;
        (!are_close(sum, all, MAX_SUM_DIFFERENCE)).then_some((key, sum, all))
    };
    let differing: Vec<(&str, f64, f64)> = sums.into_iter().filter_map(both).collect();
    // A part of the requests has no more tokens than all of them.
    if let Some((key, sum, all)) = differing.iter().find(|(_, sum, all)| sum > all) {
        let message = format!(
            "the sum of `{key}` is {sum}, but its requests have {all} in total; token sums and token throughput are not imported"
        );
        result.warn(1, WarningSubject::Figures, message);
        return;
    }
    if !differing.is_empty() {
        let message = "genai-bench leaves a warm-up or cool-down out of the latencies and token sums, but includes it \
            in the duration. Token sums and token throughput are therefore not imported";
        result.warn(1, WarningSubject::Nothing, message);
        return;
    }
    for (pointer, metric) in [
        ("/stats/num_input_tokens/sum", Metric::Tokens(TokenCount::Input)),
        ("/stats/num_output_tokens/sum", Metric::Tokens(TokenCount::Output)),
        (
            "/stats/num_reasoning_tokens/sum",
            Metric::Tokens(TokenCount::OutputReasoning),
        ),
        (
            "/mean_input_throughput_tokens_per_s",
            Metric::Throughput(Quantity::Input),
        ),
        (
            "/mean_output_throughput_tokens_per_s",
            Metric::Throughput(Quantity::Output),
        ),
        (
            "/mean_total_tokens_throughput_tokens_per_s",
            Metric::Throughput(Quantity::Total),
        ),
    ] {
        put(
            result,
            metric,
            number(metrics, pointer).filter(|value| *value > 0.0),
        );
    }
}

/// The sum over all successful requests, if the file lists them.
fn sum_of_requests(document: &Value, key: &str) -> Option<f64> {
    let requests = document.get("individual_request_metrics")?.as_array()?;
    let succeeded = requests
        .iter()
        .filter(|request| request.get("error_code").is_none_or(Value::is_null));
    let counts: Vec<f64> = succeeded
        .filter_map(|request| number(request, &format!("/{key}")))
        .collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}
