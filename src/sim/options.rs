//! Options of a simulated engine: which engine it imitates, its speed, and its faults. Plain values.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::sim::batching::CostModel;
use crate::sim::faults::Faults;
use crate::sim::presets::{OutOfMemory, Preset};
use crate::sim::ranks::Ranks;
use crate::sim::role::Role;

/// The engine whose endpoints, answers and metric names are imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Dialect {
    /// SGLang: `/generate`, the OpenAI endpoints, `/flush_cache`; metrics only if enabled.
    Sglang,
    /// vLLM: the OpenAI endpoints, `/reset_prefix_cache`; always with metrics.
    Vllm,
    /// LMDeploy: the OpenAI endpoints, no cache reset; always with metrics.
    Lmdeploy,
    /// Only the OpenAI endpoints and `/health`.
    Openai,
}

/// What determines the times of tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Timing {
    /// Continuous batching with a cost model.
    Batched(CostModel),
    /// A fixed schedule for each request, independent of the load.
    Exact(Schedule),
    /// All tokens of a request as fast as the socket accepts them.
    Flood {
        /// Events are combined until a write has at least this many bytes; 0 for one write per event.
        burst_bytes: usize,
    },
}

/// Times relative to the arrival of a request's first byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// Time to the first token.
    pub(crate) ttft: Duration,
    pub(crate) itl: Duration,
    /// Uniform relative variation of both in both directions; 0 for none, at most 1.
    pub(crate) spread: f64,
}

/// A key that clients must send; `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ApiKey(String);

impl ApiKey {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn matches(&self, authorization: Option<&str>) -> bool {
        authorization.and_then(|value| value.strip_prefix("Bearer ")) == Some(self.0.as_str())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl std::str::FromStr for ApiKey {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(text))
    }
}

/// All options of a simulated engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// Address to listen on.
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 for a free one.
    pub(crate) port: u16,
    /// The engine that is imitated.
    pub(crate) dialect: Dialect,
    /// Names under which the model is served, at least one; answers contain the first one.
    pub(crate) models: Vec<String>,
    pub(crate) version: String,
    /// Whether the usage of OpenAI answers leaves out cached prompt tokens, as in engines where this report
    /// is off.
    pub(crate) hides_cached: bool,
    /// The quantization in SGLang's server info.
    pub(crate) quantization: Option<String>,
    /// The reported tensor-parallel size.
    pub(crate) tp: u32,
    /// Maximum length of prompt and answer together, in tokens.
    pub(crate) max_model_len: usize,
    /// The key that clients must send.
    pub(crate) api_key: Option<ApiKey>,
    /// Seed of all random values.
    pub(crate) seed: u64,
    /// What determines the times of tokens.
    pub(crate) timing: Timing,
    /// The allocation that fails while loading; `None` if the memory suffices.
    pub(crate) out_of_memory: Option<OutOfMemory>,
    /// Probability that a token is the last one, if the request does not ignore end tokens; 0 for never.
    pub(crate) eos_rate: f64,
    /// Mean number of tokens per event while another request is in flight; 1 for single tokens.
    pub(crate) merge_chunks: u32,
    /// Whether SGLang's metrics are enabled.
    pub(crate) metrics: bool,
    /// Whether `/sim/truth` reports the server's own times.
    pub(crate) truth: bool,
    pub(crate) start_delay: Duration,
    /// Whether the port is open while loading and answers 503; otherwise connections are refused.
    pub(crate) listen_while_loading: bool,
    /// The part of an engine's work that it does.
    pub(crate) role: Role,
    /// Its place among the ranks of an engine over several nodes; `None` on a single node.
    pub(crate) ranks: Option<Ranks>,
    pub(crate) faults: Faults,
}

impl Default for Options {
    /// The preset `fast` as a plain OpenAI server on a free port of the loopback interface, without faults.
    fn default() -> Self {
        let fast = Preset::by_name("fast").expect("the preset `fast` is in the table");
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            dialect: Dialect::Openai,
            models: vec![fast.model.to_owned()],
            version: "0.0.0-sim".to_owned(),
            quantization: None,
            hides_cached: false,
            tp: 1,
            max_model_len: fast.max_model_len,
            api_key: None,
            seed: 1,
            timing: Timing::Batched(fast.cost_model(1).expect("the preset `fast` fits one GPU")),
            out_of_memory: None,
            eos_rate: 0.0,
            merge_chunks: 1,
            metrics: false,
            truth: false,
            start_delay: Duration::ZERO,
            listen_while_loading: false,
            role: Role::Engine,
            ranks: None,
            faults: Faults::default(),
        }
    }
}

/// Why options are invalid.
#[derive(Clone, Debug, PartialEq, Error)]
pub(crate) enum OptionsError {
    #[error(
        "preset `{preset}` leaves no memory for a KV cache on {gpus} GPU(s) with {weights_gib} GiB of \
         weights and a memory share of {memory_share}; raise `--tp` or `--memory-share`"
    )]
    WeightsTooLarge {
        preset: &'static str,
        gpus: u32,
        weights_gib: f64,
        memory_share: f64,
    },
    /// A value is out of range.
    #[error("`{flag}` is {value}; {rule}")]
    Range {
        /// The flag that sets the value.
        flag: &'static str,
        value: String,
        rule: &'static str,
    },
}

impl Options {
    /// Checks what the types do not guarantee.
    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        ensure(
            !self.models.is_empty(),
            "--model",
            &"empty",
            "name at least one model",
        )?;
        ensure(
            self.max_model_len >= 2,
            "--max-model-len",
            &self.max_model_len,
            "use at least 2 tokens",
        )?;
        ensure(
            is_share(self.eos_rate),
            "--eos-rate",
            &self.eos_rate,
            "use a probability from 0 to 1",
        )?;
        ensure(
            self.merge_chunks >= 1,
            "--merge-chunks",
            &self.merge_chunks,
            "use at least 1 token",
        )?;
        if let Some(ranks) = &self.ranks {
            ensure(
                ranks.node_rank < ranks.nodes,
                "--node-rank",
                &ranks.node_rank,
                "ranks are counted from 0, so use a number below `--nodes`",
            )?;
        }
        if let Some(share) = self.faults.early_end {
            ensure(is_share(share), "--early-end", &share, "use a share from 0 to 1")?;
        }
        if let Some(share) = self.faults.wrong_answers {
            ensure(
                is_share(share),
                "--wrong-answers",
                &share,
                "use a share from 0 to 1",
            )?;
        }
        if let Some(share) = self.faults.varied_answers {
            ensure(
                is_share(share),
                "--varied-answers",
                &share,
                "use a share from 0 to 1",
            )?;
        }
        match &self.timing {
            Timing::Batched(cost) => self.check_cost_model(cost),
            Timing::Exact(schedule) => ensure(
                is_share(schedule.spread),
                "--spread",
                &schedule.spread,
                "use a share from 0% to 100%",
            ),
            Timing::Flood { .. } => Ok(()),
        }
    }

    fn check_cost_model(&self, cost: &CostModel) -> Result<(), OptionsError> {
        ensure(
            cost.block_tokens > 0,
            "--block-tokens",
            &cost.block_tokens,
            "use at least 1 token",
        )?;
        ensure(
            cost.step_tokens > 0,
            "--step-tokens",
            &cost.step_tokens,
            "use at least 1 token",
        )?;
        ensure(
            cost.max_running > 0,
            "--max-running",
            &cost.max_running,
            "allow at least 1 running request",
        )?;
        ensure(
            (0.0..1.0).contains(&cost.jitter),
            "--jitter",
            &cost.jitter,
            "use a value of at least 0 and below 1",
        )?;
        if !cost.chunked_prefill {
            ensure(
                cost.step_tokens >= self.max_model_len,
                "--step-tokens",
                &cost.step_tokens,
                "without chunked prefill a prompt is computed in one step, so use at least `--max-model-len` tokens",
            )?;
        }
        let rate = cost.prefill_rate;
        ensure(
            rate > 0.0,
            "--prefill-rate",
            &rate,
            "use a number of tokens per second above 0",
        )?;
        // Otherwise a sequence of maximum length would wait forever.
        let least = self.max_model_len.div_ceil(cost.block_tokens) * cost.block_tokens;
        ensure(
            cost.kv_tokens >= least,
            "--kv-tokens",
            &cost.kv_tokens,
            "the KV cache must hold at least as many tokens as `--max-model-len`",
        )
    }
}

fn ensure(
    is_allowed: bool,
    flag: &'static str,
    value: &dyn fmt::Display,
    rule: &'static str,
) -> Result<(), OptionsError> {
    if is_allowed {
        Ok(())
    } else {
        Err(OptionsError::Range {
            flag,
            value: value.to_string(),
            rule,
        })
    }
}

fn is_share(share: f64) -> bool {
    (0.0..=1.0).contains(&share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_can_be_served() {
        Options::default().check().unwrap();
    }

    #[test]
    fn a_figure_out_of_range_names_its_flag() {
        let fault = Options {
            eos_rate: 1.5,
            ..Options::default()
        }
        .check()
        .unwrap_err();
        assert_eq!(
            fault.to_string(),
            "`--eos-rate` is 1.5; use a probability from 0 to 1"
        );
        let fault = Options {
            max_model_len: 10_000_000,
            ..Options::default()
        }
        .check()
        .unwrap_err();
        assert!(fault.to_string().starts_with("`--kv-tokens` is "), "{fault}");
    }

    #[test]
    fn a_key_is_not_printed() {
        let key = ApiKey::new("secret");
        assert!(
            key.matches(Some("Bearer secret")) && !key.matches(Some("Bearer other")) && !key.matches(None)
        );
        assert_eq!(format!("{key:?}"), "***");
    }
}
