//! `agentic-sessions`: recorded sessions of agents, whose requests wait for one another.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{DataFile, Facts, PromptForm, Rules};
use crate::config::profile::Profile;

/// The options of `agentic-sessions`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct AgenticSessions {
    /// Output length of requests whose trace has none.
    pub(crate) output_len: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agentic_sessions: Option<Replay>,
}

impl AgenticSessions {
    /// How the sessions are sent.
    pub(crate) fn replay(&self) -> Replay {
        self.agentic_sessions.clone().unwrap_or_default()
    }
}

/// The recorded sessions that are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, schemars(rename = "AgenticSessions"))]
pub(crate) struct Replay {
    /// Format of the file; default: recognized by its content.
    pub(crate) format: Option<TraceFormat>,
    /// Where sessions begin: at the first request (`first`, the default) or at a drawn request (`random`). The
    /// requests before a drawn one are sent before the measurement, with one output token each.
    pub(crate) start: SessionStart,
    /// Tokens of a block of the engine's prefix cache; default 16. The highest possible hit rate is computed with it.
    pub(crate) cache_block: Option<u32>,
    /// Tokens that each id of a `mooncake` trace stands for; default 512. The other formats say it themselves.
    pub(crate) trace_block: Option<u32>,
}

/// Tokens of a block of the engine's prefix cache by default, as in vLLM.
const DEFAULT_CACHE_BLOCK: u32 = 16;
/// Tokens of a block of Mooncake's traces.
const MOONCAKE_BLOCK: u32 = 512;

impl Replay {
    pub(crate) fn cache_block(&self) -> u32 {
        self.cache_block.unwrap_or(DEFAULT_CACHE_BLOCK)
    }

    pub(crate) fn trace_block(&self) -> u32 {
        self.trace_block.unwrap_or(MOONCAKE_BLOCK)
    }
}

/// The format of a trace of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TraceFormat {
    /// A session per line or file, with ids of KV blocks and nested sub-agents, as in Weka's and AgentX's traces.
    Weka,
    /// A conversation per line, with forks and spawned sub-agents, as AIPerf's `dag_jsonl`.
    Dag,
    /// A request per line with ids of KV blocks; those with the same `session_id` follow one another.
    Mooncake,
    /// Spans of OpenTelemetry with `gen_ai` attributes, a trace being a session.
    Otel,
}

impl TraceFormat {
    pub(crate) const ALL: [Self; 4] = [Self::Weka, Self::Dag, Self::Mooncake, Self::Otel];

    /// The name in YAML and in flags.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Weka => "weka",
            Self::Dag => "dag",
            Self::Mooncake => "mooncake",
            Self::Otel => "otel",
        }
    }
}

/// Where sessions begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SessionStart {
    /// At their first request.
    #[default]
    First,
    /// At a drawn request.
    Random,
}

impl Rules for AgenticSessions {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(DataFile::named("agentic-sessions")),
            prompts: PromptForm::Sessions,
            output_len: self.output_len,
            ..Facts::default()
        }
    }

    /// The number of prompts is one of sessions; 0 means all.
    fn requests(&self, prompts: u32) -> Option<u64> {
        (prompts > 0).then_some(u64::from(prompts))
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        lengths::no_answer(self.output_len, report);
        let replay = self.replay();
        for (name, tokens) in [
            ("cache_block", replay.cache_block),
            ("trace_block", replay.trace_block),
        ] {
            if tokens == Some(0) {
                report(
                    "agentic_sessions",
                    format!("`{name}` is 0 and must be at least 1 token"),
                );
            }
        }
    }
}
