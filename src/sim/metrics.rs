//! Counters of the engine, and the Prometheus page that reports them under the names of the dialect. Metrics
//! that are not simulated are left out instead of reported as 0.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::sim::batching::Totals;
use crate::sim::options::Dialect;
use crate::sim::power::PowerMeter;

/// Upper bounds of all histogram buckets, in seconds.
const BUCKET_BOUNDS: [f64; 20] = [
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0, 120.0,
];

#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKET_BOUNDS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.buckets[BUCKET_BOUNDS.partition_point(|bound| *bound < seconds)].fetch_add(1, Relaxed);
        self.sum_ns
            .fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    fn write(&self, page: &mut MetricsPage<'_>, name: &str) {
        page.write_type(name, "histogram");
        let mut count = 0;
        for (at, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Relaxed);
            let bound = BUCKET_BOUNDS.get(at).map_or("+Inf".to_owned(), f64::to_string);
            page.write_sample(
                &format!("{name}_bucket"),
                &format!(",le=\"{bound}\""),
                count as f64,
            );
        }
        page.write_sample(&format!("{name}_sum"), "", self.sum_ns.load(Relaxed) as f64 / 1e9);
        page.write_sample(&format!("{name}_count"), "", count as f64);
    }
}

/// State of the batch after its latest step. Written by the scheduler and read by the metrics page, under one
/// mutex so that the values of a page belong together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) kv_usage: f64,
    pub(crate) kv_tokens: usize,
    pub(crate) totals: Totals,
}

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) gauges: Mutex<Gauges>,
    /// Generation requests in flight, with any timing.
    pub(crate) in_flight: AtomicU64,
    /// Prompt tokens of answered requests, used if no batch counts them.
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) generation_tokens: AtomicU64,
    /// Requests that reached the requested number of tokens.
    pub(crate) finished_by_length: AtomicU64,
    /// Requests that ended earlier with an end token.
    pub(crate) finished_by_stop: AtomicU64,
    /// Requests whose client disconnected, or that a fault cut off.
    pub(crate) aborted: AtomicU64,
    pub(crate) ttft: Histogram,
    pub(crate) itl: Histogram,
    pub(crate) e2e: Histogram,
    pub(crate) queue: Histogram,
    pub(crate) power: PowerMeter,
}

struct MetricsPage<'a> {
    out: String,
    labels: &'a str,
}

impl MetricsPage<'_> {
    fn write_type(&mut self, name: &str, kind: &str) {
        let _ = writeln!(self.out, "# TYPE {name} {kind}");
    }

    fn write_sample(&mut self, name: &str, more: &str, value: f64) {
        let _ = writeln!(self.out, "{name}{{{}{more}}} {value}", self.labels);
    }

    fn write_gauge(&mut self, name: &str, value: f64) {
        self.write_type(name, "gauge");
        self.write_sample(name, "", value);
    }

    fn write_counter(&mut self, name: &str, value: u64) {
        self.write_type(name, "counter");
        self.write_sample(name, "", value as f64);
    }
}

impl Metrics {
    /// The metrics page of a dialect for an engine on `devices` GPUs; `None` for the plain OpenAI dialect,
    /// which has none.
    pub(crate) fn page(&self, dialect: Dialect, model: &str, devices: u32) -> Option<String> {
        let model = model.replace('\\', "\\\\").replace('"', "\\\"");
        let mut gauges = *self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        if gauges.kv_tokens == 0 {
            gauges.running = self.in_flight.load(Relaxed) as usize;
            gauges.totals.prompt_tokens = self.prompt_tokens.load(Relaxed);
        }
        let (prefix, labels) = match dialect {
            Dialect::Vllm => ("vllm", format!("engine=\"0\",model_name=\"{model}\"")),
            Dialect::Sglang => (
                "sglang",
                format!("engine_type=\"unified\",model_name=\"{model}\",tp_rank=\"0\""),
            ),
            Dialect::Lmdeploy => ("lmdeploy", format!("engine=\"0\",model_name=\"{model}\"")),
            Dialect::Openai => return None,
        };
        let mut page = MetricsPage {
            out: String::with_capacity(16 * 1024),
            labels: &labels,
        };
        match dialect {
            Dialect::Vllm => self.write_vllm(&mut page, &gauges),
            Dialect::Sglang => self.write_sglang(&mut page, &gauges),
            Dialect::Lmdeploy | Dialect::Openai => self.write_lmdeploy(&mut page, &gauges),
        }
        page.write_counter(
            &format!("{prefix}:prompt_tokens_total"),
            gauges.totals.prompt_tokens,
        );
        page.write_counter(
            &format!("{prefix}:generation_tokens_total"),
            self.generation_tokens.load(Relaxed),
        );
        self.ttft
            .write(&mut page, &format!("{prefix}:time_to_first_token_seconds"));
        self.e2e
            .write(&mut page, &format!("{prefix}:e2e_request_latency_seconds"));
        self.write_energy(&mut page, devices);
        Some(page.out)
    }

    /// Metrics of `sim` only: no engine reports energy. They allow trying energy metrics without a GPU.
    fn write_energy(&self, page: &mut MetricsPage<'_>, devices: u32) {
        let (watts, joules) = self.power.read();
        for (name, kind, value) in [
            ("sim_power_watts", "gauge", watts),
            ("sim_energy_joules_total", "counter", joules),
        ] {
            page.write_type(name, kind);
            for device in 0..devices {
                page.write_sample(name, &format!(",device=\"{device}\""), value);
            }
        }
    }

    fn answered_requests(&self) -> u64 {
        self.finished_by_length.load(Relaxed) + self.finished_by_stop.load(Relaxed)
    }

    fn write_vllm(&self, page: &mut MetricsPage<'_>, gauges: &Gauges) {
        page.write_gauge("vllm:num_requests_running", gauges.running as f64);
        page.write_gauge("vllm:num_requests_waiting", gauges.waiting as f64);
        page.write_gauge("vllm:kv_cache_usage_perc", gauges.kv_usage);
        page.write_counter("vllm:prefix_cache_queries_total", gauges.totals.prefix_queries);
        page.write_counter("vllm:prefix_cache_hits_total", gauges.totals.prefix_hits);
        page.write_counter("vllm:num_preemptions_total", gauges.totals.preemptions);
        page.write_type("vllm:request_success_total", "counter");
        let finished = self.finished_by_length.load(Relaxed) as f64;
        page.write_sample(
            "vllm:request_success_total",
            ",finished_reason=\"length\"",
            finished,
        );
        let stopped = self.finished_by_stop.load(Relaxed) as f64;
        page.write_sample("vllm:request_success_total", ",finished_reason=\"stop\"", stopped);
        let aborted = self.aborted.load(Relaxed) as f64;
        page.write_sample(
            "vllm:request_success_total",
            ",finished_reason=\"abort\"",
            aborted,
        );
        self.itl.write(page, "vllm:inter_token_latency_seconds");
        self.queue.write(page, "vllm:request_queue_time_seconds");
    }

    fn write_sglang(&self, page: &mut MetricsPage<'_>, gauges: &Gauges) {
        page.write_gauge("sglang:num_running_reqs", gauges.running as f64);
        page.write_gauge("sglang:num_queue_reqs", gauges.waiting as f64);
        page.write_gauge("sglang:token_usage", gauges.kv_usage);
        page.write_gauge(
            "sglang:kv_used_tokens",
            (gauges.kv_usage * gauges.kv_tokens as f64).round(),
        );
        page.write_gauge("sglang:max_total_num_tokens", gauges.kv_tokens as f64);
        let share = gauges.totals.prefix_hits as f64 / gauges.totals.prefix_queries.max(1) as f64;
        page.write_gauge("sglang:cache_hit_rate", share);
        page.write_counter("sglang:cached_tokens_total", gauges.totals.prefix_hits);
        page.write_counter("sglang:num_retracted_requests_total", gauges.totals.preemptions);
        page.write_counter("sglang:num_requests_total", self.answered_requests());
        page.write_counter("sglang:num_aborted_requests_total", self.aborted.load(Relaxed));
        self.itl.write(page, "sglang:inter_token_latency_seconds");
        self.queue.write(page, "sglang:queue_time_seconds");
    }

    fn write_lmdeploy(&self, page: &mut MetricsPage<'_>, gauges: &Gauges) {
        page.write_gauge("lmdeploy:num_requests_running", gauges.running as f64);
        page.write_gauge("lmdeploy:num_requests_waiting", gauges.waiting as f64);
        page.write_gauge("lmdeploy:gpu_cache_usage_perc", gauges.kv_usage);
        let share = gauges.totals.prefix_hits as f64 / gauges.totals.prefix_queries.max(1) as f64;
        page.write_gauge("lmdeploy:prefix_cache_hit_rate", share);
        page.write_counter("lmdeploy:cached_tokens_total", gauges.totals.prefix_hits);
        page.write_counter("lmdeploy:num_requests_finished", self.answered_requests());
        page.write_counter("lmdeploy:num_requests_failed", self.aborted.load(Relaxed));
        self.itl.write(page, "lmdeploy:iter_token_latency");
        self.queue.write(page, "lmdeploy:request_queue_time_seconds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_cumulatively_up_to_and_with_its_bounds() {
        let metrics = Metrics::default();
        for millis in [10, 11, 500_000] {
            metrics.ttft.observe(Duration::from_millis(millis));
        }
        let page = metrics.page(Dialect::Vllm, "a\"b", 2).unwrap();
        let line = |end: &str| {
            page.lines()
                .find(|line| line.contains("first_token") && line.contains(end))
                .unwrap()
        };
        assert!(line("le=\"0.01\"").ends_with(" 1"));
        assert!(line("le=\"0.02\"").ends_with(" 2"));
        assert!(line("le=\"+Inf\"").ends_with(" 3"));
        assert!(line("_count").ends_with(" 3") && line("_sum").ends_with(" 500.021"));
        assert!(page.contains("model_name=\"a\\\"b\""));
        let power = page.lines().filter(|line| line.starts_with("sim_power_watts{"));
        assert_eq!(power.filter(|line| line.ends_with("} 80")).count(), 2);
    }

    #[test]
    fn each_dialect_has_its_own_names() {
        let metrics = Metrics::default();
        for (dialect, name) in [
            (Dialect::Vllm, "vllm:kv_cache_usage_perc"),
            (Dialect::Sglang, "sglang:token_usage"),
            (Dialect::Lmdeploy, "lmdeploy:gpu_cache_usage_perc"),
        ] {
            assert!(metrics.page(dialect, "m", 1).unwrap().contains(name));
        }
        assert_eq!(metrics.page(Dialect::Openai, "m", 1), None);
    }
}
