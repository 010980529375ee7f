//! `mmmu`: exam questions about a picture.

use serde::{Deserialize, Serialize};

use super::{DataFile, Facts, PromptForm, Rules, Say, TemplateUse, lengths};
use crate::config::workload::Profile;

/// What is asked of `mmmu`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Mmmu {
    /// Tokens to ask for.
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

    fn objections(&self, _profile: Profile, say: &mut Say<'_>) {
        lengths::no_answer(self.output_len, say);
    }
}
