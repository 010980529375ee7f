//! `sharegpt`: first turns of conversations in the ShareGPT format.

use serde::{Deserialize, Serialize};

use super::error::{NOT_CLASSIC, ReportError};
use super::lengths;
use super::rules::{DataFile, Facts, Rules, TemplateUse, is_false};
use crate::config::profile::Profile;

/// The options of `sharegpt`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Sharegpt {
    pub(crate) output_len: Option<u32>,
    pub(crate) context_len: Option<u32>,
    pub(crate) prompt_suffix: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) apply_chat_template: bool,
}

/// The file of conversations that `sharegpt` and `random` use.
pub(super) fn file() -> DataFile {
    DataFile::of_hub(
        "sharegpt",
        "anon8231489123/ShareGPT_Vicuna_unfiltered",
        "ShareGPT_V3_unfiltered_cleaned_split.json",
        "For `sharegpt` and `random`",
    )
}

impl Rules for Sharegpt {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(file()),
            template: TemplateUse::requested(self.apply_chat_template),
            output_len: self.output_len,
            prompt_suffix: self.prompt_suffix.as_deref(),
            is_classic: true,
            ..Facts::default()
        }
    }

    fn find_errors(&self, profile: Profile, report: &mut ReportError<'_>) {
        lengths::too_few("sharegpt", self.output_len, report);
        let later = [
            ("context_len", self.context_len.is_some()),
            ("prompt_suffix", self.prompt_suffix.is_some()),
            ("apply_chat_template", self.apply_chat_template),
        ];
        for (field, is_given) in later {
            if is_given && profile == Profile::Classic {
                report(field, NOT_CLASSIC.to_owned());
            }
        }
    }
}
