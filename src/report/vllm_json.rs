//! The object that `vllm bench serve --save-result` writes, for programs that read it.
//!
//! It is strict JSON: missing values are `null`. Our own values stand under the key `matrix`, where a strict
//! reader can remove them.

use serde_json::{Map, Value, json};

use super::bench_serving::bench_line::BenchRecords;
use super::bench_serving::jsonl::insert_fields;
use super::bench_serving::python;
use super::bench_serving::traffic::Traffic;
use crate::analysis::metrics::{self, LatencyKind, Metric, Quantity, Statistic, Statistics, TokenCount};
use crate::base::units::RequestRate;
use crate::config::arrival::{ArrivalProcess, RateProfile};
use crate::results::record::cell::MetricValues;
use crate::results::record::request::Request;
use crate::results::record::spilled::SpilledText;

/// The content of the object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VllmResult<'a> {
    /// Local date and time, as in `20261121-065311`.
    pub(crate) date: &'a str,
    pub(crate) backend: &'a str,
    /// Label that the user gave the run.
    pub(crate) label: Option<&'a str>,
    /// Name of the model in requests.
    pub(crate) model: &'a str,
    pub(crate) tokenizer: &'a str,
    pub(crate) rate: Traffic,
    /// A ramp or stages, if the rate changes.
    pub(crate) rate_profile: Option<&'a RateProfile>,
    pub(crate) spacing: ArrivalProcess,
    /// Maximum number of requests under way at once.
    pub(crate) concurrency: Option<u32>,
    /// The figures of the printed block.
    pub(crate) block: &'a MetricValues,
    pub(crate) details: BenchRecords<'a>,
    /// Whether the lists with a value for each request are included.
    pub(crate) detailed: bool,
    pub(crate) matrix_fields: &'a Value,
}

/// The shape of the gamma distribution of gaps; constant gaps are its limit.
fn burstiness(spacing: ArrivalProcess) -> Value {
    match spacing {
        ArrivalProcess::Poisson => json!(1.0),
        ArrivalProcess::Gamma { burstiness } => json!(burstiness.shape()),
        ArrivalProcess::Constant => json!("inf"),
    }
}

impl VllmResult<'_> {
    /// The object as text, with a line break at its end.
    pub(crate) fn text(&self) -> String {
        let mut object = Map::new();
        self.add_description(&mut object);
        self.add_totals(&mut object);
        self.add_lists(&mut object);
        for (name, sample, figures) in [
            ("ttft", LatencyKind::Ttft, self.block),
            ("tpot", LatencyKind::Tpot, self.block),
            ("itl", LatencyKind::Itl, self.block),
            ("e2el", LatencyKind::E2e, self.block),
        ] {
            for (word, statistic) in [
                ("mean", Statistic::Mean),
                ("median", Statistic::Median),
                ("std", Statistic::Std),
                ("p90", Statistic::P90),
                ("p95", Statistic::P95),
                ("p99", Statistic::P99),
            ] {
                let value = metrics::metric_value(figures, Metric::Time(statistic, sample));
                object.insert(format!("{word}_{name}_ms"), json!(value));
            }
        }
        self.add_waits(&mut object);
        object.insert("matrix".to_owned(), self.matrix_fields.clone());
        let mut text = python::json(&Value::Object(object));
        text.push('\n');
        text
    }

    /// When a request begins to wait for a slot: at 0 if all requests are sent at once, else when it is due.
    fn requested_ns(&self, request: &Request) -> u64 {
        let is_at_once = self.rate_profile.is_none() && self.rate == Traffic::Rate(RequestRate::INFINITE);
        match is_at_once && request.round.unwrap_or(0) == 0 {
            true => 0,
            false => request.due_ns,
        }
    }

    /// Adds the wait for a slot, and E2E with that wait.
    fn add_waits(&self, object: &mut Map<String, Value>) {
        let millis = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
        let requests = self.details.requests.iter();
        let queued: Vec<f64> = requests
            .clone()
            .filter_map(|request| Some(millis(self.requested_ns(request), request.sent_ns?)))
            .collect();
        let whole: Vec<f64> = requests
            .filter(|request| request.is_completed())
            .filter_map(|request| Some(millis(self.requested_ns(request), request.chunks.last()?.at_ns)))
            .collect();
        for (name, values) in [
            ("client_queue_time", queued),
            ("e2el_including_client_queue", whole),
        ] {
            let statistics = Statistics::from_values(&values);
            let mut put = |word: &str, value: Option<f64>| {
                object.insert(format!("{word}_{name}_ms"), json!(value));
            };
            put("mean", statistics.map(|stats| stats.mean));
            put("median", statistics.map(|stats| stats.median));
            put("std", statistics.map(|stats| stats.std));
            for (word, place) in [("p90", 1), ("p95", 2), ("p99", 3)] {
                put(word, statistics.map(|stats| stats.percentiles[place]));
            }
        }
    }

    fn add_description(&self, object: &mut Map<String, Value>) {
        let fields = [
            ("date", json!(self.date)),
            ("endpoint_type", json!(self.backend)),
            ("backend", json!(self.backend)),
            ("label", json!(self.label)),
            ("model_id", json!(self.model)),
            ("tokenizer_id", json!(self.tokenizer)),
            ("num_prompts", json!(self.details.requests.len())),
            ("request_rate", self.rate.json()),
            ("burstiness", burstiness(self.spacing)),
            ("max_concurrency", json!(self.concurrency)),
        ];
        insert_fields(object, fields);
        if let Some(RateProfile::Ramp(ramp)) = self.rate_profile {
            let fields = [
                ("ramp_up_strategy", json!(ramp.curve.name())),
                ("ramp_up_start_rps", Traffic::Rate(ramp.from).json()),
                ("ramp_up_end_rps", Traffic::Rate(ramp.to).json()),
            ];
            insert_fields(object, fields);
        }
    }

    fn add_totals(&self, object: &mut Map<String, Value>) {
        let float = |metric| json!(metrics::metric_value(self.block, metric));
        let whole = |metric| json!(metrics::metric_value(self.block, metric).map(|value| value as u64));
        let failed = self
            .details
            .requests
            .iter()
            .filter(|request| request.is_failed())
            .count();
        let fields = [
            ("duration", float(Metric::Duration)),
            ("completed", whole(Metric::Completed)),
            ("failed", json!(failed)),
            ("total_input_tokens", whole(Metric::Tokens(TokenCount::Input))),
            ("total_output_tokens", whole(Metric::Tokens(TokenCount::Output))),
            (
                "request_throughput",
                float(Metric::Throughput(Quantity::Requests)),
            ),
            ("request_goodput", float(Metric::Goodput)),
            ("output_throughput", float(Metric::Throughput(Quantity::Output))),
            (
                "total_token_throughput",
                float(Metric::Throughput(Quantity::Total)),
            ),
            ("max_output_tokens_per_s", float(Metric::PeakOutput)),
            ("max_concurrent_requests", whole(Metric::PeakConcurrency)),
            (
                "rtfx",
                json!(metrics::metric_value(self.block, Metric::AudioThroughput).unwrap_or(0.0)),
            ),
        ];
        insert_fields(object, fields);
    }

    fn add_lists(&self, object: &mut Map<String, Value>) {
        let details = self.details;
        let list = |fact: &dyn Fn(&Request) -> Value| details.request_list(fact);
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        if self.detailed {
            let fields = [
                ("input_lens", list(&|request| json!(request.prompt_sent()))),
                (
                    "output_lens",
                    list(&|request| json!(details.bench_serving_view(request).tokens)),
                ),
                (
                    "ttfts",
                    list(&|request| json!(details.bench_serving_view(request).ttft_s)),
                ),
                (
                    "itls",
                    list(&|request| json!(details.bench_serving_view(request).itl_s)),
                ),
                (
                    "start_times",
                    list(&|request| json!(request.sent_ns.map(|sent| sent as f64 / 1e9))),
                ),
                (
                    "generated_texts",
                    list(&|request| json!(request.text.as_ref().map(SpilledText::read).unwrap_or_default())),
                ),
                (
                    "errors",
                    list(&|request| json!(request.failure.as_ref().map_or("", |failure| &failure.message))),
                ),
            ];
            insert_fields(object, fields);
        }
        let latency = |request: &Request| {
            let last = request.last_line_ns.filter(|_| request.is_completed());
            request
                .sent_ns
                .zip(last)
                .map_or(0.0, |(sent, last)| seconds(sent, last))
        };
        let queued = |request: &Request| {
            let sent = request.sent_ns;
            sent.map_or(0.0, |sent| seconds(self.requested_ns(request), sent))
        };
        let fields = [
            ("latencies", list(&|request| json!(latency(request)))),
            ("queue_times", list(&|request| json!(queued(request)))),
        ];
        insert_fields(object, fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::workload::Profile;
    use crate::plan::Protocol;
    use crate::report::testing::request;

    #[test]
    fn the_object_is_strict_json_with_the_keys_of_vllm_and_ours_last() {
        let requests = [request(0)];
        let (figures, ours) = (MetricValues::new(), json!({"version": "1"}));
        let result = VllmResult {
            date: "20261121-065311",
            backend: "vllm",
            label: None,
            model: "m",
            tokenizer: "t",
            rate: RequestRate::INFINITE.into(),
            rate_profile: None,
            spacing: ArrivalProcess::Poisson,
            concurrency: Some(4),
            block: &figures,
            details: BenchRecords {
                requests: &requests,
                protocol: Protocol::Completions,
                profile: Profile::Current,
                as_published: false,
            },
            detailed: true,
            matrix_fields: &ours,
        };
        let value: Map<String, Value> = serde_json::from_str(&result.text()).unwrap();
        let keys: Vec<&str> = value.keys().map(String::as_str).collect();
        assert_eq!(
            keys[..6],
            [
                "date",
                "endpoint_type",
                "backend",
                "label",
                "model_id",
                "tokenizer_id"
            ]
        );
        assert_eq!(keys.last(), Some(&"matrix"));
        for key in [
            "itls",
            "latencies",
            "queue_times",
            "mean_ttft_ms",
            "p99_e2el_ms",
            "failed",
        ] {
            assert!(keys.contains(&key), "{key} is missing");
        }
        assert_eq!(value["request_rate"], "inf");
        assert_eq!(value["mean_ttft_ms"], Value::Null);
    }

    #[test]
    fn lists_of_single_requests_are_kept_only_where_they_are_asked_for() {
        let requests = [request(0)];
        let (figures, ours) = (MetricValues::new(), json!({}));
        let details = BenchRecords {
            requests: &requests,
            protocol: Protocol::Completions,
            profile: Profile::Current,
            as_published: false,
        };
        let result = VllmResult {
            date: "",
            backend: "vllm",
            label: None,
            model: "m",
            tokenizer: "t",
            rate: RequestRate::INFINITE.into(),
            rate_profile: None,
            spacing: ArrivalProcess::Poisson,
            concurrency: None,
            block: &figures,
            details,
            detailed: false,
            matrix_fields: &ours,
        };
        let text = result.text();
        assert!(
            !text.contains("\"itls\"") && text.contains("\"latencies\": [0.03]"),
            "{text}"
        );
    }
}
