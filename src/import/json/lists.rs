//! Compares the values of single requests with the figures of a result.

use serde_json::{Map, Value};

use crate::analysis::metrics::{LatencyKind, Metric, Statistic, TokenCount};
use crate::import::args::parse_number;
use crate::import::moments::{self, MAX_MEAN_DIFFERENCE};
use crate::import::result_block::{ResultBlock, WarningSubject};
use crate::results::record::provenance::Tool;

/// Compares the values of single requests, if the client wrote them, with the figures.
pub(super) fn check_lists(result: &mut ResultBlock, object: &Map<String, Value>) {
    let list = |key: &str| object.get(key).and_then(Value::as_array);
    let (line, completed) = (result.line, result.figure(Metric::Completed));
    let failed = list("errors").map(|errors| {
        let is_error = |error: &&Value| error.as_str().is_some_and(|error| !error.is_empty());
        (errors.iter().filter(is_error).count(), errors.len())
    });
    if let (Some((errors, total)), Some(completed)) = (failed, completed)
        && completed + errors as f64 > total as f64
    {
        let message = format!(
            "the file lists errors for {errors} of {total} requests, but counts {completed} requests as successful"
        );
        result.warn(line, WarningSubject::Figures, message);
    }
    check_totals(result, object, failed.is_some_and(|(errors, _)| errors > 0));
    // Failed requests have times in the lists, but not in the means.
    if failed.is_some_and(|(errors, _)| errors > 0) {
        return;
    }
    moments::check_times(result, object);
    let Some(ttfts) = list("ttfts") else { return };
    let ttfts: Vec<f64> = ttfts.iter().filter_map(parse_number).collect();
    if completed.is_some_and(|completed| completed > ttfts.len() as f64) {
        let message = format!(
            "{} requests succeeded, but only {} have a TTFT",
            completed.unwrap_or_default(),
            ttfts.len()
        );
        result.warn(line, WarningSubject::Figures, message);
    }
    let mean = ttfts.iter().sum::<f64>() / ttfts.len() as f64 * 1000.0;
    if let Some(printed) = result.figure(Metric::Time(Statistic::Mean, LatencyKind::Ttft))
        && completed == Some(ttfts.len() as f64)
        && (printed - mean).abs() > MAX_MEAN_DIFFERENCE * mean.abs()
    {
        let message = format!(
            "mean TTFT is {printed:.2} ms, but the TTFTs of the requests have a mean of \
            {mean:.2} ms"
        );
        result.warn(line, WarningSubject::Figures, message);
    }
}

/// Compares the length and sum of lists with the figures. `has_errors`: the lists contain failed requests.
fn check_totals(result: &mut ResultBlock, object: &Map<String, Value>, has_errors: bool) {
    let (line, is_vllm) = (result.line, result.tool == Tool::VllmBench);
    let Some(completed) = result.figure(Metric::Completed) else {
        return;
    };
    let failed = result.figure(Metric::Failed);
    for (key, what, count) in [
        ("input_lens", "an input length", Some(TokenCount::Input)),
        ("output_lens", "an output length", Some(TokenCount::Output)),
        ("ttfts", "a TTFT", None),
    ] {
        let Some(values) = object.get(key).and_then(Value::as_array) else {
            continue;
        };
        let values: Vec<f64> = values.iter().filter_map(parse_number).collect();
        let list_len = values.len() as f64;
        // Too few TTFTs are reported together with their mean.
        if completed > list_len && count.is_some() {
            let message = format!("{completed} requests succeeded, but only {list_len} have {what}");
            result.warn(line, WarningSubject::Figures, message);
            continue;
        }
        if let Some(failed) = failed.filter(|failed| completed + failed < list_len) {
            let message = format!(
                "{completed} requests succeeded and {failed} failed, but {list_len} requests have {what}"
            );
            result.warn(line, WarningSubject::Figures, message);
            continue;
        }
        // Failed answers have no tokens, but their prompts have. bench_serving writes prompt lengths as
        // counted by the server, and their sum as counted by its tokenizer.
        let is_summed = match count {
            Some(TokenCount::Output) => true,
            _ => is_vllm && !has_errors && completed == list_len,
        };
        if let Some(metric) = count.map(Metric::Tokens)
            && is_summed
            && !result.is_from_matrix
            && let Some(printed) = result.figure(metric)
        {
            let sum: f64 = values.iter().sum();
            if (printed - sum).abs() > MAX_MEAN_DIFFERENCE * printed.max(sum) {
                let label = metric.label();
                let message =
                    format!("{label} are {printed}, but the values of the requests add up to {sum}");
                result.warn(line, WarningSubject::Figures, message);
            }
        }
    }
}
