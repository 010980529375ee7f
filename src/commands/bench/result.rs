//! The result of a bench, as a block, as a line and as vLLM's object.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::config::BenchConfig;
use crate::analysis::calibration;
use crate::analysis::metrics::{self, CacheHits, Metric, MetricSets, SteadyState};
use crate::base::clock;
use crate::cli;
use crate::config::dataset::PromptForm;
use crate::report::ascii_plot::plot;
use crate::report::bench_serving::bench_line::{BenchLine, BenchRecords};
use crate::report::bench_serving::block::{self, BlockFacts, Layout};
use crate::report::bench_serving::notes;
use crate::report::connection_notes;
use crate::report::tables::reason_in_words;
use crate::report::vllm_json::VllmResult;
use crate::results::record::answer_check::describe_checks;
use crate::results::record::cell::Origin;
use crate::results::record::client::Calibration;
use crate::results::record::connections::ConnectionCounts;
use crate::results::record::request::{Request, judged_requests};
use crate::results::record::validity::Validity;
use crate::runner::bench::BenchLoad;

/// A measured load with its settings.
pub(super) struct BenchResult<'a> {
    /// The settings, with the arrival of this load.
    pub(super) config: &'a BenchConfig,
    pub(super) measured: &'a BenchLoad,
    /// The model's name: the given one, or the server's.
    pub(super) model: &'a str,
    pub(super) calibration: Option<&'a Calibration>,
    /// The search fields of the result line, if the load is a point of a search.
    pub(super) search: Option<Value>,
}

impl BenchResult<'_> {
    /// Returns the steady state, if it is requested.
    pub(super) fn steady_state(&self) -> Option<SteadyState> {
        let ratio = self.config.steady_state.as_ref()?.ratio;
        let (requests, copied) = (self.requests(), self.config.output.compat_figures);
        metrics::steady_state(requests, &self.measured.basis, self.config.profile, copied, ratio)
    }

    pub(super) fn requests(&self) -> &[Request] {
        &self.measured.load.requests
    }

    pub(super) fn metric_sets(&self) -> MetricSets {
        let profile = self.config.profile;
        let is_copied = self.config.output.compat_figures;
        let is_of_talks = self.measured.session.has_conversations();
        MetricSets::from_requests(
            self.requests(),
            &self.measured.basis,
            profile,
            is_copied,
            is_of_talks,
        )
    }

    fn cache_hits(&self) -> Option<CacheHits> {
        let is_asked = self.config.cache_report;
        is_asked.then(|| {
            let mut hits = metrics::cache_hits(self.requests());
            // The Python tool counts missing reports as 0.
            let requests = self.requests();
            hits.is_reported &= !requests.iter().any(Request::has_impossible_counts);
            hits.is_reported |= self.config.output.compat_figures;
            hits
        })
    }

    pub(super) fn result_block(&self, sets: &MetricSets) -> String {
        let cache = self.cache_hits();
        let facts = BlockFacts {
            backend: &self.config.requested_load.backend,
            rate: self.config.requested_load.rate,
            concurrency: self.config.scenario.arrival.concurrency,
            slo: self.config.requested_load.slo.as_ref(),
            cache: cache.as_ref(),
            has_images: self.config.scenario.workload.facts().prompts == PromptForm::Pictures,
            embeds: !self.config.backend.protocol().facts().generates_text,
            layout: Layout::Whole,
        };
        block::block(self.config.profile, &facts, &sets.block)
    }

    /// Describes the error of the client's own timestamps, if this machine was calibrated.
    pub(super) fn client_error(&self) -> Option<String> {
        let outcome = &self.measured.load;
        let stamps = outcome.timestamp_source.name();
        notes::client_error(&outcome.requests, &outcome.client, stamps, self.calibration?)
    }

    /// Describes the energy of the server's devices, if telemetry of this host has it.
    pub(super) fn energy(&self, sets: &MetricSets) -> Option<String> {
        notes::energy_note(&self.measured.load.telemetry, &sets.matrix)
    }

    fn failed_share(&self) -> f64 {
        let requests = self.requests();
        let failed = requests.iter().filter(|request| request.is_failed()).count();
        failed as f64 / judged_requests(requests).max(1) as f64
    }

    /// Whether too many requests failed. With `--compat-figures`, as in the Python tool, and for points of a
    /// search, only a load without any success fails.
    pub(super) fn has_failed(&self) -> bool {
        let is_lenient = self.config.output.compat_figures || self.search.is_some();
        let share = self.failed_share();
        share >= 1.0 || !is_lenient && share > self.config.scenario.limits.error_share
    }

    pub(super) fn too_many_failed(&self) -> String {
        let percent = |share: f64| (share * 1e4).round() / 100.0;
        format!(
            "error: {} % of the requests failed, but `--max-failed` allows {} %\n",
            percent(self.failed_share()),
            percent(self.config.scenario.limits.error_share)
        )
    }

    /// Returns a record per request as JSON lines, without texts.
    pub(super) fn records(&self) -> impl Iterator<Item = String> {
        self.requests().iter().map(|request| {
            let request = Request {
                text: None,
                tool_text: None,
                ..request.clone()
            };
            serde_json::to_string(&request).expect("a record has string keys") + "\n"
        })
    }

    /// Returns metrics that the Python tool does not print; empty with `--compat-figures`.
    pub(super) fn extra_metrics(&self, sets: &MetricSets) -> String {
        if self.config.output.compat_figures {
            return String::new();
        }
        let requests = self.requests();
        let percentiles = metrics::percentiles(requests, &self.config.output.percentiles);
        block::additional_block(
            &sets.matrix,
            &percentiles,
            !self.config.backend.protocol().facts().generates_text,
        )
    }

    /// Plots the load over time.
    pub(super) fn plots(&self) -> String {
        let (protocol, copied) = (self.config.backend.protocol(), self.config.output.compat_figures);
        let each = metrics::load_per_second(self.requests(), protocol, self.config.profile, copied);
        let each = each.unwrap_or_default();
        let tokens = match &each.tokens {
            Some(tokens) => plot("Output tokens per second", tokens),
            None => "\nOutput tokens per second are unknown, because not every answer has a token count\n"
                .to_owned(),
        };
        tokens + &plot("Concurrent requests per second", &each.requests)
    }

    /// Returns notes about the figures.
    pub(super) fn notes(&self, sets: &MetricSets) -> Vec<String> {
        let mut notes = Vec::new();
        if self.config.steady_state.is_some() && self.steady_state().is_none() {
            notes.push("there is no steady state: no request was in flight".to_owned());
        }
        if self.measured.is_interrupted() {
            notes.push(
                "the measurement was stopped early; the figures cover only requests that had ended"
                    .to_owned(),
            );
        }
        let tls = self.config.connections.tls.as_ref();
        if tls.is_some_and(|tls| !tls.verifies_servers()) {
            notes.push(
                "the certificate of the server was not checked (`--insecure`), so another server may have answered"
                    .to_owned(),
            );
        }
        let connections = self.connections();
        let noted = connections
            .iter()
            .flat_map(|counts| connection_notes::notes(counts, &connection_notes::FLAGS));
        notes.extend(noted);
        if self.measured.load.is_aborted {
            notes.push(
                "the load was stopped early: more requests failed than `--abort-error-share` allows"
                    .to_owned(),
            );
        }
        let ran_out = self.measured.load.ran_out.as_ref();
        notes.extend(ran_out.map(|short| short.describe("`--num-prompts`")));
        if let Some(spill) = &self.measured.load.spill {
            notes.extend(spill.missed_warning());
            notes.extend(
                spill
                    .lost_warning()
                    .map(|lost| format!("figures are wrong, because parts of responses are missing: {lost}")),
            );
        }
        let requests = self.requests();
        if !self.config.output.compat_figures {
            let embeds = !self.config.backend.protocol().facts().generates_text;
            notes.extend(notes::fixed_figure_notes(requests, sets, embeds));
        }
        notes.extend(
            self.config
                .scenario
                .cancel
                .map(|cancel| notes::cancellation_note(requests, cancel)),
        );
        notes.extend(describe_checks(requests));
        let common = self.config.scenario.workload.facts().common_prefix;
        let expected = self.measured.summary.prompts_repeated;
        notes.extend(
            common
                .zip(expected)
                .map(|(common, expected)| notes::common_prefix_note(requests, common, expected)),
        );
        notes.extend(notes::figure_notes(
            requests,
            &self.measured.basis,
            self.config.profile,
            sets,
            self.measured.load.client.send_lag,
        ));
        notes.extend(self.measured.reasons.iter().map(reason_in_words));
        notes.extend(calibration::open_connections_note(&self.measured.load.client));
        notes
    }

    fn details(&self) -> BenchRecords<'_> {
        BenchRecords {
            requests: self.requests(),
            protocol: self.config.backend.protocol(),
            profile: self.config.profile,
            as_published: self.config.output.compat_figures,
        }
    }

    /// Returns the result line, without a line break.
    pub(super) fn result_line(&self, sets: &MetricSets, notes: &[String]) -> String {
        let extension = self.extension_fields(sets, notes);
        let cache = self.cache_hits();
        // Scripts format this number, so it must not be missing; the block and a note report loads below one
        // second correctly.
        let mut peaked = sets.block.clone();
        let peak = Metric::PeakOutput.name();
        if let Some(python_line) = sets
            .as_published
            .get(&peak)
            .filter(|_| metrics::metric_value(&peaked, Metric::PeakOutput).is_none())
        {
            peaked.insert(peak, *python_line);
        }
        let line = BenchLine {
            requested: &self.config.requested_load,
            server_info: self.measured.summary.engine.info.as_ref(),
            figures: &peaked,
            cache: cache.as_ref(),
            details: self.config.output.details.then(|| self.details()),
            matrix_fields: &extension,
            writes_infinity: self.config.output.bare_infinity,
        };
        line.text()
    }

    pub(super) fn vllm_json(&self, sets: &MetricSets, notes: &[String]) -> String {
        let date = clock::local_stamp();
        let extension = self.extension_fields(sets, notes);
        let result = VllmResult {
            date: &date,
            backend: &self.config.requested_load.backend,
            label: self.config.requested_load.tag.as_deref(),
            model: self.model,
            tokenizer: self.measured.session.tokenizer().0,
            rate: self.config.requested_load.rate,
            rate_profile: self.measured.session.arrival().pace.as_ref(),
            spacing: self.config.scenario.arrival.spacing,
            concurrency: self.config.requested_load.concurrency,
            block: &sets.block,
            details: self.details(),
            detailed: self.config.output.details,
            matrix_fields: &extension,
        };
        result.text()
    }

    /// Returns our own fields of the result line.
    fn extension_fields(&self, sets: &MetricSets, notes: &[String]) -> Value {
        let mut failures: BTreeMap<&str, u32> = BTreeMap::new();
        for failure in self
            .requests()
            .iter()
            .filter_map(|request| request.failure.as_ref())
        {
            *failures.entry(failure.class.name()).or_default() += 1;
        }
        let failures: Map<String, Value> = failures
            .into_iter()
            .map(|(class, count)| (class.to_owned(), json!(count)))
            .collect();
        let lag = self.measured.load.client.send_lag;
        let lag = lag.map(|lag| json!({"mean": lag.mean_ms, "p99": lag.p99_ms, "max": lag.max_ms}));
        let (prompts, schedule) = self.measured.session.digests();
        let figures = match self.config.output.compat_figures {
            true => "copied",
            false => "mended",
        };
        let mut fields = json!({
            "version": cli::VERSION,
            "ending": if self.measured.is_interrupted() { "interrupted" } else { "done" },
            "model": self.model,
            "tokenizer": self.measured.session.tokenizer().0,
            "profile": self.config.profile,
            "seed": self.measured.session.seed(),
            "began": self.measured.load.began,
            "due_requests": self.requests().len(),
            "failures": failures,
            "prompts_hash": prompts,
            "schedule_hash": schedule,
            "stamps": self.measured.load.timestamp_source.name(),
            "send_lag_ms": lag,
            "client": self.measured.load.client,
            "telemetry": self.measured.load.telemetry,
            "faults": figures,
            "notes": notes,
            "validity": Validity::from_reasons(self.measured.reasons.clone()),
            "simulated": self.measured.summary.origin == Origin::Simulated,
            "arrival": self.measured.session.arrival(),
            "steady_state": self.steady_state(),
            "search": self.search,
            "figures": sets.matrix,
            "bench_serving_figures": sets.as_published,
        });
        let pacing = &self.config.scenario.pacing;
        let optional = [
            ("pacing", (!pacing.is_default()).then(|| json!(pacing))),
            (
                "routing_key_header",
                (self.config.dialect.routing_key_header.as_ref()).map(|header| json!(header)),
            ),
            (
                "sessions",
                metrics::session_hits(self.requests()).map(|sessions| json!(sessions)),
            ),
        ];
        if let Value::Object(fields) = &mut fields {
            let connections = self.connections();
            fields.extend(connections.iter().flat_map(connection_notes::fields));
            let given = optional
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?)));
            fields.extend(given);
        }
        fields
    }

    fn connections(&self) -> Option<ConnectionCounts> {
        let others = self.config.connections.other_addresses.iter();
        let addresses: Vec<String> = std::iter::once(&self.config.address)
            .chain(others)
            .map(ToString::to_string)
            .collect();
        ConnectionCounts::from_requests(
            self.requests(),
            self.config.scenario.connections,
            &addresses,
            self.measured.load.client.surplus_connections,
        )
    }
}
