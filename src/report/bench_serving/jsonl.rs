//! bench_serving's result line, with its keys and with our own under the key `matrix`.
//!
//! The line is strict JSON: an infinite rate is the string `"inf"`, a figure without a value is `null`.

use serde_json::{Map, Value, json};

use crate::analysis::metrics::{
    self, LatencyKind, Metric, Quantity,
    Statistic::{Mean, Median, P90, P95, P99, Std},
    TokenCount,
};
use crate::config::scenario::Slo;
use crate::plan::{Cell, Launch};
use crate::report::bench_serving::python;
use crate::report::bench_serving::traffic::Traffic;
use crate::results::record::cell::{Definitions, MeasurementStatus, MeasurementSummary, MetricValues};

/// Default of bench_serving's length options.
///
/// Source: docs/bench-serving.md 10.
const DEFAULT_LENGTH: u32 = 1024;

/// The line of one measurement, without a line break. Its figures follow the profile `current`.
///
/// Source: docs/bench-serving.md 9.
pub(crate) fn line(launch: &Launch, cell: &Cell, summary: &MeasurementSummary) -> String {
    let none = MetricValues::new();
    let figures = |definitions| summary.figures.get(&definitions).unwrap_or(&none);
    let mut line = Map::new();
    add_requested(&mut line, launch, cell, summary);
    // An import has the figures that were printed, whichever profile they follow.
    let theirs = match (
        &summary.imported,
        summary.figures.contains_key(&Definitions::Current),
    ) {
        (Some(_), false) => figures(Definitions::Classic),
        _ => figures(Definitions::Current),
    };
    add_measured(&mut line, theirs);
    if let Some(slo) = &cell.scenario.slo {
        add_goodput(&mut line, theirs, slo);
    }
    let ours = matrix_fields(launch, cell, summary, figures(Definitions::Matrix));
    line.insert("matrix".to_owned(), ours);
    python::json(&Value::Object(line))
}

fn add_requested(line: &mut Map<String, Value>, launch: &Launch, cell: &Cell, summary: &MeasurementSummary) {
    let (workload, arrival) = (&cell.scenario.workload, summary.arrival(&cell.scenario));
    let facts = workload.facts();
    let is_drawn = facts.output_flag == Some("random-output-len");
    let is_grouped = facts.output_flag == Some("gsp-output-len");
    let length = |length: Option<u32>| length.filter(|_| is_drawn).unwrap_or(DEFAULT_LENGTH);
    let fields = [
        ("tag", Value::Null),
        ("backend", json!(launch.engine.backend)),
        ("dataset_name", json!(workload.dataset.bench_serving_name())),
        (
            "request_rate",
            Traffic::from_scenario(&cell.scenario, &arrival).json(),
        ),
        ("max_concurrency", json!(arrival.concurrency)),
        (
            "sharegpt_output_len",
            json!(facts.output_len.filter(|_| !is_drawn && !is_grouped)),
        ),
        ("random_input_len", json!(length(facts.input_len()))),
        ("random_output_len", json!(length(facts.output_len))),
        (
            "random_range_ratio",
            json!(facts.drawn.map_or(0.0, |drawn| drawn.range_ratio)),
        ),
        ("server_info", json!(summary.engine.info)),
    ];
    insert_fields(line, fields);
}

pub(in crate::report) fn add_measured(line: &mut Map<String, Value>, figures: &MetricValues) {
    let float = |metric| json!(metrics::metric_value(figures, metric));
    let whole = |metric| match metrics::metric_value(figures, metric) {
        Some(value) => json!(value as u64),
        None => Value::Null,
    };
    let (text, vision) = input_tokens_by_kind(figures).unzip();
    let fields = [
        ("duration", float(Metric::Duration)),
        ("completed", whole(Metric::Completed)),
        ("total_input_tokens", whole(Metric::Tokens(TokenCount::Input))),
        ("total_input_text_tokens", json!(text)),
        ("total_input_vision_tokens", json!(vision)),
        ("total_output_tokens", whole(Metric::Tokens(TokenCount::Output))),
        (
            "total_output_tokens_retokenized",
            whole(Metric::Tokens(TokenCount::OutputCounted)),
        ),
        (
            "request_throughput",
            float(Metric::Throughput(Quantity::Requests)),
        ),
        ("input_throughput", float(Metric::Throughput(Quantity::Input))),
        ("output_throughput", float(Metric::Throughput(Quantity::Output))),
        ("total_throughput", float(Metric::Throughput(Quantity::Total))),
    ];
    insert_fields(line, fields);
    for (name, sample) in [
        ("e2e_latency", LatencyKind::E2e),
        ("ttft", LatencyKind::Ttft),
        ("tpot", LatencyKind::Tpot),
        ("itl", LatencyKind::Itl),
    ] {
        for (word, statistic) in [
            ("mean", Mean),
            ("median", Median),
            ("std", Std),
            ("p90", P90),
            ("p95", P95),
            ("p99", P99),
        ] {
            line.insert(
                format!("{word}_{name}_ms"),
                float(Metric::Time(statistic, sample)),
            );
        }
    }
    let fields = [
        ("concurrency", float(Metric::MeanConcurrency)),
        ("accept_length", float(Metric::AcceptLength)),
        ("max_output_tokens_per_s", float(Metric::PeakOutput)),
        ("max_concurrent_requests", whole(Metric::PeakConcurrency)),
    ];
    insert_fields(line, fields);
}

/// Prompt tokens of text and of images. Old runs had no images and no figure for them.
pub(in crate::report) fn input_tokens_by_kind(figures: &MetricValues) -> Option<(u64, u64)> {
    // Only the server knows which tokens of a prompt stand for a recording.
    if figures.contains_key(&Metric::AudioDuration.name()) {
        return None;
    }
    let tokens = |count| metrics::metric_value(figures, Metric::Tokens(count)).map(|tokens| tokens as u64);
    let (input, vision) = (
        tokens(TokenCount::Input)?,
        tokens(TokenCount::InputVision).unwrap_or(0),
    );
    Some((input.saturating_sub(vision), vision))
}

pub(in crate::report) fn add_goodput(line: &mut Map<String, Value>, figures: &MetricValues, slo: &Slo) {
    let float = |metric| json!(metrics::metric_value(figures, metric));
    let limits = metrics::slo_limits(slo);
    let by_target = |value: &dyn Fn(metrics::Target, f64) -> Value| -> Value {
        let fields = limits
            .iter()
            .map(|(target, limit)| (target.bench_serving_name().to_owned(), value(*target, *limit)));
        Value::Object(fields.collect())
    };
    let fields = [
        ("goodput_slos_ms", by_target(&|_, limit| json!(limit))),
        ("request_goodput", float(Metric::Goodput)),
        ("slo_attainment", float(Metric::Attainment)),
        (
            "slo_attainment_by_metric",
            by_target(&|target, _| float(Metric::AttainmentOf(target))),
        ),
    ];
    insert_fields(line, fields);
}

fn matrix_fields(
    launch: &Launch,
    cell: &Cell,
    summary: &MeasurementSummary,
    figures: &MetricValues,
) -> Value {
    let (phase, reason) = match &summary.status {
        MeasurementStatus::Failed { phase, reason, .. } => (Some(phase.name()), Some(reason)),
        MeasurementStatus::Skipped { reason } => (None, Some(reason)),
        MeasurementStatus::Done | MeasurementStatus::Interrupted => (None, None),
    };
    let failures: Map<String, Value> = summary
        .failures
        .iter()
        .map(|(class, count)| (class.name().to_owned(), json!(count)))
        .collect();
    let mut ours = json!({
        "format": summary.format,
        "cell": summary.cell,
        "content": summary.content,
        "start": summary.start,
        "repeat": summary.repeat,
        "engine": launch.engine.name,
        "version": launch.engine.version,
        "reported_version": summary.engine.version,
        "model": launch.model,
        "checkpoint": launch.checkpoint,
        "precision": launch.precision,
        "tp": launch.parallel.tp,
        "devices": launch.gpus(),
        "scenario": cell.scenario.name,
        "profile": cell.scenario.profile,
        "origin": summary.origin,
        "validity": summary.validity,
        "ending": summary.status.name(),
        "phase": phase,
        "reason": reason,
        "began": summary.began,
        "ended": summary.ended,
        "prompts_hash": summary.prompts_hash,
        "schedule_hash": summary.schedule_hash,
        "arrival": summary.arrival(&cell.scenario),
        "search": summary.search,
        "client": summary.client,
        "failures": failures,
        "warnings": summary.warnings,
        "figures": figures,
    });
    let prefix = summary
        .cache_reset
        .as_ref()
        .and_then(|proof| proof.unique_prefix.as_ref());
    if let Some(prefix) = prefix {
        ours["unique_prefix"] = json!(prefix);
    }
    ours
}

pub(in crate::report) fn insert_fields<const N: usize>(
    line: &mut Map<String, Value>,
    fields: [(&str, Value); N],
) {
    line.extend(fields.map(|(name, value)| (name.to_owned(), value)));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::units::{HumanDuration, RequestRate};
    use crate::config::dataset::Dataset;
    use crate::config::dataset::random::Random;
    use crate::config::dataset::sharegpt::Sharegpt;
    use crate::report::testing::Case;
    use crate::results::record::cell::Phase;

    fn line_of(case: &Case) -> String {
        line(&case.launch, &case.cell, &case.summaries[0])
    }

    #[test]
    fn the_line_has_bench_servings_keys_in_order_and_ours_last() {
        let mut case = Case::new("vllm", "bf16", 2, 4000.0);
        let limit = |ms| Some(HumanDuration(Duration::from_millis(ms)));
        case.cell.scenario.slo = Some(Slo {
            speed: None,
            ttft: limit(500),
            tpot: None,
            e2e: limit(3000),
        });
        let line = line_of(&case);
        assert!(!line.contains('\n') && line.is_ascii());
        insta::assert_snapshot!("jsonl", line.replace(", \"", ",\n\""));
    }

    #[test]
    fn rates_and_lengths_are_those_that_were_asked_for() {
        let mut case = Case::new("vllm", "bf16", 1, 4000.0);
        case.cell.scenario.arrival.rate = RequestRate::new(4.0).unwrap();
        case.cell.scenario.workload.dataset = Dataset::from(Sharegpt {
            output_len: Some(8),
            ..Sharegpt::default()
        });
        let line = line_of(&case);
        assert!(line.contains(r#""request_rate": 4.0, "max_concurrency": null, "sharegpt_output_len": 8, "#));
        assert!(line.contains(r#""random_output_len": 1024, "random_range_ratio": 0.0"#));
        case.cell.scenario.workload.dataset = Dataset::from(Random {
            input_len: Some(16),
            output_len: Some(8),
            range_ratio: 0.0,
            tokenize_prompt: false,
            lengths: None,
            common_prefix: None,
        });
        let line = line_of(&case);
        assert!(
            line.contains(r#""sharegpt_output_len": null, "random_input_len": 16, "random_output_len": 8"#)
        );
    }

    #[test]
    fn a_failed_cell_is_a_line_with_nulls_and_its_reason() {
        let case = Case::new("vllm", "bf16", 1, 1.0).with_failure(Phase::Launch, "it \"died\"");
        let value: Value = serde_json::from_str(&line_of(&case)).unwrap();
        assert_eq!(value["output_throughput"], Value::Null);
        assert_eq!(value["completed"], Value::Null);
        assert_eq!(value["total_input_vision_tokens"], Value::Null);
        assert_eq!(value["matrix"]["ending"], "failed");
        assert_eq!(value["matrix"]["phase"], "launch");
        assert_eq!(value["matrix"]["reason"], "it \"died\"");
    }
}
