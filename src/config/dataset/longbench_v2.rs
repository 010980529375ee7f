//! `longbench_v2`: long documents, each with a question of four choices.

use serde::{Deserialize, Serialize};

use super::{DataFile, Facts, Rules, Say, lengths};
use crate::config::workload::Profile;

/// What is asked of `longbench_v2`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct LongbenchV2 {
    /// Tokens to ask for.
    pub(crate) output_len: Option<u32>,
    /// Rows whose prompt and output exceed this many tokens together are left out; 0 is no limit.
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

    fn objections(&self, _profile: Profile, say: &mut Say<'_>) {
        lengths::no_answer(self.output_len, say);
    }
}
