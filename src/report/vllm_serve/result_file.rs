//! The object that `vllm bench serve --save-result` writes.

use serde_json::{Map, Value, json};

use super::{CounterGrowth, VllmLoad, insert, percent_name};
use crate::analysis::metrics::VllmRequest;
use crate::base::units::RequestRate;
use crate::config::arrival::{ArrivalProcess, RateProfile};
use crate::report::bench_serving::python;

/// The description of a load in its result file.
#[derive(Clone, Debug)]
pub(crate) struct Description<'a> {
    /// Local date and time, as in `20261121-065311`.
    pub(crate) date: &'a str,
    pub(crate) backend: &'a str,
    pub(crate) label: Option<&'a str>,
    pub(crate) model: &'a str,
    pub(crate) tokenizer: &'a str,
    /// The number of prompts on the command line.
    pub(crate) prompts: i64,
    pub(crate) metadata: &'a [(String, String)],
    /// Whether lists with a value of each request are written.
    pub(crate) is_detailed: bool,
    /// Local times at which a ramp reached whole numbers of requests per second.
    pub(crate) rate_changes: Option<Vec<(u64, String)>>,
}

/// Returns the object, with the keys in the order of vLLM.
pub(crate) fn result_object(about: &Description<'_>, load: &VllmLoad<'_>) -> Map<String, Value> {
    let mut object = Map::new();
    insert(
        &mut object,
        [
            ("date", json!(about.date)),
            ("endpoint_type", json!(about.backend)),
            ("backend", json!(about.backend)),
            ("label", json!(about.label)),
            ("model_id", json!(about.model)),
            ("tokenizer_id", json!(about.tokenizer)),
            ("num_prompts", json!(about.prompts)),
        ],
    );
    let metadata = about.metadata.iter();
    object.extend(metadata.map(|(key, value)| (key.clone(), json!(value))));
    add_traffic(&mut object, load);
    match load.generates_text {
        true => add_generation(&mut object, about, load),
        false => add_embeddings(&mut object, about, load),
    }
    if let Some(changes) = &about.rate_changes {
        let event = |(rate, at): &(u64, String)| json!({"rps": rate, "timestamp": at});
        let events: Vec<Value> = changes.iter().map(event).collect();
        object.insert("rps_change_events".to_owned(), json!(events));
    }
    add_counters(&mut object, load.counters, load.figures.duration_s);
    for (time, name, ..) in load.times() {
        let statistics = load.figures.statistics(time, load.percents);
        let mut put = |word: &str, value: f64| drop(object.insert(format!("{word}_{name}_ms"), json!(value)));
        put("mean", statistics.mean);
        put("median", statistics.median);
        put("std", statistics.std);
        for (percent, value) in statistics.percentiles {
            put(&format!("p{}", percent_name(percent)), value);
        }
    }
    object
}

/// The object as Python writes it.
pub(crate) fn text(object: Map<String, Value>) -> String {
    python::json(&Value::Object(object))
}

/// The name of the result file, unless one is given.
pub(crate) fn default_name(about: &Description<'_>, load: &VllmLoad<'_>) -> String {
    let model = about.model.rsplit('/').next().unwrap_or_default();
    let label = about
        .label
        .filter(|label| !label.is_empty())
        .unwrap_or(about.backend);
    let concurrency = load.arrival.concurrency;
    let concurrency = concurrency.map_or_else(String::new, |limit| format!("-concurrency{limit}"));
    let rate = match &load.arrival.pace {
        Some(RateProfile::Ramp(ramp)) => {
            let (from, to) = (ramp.from.per_second(), ramp.to.per_second());
            format!("ramp-up-{}-{from}qps-{to}qps", ramp.curve.name())
        }
        _ => format!("{}qps", python::repr(load.arrival.rate.per_second())),
    };
    format!("{label}-{rate}{concurrency}-{model}-{}.json", about.date)
}

fn rate(rate: RequestRate) -> Value {
    match rate.is_infinite() {
        true => json!("inf"),
        false => json!(rate.per_second()),
    }
}

fn add_traffic(object: &mut Map<String, Value>, load: &VllmLoad<'_>) {
    let arrival = load.arrival;
    let burstiness = match arrival.spacing {
        ArrivalProcess::Poisson => json!(1.0),
        ArrivalProcess::Gamma { burstiness } => json!(burstiness.shape()),
        ArrivalProcess::Constant => json!("inf"),
    };
    insert(
        object,
        [
            ("request_rate", rate(arrival.rate)),
            ("burstiness", burstiness),
            ("max_concurrency", json!(arrival.concurrency)),
        ],
    );
    if let Some(RateProfile::Ramp(ramp)) = &arrival.pace {
        insert(
            object,
            [
                ("ramp_up_strategy", json!(ramp.curve.name())),
                ("ramp_up_start_rps", json!(ramp.from.per_second() as u64)),
                ("ramp_up_end_rps", json!(ramp.to.per_second() as u64)),
            ],
        );
    }
}

fn add_generation(object: &mut Map<String, Value>, about: &Description<'_>, load: &VllmLoad<'_>) {
    let figures = load.figures;
    let input = figures.total(|request| request.prompt_tokens);
    let output = figures.total(|request| request.output_tokens);
    let goodput = load.goodput.map(|targets| figures.rate(figures.good(&targets)));
    insert(
        object,
        [
            ("duration", json!(figures.duration_s)),
            ("completed", json!(figures.completed())),
            ("failed", json!(figures.failed())),
            ("total_input_tokens", json!(input)),
            ("total_output_tokens", json!(output)),
            (
                "request_throughput",
                json!(figures.rate(figures.completed() as u64)),
            ),
            ("request_goodput", json!(goodput)),
            ("output_throughput", json!(figures.rate(output))),
            ("total_token_throughput", json!(figures.rate(input + output))),
        ],
    );
    let list = |value: fn(&VllmRequest) -> Value| -> Value { figures.requests.iter().map(value).collect() };
    if about.is_detailed {
        insert(
            object,
            [
                ("input_lens", list(|request| json!(request.prompt_tokens))),
                ("output_lens", list(|request| json!(request.output_tokens))),
                ("ttfts", list(|request| json!(request.ttft_s))),
                ("itls", list(|request| json!(request.itl_s))),
            ],
        );
    }
    insert(object, [("latencies", list(|request| json!(request.latency_s)))]);
    if about.is_detailed {
        insert(object, [("start_times", list(|request| json!(request.start_s)))]);
    }
    insert(object, [("queue_times", list(|request| json!(request.queue_s)))]);
    if about.is_detailed {
        insert(
            object,
            [
                ("generated_texts", list(|request| json!(request.text))),
                ("errors", list(|request| json!(request.error))),
            ],
        );
    }
    let (tokens, requests) = figures.peaks();
    insert(
        object,
        [
            ("max_output_tokens_per_s", json!(tokens)),
            ("max_concurrent_requests", json!(requests)),
            ("rtfx", json!(load.figures.rtfx())),
        ],
    );
}

fn add_embeddings(object: &mut Map<String, Value>, about: &Description<'_>, load: &VllmLoad<'_>) {
    let figures = load.figures;
    let input = figures.total(|request| request.prompt_tokens);
    let sequences = figures.total(|request| request.sequences);
    insert(
        object,
        [
            ("duration", json!(figures.duration_s)),
            ("completed", json!(figures.completed())),
            ("total_input_tokens", json!(input)),
            ("total_input_sequences", json!(sequences)),
            (
                "request_throughput",
                json!(figures.rate(figures.completed() as u64)),
            ),
            ("input_sequence_throughput", json!(figures.rate(sequences))),
            ("total_token_throughput", json!(figures.rate(input))),
        ],
    );
    let list = |value: fn(&VllmRequest) -> Value| -> Value { figures.requests.iter().map(value).collect() };
    if about.is_detailed {
        insert(
            object,
            [("input_lens", list(|request| json!(request.prompt_tokens)))],
        );
    }
    insert(
        object,
        [
            ("latencies", list(|request| json!(request.latency_s))),
            ("queue_times", list(|request| json!(request.queue_s))),
        ],
    );
    if about.is_detailed {
        insert(object, [("errors", list(|request| json!(request.error)))]);
    }
}

fn add_counters(object: &mut Map<String, Value>, growth: &CounterGrowth, duration_s: f64) {
    if let Some(drafts) = &growth.speculation {
        insert(
            object,
            [
                ("spec_decode_acceptance_rate", json!(drafts.acceptance_percent())),
                ("spec_decode_acceptance_length", json!(drafts.acceptance_length())),
                ("spec_decode_num_drafts", json!(drafts.drafts as u64)),
                ("spec_decode_draft_tokens", json!(drafts.draft_tokens as u64)),
                ("spec_decode_accepted_tokens", json!(drafts.accepted as u64)),
                (
                    "spec_decode_per_position_acceptance_rates",
                    json!(drafts.rates_by_position()),
                ),
            ],
        );
    }
    if let Some(diffusion) = &growth.diffusion {
        insert(
            object,
            [
                (
                    "diffusion_committed_throughput",
                    json!(diffusion.committed / duration_s),
                ),
                ("diffusion_steps_per_canvas", json!(diffusion.steps_per_canvas())),
                (
                    "diffusion_committed_per_step",
                    json!(diffusion.committed_per_step()),
                ),
                ("diffusion_committed_tokens", json!(diffusion.committed as u64)),
                (
                    "diffusion_denoising_steps",
                    json!(diffusion.denoising_steps() as u64),
                ),
                ("diffusion_canvas_positions", json!(diffusion.positions as u64)),
            ],
        );
    }
}
