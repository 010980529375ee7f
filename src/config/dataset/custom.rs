//! `custom`: first turns of conversations in a file of JSON lines.

use serde::{Deserialize, Serialize};

use super::{DataFile, Facts, Rules, Say, TemplateUse, lengths};
use crate::config::workload::{Profile, is_false};

/// What is asked of `custom`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Custom {
    /// Tokens to ask for instead of the length of the second turn.
    pub(crate) output_len: Option<u32>,
    /// Rows whose prompt and output exceed this many tokens together are left out; 0 is no limit.
    pub(crate) context_len: Option<u32>,
    /// Put behind each prompt, followed by `Assistant:`.
    pub(crate) prompt_suffix: Option<String>,
    /// Send the text that the tokenizer's chat template makes of each prompt.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) apply_chat_template: bool,
    /// Send each row at the moment that its `timestamp` says.
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

    fn objections(&self, _profile: Profile, say: &mut Say<'_>) {
        lengths::too_few("custom", self.output_len, say);
    }
}
