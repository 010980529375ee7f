//! The bounds of reason codes. `analysis::validity` compares measurements with them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::units::{Bytes, HumanDuration};

/// Bounds beyond which a measurement is suspect or invalid. The bound for failed requests is `error_share` of
/// the scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ValidityBounds {
    /// Maximum lag of 99 of 100 requests: how late the client may send them; default 10ms. The bound that
    /// applies is at least three times the lag in this machine's calibration, and a twentieth of the median
    /// TTFT.
    pub(crate) send_lag: HumanDuration,
    /// Maximum CPU use of the busiest thread of the client, as a share of one processor; default 0.95.
    pub(crate) client_cpu: f64,
    /// Maximum share of time that the client's threads wait for a processor while they share processors with
    /// the engine; default 0.05.
    pub(crate) client_wait: f64,
    /// Share by which the sending rate may be below the requested rate; default 0.05.
    pub(crate) rate: f64,
    /// Maximum share of answers that are shorter than requested (if the end of text is ignored) or longer than
    /// requested; default 0.01.
    pub(crate) short_outputs: f64,
    /// Share by which the server's count of a prompt's tokens may differ from ours, beyond a few tokens and a
    /// chat template; default 0.02.
    pub(crate) prompt_tokens: f64,
    /// Share by which output tokens in the engine's counters and in its responses may differ; default 0.01.
    pub(crate) tokens: f64,
    /// Factor by which the engine's count of output tokens may exceed our tokenizer's count of the text;
    /// default 1.5, because a text is not always split into the tokens that it was generated from. Our count
    /// may exceed the engine's by twice that margin.
    pub(crate) own_tokens: f64,
    /// Tokens per event above which times between events do not describe tokens; default 1.25.
    pub(crate) tokens_per_chunk: f64,
    /// Maximum share of prompt tokens from the prefix cache, beyond what prompts share with each other; default
    /// 0.05.
    #[serde(rename = "max_cache_hits", alias = "warm")]
    pub(crate) max_cache_hits: f64,
    /// Maximum share of samples with thermal or hardware throttling of a GPU; default 0.01.
    pub(crate) throttled: f64,
    /// Maximum share of samples with a GPU at its power limit; default 0.1.
    pub(crate) power_capped: f64,
    /// Maximum spread of the clock of a busy GPU, as a share; default 0.05.
    pub(crate) clock_spread: f64,
    /// Maximum memory in use on a GPU before its engine starts; default 1GiB.
    pub(crate) rest_memory: Bytes,
    /// Maximum memory in use on a GPU that belongs to no process of the engine; default 1GiB.
    pub(crate) unexplained_memory: Bytes,
    /// Maximum share of this host's processors that other processes use; default 0.1. The bound that applies is
    /// at least one processor, or a quarter of the processors if that is less.
    pub(crate) other_cpus: f64,
    /// Maximum share of processor time that the hypervisor gives to other virtual machines; default 0.02.
    pub(crate) stolen: f64,
    /// Maximum traffic to and from swap per second; default 1MiB.
    pub(crate) swap: Bytes,
    /// Maximum number of preemptions, as a share of the requests; default 0.01.
    pub(crate) preemptions: f64,
    /// Longest silence of a telemetry source; default 3s.
    pub(crate) gap: HumanDuration,
    /// Minimum number of requests beyond the highest percentile that is printed; default 10.
    pub(crate) tail: u32,
    /// Minimum duration of a measurement; default 10s.
    pub(crate) window: HumanDuration,
    /// Minimum share of the measurement at a steady throughput; default 0.3. 0 turns the check off.
    pub(crate) steady: f64,
    /// Factor by which requests in flight may grow from each quarter of the sending to the next; default 1.1.
    pub(crate) queue_growth: f64,
}

impl Default for ValidityBounds {
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

impl ValidityBounds {
    /// Whether they are the defaults.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Bounds that allow more than usual, each with its value and the usual one.
    pub(crate) fn describe_loosened(&self) -> Vec<String> {
        let default = Self::default();
        let describe = |name: &str, value: &dyn fmt::Display, default: &dyn fmt::Display| {
            format!("`{name}` is {value} instead of the default {default}")
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
    pub(crate) fn find_errors(&self) -> Vec<(&'static str, &'static str)> {
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
            .map(|(name, _)| (name, "a factor of 1 or more"));
        no_share.chain(no_factor).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_allow_more_are_told_and_stricter_ones_are_not() {
        assert!(ValidityBounds::default().describe_loosened().is_empty());
        let strict = ValidityBounds {
            max_cache_hits: 0.0,
            window: HumanDuration::from_secs(60),
            tail: 50,
            steady: 0.9,
            send_lag: HumanDuration(std::time::Duration::from_millis(1)),
            ..ValidityBounds::default()
        };
        assert!(strict.describe_loosened().is_empty());
        let loose = ValidityBounds {
            max_cache_hits: 0.2,
            window: HumanDuration::from_secs(0),
            tail: 0,
            swap: Bytes(1 << 30),
            ..ValidityBounds::default()
        };
        assert_eq!(
            loose.describe_loosened(),
            [
                "`max_cache_hits` is 0.2 instead of the default 0.05",
                "`tail` is 0 instead of the default 10",
                "`window` is 0s instead of the default 10s",
                "`swap` is 1GiB instead of the default 1MiB",
            ]
        );
    }
}
