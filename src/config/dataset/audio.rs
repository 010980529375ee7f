//! `audio`: recordings to transcribe, from a folder or from a file of JSON lines.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{DataFile, Facts, PromptForm, Rules};
use crate::config::profile::Profile;

/// The options of `audio`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Audio {
    /// Limit of output tokens; without it the recording decides.
    pub(crate) output_len: Option<u32>,
}

impl Rules for Audio {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(DataFile::named("audio")),
            prompts: PromptForm::Audio,
            output_len: self.output_len,
            output_flag: Some("audio-output-len"),
            ..Facts::default()
        }
    }

    /// Of recordings 0 means all.
    fn requests(&self, prompts: u32) -> Option<u64> {
        (prompts > 0).then(|| u64::from(prompts))
    }

    fn lengths(&self, _profile: Profile) -> String {
        "recordings of the data set".to_owned()
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        lengths::no_answer(self.output_len, report);
    }
}
