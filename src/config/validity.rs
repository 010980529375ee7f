//! The bounds of reason codes. `analysis::validity` compares measurements with them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::units::{Bytes, HumanDuration};

/// The bounds of what a measurement may show and still be believed. The share of failed requests is a limit of each scenario
/// (`error_share`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// How late 99 of 100 requests may be sent by the client's own fault; 10ms unless said otherwise, and never less than three times
    /// what this machine's calibration found or a twentieth of the median TTFT.
    pub send_lag: HumanDuration,
    /// The share of a processor that the busiest thread of the client may use; 0.95 unless said otherwise.
    pub client_cpu: f64,
    /// The share of their time that the client's threads may wait for a processor before sharing the engine's counts as a fault; 0.05
    /// unless said otherwise.
    pub client_wait: f64,
    /// By which share the rate of sending may fall below the rate that was asked for; 0.05 unless said otherwise.
    pub rate: f64,
    /// The share of answers that may be shorter than asked where the end of text is ignored, or longer than asked; 0.01 unless said
    /// otherwise.
    pub short_outputs: f64,
    /// By which share the server's count of a prompt's tokens may differ from ours, beyond a few tokens and a chat template; 0.02
    /// unless said otherwise.
    pub prompt_tokens: f64,
    /// By which share the engine's counters and its answers may differ in output tokens; 0.01 unless said otherwise.
    pub tokens: f64,
    /// By which factor the engine's count of output tokens may exceed our tokenizer's count of the text; 1.5 unless said otherwise,
    /// because text does not always split again as it was made. Ours may exceed the engine's by twice as much.
    pub own_tokens: f64,
    /// Tokens per event from which on times between events say nothing of tokens; 1.25 unless said otherwise.
    pub tokens_per_chunk: f64,
    /// The share of prompt tokens that may come from the prefix cache where prompts should be new to the engine; 0.05 unless said
    /// otherwise.
    #[serde(rename = "max_cache_hits", alias = "warm")]
    pub max_cache_hits: f64,
    /// The share of samples that may tell of throttling for heat or by the hardware; 0.01 unless said otherwise.
    pub throttled: f64,
    /// The share of samples that may tell of a GPU at its power limit; 0.1 unless said otherwise.
    pub power_capped: f64,
    /// By which share the clock of a busy GPU may wander; 0.05 unless said otherwise.
    pub clock_spread: f64,
    /// Memory that may be taken on a GPU before its engine starts; 1GiB unless said otherwise.
    pub rest_memory: Bytes,
    /// Memory on a GPU that belongs to no process of the engine; 1GiB unless said otherwise.
    pub unexplained_memory: Bytes,
    /// The share of this host's processors that other processes may use, and never less than one of them, or a quarter of a small host's;
    /// 0.1 unless said otherwise.
    pub other_cpus: f64,
    /// The share of the processors' time that the hypervisor may give to other machines; 0.02 unless said otherwise.
    pub stolen: f64,
    /// How much may go to and from swap in each second; 1MiB unless said otherwise.
    pub swap: Bytes,
    /// Preemptions as a share of the requests; 0.01 unless said otherwise.
    pub preemptions: f64,
    /// The longest silence of a source of telemetry; 3s unless said otherwise.
    pub gap: HumanDuration,
    /// How many requests must lie beyond a percentile that is printed; 10 unless said otherwise.
    pub tail: u32,
    /// The shortest measurement; 10s unless said otherwise.
    pub window: HumanDuration,
    /// The share of the measurement that must pass at a steady throughput; 0.3 unless said otherwise.
    pub steady: f64,
    /// By which factor requests in flight may grow from each quarter of the sending to the next; 1.1 unless said otherwise.
    pub queue_growth: f64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            send_lag: HumanDuration(std::time::Duration::from_millis(10)),
            client_cpu: 0.95,
            client_wait: 0.05,
            rate: 0.05,
            short_outputs: 0.01,
            prompt_tokens: 0.02,
            tokens: 0.01,
            own_tokens: 1.5,
            tokens_per_chunk: 1.25,
            max_cache_hits: 0.05,
            throttled: 0.01,
            power_capped: 0.1,
            clock_spread: 0.05,
            rest_memory: Bytes(1 << 30),
            unexplained_memory: Bytes(1 << 30),
            other_cpus: 0.1,
            stolen: 0.02,
            swap: Bytes(1 << 20),
            preemptions: 0.01,
            gap: HumanDuration::from_secs(3),
            tail: 10,
            window: HumanDuration::from_secs(10),
            steady: 0.3,
            queue_growth: 1.1,
        }
    }
}

impl Bounds {
    /// Whether they are the defaults.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Bounds that allow more than usual, each with its value and the usual one.
    pub(crate) fn describe_loosened(&self) -> Vec<String> {
        let default = Self::default();
        let describe = |name: &str, value: &dyn fmt::Display, default: &dyn fmt::Display| {
            format!("`{name}` is {value} instead of {default}")
        };
        let more = [
            ("client_cpu", self.client_cpu, default.client_cpu),
            ("client_wait", self.client_wait, default.client_wait),
            ("rate", self.rate, default.rate),
            ("short_outputs", self.short_outputs, default.short_outputs),
            ("prompt_tokens", self.prompt_tokens, default.prompt_tokens),
            ("tokens", self.tokens, default.tokens),
            ("own_tokens", self.own_tokens, default.own_tokens),
            (
                "tokens_per_chunk",
                self.tokens_per_chunk,
                default.tokens_per_chunk,
            ),
            ("max_cache_hits", self.max_cache_hits, default.max_cache_hits),
            ("throttled", self.throttled, default.throttled),
            ("power_capped", self.power_capped, default.power_capped),
            ("clock_spread", self.clock_spread, default.clock_spread),
            ("other_cpus", self.other_cpus, default.other_cpus),
            ("stolen", self.stolen, default.stolen),
            ("preemptions", self.preemptions, default.preemptions),
            ("queue_growth", self.queue_growth, default.queue_growth),
        ];
        let more = more.into_iter().filter(|(_, value, default)| value > default);
        let spans = [
            (
                "send_lag",
                self.send_lag,
                default.send_lag,
                self.send_lag.0 > default.send_lag.0,
            ),
            ("gap", self.gap, default.gap, self.gap.0 > default.gap.0),
            (
                "window",
                self.window,
                default.window,
                self.window.0 < default.window.0,
            ),
        ];
        let sizes = [
            ("rest_memory", self.rest_memory, default.rest_memory),
            (
                "unexplained_memory",
                self.unexplained_memory,
                default.unexplained_memory,
            ),
            ("swap", self.swap, default.swap),
        ];
        let mut descriptions: Vec<String> = more
            .map(|(name, value, default)| describe(name, &value, &default))
            .collect();
        if self.steady < default.steady {
            descriptions.push(describe("steady", &self.steady, &default.steady));
        }
        if self.tail < default.tail {
            descriptions.push(describe("tail", &self.tail, &default.tail));
        }
        for (name, value, default, is_looser) in spans {
            if is_looser {
                descriptions.push(describe(name, &value, &default));
            }
        }
        for (name, value, default) in sizes {
            if value.0 > default.0 {
                descriptions.push(describe(name, &value, &default));
            }
        }
        descriptions
    }

    /// Invalid bounds: each field with its allowed values.
    pub fn find_errors(&self) -> Vec<(&'static str, &'static str)> {
        let shares = [
            ("client_cpu", self.client_cpu),
            ("client_wait", self.client_wait),
            ("rate", self.rate),
            ("short_outputs", self.short_outputs),
            ("prompt_tokens", self.prompt_tokens),
            ("tokens", self.tokens),
            ("max_cache_hits", self.max_cache_hits),
            ("throttled", self.throttled),
            ("power_capped", self.power_capped),
            ("clock_spread", self.clock_spread),
            ("steady", self.steady),
            ("other_cpus", self.other_cpus),
            ("stolen", self.stolen),
            ("preemptions", self.preemptions),
        ];
        let factors = [
            ("own_tokens", self.own_tokens),
            ("tokens_per_chunk", self.tokens_per_chunk),
            ("queue_growth", self.queue_growth),
        ];
        let no_share = shares
            .into_iter()
            .filter(|(_, share)| !(0.0..=1.0).contains(share))
            .map(|(name, _)| (name, "a share from 0 to 1"));
        let no_factor = factors
            .into_iter()
            .filter(|(_, factor)| !(factor.is_finite() && *factor >= 1.0))
            .map(|(name, _)| (name, "a factor from 1 on"));
        no_share.chain(no_factor).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_allow_more_are_told_and_stricter_ones_are_not() {
        assert!(Bounds::default().describe_loosened().is_empty());
        let strict = Bounds {
            max_cache_hits: 0.0,
            window: HumanDuration::from_secs(60),
            tail: 50,
            steady: 0.9,
            send_lag: HumanDuration(std::time::Duration::from_millis(1)),
            ..Bounds::default()
        };
        assert!(strict.describe_loosened().is_empty());
        let loose = Bounds {
            max_cache_hits: 0.2,
            window: HumanDuration::from_secs(0),
            tail: 0,
            swap: Bytes(1 << 30),
            ..Bounds::default()
        };
        assert_eq!(
            loose.describe_loosened(),
            [
                "`max_cache_hits` is 0.2 instead of 0.05",
                "`tail` is 0 instead of 10",
                "`window` is 0s instead of 10s",
                "`swap` is 1GiB instead of 1MiB",
            ]
        );
    }
}
