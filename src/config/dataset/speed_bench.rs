//! `speed-bench`: first turns of SPEED-Bench.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{DataFile, Facts, Rules, TemplateUse};
use crate::config::profile::Profile;

/// The options of `speed-bench`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct SpeedBench {
    pub(crate) output_len: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) speed_bench: Option<Rows>,
}

/// The rows of SPEED-Bench that are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, schemars(rename = "SpeedBench"))]
pub(crate) struct Rows {
    /// Category of the rows; default: all.
    pub(crate) category: Option<Category>,
}

/// The categories of SPEED-Bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, schemars(rename = "Entropy"))]
pub(crate) enum Category {
    /// Rows whose answers are predictable.
    LowEntropy,
    /// Predictable and unpredictable answers.
    Mixed,
    /// Rows whose answers are unpredictable.
    HighEntropy,
}

impl Category {
    /// Its name in the file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LowEntropy => "low_entropy",
            Self::Mixed => "mixed",
            Self::HighEntropy => "high_entropy",
        }
    }
}

impl Rules for SpeedBench {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(DataFile::named("speed-bench")),
            template: TemplateUse::Optional,
            output_len: self.output_len,
            output_flag: Some("speed-bench-output-len"),
            ..Facts::default()
        }
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        lengths::no_answer(self.output_len, report);
    }
}
