//! Reads AIPerf's summary, `profile_export_aiperf.json`.
//!
//! AIPerf calls TPOT inter-token latency, and the gap between events inter-chunk latency.

use serde_json::{Map, Value};

use super::fields::{
    are_close, count, first_number, first_text, is_per_second, ms_per_unit, no_outcome, number, put,
    put_scaled, put_times, small_count, text, unknown_format,
};
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, TokenCount};
use crate::config::workload::Profile;
use crate::import::args::slo_from_limits;
use crate::import::result_block::{Parsed, ResultBlock, WarningSubject};
use crate::results::record::provenance::Tool;

/// Figures without a distribution.
const FIGURES: [(&str, Metric); 12] = [
    ("request_count", Metric::Completed),
    ("total_isl", Metric::Tokens(TokenCount::Input)),
    ("total_osl", Metric::Tokens(TokenCount::Output)),
    (
        "total_usage_prompt_tokens",
        Metric::Tokens(TokenCount::InputReported),
    ),
    (
        "total_usage_completion_tokens",
        Metric::Tokens(TokenCount::OutputReported),
    ),
    (
        "total_usage_prompt_cache_read_tokens",
        Metric::Tokens(TokenCount::InputCached),
    ),
    (
        "total_reasoning_tokens",
        Metric::Tokens(TokenCount::OutputReasoning),
    ),
    ("request_throughput", Metric::Throughput(Quantity::Requests)),
    ("input_token_throughput", Metric::Throughput(Quantity::Input)),
    ("output_token_throughput", Metric::Throughput(Quantity::Output)),
    ("total_token_throughput", Metric::Throughput(Quantity::Total)),
    ("goodput", Metric::Goodput),
];

/// Latencies, by AIPerf's name.
const TIMES: [(&str, LatencyKind); 4] = [
    ("time_to_first_token", LatencyKind::Ttft),
    ("inter_token_latency", LatencyKind::Tpot),
    ("inter_chunk_latency", LatencyKind::Itl),
    ("request_latency", LatencyKind::E2e),
];

/// Maximum relative difference between the duration that AIPerf prints, to the last answer, and the one that
/// its throughput is computed over, to the end of the phase.
const MAX_WINDOW_DIFFERENCE: f64 = 0.05;

/// Maximum relative difference between the output tokens that AIPerf counts and those that the server reports.
const MAX_COUNT_DIFFERENCE: f64 = 0.1;

pub(super) fn is_export(document: &Value) -> bool {
    document.get("input_config").is_some()
        && ["request_count", "request_latency", "error_summary"]
            .iter()
            .any(|key| document.get(key).is_some())
}

pub(super) fn read(document: &Value) -> Result<Parsed, String> {
    let mut result = ResultBlock::new(1, Tool::Aiperf, Profile::Current);
    result.tool_version = text(document, "/aiperf_version");
    result.e2e_ends_at_token = true;
    if let Some(version) = text(document, "/schema_version").filter(|version| !version.starts_with("1.")) {
        let message = unknown_format("AIPerf", &version, "1");
        result.warn(1, WarningSubject::Figures, message);
    }
    for (key, metric) in FIGURES {
        let unit = text(document, &format!("/{key}/unit"));
        let is_rate = matches!(metric, Metric::Throughput(_) | Metric::Goodput);
        match unit.filter(|unit| is_rate && !is_per_second(unit)) {
            Some(unit) => result.warn(
                1,
                WarningSubject::Figures,
                format!("`{key}` is in `{unit}`, which is not a rate per second; it is not imported"),
            ),
            None => put(&mut result, metric, number(document, &format!("/{key}/avg"))),
        }
    }
    let sums = [
        ("input_sequence_length", Metric::Tokens(TokenCount::Input)),
        ("output_sequence_length", Metric::Tokens(TokenCount::Output)),
    ];
    for (key, metric) in sums {
        if result.figure(metric).is_none() {
            put(&mut result, metric, number(document, &format!("/{key}/sum")));
        }
    }
    for (key, kind) in TIMES {
        let Some(statistics) = document.get(key) else {
            continue;
        };
        let unit = text(statistics, "/unit").unwrap_or_default();
        match ms_per_unit(&unit) {
            Some(factor) => put_times(&mut result, kind, Some(statistics), factor),
            None => result.warn(
                1,
                WarningSubject::Nothing,
                format!(
                    "`{key}` has the unit `{unit}`, which is not a known unit of time; `{key}` is ignored"
                ),
            ),
        }
    }
    put(&mut result, Metric::Failed, failed(document));
    put_duration(&mut result, document);
    read_options(&mut result, document);
    warn_about_counts(&mut result);
    let ended: f64 = [Metric::Completed, Metric::Failed]
        .iter()
        .filter_map(|metric| result.figure(*metric))
        .sum();
    let all = result.options.prompts.map(|prompts| prompts as f64);
    if let Some(all) = all.filter(|all| *all > ended) {
        result.warn(1, WarningSubject::Figures, no_outcome(all - ended, all));
    }
    if document.get("was_cancelled") == Some(&Value::Bool(true)) {
        let message =
            "the benchmark was cancelled before its end, so its figures cover only a part of the load";
        result.warn(1, WarningSubject::Figures, message);
    }
    if result.figure(Metric::Completed).is_none() {
        return Err("AIPerf completed no request".to_owned());
    }
    Ok((vec![result], Vec::new()))
}

/// The number of failed requests, which AIPerf writes only where it is not zero.
fn failed(document: &Value) -> Option<f64> {
    let by_error = || {
        let errors = document.get("error_summary")?.as_array()?;
        let counts = errors.iter().map(|error| number(error, "/count"));
        // A sum of nothing is a negative zero.
        counts.sum::<Option<f64>>().map(|sum| sum + 0.0)
    };
    number(document, "/error_request_count/avg").or_else(by_error)
}

/// Sets the duration that throughput is computed over.
fn put_duration(result: &mut ResultBlock, document: &Value) {
    let unit = text(document, "/benchmark_duration/unit").unwrap_or_else(|| "s".to_owned());
    let printed = number(document, "/benchmark_duration/avg")
        .zip(ms_per_unit(&unit))
        .map(|(duration, factor)| duration * factor / 1000.0);
    let rate = result.figure(Metric::Throughput(Quantity::Requests));
    let window = result
        .figure(Metric::Completed)
        .zip(rate.filter(|rate| *rate > 0.0))
        .map(|(completed, rate)| completed / rate);
    let is_window =
        |window: f64| printed.is_none_or(|printed| are_close(printed, window, MAX_WINDOW_DIFFERENCE));
    let duration = window.filter(|window| is_window(*window)).or(printed);
    put_scaled(result, Metric::Duration, duration, 1.0);
}

/// Warns if the tokens that throughput uses are not those that the server reports.
fn warn_about_counts(result: &mut ResultBlock) {
    let counts = result
        .figure(Metric::Tokens(TokenCount::Output))
        .zip(result.figure(Metric::Tokens(TokenCount::OutputReported)));
    if let Some((counted, reported)) = counts
        && reported > 0.0
        && !are_close(counted, reported, MAX_COUNT_DIFFERENCE)
    {
        let message = format!(
            "AIPerf's tokenizer counts {counted} output tokens, but the server reports {reported}; AIPerf computes \
             throughput and TPOT from its own count. Measure with `--use-server-token-count`, or name the \
             tokenizer of the model"
        );
        result.warn(1, WarningSubject::Figures, message);
    }
}

/// Reads the requested settings. Since 0.9 they have phases and data sets, before that sections of flags.
fn read_options(result: &mut ResultBlock, document: &Value) {
    let Some(config) = document.get("input_config") else {
        return;
    };
    let phase = |kind: &str| {
        let phases = config.get("phases")?.as_array()?;
        phases
            .iter()
            .find(|phase| text(phase, "/kind").as_deref() == Some(kind))
    };
    let load = phase("profiling")
        .or_else(|| config.get("loadgen"))
        .unwrap_or(&Value::Null);
    let models = models(config);
    let is_profiling = |phase: &&Value| text(phase, "/kind").as_deref() == Some("profiling");
    let phases = config.get("phases").and_then(Value::as_array);
    let profiling = phases.map_or(1, |phases| phases.iter().filter(is_profiling).count());
    if models.len() > 1 {
        let message = format!(
            "the requests went to {} models, but AIPerf reports their figures together",
            models.len()
        );
        result.warn(1, WarningSubject::Figures, message);
    }
    if profiling > 1 {
        let message = format!(
            "the figures cover {profiling} profiling phases together, but the load settings were read only from the \
             first phase"
        );
        result.warn(1, WarningSubject::Figures, message);
    }
    let options = &mut result.options;
    options.line = 1;
    options.model = (!models.is_empty()).then(|| models.join(" + "));
    options.tokenizer = first_text(config, &["/tokenizer/name"]);
    options.backend = Some(match text(config, "/endpoint/type").as_deref() {
        None | Some("completions") => "openai".to_owned(),
        Some(other) => format!("openai-{other}"),
    });
    options.concurrency = small_count(load, "/concurrency");
    options.rate = first_number(load, &["/rate", "/request_rate"]);
    options.evenly_spaced = first_text(load, &["/type", "/request_rate_mode"]).as_deref() == Some("constant")
        && options.rate.is_some();
    if options.rate.is_none() && options.concurrency.is_some() {
        options.rate = Some(f64::INFINITY);
    }
    // With a time limit, the load may end before all requests are sent.
    let is_timed = first_number(load, &["/duration", "/benchmark_duration"]).is_some();
    options.prompts = count(load, "/requests")
        .or_else(|| count(load, "/request_count"))
        .filter(|_| !is_timed);
    let warmup = phase("warmup").and_then(|phase| small_count(phase, "/requests"));
    options.warmup = warmup
        .or_else(|| small_count(load, "/warmup_request_count"))
        .or(Some(0));
    options.seed = ["/datasets/0/random_seed", "/input/random_seed"]
        .iter()
        .find_map(|pointer| count(config, pointer))
        .or_else(|| count(document, "/run_info/random_seed"));
    if let Some(Value::Object(extra)) = config.pointer("/endpoint/extra") {
        options.body.clone_from(extra);
    }
    options.stop_at_eos = options.body.get("ignore_eos") != Some(&Value::Bool(true));
    let limits = [config.get("slos"), config.pointer("/input/goodput")];
    options.slo = limits
        .into_iter()
        .flatten()
        .find_map(Value::as_object)
        .and_then(slo);
    result.workload = workload(config);
}

/// The names of the models that were asked.
fn models(config: &Value) -> Vec<String> {
    let items = |pointer: &str| config.pointer(pointer).and_then(Value::as_array).cloned();
    let named =
        items("/models/items").map(|items| items.iter().filter_map(|item| text(item, "/name")).collect());
    let listed = || {
        let names = items("/endpoint/model_names")?;
        Some(
            names
                .iter()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
        )
    };
    named.or_else(listed).unwrap_or_default()
}

/// The SLO, in milliseconds by AIPerf's names.
fn slo(limits: &Map<String, Value>) -> Option<crate::config::scenario::Slo> {
    let named = limits.iter().filter_map(|(name, limit)| {
        let target = match name.as_str() {
            "time_to_first_token" => "ttft",
            "inter_token_latency" => "tpot",
            "request_latency" => "e2el",
            _ => return None,
        };
        Some((target.to_owned(), limit.as_f64()?))
    });
    slo_from_limits(named)
}

/// What the prompts are, in a word.
fn workload(config: &Value) -> Option<String> {
    let dataset = config.pointer("/datasets/0");
    let file = dataset.and_then(|dataset| first_text(dataset, &["/path", "/file", "/name"]));
    match dataset.and_then(|dataset| text(dataset, "/type")).as_deref() {
        Some("synthetic") => synthetic(dataset?, "/prompts/isl", "/prompts/osl"),
        Some(kind) => Some(match file {
            Some(file) => format!("{kind} {}", crate::import::names::file_name(&file)),
            None => kind.to_owned(),
        }),
        None => {
            let input = config.get("input")?;
            let named = first_text(input, &["/public_dataset", "/file"]);
            named
                .map(|file| crate::import::names::file_name(&file))
                .or_else(|| synthetic(input, "/prompt/input_tokens", "/prompt/output_tokens"))
        }
    }
}

/// Lengths of generated prompts and answers, such as `synthetic-128-32`.
fn synthetic(dataset: &Value, input: &str, output: &str) -> Option<String> {
    let length = |pointer: &str| {
        let mean = number(dataset, &format!("{pointer}/mean"))?;
        Some(match number(dataset, &format!("{pointer}/stddev")) {
            Some(spread) if spread > 0.0 => format!("{mean}±{spread}"),
            _ => mean.to_string(),
        })
    };
    let lengths: Vec<String> = [length(input), length(output)].into_iter().flatten().collect();
    (!lengths.is_empty()).then(|| format!("synthetic-{}", lengths.join("-")))
}
