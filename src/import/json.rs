//! Reads results in JSON: lines of bench_serving, and objects of `vllm bench serve`, one in a file or one on
//! each line.
//!
//! Python's `Infinity` and `NaN`, which JSON does not have, are accepted.

mod lists;

use std::collections::BTreeMap;

use lists::check_lists;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::args::{ClientOptions, parse_number};
use super::block::{SAMPLES, STATISTICS};
use super::document::exact_value;
use super::result_block::{EngineTitle, Parsed, ResultBlock, Warning, WarningSubject};
use super::tools;
use crate::analysis::metrics::{Metric, Quantity, Target, TokenCount};
use crate::config::workload::Profile;
use crate::results::record::cell::MetricValues;
use crate::results::record::provenance::Tool;
use crate::results::record::validity::Validity;

/// Keys of figures, of both tools.
const FIGURES: [(&str, Metric); 19] = [
    ("duration", Metric::Duration),
    ("completed", Metric::Completed),
    ("failed", Metric::Failed),
    ("total_input_tokens", Metric::Tokens(TokenCount::Input)),
    (
        "total_input_vision_tokens",
        Metric::Tokens(TokenCount::InputVision),
    ),
    ("total_output_tokens", Metric::Tokens(TokenCount::Output)),
    (
        "total_output_tokens_retokenized",
        Metric::Tokens(TokenCount::OutputCounted),
    ),
    ("request_throughput", Metric::Throughput(Quantity::Requests)),
    ("input_throughput", Metric::Throughput(Quantity::Input)),
    ("output_throughput", Metric::Throughput(Quantity::Output)),
    ("total_throughput", Metric::Throughput(Quantity::Total)),
    ("total_token_throughput", Metric::Throughput(Quantity::Total)),
    ("concurrency", Metric::MeanConcurrency),
    ("accept_length", Metric::AcceptLength),
    ("max_output_tokens_per_s", Metric::PeakOutput),
    ("max_concurrent_requests", Metric::PeakConcurrency),
    ("request_goodput", Metric::Goodput),
    ("slo_attainment", Metric::Attainment),
    ("spec_decode_acceptance_length", Metric::AcceptLength),
];

/// Maximum relative difference of two values of one figure, due to their last digits.
const MAX_ROUNDING_SHARE: f64 = 1e-3;

/// Reads one object over several lines, or one on each line.
///
/// # Errors
/// The text is no JSON, or no object is a result.
pub(super) fn read(text: &str) -> Result<Parsed, String> {
    let strict = strict_json(text);
    let (mut results, mut warnings) = (Vec::new(), Vec::new());
    if let Ok(document) = serde_json::from_str::<Value>(&strict) {
        if let Some(parsed) = tools::read(&document, text) {
            return parsed;
        }
        let Value::Object(object) = document else {
            return Err("the file is a JSON list, but its entries are not results of InferenceX".to_owned());
        };
        results.push(result_from_object(1, &object)?);
        return Ok((results, warnings));
    }
    for (line, number) in strict.lines().zip(1..) {
        if line.trim().is_empty() {
            continue;
        }
        let read = match serde_json::from_str(line) {
            Ok(Value::Object(object)) => result_from_object(number, &object),
            Ok(_) => Err("this line is not a JSON object".to_owned()),
            Err(error) => Err(format!("this line is not valid JSON: {error}")),
        };
        match read {
            Ok(one) => results.push(one),
            Err(why) => warnings.push(Warning::new(
                number,
                WarningSubject::Nothing,
                format!("the line is ignored: {why}"),
            )),
        }
    }
    match (results.is_empty(), warnings.first()) {
        (true, Some(first)) => Err(format!("line {}: {}", first.line, first.message)),
        _ => Ok((results, warnings)),
    }
}

/// Makes Python's JSON strict: infinite values become strings, `NaN` becomes `null`.
fn strict_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_text = false;
    while let Some(letter) = rest.chars().next() {
        let word = [
            ("-Infinity", "\"-inf\""),
            ("Infinity", "\"inf\""),
            ("NaN", "null"),
        ]
        .into_iter()
        .find(|(word, _)| !is_text && rest.starts_with(word));
        let taken = match word {
            Some((word, instead)) => {
                out.push_str(instead);
                word.len()
            }
            None => {
                out.push(letter);
                let mut taken = letter.len_utf8();
                match letter {
                    '"' => is_text = !is_text,
                    '\\' if is_text => {
                        if let Some(next) = rest[taken..].chars().next() {
                            out.push(next);
                            taken += next.len_utf8();
                        }
                    }
                    _ => {}
                }
                taken
            }
        };
        rest = &rest[taken..];
    }
    out
}

fn result_from_object(line: u32, object: &Map<String, Value>) -> Result<ResultBlock, String> {
    let has = |key: &str| object.contains_key(key);
    if !has("completed") || !has("duration") {
        return Err("`completed` or `duration` is missing, so this is not a benchmark result".to_owned());
    }
    let tool = match has("model_id") || has("endpoint_type") {
        true => Tool::VllmBench,
        false => Tool::BenchServing,
    };
    let mut parsed = ResultBlock::new(line, tool, Profile::Current);
    let options: BTreeMap<String, Value> = object
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    parsed.options = ClientOptions::from_options(line, &options);
    if tool == Tool::BenchServing && !parsed.options.is_random() {
        // bench_serving writes these lengths whatever it sends.
        (parsed.options.input_len, parsed.options.output_len) = (None, None);
    }
    let times = STATISTICS.iter().flat_map(|(word, statistic)| {
        SAMPLES.iter().map(move |(name, sample)| {
            (
                format!("{word}_{}_ms", name.replace(' ', "_")),
                Metric::Time(*statistic, *sample),
            )
        })
    });
    let targets = Target::ALL.map(|target| (target, target.bench_serving_name()));
    let plain = FIGURES.iter().map(|(key, metric)| ((*key).to_owned(), *metric));
    for (key, metric) in plain.chain(times) {
        let Some(value) = object.get(&key) else { continue };
        let value = parse_number(value).filter(|value| value.is_finite());
        let before = parsed.figure(metric);
        if let (Some(before), Some(value)) = (before, value)
            && (before - value).abs() > MAX_ROUNDING_SHARE * before.abs()
        {
            let label = metric.label();
            let message =
                format!("{label} appears twice, as {before:.2} and as {value:.2}; the second is used");
            parsed.warn(line, WarningSubject::Figures, message);
        }
        // A figure without a value was not requested, such as goodput without SLO.
        if value.is_some() || !parsed.figures.contains_key(&metric) {
            parsed.figures.insert(metric, exact_value(line, value));
        }
    }
    if let Some(Value::Object(shares)) = object.get("slo_attainment_by_metric") {
        for (target, name) in targets {
            if let Some(share) = shares.get(name).and_then(parse_number) {
                parsed
                    .figures
                    .insert(Metric::AttainmentOf(target), exact_value(line, Some(share)));
            }
        }
    }
    if let Some(info) = object.get("server_info") {
        apply_server_info(&mut parsed, info);
    }
    apply_matrix_fields(&mut parsed, object);
    check_lists(&mut parsed, object);
    Ok(parsed)
}

/// Reads facts from the server's information about itself, if the client stored it.
fn apply_server_info(result: &mut ResultBlock, info: &Value) {
    let text = |key: &str| info.get(key).and_then(Value::as_str).map(str::to_owned);
    let size = |key: &str| {
        let size = info.get(key).and_then(Value::as_u64)?;
        u32::try_from(size).ok().filter(|size| *size > 0)
    };
    let started = &mut result.launch_info;
    started.model = text("model_path");
    started.tp = size("tp_size");
    started.pp = size("pp_size");
    started.dp = size("dp_size");
    started.ep = size("ep_size");
    started.precision = text("quantization");
    // Other servers use SGLang's keys too, so the requested backend decides.
    let is_backend = result
        .options
        .backend
        .as_ref()
        .is_none_or(|backend| backend.starts_with("sglang"));
    let is_sglang = is_backend && started.model.is_some() && info.get("tp_size").is_some();
    if is_sglang {
        result.engine = Some(EngineTitle {
            name: "SGLang".to_owned(),
            version: text("version"),
        });
    }
}

/// Reads our own fields of a line that `matrix` wrote.
fn apply_matrix_fields(result: &mut ResultBlock, object: &Map<String, Value>) {
    let Some(Value::Object(ours)) = object.get("matrix") else {
        return;
    };
    result.is_from_matrix = true;
    let text = |key: &str| ours.get(key).and_then(Value::as_str).map(str::to_owned);
    let size = |key: &str| {
        let size = ours.get(key).and_then(Value::as_u64)?;
        u32::try_from(size).ok().filter(|size| *size > 0)
    };
    if let Some(name) = text("engine") {
        let version = text("version").or_else(|| text("reported_version"));
        result.engine = Some(EngineTitle { name, version });
    }
    result.cell = text("cell")
        .map(|key| cell_suffix(&key))
        .filter(|key| !key.is_empty());
    result.start = size("start");
    result.matrix_figures = ours
        .get("figures")
        .and_then(|figures| MetricValues::deserialize(figures).ok())
        .filter(|figures| !figures.is_empty());
    result.is_simulated = text("origin").as_deref() == Some("simulated")
        || ours.get("simulated").and_then(Value::as_bool) == Some(true);
    let judged = ours.get("validity").filter(|judged| !judged.is_null());
    match judged.map(Validity::deserialize) {
        None => {}
        Some(Ok(validity)) => result.reasons = validity.reasons,
        Some(Err(error)) => result.warn(
            result.line,
            WarningSubject::Figures,
            format!("the field `matrix.validity` of this result cannot be read: {error}"),
        ),
    }
    let started = &mut result.launch_info;
    started.tp = started.tp.or_else(|| size("tp"));
    started.precision = started.precision.take().or_else(|| text("precision"));
    let options = &mut result.options;
    options.model = options.model.take().or_else(|| text("model"));
    options.seed = options.seed.or_else(|| ours.get("seed").and_then(Value::as_u64));
    options.prompts = options
        .prompts
        .or_else(|| ours.get("prompts").and_then(Value::as_u64));
}

/// The part of a cell key that the line has in no other field.
fn cell_suffix(key: &str) -> String {
    const KNOWN_AXES: [&str; 5] = ["engine", "version", "model", "precision", "tp"];
    let is_told = |part: &&str| {
        part.split_once('=')
            .is_some_and(|(axis, _)| KNOWN_AXES.contains(&axis))
    };
    let parts: Vec<&str> = key.split(',').filter(|part| !is_told(part)).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ours_tell_engine_version_and_cell() {
        let line = |engine: &str, version: &str, scenario: &str, start: u32| {
            format!(
                r#"{{"backend": "vllm", "completed": 4, "duration": 2.0, "matrix": {{"engine": "{engine}", "version": "{version}",
                "cell": "engine={engine},model=m,scenario={scenario},version={version}", "model": "m", "tp": 2, "start": {start}}}}}"#
            )
            .replace('\n', " ")
        };
        let text = [
            line("a", "1", "load", 1),
            line("a", "1", "load", 2),
            line("b", "1", "load", 1),
            line("a", "2", "load", 1),
            line("a", "1", "other", 1),
        ];
        let reading = super::super::read("results.jsonl", &text.join("\n")).unwrap();
        let run = super::super::build_run("r", &[reading], super::super::ImportContent::WithCommands);
        let cells: Vec<_> = run.plan.cells.iter().map(|cell| cell.key.to_string()).collect();
        assert_eq!(cells.len(), 4, "{cells:#?}");
        let starts: Vec<u32> = run.summaries.iter().map(|summary| summary.start).collect();
        assert_eq!(starts, [1, 2, 1, 1, 1]);
        assert!(run.summaries.iter().all(|summary| summary.repeat == 1));
    }

    #[test]
    fn lines_of_ours_keep_that_they_are_simulated_and_what_was_found_of_them() {
        let reason = r#"{"code": "cache-warm", "weight": "invalid", "measured": "x", "advice": "y"}"#;
        let text = format!(
            r#"{{"completed": 4, "duration": 2.0, "matrix": {{"engine": "a", "origin": "simulated",
            "validity": {{"verdict": "invalid", "reasons": [{reason}]}}}}}}"#
        );
        let reading = super::super::read("results.jsonl", &text.replace('\n', " ")).unwrap();
        let run = super::super::build_run("r", &[reading], super::super::ImportContent::WithCommands);
        assert!(run.plan.launches[0].engine.simulated);
        assert!(run.summaries[0].is_invalid());
        let bench = r#"{"completed": 4, "duration": 2.0, "matrix": {"simulated": true}}"#;
        let reading = super::super::read("b.jsonl", bench).unwrap();
        let run = super::super::build_run("r", &[reading], super::super::ImportContent::WithCommands);
        assert!(run.plan.launches[0].engine.simulated);
    }

    #[test]
    fn lists_of_requests_that_contradict_the_figures_make_them_suspect() {
        let message = |more: &str| -> Vec<String> {
            let text = format!(r#"{{"completed": 2, "duration": 2.0, {more}}}"#);
            let reading = super::super::read("b.jsonl", &text).unwrap();
            let warnings = reading.results[0].warnings.iter();
            warnings.map(|warning| warning.message.clone()).collect()
        };
        let whole = r#""mean_ttft_ms": 150.0, "ttfts": [0.1, 0.2], "errors": ["", ""]"#;
        let failed =
            r#""failed": 1, "mean_ttft_ms": 150.0, "ttfts": [0.1, 0.2, 0.0], "errors": ["", "", "timeout"]"#;
        for fine in [whole, failed] {
            assert_eq!(message(fine), [] as [String; 0], "{fine}");
        }
        for (wrong, why) in [
            (
                r#""errors": ["", "timeout"]"#,
                "the file lists errors for 1 of 2 requests, but counts 2 requests as successful",
            ),
            (
                r#""ttfts": [0.1]"#,
                "2 requests succeeded, but only 1 have a TTFT",
            ),
            (
                r#""mean_ttft_ms": 20.0, "ttfts": [0.1, 0.2]"#,
                "mean TTFT is 20.00 ms, but the TTFTs of the requests have a mean of 150.00 ms",
            ),
            (
                r#""num_prompts": 3, "failed": 2"#,
                "2 requests succeeded and 2 failed, but the client was configured to send only 3",
            ),
        ] {
            assert_eq!(message(wrong), [why], "{wrong}");
        }
    }

    #[test]
    fn what_python_writes_is_made_strict_outside_of_texts() {
        let text = r#"{"a": Infinity, "b": [NaN, -Infinity], "c": "NaN \" Infinity", "d": null}"#;
        let strict = strict_json(text);
        let expected = r#"{"a": "inf", "b": [null, "-inf"], "c": "NaN \" Infinity", "d": null}"#;
        assert_eq!(strict, expected);
        assert!(serde_json::from_str::<Value>(&strict).is_ok());
    }
}
