//! Public tasks: the files of their authors on Hugging Face's hub, and how their items are graded.

use serde::{Deserialize, Serialize};

use super::Grader;
use crate::config::dataset::PublishedFile;

/// A public task that a matrix names without a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PublicTask {
    /// Questions of graduates in biology, physics and chemistry, of the set `diamond`.
    Gpqa,
    /// Word problems of grade school.
    Gsm8k,
    /// Instructions about the form of an answer.
    Ifeval,
    /// Questions of exams in 57 subjects.
    Mmlu,
}

impl PublicTask {
    pub(crate) const ALL: [Self; 4] = [Self::Gpqa, Self::Gsm8k, Self::Ifeval, Self::Mmlu];

    /// Its name in a matrix.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gpqa => "gpqa",
            Self::Gsm8k => "gsm8k",
            Self::Ifeval => "ifeval",
            Self::Mmlu => "mmlu",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.name() == name)
    }

    /// Its file on the hub, as lm-eval reads it. GPQA's is given to those who accept its terms there.
    pub(crate) const fn file(self) -> PublishedFile {
        let (repository, file) = match self {
            Self::Gpqa => ("Idavidrein/gpqa", "gpqa_diamond.csv"),
            Self::Gsm8k => ("openai/gsm8k", "main/test-00000-of-00001.parquet"),
            Self::Ifeval => ("google/IFEval", "ifeval_input_data.jsonl"),
            Self::Mmlu => ("cais/mmlu", "all/test-00000-of-00001.parquet"),
        };
        PublishedFile::Hub { repository, file }
    }

    /// The graders that fit its items; the first is the default.
    pub(crate) const fn graders(self) -> &'static [Grader] {
        match self {
            Self::Gpqa => &[Grader::ChoiceFlexible, Grader::Choice, Grader::ChoiceStrict],
            Self::Gsm8k => &[Grader::Numeric, Grader::NumericStrict],
            Self::Ifeval => &[Grader::Ifeval, Grader::IfevalLoose],
            Self::Mmlu => &[Grader::Choice, Grader::ChoiceStrict, Grader::ChoiceFlexible],
        }
    }

    /// Number of items that can be graded.
    pub(crate) const fn items(self) -> u32 {
        match self {
            Self::Gpqa => 198,
            Self::Gsm8k => 1_319,
            // Of 541 rows.
            Self::Ifeval => 462,
            Self::Mmlu => 14_042,
        }
    }

    /// Largest length of an answer in tokens.
    pub(crate) const fn max_tokens(self) -> u32 {
        match self {
            Self::Gpqa => 2_048,
            Self::Gsm8k => 512,
            Self::Ifeval => 1_280,
            Self::Mmlu => 32,
        }
    }
}
