//! Reads GuideLLM's report, `benchmarks.json`, with a result for each benchmark.
//!
//! Figures are those of successful requests; GuideLLM's console shows throughput of all requests.

use serde_json::Value;

use super::fields::{
    are_close, count, first_number, first_text, number, put, put_times, small_count, text, unknown_format,
};
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, TokenCount};
use crate::config::workload::Profile;
use crate::import::result_block::{Parsed, ResultBlock, Warning, WarningSubject};
use crate::results::record::provenance::Tool;

/// Begins a benchmark in the text of a report.
const BENCHMARK_MARK: &str = "\"generative_benchmark\"";

/// The newest version of the report's format that is known.
const KNOWN_FORMAT: u64 = 2;

/// Maximum relative difference between a rate and the sum over the duration that are one figure.
const MAX_RATE_DIFFERENCE: f64 = 0.01;

pub(super) fn is_report(document: &Value) -> bool {
    let Some(benchmarks) = document.get("benchmarks").and_then(Value::as_array) else {
        return false;
    };
    document.pointer("/metadata/guidellm_version").is_some()
        || benchmarks
            .iter()
            .any(|benchmark| benchmark.pointer("/metrics/request_totals").is_some())
}

/// Reads every benchmark that completed a request.
pub(super) fn read(document: &Value, text: &str) -> Result<Parsed, String> {
    let none = Vec::new();
    let benchmarks = document
        .get("benchmarks")
        .and_then(Value::as_array)
        .unwrap_or(&none);
    let lines = lines_of_benchmarks(text, benchmarks.len());
    let (mut results, mut warnings) = (Vec::new(), Vec::new());
    for (at, benchmark) in benchmarks.iter().enumerate() {
        let line = lines.get(at).copied().unwrap_or(1);
        if benchmarks[..at].contains(benchmark) {
            let message = format!(
                "benchmark {} repeats an earlier benchmark of the file and is ignored",
                at + 1
            );
            warnings.push(Warning::new(line, WarningSubject::Nothing, message));
            continue;
        }
        let mut result = read_benchmark(document, benchmark, line);
        let strategy = |one: &Value| one.pointer("/config/strategy").cloned();
        let same = benchmarks[..at]
            .iter()
            .position(|earlier| strategy(earlier).is_some() && strategy(earlier) == strategy(benchmark));
        if let Some(same) = same {
            let message = format!(
                "benchmarks {} and {} have the same load but different figures. They are imported as two starts of one engine; if one of them is a copy, remove it",
                same + 1,
                at + 1
            );
            result.warn(line, WarningSubject::Figures, message);
        }
        if result
            .figure(Metric::Completed)
            .is_some_and(|completed| completed > 0.0)
        {
            results.push(result);
            continue;
        }
        let message = format!("benchmark {} completed no request and is ignored", at + 1);
        warnings.push(Warning::new(line, WarningSubject::Nothing, message));
    }
    match (results.is_empty(), warnings.first()) {
        (true, Some(first)) => Err(first.message.clone()),
        (true, None) => Err("GuideLLM's report has no benchmarks".to_owned()),
        _ => Ok((results, warnings)),
    }
}

/// The line on which each benchmark begins; empty if they cannot be told apart in the text.
fn lines_of_benchmarks(text: &str, benchmarks: usize) -> Vec<u32> {
    let lines: Vec<u32> = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| line.contains(BENCHMARK_MARK))
        .map(|(_, number)| number)
        .collect();
    match lines.len() == benchmarks {
        true => lines,
        false => Vec::new(),
    }
}

fn read_benchmark(document: &Value, benchmark: &Value, line: u32) -> ResultBlock {
    let mut result = ResultBlock::new(line, Tool::Guidellm, Profile::Current);
    result.tool_version = text(document, "/metadata/guidellm_version");
    if let Some(version) = count(document, "/metadata/version").filter(|version| *version > KNOWN_FORMAT) {
        let message = unknown_format("GuideLLM", &version.to_string(), &KNOWN_FORMAT.to_string());
        result.warn(line, WarningSubject::Figures, message);
    }
    let none = Value::Null;
    let metrics = benchmark.get("metrics").unwrap_or(&none);
    let successful = |name: &str| metrics.get(name)?.get("successful");
    put_counts(&mut result, benchmark, metrics);
    for (name, metric) in [
        ("requests_per_second", Metric::Throughput(Quantity::Requests)),
        ("prompt_tokens_per_second", Metric::Throughput(Quantity::Input)),
        ("output_tokens_per_second", Metric::Throughput(Quantity::Output)),
        ("tokens_per_second", Metric::Throughput(Quantity::Total)),
    ] {
        let mean = successful(name).and_then(|rates| number(rates, "/mean"));
        put(&mut result, metric, mean.filter(|mean| *mean > 0.0));
    }
    let window = ["warmup_duration", "cooldown_duration"]
        .iter()
        .filter_map(|key| number(benchmark, &format!("/{key}")))
        .reduce(f64::max);
    align_rates(&mut result, window != Some(0.0));
    put_times(
        &mut result,
        LatencyKind::Ttft,
        successful("time_to_first_token_ms"),
        1.0,
    );
    put_times(
        &mut result,
        LatencyKind::E2e,
        successful("request_latency"),
        1000.0,
    );
    let has_equal_lengths =
        successful("output_token_count").is_some_and(|lengths| lengths.get("min") == lengths.get("max"));
    if has_equal_lengths {
        let times = successful("inter_token_latency_ms");
        put_times(&mut result, LatencyKind::Tpot, times, 1.0);
    } else {
        let message = "GuideLLM weights the inter-token latency of each request by its number of tokens. The mean \
            is not TPOT if answers differ in length, so it is not imported";
        result.warn(line, WarningSubject::Nothing, message);
    }
    read_options(&mut result, document, benchmark);
    result
}

/// Sets the numbers of requests and tokens, and the duration.
fn put_counts(result: &mut ResultBlock, benchmark: &Value, metrics: &Value) {
    let total = |name: &str| number(metrics, &format!("/request_totals/{name}"));
    let ended: f64 = ["successful", "errored", "incomplete"]
        .into_iter()
        .filter_map(total)
        .sum();
    if let Some(all) = total("total").filter(|all| *all > ended) {
        let message = format!(
            "{} of {all} requests have no outcome: they are not counted as successful, failed or incomplete",
            all - ended
        );
        result.warn(result.line, WarningSubject::Figures, message);
    }
    for (name, metric) in [
        ("successful", Metric::Completed),
        ("errored", Metric::Failed),
        // The end of the measurement cuts them off.
        ("incomplete", Metric::Cancelled),
    ] {
        let count = number(metrics, &format!("/request_totals/{name}"));
        put(
            result,
            metric,
            count.filter(|count| metric != Metric::Cancelled || *count > 0.0),
        );
    }
    for (name, metric) in [
        ("prompt_token_count", Metric::Tokens(TokenCount::Input)),
        ("output_token_count", Metric::Tokens(TokenCount::Output)),
    ] {
        let sum = number(metrics, &format!("/{name}/successful/total_sum"));
        put(result, metric, sum.filter(|sum| *sum > 0.0));
    }
    let times = number(benchmark, "/end_time").zip(number(benchmark, "/start_time"));
    let duration = number(benchmark, "/duration").or_else(|| times.map(|(end, start)| end - start));
    put(
        result,
        Metric::Duration,
        duration.filter(|duration| *duration > 0.0),
    );
}

/// Makes throughput that of the sums over the duration, or leaves out both. GuideLLM derives its rates from single
/// events, of which it drops some at the ends of a measurement. With a warm-up or cool-down they are those of a
/// window, but requests that touch it are counted as a whole. Without such a window (`may_have_window`) they contradict each other.
fn align_rates(result: &mut ResultBlock, may_have_window: bool) {
    let Some(duration) = result.figure(Metric::Duration) else {
        return;
    };
    let input = result.figure(Metric::Tokens(TokenCount::Input));
    let output = result.figure(Metric::Tokens(TokenCount::Output));
    let sums = [
        (Quantity::Input, input),
        (Quantity::Output, output),
        (
            Quantity::Total,
            input.zip(output).map(|(input, output)| input + output),
        ),
        (Quantity::Requests, result.figure(Metric::Completed)),
    ];
    // Of few requests, one that is dropped is a large share.
    let is_off = sums[..2].iter().any(|(quantity, sum)| {
        sum.zip(result.figure(Metric::Throughput(*quantity)))
            .is_some_and(|(sum, rate)| !are_close(sum / duration, rate, MAX_RATE_DIFFERENCE))
    });
    if !is_off {
        for (quantity, sum) in sums {
            put(
                result,
                Metric::Throughput(quantity),
                sum.map(|sum| sum / duration),
            );
        }
        return;
    }
    for metric in [
        Metric::Duration,
        Metric::Tokens(TokenCount::Input),
        Metric::Tokens(TokenCount::Output),
    ] {
        result.figures.remove(&metric);
    }
    if !may_have_window {
        let message = "throughput is not the number of tokens over the duration, although the benchmark had neither a \
            warm-up nor a cool-down. Token sums and duration are not imported";
        result.warn(result.line, WarningSubject::Figures, message);
        return;
    }
    let message = "GuideLLM computes throughput for the time between warm-up and cool-down. Its token sums \
        also include all tokens of requests that are only partly in this time. Token sums and duration are \
        therefore not imported";
    result.warn(result.line, WarningSubject::Nothing, message);
}

/// Reads the requested settings, which versions keep in different places.
fn read_options(result: &mut ResultBlock, document: &Value, benchmark: &Value) {
    let none = Value::Null;
    let strategy = ["/config/strategy", "/scheduler/strategy", "/args/strategy"]
        .iter()
        .find_map(|pointer| benchmark.pointer(pointer))
        .unwrap_or(&none);
    let spec = document
        .pointer("/config/spec")
        .or_else(|| document.get("args"))
        .unwrap_or(&none);
    let options = &mut result.options;
    options.line = result.line;
    options.model = first_text(
        benchmark,
        &[
            "/config/backend/model",
            "/benchmarker/backend/model",
            "/worker/backend_model",
        ],
    )
    .or_else(|| first_text(spec, &["/backend/model", "/model"]));
    options.tokenizer = first_text(spec, &["/tokenizer/model", "/processor"]);
    let path = first_text(
        benchmark,
        &[
            "/config/backend/request_format",
            "/benchmarker/backend/request_format",
        ],
    );
    let is_plain = path.is_some_and(|path| path.ends_with("/completions") && !path.contains("chat"));
    options.backend = Some(if is_plain { "openai" } else { "openai-chat" }.to_owned());
    let kind = text(strategy, "/type_").unwrap_or_default();
    options.rate = number(strategy, "/rate").or(Some(f64::INFINITY));
    options.evenly_spaced = kind == "constant";
    options.concurrency = match kind.as_str() {
        "synchronous" => Some(1),
        "concurrent" => small_count(strategy, "/streams"),
        // The limit of a rate is only that of GuideLLM's processes.
        "throughput" => small_count(strategy, "/max_concurrency"),
        _ => None,
    };
    options.seed = count(spec, "/seed/value");
    options.prompts = prompts(spec);
    options.warmup = Some(0);
    result.workload = workload(spec);
}

/// The number of requests, if the load ends with it.
fn prompts(spec: &Value) -> Option<u64> {
    let limits = spec.get("constraints")?.as_array()?;
    match &limits[..] {
        [limit] if text(limit, "/kind").as_deref() == Some("max_requests") => count(limit, "/count"),
        _ => None,
    }
}

/// What the prompts are, in a word.
fn workload(spec: &Value) -> Option<String> {
    let data = spec.pointer("/data/0")?;
    if let Some(named) = data.as_str() {
        return Some(named.to_owned());
    }
    let lengths: Vec<String> = ["prompt_tokens", "output_tokens"]
        .iter()
        .filter_map(|name| {
            let mean = first_number(data, &[&format!("/{name}")])?;
            Some(match number(data, &format!("/{name}_stdev")) {
                Some(spread) if spread > 0.0 => format!("{mean}±{spread}"),
                _ => mean.to_string(),
            })
        })
        .collect();
    match lengths.is_empty() {
        false => Some(format!("synthetic-{}", lengths.join("-"))),
        true => first_text(data, &["/path", "/source", "/kind"])
            .map(|path| crate::import::names::file_name(&path)),
    }
}
