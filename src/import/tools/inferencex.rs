//! Reads aggregates of InferenceX (formerly InferenceMAX), `agg_*.json`, alone or as a list.
//!
//! Their client is a fork of bench_serving, so latencies have its definitions. Throughput is given for each GPU:
//! where prefill and decode have their own, prompts are divided by the GPUs of prefill and outputs by those of
//! decode.

use serde_json::Value;

use super::fields::{MAX_GPUS, are_close, gpu_count, number, put, put_scaled, small_count, text};
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, Statistic};
use crate::config::workload::Profile;
use crate::import::result_block::{EngineTitle, Parsed, ResultBlock, Warning, WarningSubject};
use crate::results::record::provenance::Tool;

/// Maximum relative difference between figures that follow from each other.
const MAX_DIFFERENCE: f64 = 0.01;

/// Minimum share of the output throughput that follows from concurrency and latencies. The first and the last
/// requests of a load do not fill all slots.
const MIN_SLOT_RATE_SHARE: f64 = 1.0 / 3.0;

/// The statistics of a latency, by the beginning of their names.
const STATISTICS: [(&str, Statistic); 7] = [
    ("mean", Statistic::Mean),
    ("median", Statistic::Median),
    ("std", Statistic::Std),
    ("p90", Statistic::P90),
    ("p95", Statistic::P95),
    ("p99", Statistic::P99),
    ("p99.9", Statistic::P999),
];

/// The latencies, by the end of their names.
const TIMES: [(&str, LatencyKind); 4] = [
    ("ttft", LatencyKind::Ttft),
    ("tpot", LatencyKind::Tpot),
    ("itl", LatencyKind::Itl),
    ("e2el", LatencyKind::E2e),
];

pub(super) fn is_aggregate(document: &Value) -> bool {
    match document {
        Value::Array(rows) => rows.iter().any(is_row),
        other => is_row(other),
    }
}

fn is_row(row: &Value) -> bool {
    ["hw", "framework", "conc", "tput_per_gpu"]
        .iter()
        .all(|key| row.get(key).is_some())
}

pub(super) fn read(document: &Value) -> Result<Parsed, String> {
    let rows = match document {
        Value::Array(rows) => rows.as_slice(),
        one => std::slice::from_ref(one),
    };
    let (mut results, mut warnings) = (Vec::new(), Vec::new());
    for (row, at) in rows.iter().zip(1..) {
        if rows[..at - 1].contains(row) {
            let message = format!("row {at} repeats an earlier row and is ignored");
            warnings.push(Warning::new(1, WarningSubject::Nothing, message));
            continue;
        }
        match read_row(row) {
            Some(mut result) => {
                name_differences(&mut result, row, rows);
                if let Some(other) = rows
                    .iter()
                    .position(|other| is_row(other) && has_settings(other, row))
                    .filter(|other| *other + 1 < at)
                {
                    let message = format!(
                        "rows {} and {at} have the same settings but different figures. They are imported as two starts of one engine; if they belong to two engines, remove one of them",
                        other + 1
                    );
                    result.warn(1, WarningSubject::Figures, message);
                }
                results.push(result);
            }
            None => {
                let message = format!(
                    "row {at} is ignored: it is not a result of InferenceX, or its number of GPUs is missing or above {MAX_GPUS}"
                );
                warnings.push(Warning::new(1, WarningSubject::Nothing, message));
            }
        }
    }
    match results.is_empty() {
        true => Err("no row of the file has both a number of GPUs and a throughput".to_owned()),
        false => Ok((results, warnings)),
    }
}

/// Whether two rows differ in nothing but figures.
fn has_settings(row: &Value, other: &Value) -> bool {
    let is_figure = |key: &str| {
        let times = TIMES.iter().map(|(end, _)| *end).chain(["intvty"]);
        key.contains("tput") || times.into_iter().any(|end| key.ends_with(end))
    };
    let settings = |row: &Value| {
        let fields = row.as_object().into_iter().flatten();
        let mut kept = fields
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<serde_json::Map<_, _>>();
        kept.retain(|key, _| !is_figure(key));
        kept
    };
    settings(row) == settings(other)
}

/// Adds parallel sizes to the variant, if the rows of the file differ in them.
fn name_differences(result: &mut ResultBlock, row: &Value, rows: &[Value]) {
    for (key, label) in [("ep", "ep"), ("pcp_size", "pcp"), ("dcp_size", "dcp")] {
        let is_other = |other: &Value| is_row(other) && other.get(key) != row.get(key);
        let size = small_count(row, &format!("/{key}")).filter(|size| *size > 1);
        if let Some(size) = size.filter(|_| rows.iter().any(is_other)) {
            result.append_to_variant(&format!("{label}{size}"));
        }
    }
}

/// The GPUs that throughput is divided by.
struct Gpus {
    all: u32,
    /// Of prefill, for prompts.
    prefill: u32,
    /// Of decode, for outputs.
    decode: u32,
}

impl Gpus {
    /// `None` if the row does not name them.
    fn of_row(row: &Value) -> Option<Self> {
        let size = |key: &str| gpu_count(row, &format!("/{key}"));
        let parts = size("num_prefill_gpu").zip(size("num_decode_gpu"));
        let gpus = match parts {
            Some((prefill, decode)) => {
                let all = prefill.checked_add(decode)?;
                Self {
                    all,
                    prefill: if prefill > 0 { prefill } else { all },
                    // Without GPUs of their own, decode runs on those of prefill.
                    decode: if decode > 0 { decode } else { all },
                }
            }
            None => {
                // A size that is there, but is none, is not one.
                let of_key = |key: &str| row.get(key).map_or(Some(1), |_| size(key));
                let (pp, pcp) = (of_key("pp")?, of_key("pcp_size")?);
                let all = size("tp")?.checked_mul(pp)?.checked_mul(pcp)?;
                Self {
                    all,
                    prefill: all,
                    decode: all,
                }
            }
        };
        (1..=MAX_GPUS).contains(&gpus.all).then_some(gpus)
    }
}

fn read_row(row: &Value) -> Option<ResultBlock> {
    if !is_row(row) {
        return None;
    }
    let gpus = Gpus::of_row(row)?;
    let total = number(row, "/tput_per_gpu")? * f64::from(gpus.all);
    let mut result = ResultBlock::new(1, Tool::Inferencex, Profile::Current);
    put(&mut result, Metric::Throughput(Quantity::Total), Some(total));
    let output = number(row, "/output_tput_per_gpu").map(|rate| rate * f64::from(gpus.decode));
    put(&mut result, Metric::Throughput(Quantity::Output), output);
    let input = number(row, "/input_tput_per_gpu").map(|rate| rate * f64::from(gpus.prefill));
    put(&mut result, Metric::Throughput(Quantity::Input), input);
    for (beginning, statistic) in STATISTICS {
        for (end, kind) in TIMES {
            let seconds = number(row, &format!("/{beginning}_{end}"));
            put_scaled(&mut result, Metric::Time(statistic, kind), seconds, 1000.0);
        }
    }
    read_launch(&mut result, row, &gpus);
    warn_about_contradictions(&mut result, row);
    if let Some(message) = low_throughput(&result) {
        result.warn(1, WarningSubject::Figures, message);
    }
    Some(result)
}

fn read_launch(result: &mut ResultBlock, row: &Value, gpus: &Gpus) {
    let size = |key: &str| small_count(row, &format!("/{key}")).filter(|size| *size > 0);
    let image = text(row, "/image").map(|image| image.replace('#', "/"));
    // A tag names a build, `latest` does not.
    let tag = image
        .as_deref()
        .and_then(|image| image.rsplit_once(':'))
        .map(|(_, tag)| tag.to_owned())
        .filter(|tag| tag.contains(|digit: char| digit.is_ascii_digit()) && !tag.contains('/'));
    result.engine = text(row, "/framework").map(|name| EngineTitle { name, version: tag });
    let launch = &mut result.launch_info;
    launch.image = image;
    launch.gpus = Some(gpus.all);
    launch.gpu = text(row, "/hw");
    launch.precision = text(row, "/precision");
    if row.get("num_prefill_gpu").is_none() {
        launch.tp = size("tp");
        launch.pp = size("pp");
        launch.ep = size("ep");
    }
    result.variant = variant(row);
    let options = &mut result.options;
    options.line = 1;
    options.model = text(row, "/model");
    options.concurrency = size("conc");
    result.workload = size("isl")
        .zip(size("osl"))
        .map(|(input, output)| format!("random-{input}-{output}"));
}

/// Settings of the engine that have no field of their own.
fn variant(row: &Value) -> Option<String> {
    let is_on = |key: &str| match row.get(key) {
        Some(Value::Bool(is_on)) => *is_on,
        Some(Value::String(word)) => word.eq_ignore_ascii_case("true"),
        _ => false,
    };
    let mut parts = Vec::new();
    parts.extend(text(row, "/spec_decoding").filter(|word| word != "none"));
    if is_on("dp_attention") {
        parts.push("dp-attention".to_owned());
    }
    if row.get("num_prefill_gpu").is_some() {
        if is_on("disagg") {
            parts.push("disaggregated".to_owned());
        }
        for role in ["prefill", "decode"] {
            let size = |key: &str| small_count(row, &format!("/{role}_{key}")).unwrap_or(0);
            let attention = match is_on(&format!("{role}_dp_attention")) {
                true => " dp-attention",
                false => "",
            };
            parts.push(format!(
                "{role} {}x tp{} ep{}{attention}",
                size("num_workers"),
                size("tp"),
                size("ep")
            ));
        }
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Describes a throughput of zero, or one far below that of full slots. The client keeps `conc` requests in flight,
/// and an answer has 1 + (E2E − TTFT) / TPOT tokens.
fn low_throughput(result: &ResultBlock) -> Option<String> {
    let rate = |quantity| result.figure(Metric::Throughput(quantity));
    let mean = |kind| result.figure(Metric::Time(Statistic::Mean, kind));
    let (rate, name) = match rate(Quantity::Output) {
        Some(output) => (output, "output throughput"),
        None => (rate(Quantity::Total)?, "total throughput"),
    };
    if rate <= 0.0 {
        return Some(format!(
            "{name} is 0 tok/s, so the row is no measurement of completed requests"
        ));
    }
    let slots = result.options.concurrency?;
    let (ttft, tpot, e2e) = (
        mean(LatencyKind::Ttft)?,
        mean(LatencyKind::Tpot).filter(|tpot| *tpot > 0.0)?,
        mean(LatencyKind::E2e).filter(|e2e| *e2e > 0.0)?,
    );
    let tokens = 1.0 + (e2e - ttft).max(0.0) / tpot;
    let full = f64::from(slots) * tokens / e2e * 1000.0;
    (rate < MIN_SLOT_RATE_SHARE * full).then(|| {
        format!(
            "{name} is {rate:.2} tok/s, but {slots} requests at once with a mean E2E of {e2e:.2} ms and about \
             {tokens:.0} output tokens each give about {full:.2} tok/s"
        )
    })
}

/// Compares figures that the aggregate computes from each other.
fn warn_about_contradictions(result: &mut ResultBlock, row: &Value) {
    let rate = |quantity| result.figure(Metric::Throughput(quantity));
    let parts = rate(Quantity::Input).zip(rate(Quantity::Output));
    let mut messages = Vec::new();
    if let (Some(total), Some((input, output))) = (rate(Quantity::Total), parts)
        && !are_close(total, input + output, MAX_DIFFERENCE)
    {
        messages.push(format!(
            "input and output throughput add up to {:.2} tok/s, but total throughput is {total:.2} tok/s",
            input + output
        ));
    }
    for statistic in ["mean", "median", "p99"] {
        let tpot = number(row, &format!("/{statistic}_tpot"));
        let interactivity = number(row, &format!("/{statistic}_intvty"));
        if let Some((tpot, interactivity)) = tpot.zip(interactivity)
            && tpot > 0.0
            && !are_close(1.0 / tpot, interactivity, MAX_DIFFERENCE)
        {
            messages.push(format!(
                "{statistic} interactivity is {interactivity:.2} tok/s, but 1 / {statistic} TPOT is {:.2} tok/s",
                1.0 / tpot
            ));
        }
    }
    for message in messages {
        result.warn(1, WarningSubject::Figures, message);
    }
}
