//! `custom`: first turns of conversations in a file of JSON lines.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{DataFile, Facts, Rules, TemplateUse, is_false};
use crate::config::profile::Profile;

/// The options of `custom`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Custom {
    pub(crate) output_len: Option<u32>,
    pub(crate) context_len: Option<u32>,
    pub(crate) prompt_suffix: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) apply_chat_template: bool,
    /// Send each row at the time in its `timestamp`.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) trace_timestamps: bool,
}

impl Rules for Custom {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(DataFile::named("custom")),
            template: TemplateUse::requested(self.apply_chat_template),
            output_len: self.output_len,
            prompt_suffix: self.prompt_suffix.as_deref(),
            slowdown: self.trace_timestamps.then_some(1.0),
            ..Facts::default()
        }
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        lengths::too_few("custom", self.output_len, report);
    }
}
