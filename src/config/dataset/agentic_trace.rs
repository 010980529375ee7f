//! `agentic-trace`: recorded conversations of an agent, sent turn by turn.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{DataFile, Facts, PromptForm, Rules, is_false};
use crate::config::profile::Profile;

/// The options of `agentic-trace`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct AgenticTrace {
    pub(crate) output_len: Option<u32>,
    /// Send each conversation at the time in its `timestamp`.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) trace_timestamps: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agentic_trace: Option<Conversations>,
}

/// The recorded conversations of an agent that are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, schemars(rename = "AgenticTrace"))]
pub(crate) struct Conversations {
    /// Index of the first conversation, from 0; earlier ones follow after the last. Default 0.
    pub(crate) offset: u32,
    /// Maximum number of turns per conversation; default: all.
    pub(crate) max_turns: Option<u32>,
}

impl Rules for AgenticTrace {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(DataFile::named("agentic-trace")),
            prompts: PromptForm::Conversations { turns: None },
            output_len: self.output_len,
            slowdown: self.trace_timestamps.then_some(1.0),
            ..Facts::default()
        }
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        lengths::no_answer(self.output_len, report);
        if self.agentic_trace.as_ref().and_then(|trace| trace.max_turns) == Some(0) {
            report(
                "agentic_trace",
                "`max_turns` is 0 and must be at least 1".to_owned(),
            );
        }
    }
}
