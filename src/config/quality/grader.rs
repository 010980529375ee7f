//! How an answer is compared with the expected one.

use serde::{Deserialize, Serialize};

/// How an answer is compared with the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Grader {
    /// The text is the expected one, apart from white space around it.
    Exact,
    /// The last number in the text is that of the expected answer (after `####`, if it has that), as in lm-eval's
    /// `flexible-extract` of GSM8K.
    Numeric,
    /// The number after `####` is, as in lm-eval's `strict-match` of GSM8K.
    NumericStrict,
    /// The letter that the text names, after "answer" or at its beginning, is the expected one.
    Choice,
    /// The first line is the expected letter, apart from punctuation and case, as in lm-eval's `mmlu_generative`.
    ChoiceStrict,
    /// The last letter in parentheses is the expected one; without any, the last choice that is cited or the last letter after a
    /// colon, as in lm-eval's `flexible-extract` of GPQA and MMLU.
    ChoiceFlexible,
    /// The answer follows every instruction of a row of IFEval, as in lm-eval's `prompt_level_strict_acc`. The language of answers
    /// is not detected.
    Ifeval,
    /// The same, without its first line, its last line or its asterisks, as in lm-eval's `prompt_level_loose_acc`.
    IfevalLoose,
    /// The first match of a regular expression is the expected text.
    Regex,
    /// The text is JSON that equals the expected value.
    Json,
    /// The answer calls the expected tool with the expected arguments.
    ToolCall,
}

impl Grader {
    /// Its name in a matrix.
    pub(crate) const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The names, as the matrix has them, in the order of the variants.
    pub(crate) const NAMES: &[&str] = &[
        "exact",
        "numeric",
        "numeric-strict",
        "choice",
        "choice-strict",
        "choice-flexible",
        "ifeval",
        "ifeval-loose",
        "regex",
        "json",
        "tool-call",
    ];
}
