//! Reads reports of inference-perf: `summary_lifecycle_metrics.json` and `stage_*_lifecycle_metrics.json`.

use serde_json::Value;

use super::fields::{are_close, no_outcome, number, put, put_times, small_count};
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, TokenCount};
use crate::config::workload::Profile;
use crate::import::result_block::{Parsed, ResultBlock, WarningSubject};
use crate::results::record::provenance::Tool;

/// Maximum relative difference between a count and the throughput that was computed from it.
const MAX_RATE_DIFFERENCE: f64 = 1e-3;

/// Maximum factor of the requested rate over the achieved one.
const MAX_RATE_FACTOR: f64 = 1.1;

/// Standard deviations of randomly spaced arrivals that are attributed to chance.
const ARRIVAL_DEVIATIONS: f64 = 4.0;

/// Maximum mean delay between the scheduled time of a request and its sending: a share of mean E2E, or this number of
/// seconds if that is more.
const MAX_DELAY_SHARE: f64 = 0.1;
const MAX_DELAY_S: f64 = 0.1;

/// Milliseconds in the unit of all times of a report.
const MS_PER_SECOND: f64 = 1000.0;

pub(super) fn is_report(document: &Value) -> bool {
    document.get("load_summary").is_some()
        && document.pointer("/successes/count").is_some()
        && document.pointer("/failures/count").is_some()
}

pub(super) fn read(document: &Value) -> Result<Parsed, String> {
    let mut result = ResultBlock::new(1, Tool::InferencePerf, Profile::Current);
    let completed = number(document, "/successes/count").filter(|count| *count > 0.0);
    let Some(completed) = completed else {
        return Err("inference-perf completed no request".to_owned());
    };
    put(&mut result, Metric::Completed, Some(completed));
    put(&mut result, Metric::Failed, number(document, "/failures/count"));
    for (key, metric) in [
        ("requests_per_sec", Metric::Throughput(Quantity::Requests)),
        ("input_tokens_per_sec", Metric::Throughput(Quantity::Input)),
        ("output_tokens_per_sec", Metric::Throughput(Quantity::Output)),
        ("total_tokens_per_sec", Metric::Throughput(Quantity::Total)),
    ] {
        put(
            &mut result,
            metric,
            number(document, &format!("/successes/throughput/{key}")),
        );
    }
    for (key, kind) in [
        ("time_to_first_token", LatencyKind::Ttft),
        ("time_per_output_token", LatencyKind::Tpot),
        ("request_latency", LatencyKind::E2e),
    ] {
        let times = document.pointer(&format!("/successes/latency/{key}"));
        put_times(&mut result, kind, times, MS_PER_SECOND);
    }
    let failed = number(document, "/failures/count").unwrap_or(0.0);
    if let Some(all) = number(document, "/load_summary/count").filter(|all| *all > completed + failed) {
        result.warn(
            1,
            WarningSubject::Figures,
            no_outcome(all - completed - failed, all),
        );
    }
    put_duration(&mut result, document, completed);
    put_tokens(&mut result, document, completed);
    let options = &mut result.options;
    options.line = 1;
    options.rate = number(document, "/load_summary/requested_rate").filter(|rate| *rate > 0.0);
    options.concurrency = small_count(document, "/load_summary/concurrency");
    if options.concurrency.is_some() {
        // A stage with a concurrency sends as fast as its slots become free.
        options.rate = Some(f64::INFINITY);
    }
    let is_open_loop = options.concurrency.is_none();
    for message in load_contradictions(document).into_iter().filter(|_| is_open_loop) {
        result.warn(1, WarningSubject::Figures, message);
    }
    Ok((vec![result], Vec::new()))
}

/// Describes requests that were sent at a lower rate than requested, or later than scheduled. Latencies count from
/// sending, so they do not have these delays.
fn load_contradictions(document: &Value) -> Vec<String> {
    let of_load = |key: &str| number(document, &format!("/load_summary/{key}"));
    let mut messages = Vec::new();
    let rates = of_load("requested_rate").zip(of_load("achieved_rate"));
    if let Some((requested, achieved)) = rates.filter(|(requested, _)| *requested > 0.0) {
        let count = of_load("count").filter(|count| *count >= 1.0).unwrap_or(1.0);
        let chance = ARRIVAL_DEVIATIONS / count.sqrt();
        if achieved * MAX_RATE_FACTOR < requested * (1.0 - chance) {
            messages.push(format!(
                "inference-perf was set to send {requested} requests/s, but sent only {achieved}/s; measure with a lower rate, or \
                 with more workers of the client"
            ));
        }
    }
    let e2e = number(document, "/successes/latency/request_latency/mean").unwrap_or(0.0);
    let max_delay = MAX_DELAY_S.max(MAX_DELAY_SHARE * e2e);
    if let Some(delay) = of_load("schedule_delay/mean").filter(|delay| *delay > max_delay) {
        messages.push(format!(
            "requests were sent {delay:.2} s later than scheduled on average, and latencies do not include this delay; \
             measure with a lower rate, or with more workers of the client"
        ));
    }
    messages
}

/// Sets the duration. Versions before 0.5 do not write it, but compute throughput over it.
fn put_duration(result: &mut ResultBlock, document: &Value, completed: f64) {
    let rate = result.figure(Metric::Throughput(Quantity::Requests));
    let of_rate = rate.filter(|rate| *rate > 0.0).map(|rate| completed / rate);
    let duration = number(document, "/benchmark_time_seconds").or(of_rate);
    put(
        result,
        Metric::Duration,
        duration.filter(|duration| *duration > 0.0),
    );
}

/// Sets the token sums: those that throughput is computed from, and those that the server reports.
fn put_tokens(result: &mut ResultBlock, document: &Value, completed: f64) {
    let sum = |key: &str| {
        let mean = number(document, &format!("/successes/{key}/mean"));
        let total = number(document, &format!("/successes/{key}/total"));
        total.or_else(|| mean.map(|mean| (mean * completed).round()))
    };
    let reported = sum("output_tokens");
    put(result, Metric::Tokens(TokenCount::OutputReported), reported);
    put(
        result,
        Metric::Tokens(TokenCount::InputCached),
        number(document, "/successes/prompt_tokens/cached"),
    );
    let Some(duration) = result.figure(Metric::Duration) else {
        return;
    };
    for (quantity, count, sums) in [
        (
            Quantity::Input,
            TokenCount::Input,
            [sum("prompt_tokens"), sum("prompt_len")],
        ),
        (
            Quantity::Output,
            TokenCount::Output,
            [sum("output_len"), reported],
        ),
    ] {
        let Some(rate) = result.figure(Metric::Throughput(quantity)) else {
            continue;
        };
        let is_used = |sum: &f64| are_close(sum / duration, rate, MAX_RATE_DIFFERENCE);
        let used = sums.into_iter().flatten().find(is_used);
        put(result, Metric::Tokens(count), used);
        if let Some(sum) = sums.into_iter().flatten().next().filter(|_| used.is_none()) {
            let message = format!(
                "{} is {rate:.2} tok/s, but {sum} tokens in {duration:.2} s are {:.2} tok/s",
                Metric::Throughput(quantity).label(),
                sum / duration
            );
            result.warn(1, WarningSubject::Figures, message);
        }
    }
    if let Some((counted, reported)) = sum("output_len").zip(reported)
        && !are_close(counted, reported, 0.1)
    {
        let message = format!(
            "inference-perf's tokenizer counts {counted} output tokens, but the server reports {reported}; \
             throughput and TPOT are computed from the tokenizer's count. Set `use_server_output_tokens`, or name \
             the tokenizer of the model"
        );
        result.warn(1, WarningSubject::Figures, message);
    }
}
