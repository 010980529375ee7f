//! A scenario: workload, arrival, limits, SLO and search.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::units::{HumanDuration, TokenSpeed};
use crate::config::api::ClientStyle;
use crate::config::arrival::Arrival;
use crate::config::cancel::Cancel;
use crate::config::connections::LoadConnections;
use crate::config::dataset::is_false;
use crate::config::lora::Lora;
use crate::config::pacing::Pacing;
use crate::config::quality::Quality;
use crate::config::search::Search;
use crate::config::workload::{Profile, Workload};

/// A scenario with every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Its name in the matrix.
    pub(crate) name: String,
    /// The rules for making prompts.
    pub(crate) profile: Profile,
    /// Seed of all random draws.
    pub(crate) seed: u64,
    /// The prompts to send.
    pub workload: Workload,
    /// When requests are sent.
    pub(crate) arrival: Arrival,
    /// How sessions and conversations are paced.
    #[serde(default, skip_serializing_if = "Pacing::is_default")]
    pub(crate) pacing: Pacing,
    /// Requests that the client cancels before their answers end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cancel: Option<Cancel>,
    /// How connections are used.
    #[serde(default, skip_serializing_if = "LoadConnections::is_default")]
    pub(crate) connections: LoadConnections,
    /// Whether answers are compared with what their requests demand.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) check_answers: bool,
    /// Limits and timeouts of the load.
    pub(crate) limits: LoadLimits,
    /// The limits that make a request good: the first tier, if a search has several.
    pub(crate) slo: Option<Slo>,
    /// The further tiers of a search.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) further_tiers: Vec<Slo>,
    /// The search that replaces a single arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) search: Option<Search>,
    /// Fields added to every request body; `null` removes a field.
    pub(crate) body: serde_json::Map<String, serde_json::Value>,
    /// Whether the model may end answers, or the requested length is enforced.
    pub(crate) stop_at_eos: bool,
    /// Whether records keep the texts of answers.
    pub(crate) keep_text: bool,
    /// LoRA adapters of the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lora: Option<Lora>,
    /// The answers that are graded after the measurement, under the same load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quality: Option<Quality>,
}

impl Scenario {
    /// Every tier of the SLO. Without an SLO, one that has no limits.
    pub(crate) fn tiers(&self) -> Vec<Slo> {
        let first = self.slo.clone().unwrap_or_default();
        std::iter::once(first)
            .chain(self.further_tiers.iter().cloned())
            .collect()
    }

    /// The mean time from the first request to the last one at a constant rate; `None` if the load or the engine decides it.
    pub(crate) fn sending_time(&self) -> Option<Duration> {
        let arrival = &self.arrival;
        if self.search.is_some() || arrival.pace.is_some() || arrival.rate.is_infinite() {
            return None;
        }
        let all = self.workload.requests()? as f64 / arrival.rate.per_second();
        let all = Duration::try_from_secs_f64(all).ok()?;
        let window = arrival.sending_window(self.limits.duration);
        Some(window.map_or(all, |window| window.min(all)))
    }

    /// The client whose warm-up and order of draws apply.
    pub(crate) fn client_style(&self) -> ClientStyle {
        self.workload.facts().style
    }
}

/// Limits and timeouts of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadLimits {
    /// Number of warm-up requests.
    pub(crate) warmup: u32,
    /// Timeout of a request.
    pub(crate) request: HumanDuration,
    /// Timeout of the first byte of an answer.
    pub(crate) first_byte: HumanDuration,
    /// Time after which no request falls due; running requests may end within `drain`.
    pub(crate) duration: Option<HumanDuration>,
    /// Time that running requests get after the end of `duration`; without effect if `duration` is not set.
    pub(crate) drain: HumanDuration,
    /// Time without progress on any stream after which the engine counts as hung.
    pub(crate) stall: HumanDuration,
    /// Largest length of a line in an answer, in bytes.
    pub(crate) line_bytes: u64,
    /// Number of tokens beyond the requested length after which an answer is cut off as endless.
    pub(crate) excess_tokens: u32,
    /// Share of failed requests above which a cell is invalid.
    pub(crate) error_share: f64,
    /// Share of failed requests, among ended ones, above which the load is aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) abort_error_share: Option<f64>,
}

impl Default for LoadLimits {
    fn default() -> Self {
        Self {
            warmup: 1,
            request: HumanDuration::from_secs(6 * 3600),
            first_byte: HumanDuration::from_secs(6 * 3600),
            duration: None,
            drain: HumanDuration::from_secs(6 * 3600),
            stall: HumanDuration::from_secs(600),
            line_bytes: 20 << 20,
            excess_tokens: 1024,
            error_share: 0.01,
            abort_error_share: None,
        }
    }
}

/// Limits that a good request meets, all of those that are set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Slo {
    /// Maximum time to the first token, such as `500ms`.
    #[serde(default)]
    pub(crate) ttft: Option<HumanDuration>,
    /// Maximum time per output token after the first, such as `50ms`.
    #[serde(default)]
    pub(crate) tpot: Option<HumanDuration>,
    /// Minimum speed of the answer after the first token, such as `30 tok/s`; another way to write `tpot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) speed: Option<TokenSpeed>,
    /// Maximum time to the end of the answer, such as `30s`.
    #[serde(default)]
    pub(crate) e2e: Option<HumanDuration>,
}

impl Slo {
    /// Its limits, each with its name.
    pub(crate) fn limits_in_words(&self) -> Vec<String> {
        let time = |name: &str, limit: Option<HumanDuration>| limit.map(|limit| format!("{name} {limit}"));
        let speed = self.speed.map(|speed| format!("speed {speed}"));
        [
            time("TTFT", self.ttft),
            time("TPOT", self.tpot),
            speed,
            time("E2E", self.e2e),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The maximum time per output token, which `tpot` or `speed` sets.
    pub(crate) fn max_tpot(&self) -> Option<Duration> {
        let by_speed = self.speed.map(TokenSpeed::per_token);
        let given = self.tpot.map(HumanDuration::duration);
        given.into_iter().chain(by_speed).min()
    }
}

impl std::fmt::Display for Slo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.limits_in_words().join(" and "))
    }
}
