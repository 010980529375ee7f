//! `random`: first turns of conversations, cut or repeated to drawn lengths.

use serde::{Deserialize, Serialize};

use super::common_prefix::CommonPrefix;
use super::error::{NOT_CLASSIC, ReportError};
use super::length_distribution::Lengths;
use super::lengths::{self, DrawnOptions};
use super::rules::{Facts, Rules};
use super::sharegpt;
use crate::config::profile::Profile;

/// The options of `random`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Random {
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

impl Random {
    fn drawn_options(&self) -> DrawnOptions<'_> {
        DrawnOptions {
            drawn: self.facts().drawn.expect("lengths are drawn"),
            lengths: self.lengths.as_ref(),
            common_prefix: self.common_prefix,
        }
    }
}

impl Rules for Random {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(sharegpt::file()),
            sends_ids: self.tokenize_prompt,
            is_classic: true,
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
        if profile == Profile::Current {
            return;
        }
        if self.tokenize_prompt {
            report("tokenize_prompt", NOT_CLASSIC.to_owned());
        }
        if self.input_len == Some(0) {
            report(
                "input_len",
                "`input_len` is 0, but the `classic` profile draws at least 1 token; write at least 1"
                    .to_owned(),
            );
        }
    }
}
