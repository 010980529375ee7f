//! `longbench_v2`: long documents, each with a question of four choices.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{DataFile, Facts, Rules};
use crate::config::profile::Profile;

/// The options of `longbench_v2`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct LongbenchV2 {
    pub(crate) output_len: Option<u32>,
    pub(crate) context_len: Option<u32>,
}

impl Rules for LongbenchV2 {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(DataFile::of_hub(
                "longbench-v2",
                "THUDM/LongBench-v2",
                "data.json",
                "LongBench v2",
            )),
            output_len: self.output_len,
            ..Facts::default()
        }
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        lengths::no_answer(self.output_len, report);
    }
}
