//! The result line of `matrix bench`, with bench_serving's keys and with our own under the key `matrix`.

use serde_json::{Map, Value, json};

use crate::analysis::metrics::{self, BenchServingView, CacheHits, SteadyState};
use crate::config::api::CountedAs;
use crate::config::scenario::Slo;
use crate::config::workload::Profile;
use crate::plan::Protocol;
use crate::report::bench_serving::jsonl::{add_goodput, add_measured, insert_fields};
use crate::report::bench_serving::python;
use crate::report::bench_serving::traffic::Traffic;
use crate::results::record::cell::MetricValues;
use crate::results::record::request::Request;
use crate::results::record::spilled::SpilledText;

/// The requested load, which the line repeats.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RequestedLoad {
    /// Label that the user gave the run.
    pub(crate) tag: Option<String>,
    /// bench_serving's name of the backend.
    pub(crate) backend: String,
    /// bench_serving's name of the data set.
    pub(crate) dataset: String,
    pub(crate) rate: Traffic,
    /// Maximum number of requests under way at once.
    pub(crate) concurrency: Option<u32>,
    pub(crate) sharegpt_output_len: Option<u32>,
    /// `--random-input-len`, whatever the data set is.
    pub(crate) random_input_len: Option<u32>,
    /// `--random-output-len`, whatever the data set is.
    pub(crate) random_output_len: Option<u32>,
    pub(crate) random_range_ratio: f64,
    pub(crate) slo: Option<Slo>,
}

/// The request records of a bench, and how values are taken from them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchRecords<'a> {
    /// In the order in which requests were issued.
    pub(crate) requests: &'a [Request],
    pub(crate) protocol: Protocol,
    /// The profile whose definitions the times follow.
    pub(crate) profile: Profile,
    /// Whether the known faults of the Python tool are reproduced.
    pub(crate) as_published: bool,
}

impl BenchRecords<'_> {
    /// A list with one value for each request.
    pub(in crate::report) fn request_list(&self, fact: &dyn Fn(&Request) -> Value) -> Value {
        Value::from_iter(self.requests.iter().map(fact))
    }

    /// What the metrics of the profile take from a request.
    pub(in crate::report) fn bench_serving_view(&self, request: &Request) -> BenchServingView {
        metrics::bench_serving_view(request, self.protocol, self.profile, self.as_published)
    }
}

/// The line of one bench, without its line break.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchLine<'a> {
    pub(crate) requested: &'a RequestedLoad,
    pub(crate) server_info: Option<&'a Value>,
    /// The figures of the printed block.
    pub(crate) figures: &'a MetricValues,
    /// The cache report, if requested.
    pub(crate) cache: Option<&'a CacheHits>,
    /// The records, if details are requested.
    pub(crate) details: Option<BenchRecords<'a>>,
    pub(crate) matrix_fields: &'a Value,
    /// Whether an infinite rate is written as Python's `Infinity`, which is not JSON.
    pub(crate) writes_infinity: bool,
}

impl BenchLine<'_> {
    /// Writes the line.
    ///
    /// Source: docs/bench-serving.md 9.
    pub(crate) fn text(&self) -> String {
        let mut line = Map::new();
        self.requested_load(&mut line);
        add_measured(&mut line, self.figures);
        if let Some(slo) = &self.requested.slo {
            add_goodput(&mut line, self.figures, slo);
        }
        if let Some(cache) = self.cache {
            line.insert("cache_report".to_owned(), cache_report(cache));
        }
        if let Some(details) = &self.details {
            add_details(&mut line, details, self.cache.is_some());
        }
        line.insert("matrix".to_owned(), self.matrix_fields.clone());
        let text = python::json(&Value::Object(line));
        match self.writes_infinity {
            // Quotes within strings are escaped, so this text can only be the key.
            true => text.replacen(r#""request_rate": "inf""#, r#""request_rate": Infinity"#, 1),
            false => text,
        }
    }

    fn requested_load(&self, line: &mut Map<String, Value>) {
        let requested = self.requested;
        let fields = [
            ("tag", json!(requested.tag)),
            ("backend", json!(requested.backend)),
            ("dataset_name", json!(requested.dataset)),
            ("request_rate", requested.rate.json()),
            ("max_concurrency", json!(requested.concurrency)),
            ("sharegpt_output_len", json!(requested.sharegpt_output_len)),
            ("random_input_len", json!(requested.random_input_len)),
            ("random_output_len", json!(requested.random_output_len)),
            ("random_range_ratio", json!(requested.random_range_ratio)),
            ("server_info", json!(self.server_info)),
        ];
        insert_fields(line, fields);
    }
}

/// The line of the steady state, without its line break.
///
/// Source: docs/bench-serving.md 7.7.
pub(crate) fn steady_line(steady: &SteadyState) -> String {
    python::json(&json!(steady))
}

fn cache_report(hits: &CacheHits) -> Value {
    let percent = format!("{:.2}", CacheHits::percentage(hits.cached, hits.prompt));
    let tiers = hits.tiers.as_ref();
    let storage = tiers.filter(|tiers| tiers.storage > 0);
    json!({
        "total_prompt_tokens": hits.prompt,
        "total_cached_tokens": hits.is_reported.then_some(hits.cached),
        "cache_hit_rate_pct": percent.parse::<f64>().ok().filter(|_| hits.is_reported),
        "device_cached_tokens": tiers.map(|tiers| tiers.device),
        "host_cached_tokens": tiers.map(|tiers| tiers.host),
        "storage_cached_tokens": storage.map(|tiers| tiers.storage),
        "storage_backend": storage.and_then(|tiers| tiers.storage_backend.as_ref()),
    })
}

/// Adds a list for each fact, in the order in which requests were issued.
fn add_details(line: &mut Map<String, Value>, details: &BenchRecords<'_>, has_cache: bool) {
    let list = |fact: &dyn Fn(&Request) -> Value| details.request_list(fact);
    // Source: docs/bench-serving.md 2.1: for these protocols the Python tool keeps the prompt length of the
    // data set.
    let is_kept = details.protocol.facts().bench_serving_tokens == CountedAs::Requested;
    let reported = |request: &Request| {
        let usage = request.usage.filter(|_| !(details.as_published && is_kept))?;
        usage.prompt
    };
    let prompt = |request: &Request| match request.round {
        Some(_) if !details.as_published => request.prompt_sent(),
        _ => reported(request).unwrap_or(request.prompt_tokens),
    };
    let fields = [
        ("input_lens", list(&|request| json!(prompt(request)))),
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
            "generated_texts",
            list(&|request| json!(request.text.as_ref().map(SpilledText::read).unwrap_or_default())),
        ),
        (
            "errors",
            list(&|request| json!(request.failure.as_ref().map_or("", |failure| &failure.message))),
        ),
    ];
    insert_fields(line, fields);
    if has_cache {
        let cached = |request: &Request| request.usage.and_then(|usage| usage.cached).unwrap_or(0);
        let fields = [
            ("cached_tokens", list(&|request| json!(cached(request)))),
            ("cached_tokens_details", list(&|request| json!(request.cached))),
        ];
        insert_fields(line, fields);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::units::{HumanDuration, RequestRate};
    use crate::report::testing::request;
    use crate::results::record::request::{CachedTokens, Usage};

    fn requested_load() -> RequestedLoad {
        RequestedLoad {
            tag: Some("a \"request_rate\": \"inf\" b".to_owned()),
            backend: "sglang".to_owned(),
            dataset: "random".to_owned(),
            rate: RequestRate::INFINITE.into(),
            concurrency: None,
            sharegpt_output_len: None,
            random_input_len: Some(1024),
            random_output_len: Some(8),
            random_range_ratio: 0.0,
            slo: Some(Slo {
                speed: None,
                ttft: Some(HumanDuration(Duration::from_millis(500))),
                tpot: None,
                e2e: None,
            }),
        }
    }

    fn line(details: Option<BenchRecords<'_>>, infinity: bool) -> String {
        let cache = CacheHits {
            prompt: 18,
            cached: 6,
            is_reported: true,
            tiers: None,
        };
        line_with(&cache, details, infinity)
    }

    fn line_with(cache: &CacheHits, details: Option<BenchRecords<'_>>, infinity: bool) -> String {
        let (figures, ours, requested) = (MetricValues::new(), json!({}), requested_load());
        BenchLine {
            requested: &requested,
            server_info: None,
            figures: &figures,
            cache: Some(cache),
            details,
            matrix_fields: &ours,
            writes_infinity: infinity,
        }
        .text()
    }

    #[test]
    fn the_line_has_the_keys_of_the_python_tool_in_order() {
        let requests = [request(0)];
        let details = BenchRecords {
            requests: &requests,
            protocol: Protocol::Completions,
            profile: Profile::Current,
            as_published: false,
        };
        let text = line(Some(details), false);
        assert!(!text.contains('\n') && text.is_ascii());
        let value: Map<String, Value> = serde_json::from_str(&text).unwrap();
        let keys: Vec<&str> = value.keys().map(String::as_str).collect();
        let stats = |name: &str| {
            ["mean", "median", "std", "p90", "p95", "p99"].map(|word| format!("{word}_{name}_ms"))
        };
        let mut expected: Vec<String> = [
            "tag",
            "backend",
            "dataset_name",
            "request_rate",
            "max_concurrency",
            "sharegpt_output_len",
            "random_input_len",
            "random_output_len",
            "random_range_ratio",
            "server_info",
            "duration",
            "completed",
            "total_input_tokens",
            "total_input_text_tokens",
            "total_input_vision_tokens",
            "total_output_tokens",
            "total_output_tokens_retokenized",
            "request_throughput",
            "input_throughput",
            "output_throughput",
            "total_throughput",
        ]
        .map(str::to_owned)
        .to_vec();
        for name in ["e2e_latency", "ttft", "tpot", "itl"] {
            expected.extend(stats(name));
        }
        expected.extend(
            [
                "concurrency",
                "accept_length",
                "max_output_tokens_per_s",
                "max_concurrent_requests",
                "goodput_slos_ms",
                "request_goodput",
                "slo_attainment",
                "slo_attainment_by_metric",
                "cache_report",
                "input_lens",
                "output_lens",
                "ttfts",
                "itls",
                "generated_texts",
                "errors",
                "cached_tokens",
                "cached_tokens_details",
                "matrix",
            ]
            .map(str::to_owned),
        );
        assert_eq!(keys, expected);
        assert_eq!(value["cache_report"]["cache_hit_rate_pct"], json!(33.33));
    }

    #[test]
    fn the_line_tells_where_cached_tokens_lay() {
        let mut stored = request(0);
        stored.usage = Some(Usage {
            prompt: Some(8),
            completion: None,
            cached: Some(6),
            ..Usage::default()
        });
        stored.cached = Some(CachedTokens {
            device: Some(1),
            host: Some(2),
            storage: Some(3),
            storage_backend: Some("file".to_owned()),
        });
        let mut near = request(1);
        near.cached = Some(CachedTokens {
            device: Some(4),
            host: Some(0),
            ..CachedTokens::default()
        });
        let requests = [stored, near, request(2)];
        let details = BenchRecords {
            requests: &requests,
            protocol: Protocol::SglangNative,
            profile: Profile::Current,
            as_published: false,
        };
        let hits = metrics::cache_hits(&requests);
        let value: Value = serde_json::from_str(&line_with(&hits, Some(details), false)).unwrap();
        assert_eq!(
            value["cache_report"],
            json!({
                "total_prompt_tokens": 22,
                "total_cached_tokens": 6,
                "cache_hit_rate_pct": 27.27,
                "device_cached_tokens": 5,
                "host_cached_tokens": 2,
                "storage_cached_tokens": 3,
                "storage_backend": "file",
            })
        );
        assert_eq!(value["cached_tokens"], json!([6, 0, 0]));
        assert_eq!(
            value["cached_tokens_details"],
            json!([
                {"device": 1, "host": 2, "storage": 3, "storage_backend": "file"},
                {"device": 4, "host": 0},
                null,
            ])
        );
        let near = metrics::cache_hits(&requests[1..]);
        let value: Value = serde_json::from_str(&line_with(&near, None, false)).unwrap();
        let report = &value["cache_report"];
        assert_eq!(report["device_cached_tokens"], json!(4));
        assert_eq!(report["storage_cached_tokens"], Value::Null);
        assert_eq!(report["storage_backend"], Value::Null);
    }

    #[test]
    fn infinity_is_written_only_where_it_is_asked_for_and_never_into_a_string() {
        let strict = line(None, false);
        assert!(strict.contains(r#", "request_rate": "inf", "#));
        serde_json::from_str::<Value>(&strict).unwrap();
        let python = line(None, true);
        assert!(python.contains(r#", "request_rate": Infinity, "#));
        assert!(
            python.starts_with(r#"{"tag": "a \"request_rate\": \"inf\" b", "#),
            "{python}"
        );
    }
}
