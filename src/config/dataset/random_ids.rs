//! `random-ids`: runs of consecutive token ids of drawn lengths.

use serde::{Deserialize, Serialize};

use super::common_prefix::CommonPrefix;
use super::error::ReportError;
use super::length_distribution::Lengths;
use super::lengths::{self, DrawnOptions};
use super::rules::{Facts, Rules};
use crate::config::profile::Profile;

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lengths: Option<Lengths>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) common_prefix: Option<CommonPrefix>,
}

impl RandomIds {
    fn drawn_options(&self) -> DrawnOptions<'_> {
        DrawnOptions {
            drawn: self.facts().drawn.expect("lengths are drawn"),
            lengths: self.lengths.as_ref(),
            common_prefix: self.common_prefix,
        }
    }
}

impl Rules for RandomIds {
    fn facts(&self) -> Facts<'_> {
        Facts {
            sends_ids: self.tokenize_prompt,
            lengths: self.lengths.as_ref(),
            common_prefix: self.common_prefix,
            ..Facts::of_drawn(self.input_len, self.output_len, self.range_ratio)
        }
    }

    fn lengths(&self, profile: Profile) -> String {
        self.drawn_options().in_words(profile)
    }

    fn find_errors(&self, profile: Profile, report: &mut ReportError<'_>) {
        self.drawn_options().find_errors(profile, report);
    }
}
