//! Reads benchmark reports of llm-d, versions 0.1 and 0.2.
//!
//! A report holds the figures of another tool, the harness, under common names: which definition a figure
//! follows depends on the harness.

use serde_json::Value;

use super::fields::{
    are_close, count, first_number, first_text, gpu_count, ms_per_unit, number, put, put_times, small_count,
    text,
};
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, TokenCount};
use crate::config::workload::Profile;
use crate::import::result_block::{EngineTitle, Parsed, ResultBlock, WarningSubject};
use crate::results::record::provenance::Tool;

/// Maximum relative difference between a duration and the one that throughput is computed over.
const MAX_DURATION_DIFFERENCE: f64 = 0.01;

/// The places of the figures, which versions name differently.
struct Layout {
    /// Below it are `requests`, `latency` and `throughput`.
    figures: &'static str,
    /// The name of the harness.
    harness: &'static str,
    throughput: [(&'static str, Quantity); 4],
}

const VERSION_1: Layout = Layout {
    figures: "/metrics",
    harness: "/scenario/load/name",
    throughput: [
        ("requests_per_sec", Quantity::Requests),
        ("input_tokens_per_sec", Quantity::Input),
        ("output_tokens_per_sec", Quantity::Output),
        ("total_tokens_per_sec", Quantity::Total),
    ],
};

const VERSION_2: Layout = Layout {
    figures: "/results/request_performance/aggregate",
    harness: "/scenario/load/standardized/tool",
    throughput: [
        ("request_rate/mean", Quantity::Requests),
        ("input_token_rate/mean", Quantity::Input),
        ("output_token_rate/mean", Quantity::Output),
        ("total_token_rate/mean", Quantity::Total),
    ],
};

pub(super) fn is_report(document: &Value) -> bool {
    let is_known = |layout: &Layout| {
        document
            .pointer(layout.figures)
            .is_some_and(|figures| figures.get("requests").is_some())
    };
    version(document).is_some() && (is_known(&VERSION_1) || is_known(&VERSION_2))
}

/// The version of the format, which YAML may read as a number.
fn version(document: &Value) -> Option<String> {
    match document.get("version")? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(super) fn read(document: &Value) -> Result<Parsed, String> {
    let version = version(document).unwrap_or_default();
    let layout = match version.as_str() {
        "0.1" => VERSION_1,
        version if version == "0.2" || version.starts_with("0.2.") => VERSION_2,
        _ => {
            return Err(format!(
                "the benchmark report has version `{version}`; only versions 0.1 and 0.2 can be read"
            ));
        }
    };
    let none = Value::Null;
    let figures = document.pointer(layout.figures).unwrap_or(&none);
    let harness = text(document, layout.harness).unwrap_or_default();
    let mut result = ResultBlock::new(1, Tool::LlmdReport, Profile::Current);
    let harness_version = text(document, "/scenario/load/standardized/tool_version");
    let words = [Some(harness.clone()), harness_version];
    let words: Vec<String> = words
        .into_iter()
        .flatten()
        .filter(|word| !word.is_empty())
        .collect();
    result.tool_version = Some(format!("{version} of {}", words.join(" "))).filter(|_| !words.is_empty());
    result.e2e_ends_at_token = harness == "aiperf";
    put_requests(&mut result, figures, &harness);
    if result
        .figure(Metric::Completed)
        .is_none_or(|completed| completed < 1.0)
    {
        return Err("the benchmark report has no completed request".to_owned());
    }
    for (key, quantity) in layout.throughput {
        let rate = number(figures, &format!("/throughput/{key}"));
        put(
            &mut result,
            Metric::Throughput(quantity),
            rate.filter(|rate| *rate > 0.0),
        );
    }
    put_latencies(&mut result, figures, &harness);
    put_duration(&mut result, document);
    put_tokens(&mut result, figures);
    read_load(&mut result, document);
    read_stack(&mut result, document);
    Ok((vec![result], Vec::new()))
}

/// Sets the numbers of requests. A report of AIPerf counts completed requests as total, and kinds of errors as
/// failures.
fn put_requests(result: &mut ResultBlock, figures: &Value, harness: &str) {
    let Some(total) = number(figures, "/requests/total") else {
        return;
    };
    let failures = number(figures, "/requests/failures");
    if harness == "aiperf" {
        put(result, Metric::Completed, Some(total));
        if failures.is_some_and(|failures| failures > 0.0) {
            let message = "a report of AIPerf counts how many kinds of errors occurred, not how many requests \
                failed; the number of failed requests is therefore unknown";
            result.warn(1, WarningSubject::Nothing, message);
        } else {
            put(result, Metric::Failed, failures);
        }
        return;
    }
    let incomplete = number(figures, "/requests/incomplete");
    let completed = total - failures.unwrap_or(0.0) - incomplete.unwrap_or(0.0);
    put(
        result,
        Metric::Completed,
        Some(completed).filter(|completed| *completed >= 0.0),
    );
    put(result, Metric::Failed, failures);
    put(
        result,
        Metric::Cancelled,
        incomplete.filter(|incomplete| *incomplete > 0.0),
    );
    if completed < 0.0 {
        let message = format!(
            "the failed and incomplete requests add up to more than the total number of requests ({total})"
        );
        result.warn(1, WarningSubject::Figures, message);
    }
}

/// The latencies that a harness defines as bench_serving does, by the name in reports. GuideLLM's inter-token
/// latency is TPOT only if all answers have one length.
fn latencies(harness: &str, has_equal_lengths: bool) -> &'static [(&'static str, LatencyKind)] {
    const COMMON: [(&str, LatencyKind); 2] = [
        ("time_to_first_token", LatencyKind::Ttft),
        ("request_latency", LatencyKind::E2e),
    ];
    match harness {
        "vllm-benchmark" | "inferencemax" => &[
            COMMON[0],
            COMMON[1],
            ("time_per_output_token", LatencyKind::Tpot),
            ("inter_token_latency", LatencyKind::Itl),
        ],
        "inference-perf" => &[COMMON[0], COMMON[1], ("time_per_output_token", LatencyKind::Tpot)],
        "guidellm" if has_equal_lengths => {
            &[COMMON[0], COMMON[1], ("inter_token_latency", LatencyKind::Tpot)]
        }
        "aiperf" => &[COMMON[0], COMMON[1], ("inter_token_latency", LatencyKind::Tpot)],
        _ => &COMMON,
    }
}

fn put_latencies(result: &mut ResultBlock, figures: &Value, harness: &str) {
    let has_equal_lengths = figures
        .pointer("/requests/output_length")
        .is_some_and(|lengths| number(lengths, "/min").is_some() && lengths.get("min") == lengths.get("max"));
    let known = latencies(harness, has_equal_lengths);
    for (key, kind) in known {
        let Some(statistics) = figures
            .pointer(&format!("/latency/{key}"))
            .filter(|value| !value.is_null())
        else {
            continue;
        };
        let unit = text(statistics, "/units").unwrap_or_default();
        match ms_per_unit(&unit) {
            Some(factor) => put_times(result, *kind, Some(statistics), factor),
            None => {
                let message = format!(
                    "`{key}` has the unit `{unit}`, which is not a known unit of time; `{key}` is ignored"
                );
                result.warn(1, WarningSubject::Nothing, message);
            }
        }
    }
    let is_left_out = |key: &str| {
        figures.pointer(&format!("/latency/{key}")).is_some() && known.iter().all(|(name, _)| *name != key)
    };
    let left_out: Vec<&str> = ["time_per_output_token", "inter_token_latency"]
        .into_iter()
        .filter(|key| is_left_out(key))
        .collect();
    if !left_out.is_empty() {
        let names = left_out.join("` and `");
        let message = match harness {
            "" => format!(
                "the report does not name its benchmark tool (harness), so the definition of `{names}` is unknown and the values are not imported"
            ),
            _ => format!(
                "`{names}` of {harness} do not follow bench_serving's definitions of TPOT and ITL, so they are not imported"
            ),
        };
        result.warn(1, WarningSubject::Nothing, message);
    }
}

/// Sets the duration, unless it is that of something else, such as of all stages of a load.
fn put_duration(result: &mut ResultBlock, document: &Value) {
    let written = number(document, "/metrics/time/duration")
        .or_else(|| iso_seconds(&text(document, "/run/time/duration")?));
    let by_rate = result
        .figure(Metric::Completed)
        .zip(result.figure(Metric::Throughput(Quantity::Requests)))
        .map(|(completed, rate)| completed / rate);
    let Some(written) = written else { return };
    match by_rate {
        Some(by_rate) if !are_close(written, by_rate, MAX_DURATION_DIFFERENCE) => {
            let message = format!(
                "the duration in the report is {written:.2} s, but its throughput implies {by_rate:.2} s; \
                 the duration is not imported"
            );
            result.warn(1, WarningSubject::Nothing, message);
        }
        _ => put(result, Metric::Duration, Some(written)),
    }
}

/// The seconds in a duration such as `PT1H2M3.5S` of ISO 8601.
fn iso_seconds(text: &str) -> Option<f64> {
    let mut rest = text.strip_prefix("PT")?;
    let mut seconds = 0.0;
    for (unit, factor) in [('H', 3600.0), ('M', 60.0), ('S', 1.0)] {
        if let Some((value, after)) = rest.split_once(unit) {
            seconds += value.parse::<f64>().ok()? * factor;
            rest = after;
        }
    }
    rest.is_empty().then_some(seconds)
}

/// Sets token sums from mean lengths. They are left out where throughput is computed from other ones.
fn put_tokens(result: &mut ResultBlock, figures: &Value) {
    let Some(completed) = result.figure(Metric::Completed) else {
        return;
    };
    let requests = result.figure(Metric::Throughput(Quantity::Requests));
    let duration = requests.map(|rate| completed / rate);
    for (key, token_count, quantity) in [
        ("input_length", TokenCount::Input, Quantity::Input),
        ("output_length", TokenCount::Output, Quantity::Output),
    ] {
        let mean = number(figures, &format!("/requests/{key}/mean"));
        let sum = mean.map(|mean| (mean * completed).round());
        let rate = result.figure(Metric::Throughput(quantity)).zip(duration);
        let is_used = |sum: &f64| {
            rate.is_none_or(|(rate, duration)| are_close(sum / duration, rate, MAX_DURATION_DIFFERENCE))
        };
        put(
            result,
            Metric::Tokens(token_count),
            sum.filter(|sum| *sum > 0.0 && is_used(sum)),
        );
    }
}

/// The load in the settings of the harness: the stage of inference-perf, or the only phase of AIPerf that counts.
fn load_of_harness(load: &Value) -> &Value {
    let stage = count(load, "/metadata/stage").unwrap_or(0);
    let of_stage = load.pointer(&format!("/args/load/stages/{stage}"));
    let phases = load
        .pointer("/native/config/phases")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut counted = phases.filter(|phase| text(phase, "/kind").as_deref() == Some("profiling"));
    let of_phase = counted.next().filter(|_| counted.next().is_none());
    of_stage.or(of_phase).unwrap_or(&Value::Null)
}

fn read_load(result: &mut ResultBlock, document: &Value) {
    let none = Value::Null;
    let load = document.pointer("/scenario/load").unwrap_or(&none);
    let options = &mut result.options;
    options.line = 1;
    let own = load_of_harness(load);
    options.rate = first_number(load, &["/standardized/rate_qps", "/args/qps_values"])
        .or_else(|| number(own, "/rate"))
        .filter(|rate| *rate > 0.0);
    options.concurrency = ["/concurrency", "/concurrency_level"]
        .iter()
        .find_map(|pointer| small_count(own, pointer))
        .or_else(|| small_count(load, "/standardized/concurrency"))
        .filter(|limit| *limit > 0);
    if options.rate.is_none() && options.concurrency.is_some() {
        options.rate = Some(f64::INFINITY);
    }
    options.seed = count(load, "/native/args/seed");
    options.model = first_text(
        document,
        &[
            "/scenario/model/name",
            "/scenario/load/native/config/server/model_name",
            "/scenario/load/native/config/models/items/0/name",
            "/scenario/load/native/config/spec/backend/model",
        ],
    )
    // Reports of runs outside a cluster.
    .filter(|model| model != "unknown");
    let lengths: Vec<String> = ["input_seq_len", "output_seq_len"]
        .iter()
        .filter_map(|key| number(load, &format!("/standardized/{key}/value")))
        .map(|length| length.to_string())
        .collect();
    let source = first_text(load, &["/standardized/source", "/type"]);
    let words: Vec<String> = source.into_iter().chain(lengths).collect();
    result.workload = (!words.is_empty()).then(|| words.join("-"));
}

/// Reads engine and GPUs. Several engines of different kinds leave them unknown.
fn read_stack(result: &mut ResultBlock, document: &Value) {
    let none = Vec::new();
    let list = |pointer: &str| {
        document
            .pointer(pointer)
            .and_then(Value::as_array)
            .unwrap_or(&none)
    };
    let engines: Vec<&Value> = match list("/scenario/stack").is_empty() {
        false => list("/scenario/stack")
            .iter()
            .filter_map(|component| component.get("standardized"))
            .filter(|component| text(component, "/kind").as_deref() == Some("inference_engine"))
            .collect(),
        true => list("/scenario/platform/engine").iter().collect(),
    };
    let accelerators: Vec<&Value> = match list("/scenario/host/accelerator").is_empty() {
        true => engines
            .iter()
            .filter_map(|engine| engine.get("accelerator"))
            .collect(),
        false => list("/scenario/host/accelerator").iter().collect(),
    };
    let common = |values: Vec<Option<String>>| {
        let first = values.first().cloned().flatten();
        first.filter(|first| values.iter().all(|value| value.as_ref() == Some(first)))
    };
    let of_engines = |pointers: [&str; 2]| {
        common(
            engines
                .iter()
                .map(|engine| first_text(engine, &pointers))
                .collect(),
        )
    };
    let version = of_engines(["/tool_version", "/version"]);
    let (image, version) = match version {
        Some(image) if image.contains('/') => {
            let tag = image.rsplit_once(':').map(|(_, tag)| tag.to_owned());
            (Some(image), tag)
        }
        version => (None, version),
    };
    result.engine = of_engines(["/tool", "/name"]).map(|name| EngineTitle { name, version });
    let options = &mut result.options;
    options.model = options
        .model
        .take()
        .or_else(|| of_engines(["/model/name", "/model"]));
    let launch = &mut result.launch_info;
    launch.image = image;
    launch.precision = text(document, "/scenario/model/quantization");
    launch.gpu = common(accelerators.iter().map(|one| text(one, "/model")).collect());
    let has_replicas = engines
        .iter()
        .any(|engine| number(engine, "/replicas").is_some_and(|count| count > 1.0));
    let counts: Option<u32> = accelerators.iter().map(|one| small_count(one, "/count")).sum();
    // Reports count the accelerators of one replica, or of all.
    launch.gpus = counts.filter(|count| *count > 0 && !has_replicas);
    for message in accelerators.iter().filter_map(|one| count_contradiction(one)) {
        result.warn(1, WarningSubject::Figures, message);
    }
    let launch = &mut result.launch_info;
    if let [one] = accelerators[..] {
        let size = |key: &str| gpu_count(one, &format!("/parallelism/{key}")).filter(|size| *size > 0);
        (launch.tp, launch.pp) = (size("tp"), size("pp"));
        (launch.dp, launch.ep) = (size("dp"), size("ep"));
    }
}

/// Describes a number of accelerators that contradicts the parallel sizes of the engines. Data-parallel ranks
/// may share the accelerators of tensor-parallel ranks, and several replicas may be counted together.
fn count_contradiction(accelerator: &Value) -> Option<String> {
    let count = small_count(accelerator, "/count").filter(|count| *count > 0)?;
    let size = |key: &str| gpu_count(accelerator, &format!("/parallelism/{key}")).filter(|size| *size > 0);
    let (tp, pp, dp) = (size("tp")?, size("pp").unwrap_or(1), size("dp").unwrap_or(1));
    let least = u64::from(tp) * u64::from(pp);
    (u64::from(count) % least != 0).then(|| {
        let of_ranks = match dp {
            1 => String::new(),
            dp => format!(
                " ({} if each of {dp} data-parallel ranks has its own)",
                least.saturating_mul(u64::from(dp))
            ),
        };
        format!(
            "the number of accelerators is {count}, but tp {tp} × pp {pp} needs {least}{of_ranks} or a multiple; \
             the number of GPUs and throughput per GPU may be wrong"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_iso_8601_are_seconds() {
        assert_eq!(iso_seconds("PT49.5S"), Some(49.5));
        assert_eq!(iso_seconds("PT1H2M3S"), Some(3723.0));
        assert_eq!(iso_seconds("P1D"), None);
    }
}
