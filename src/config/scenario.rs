//! A named load: workload, arrival, limits, SLO and what is searched for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::units::Span;
use crate::config::arrival::Arrival;
use crate::config::lora::Lora;
use crate::config::search::Search;
use crate::config::workload::{Profile, Workload};

/// A load with every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Its name in the matrix.
    pub name: String,
    /// The rules by which prompts are made.
    pub profile: Profile,
    /// What every draw starts from.
    pub seed: u64,
    /// What is sent.
    pub workload: Workload,
    /// When it is sent.
    pub arrival: Arrival,
    /// How far it may go.
    pub limits: Limits,
    /// What makes a request good.
    pub slo: Option<Slo>,
    /// What is searched for, instead of measuring one arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
    /// Fields added to every request body; `null` removes one.
    pub body: serde_json::Map<String, serde_json::Value>,
    /// Whether answers may end where the model ends them, instead of at the asked length.
    pub stop_at_eos: bool,
    /// Whether the texts of the answers are kept in the records.
    pub keep_text: bool,
    /// The LoRA adapters that requests ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<Lora>,
}

/// How far a load may go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Requests sent before the measurement begins.
    pub warmup: u32,
    /// The longest a request may take.
    pub request: Span,
    /// The longest wait for the first byte of an answer.
    pub first_byte: Span,
    /// After this long nothing more falls due; what is under way may end within `drain`.
    pub duration: Option<Span>,
    /// How long what is under way may go on after the end of `duration`; without effect where that is not set.
    pub drain: Span,
    /// An engine whose streams all stand still for this long is taken to hang.
    pub stall: Span,
    /// The longest line an answer may hold, in bytes.
    pub line_bytes: u64,
    /// The most tokens an answer may have beyond the asked length before it is cut as endless.
    pub excess_tokens: u32,
    /// The share of failed requests above which a cell is invalid.
    pub error_share: f64,
    /// The share of failed requests, among those that ended, above which the load is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort_error_share: Option<f64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            warmup: 1,
            request: Span::seconds(6 * 3600),
            first_byte: Span::seconds(6 * 3600),
            duration: None,
            drain: Span::seconds(6 * 3600),
            stall: Span::seconds(600),
            line_bytes: 20 << 20,
            excess_tokens: 1024,
            error_share: 0.01,
            abort_error_share: None,
        }
    }
}

/// What makes a request good: every target must be met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// The longest time to the first token.
    #[serde(default)]
    pub ttft: Option<Span>,
    /// The longest time per output token after the first.
    #[serde(default)]
    pub tpot: Option<Span>,
    /// The longest time to the end.
    #[serde(default)]
    pub e2e: Option<Span>,
}

impl std::fmt::Display for Slo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let targets = [("TTFT", self.ttft), ("TPOT", self.tpot), ("E2E", self.e2e)];
        let targets = targets
            .iter()
            .filter_map(|(name, most)| most.map(|most| format!("{name} {most}")));
        f.write_str(&targets.collect::<Vec<_>>().join(" and "))
    }
}
