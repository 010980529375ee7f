//! `openai`: chat requests as OpenAI's API takes them.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{DataFile, Facts, PromptForm, Rules, TemplateUse, is_false};
use crate::config::profile::Profile;

/// The options of `openai`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Openai {
    pub(crate) output_len: Option<u32>,
    /// Send each row at the time in its `timestamp`.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) trace_timestamps: bool,
}

impl Rules for Openai {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(DataFile::named("openai")),
            prompts: PromptForm::Messages,
            template: TemplateUse::Required,
            output_len: self.output_len,
            slowdown: self.trace_timestamps.then_some(1.0),
            ..Facts::default()
        }
    }

    /// Of recorded requests 0 means all.
    fn requests(&self, prompts: u32) -> Option<u64> {
        (prompts > 0).then(|| u64::from(prompts))
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        lengths::no_answer(self.output_len, report);
    }
}
