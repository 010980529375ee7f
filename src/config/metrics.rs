//! Names of an engine's metrics: ours, and how each is read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::forms::OrderedMap;

/// An engine's Prometheus metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricDefinitions {
    /// Path that returns the metrics as Prometheus text.
    pub(crate) path: String,
    /// Metric names of `matrix`, each with the engine's names for it; the first name found is used. Known:
    /// `running`, `waiting`, `kv_cache_usage`, `requests`, `aborts`, `preemptions`, `prompt_tokens`,
    /// `generation_tokens`, `cached_tokens`, `prefix_queries`, `prefix_hits`, `prefix_misses`, `external_hits`,
    /// `spec_drafts`, `spec_draft_tokens`, `spec_accepted_tokens`, `accepted_length`, `ttft_s`, `itl_s`,
    /// `e2e_s`, `queue_s`, `prefill_s`, `decode_s`, `power_w`, `energy_j`. Names that end in `_s` are
    /// histograms; write the engine's name without `_sum`. A name with labels, as in
    /// `requests_total{reason="abort"}`, selects the series with these labels; without labels, the values of
    /// all series are added up, or averaged for `kv_cache_usage` and `accepted_length`.
    pub(crate) names: OrderedMap<Vec<String>>,
}

impl MetricDefinitions {
    /// The same definitions under the current metric names, sorted by name.
    pub(crate) fn with_current_names(self) -> Self {
        let names = self.names.into_iter();
        let names: BTreeMap<_, _> = names
            .map(|(name, theirs)| (current_name(&name).to_owned(), theirs))
            .collect();
        Self {
            names: names
                .into_iter()
                .map(|(name, theirs)| (name.into(), theirs))
                .collect(),
            ..self
        }
    }
}

/// How a metric of an engine is read. An engine may report it once for each of its parts (ranks, replicas, reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// How much there is at a moment; the parts add up.
    Level,
    /// A share or a mean at a moment, of which the parts have one each: their mean is meant.
    Share,
    /// How much there was since the engine began; the parts add up.
    Counter,
    /// Times of a histogram: their sum and their number, from which the mean over a window comes.
    Histogram,
}

/// Every name that a recipe may give, and how it is read.
pub(crate) const METRICS: &[(&str, MetricKind)] = &[
    ("running", MetricKind::Level),
    ("waiting", MetricKind::Level),
    ("kv_cache_usage", MetricKind::Share),
    ("requests", MetricKind::Counter),
    ("aborts", MetricKind::Counter),
    ("preemptions", MetricKind::Counter),
    ("prompt_tokens", MetricKind::Counter),
    ("generation_tokens", MetricKind::Counter),
    ("cached_tokens", MetricKind::Counter),
    ("prefix_queries", MetricKind::Counter),
    ("prefix_hits", MetricKind::Counter),
    ("prefix_misses", MetricKind::Counter),
    ("external_hits", MetricKind::Counter),
    ("spec_drafts", MetricKind::Counter),
    ("spec_draft_tokens", MetricKind::Counter),
    ("spec_accepted_tokens", MetricKind::Counter),
    ("accepted_length", MetricKind::Share),
    ("ttft_s", MetricKind::Histogram),
    ("itl_s", MetricKind::Histogram),
    ("e2e_s", MetricKind::Histogram),
    ("queue_s", MetricKind::Histogram),
    ("prefill_s", MetricKind::Histogram),
    ("decode_s", MetricKind::Histogram),
    ("power_w", MetricKind::Level),
    ("energy_j", MetricKind::Counter),
];

/// The name of a metric today, of one that earlier versions called otherwise.
pub(crate) fn current_name(name: &str) -> &str {
    match name {
        "kv_use" => "kv_cache_usage",
        name => name,
    }
}

/// How the figure of a name is read; `None` for a name that is not known.
pub(crate) fn metric_kind(name: &str) -> Option<MetricKind> {
    METRICS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, kind)| *kind)
}
