//! `random-ids`: runs of consecutive token ids of drawn lengths.

use serde::{Deserialize, Serialize};

use super::lengths;
use super::rules::{Facts, Rules};

/// The options of `random-ids`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct RandomIds {
    /// Tokens in each prompt, at most; `None` only of imported results.
    pub(crate) input_len: Option<u32>,
    /// Tokens to ask for, at most; `None` only of imported results.
    pub(crate) output_len: Option<u32>,
    #[serde(default = "lengths::exact")]
    pub(crate) range_ratio: f64,
    #[serde(default)]
    pub(crate) tokenize_prompt: bool,
}

impl Rules for RandomIds {
    fn facts(&self) -> Facts<'_> {
        Facts {
            sends_ids: self.tokenize_prompt,
            ..Facts::of_drawn(self.input_len, self.output_len, self.range_ratio)
        }
    }
}
