//! `mmmu`: exam questions about an image.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{DataFile, Facts, PromptForm, Rules, TemplateUse};
use crate::config::profile::Profile;

/// The options of `mmmu`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Mmmu {
    pub(crate) output_len: Option<u32>,
}

impl Rules for Mmmu {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(DataFile::of_hub(
                "mmmu",
                "MMMU/MMMU",
                "Math/test-00000-of-00001.parquet",
                "MMMU's mathematics",
            )),
            prompts: PromptForm::Pictures,
            template: TemplateUse::Required,
            output_len: self.output_len,
            output_flag: Some("random-output-len"),
            ..Facts::default()
        }
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        lengths::no_answer(self.output_len, report);
    }
}
