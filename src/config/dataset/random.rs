//! `random`: first turns of conversations, cut or repeated to drawn lengths.

use serde::{Deserialize, Serialize};

use super::error::{NOT_CLASSIC, ReportError};
use super::lengths;
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
}

impl Rules for Random {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(sharegpt::file()),
            sends_ids: self.tokenize_prompt,
            is_classic: true,
            ..Facts::of_drawn(self.input_len, self.output_len, self.range_ratio)
        }
    }

    fn find_errors(&self, profile: Profile, report: &mut ReportError<'_>) {
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
