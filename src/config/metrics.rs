//! What an engine may tell of itself in its metrics, under our names.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::forms::OrderedMap;

/// An engine's Prometheus metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// The path that answers with Prometheus text.
    pub path: String,
    /// Our name for a figure, and the engine's names for it; the first one found counts. Known: `running`, `waiting`, `kv_cache_usage`,
    /// `requests`, `aborts`, `preemptions`, `prompt_tokens`, `generation_tokens`, `cached_tokens`, `prefix_queries`, `prefix_hits`,
    /// `prefix_misses`, `external_hits`, `spec_drafts`, `spec_draft_tokens`, `spec_accepted_tokens`, `accepted_length`, `ttft_s`, `itl_s`, `e2e_s`,
    /// `queue_s`, `prefill_s`, `decode_s`, `power_w`, `energy_j`. Those that end in `_s` are histograms, named without `_sum`. One set
    /// of labels is asked for as in `requests_total{reason="abort"}`; else all are added up.
    pub names: OrderedMap<Vec<String>>,
}

impl Metrics {
    /// The same with the names that metrics have today, in their order.
    pub(crate) fn with_todays_names(self) -> Self {
        let names = self.names.into_iter();
        let names: BTreeMap<_, _> = names
            .map(|(name, theirs)| (todays(&name).to_owned(), theirs))
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

/// How a figure of an engine's metrics is read. An engine may tell it once for each of its parts (ranks, replicas, reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// How much there is at a moment; the parts add up.
    Level,
    /// A share or a mean at a moment, of which the parts have one each: their mean is meant.
    Share,
    /// How much there was since the engine began; the parts add up.
    Counter,
    /// Times of a histogram: their sum and their number, from which the mean over a window comes.
    Times,
}

/// Every name that a recipe may give, and how it is read.
pub(crate) const KNOWN: &[(&str, Kind)] = &[
    ("running", Kind::Level),
    ("waiting", Kind::Level),
    ("kv_cache_usage", Kind::Share),
    ("requests", Kind::Counter),
    ("aborts", Kind::Counter),
    ("preemptions", Kind::Counter),
    ("prompt_tokens", Kind::Counter),
    ("generation_tokens", Kind::Counter),
    ("cached_tokens", Kind::Counter),
    ("prefix_queries", Kind::Counter),
    ("prefix_hits", Kind::Counter),
    ("prefix_misses", Kind::Counter),
    ("external_hits", Kind::Counter),
    ("spec_drafts", Kind::Counter),
    ("spec_draft_tokens", Kind::Counter),
    ("spec_accepted_tokens", Kind::Counter),
    ("accepted_length", Kind::Share),
    ("ttft_s", Kind::Times),
    ("itl_s", Kind::Times),
    ("e2e_s", Kind::Times),
    ("queue_s", Kind::Times),
    ("prefill_s", Kind::Times),
    ("decode_s", Kind::Times),
    ("power_w", Kind::Level),
    ("energy_j", Kind::Counter),
];

/// The name of a metric today, of one that earlier versions called otherwise.
pub(crate) fn todays(name: &str) -> &str {
    match name {
        "kv_use" => "kv_cache_usage",
        name => name,
    }
}

/// How the figure of a name is read; `None` for a name that is not known.
pub(crate) fn kind(name: &str) -> Option<Kind> {
    KNOWN
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, kind)| *kind)
}
