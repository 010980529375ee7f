//! The arguments of an instruction.

use serde_json::{Map, Value};

use super::{Bound, Check};
use crate::analysis::graded::graders::python_text::strip;

/// Why a row of IFEval has no instructions to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowError {
    /// The row is not one of IFEval.
    Malformed(String),
    /// An instruction of the row cannot be checked, and why.
    Ungradable(&'static str),
}

/// lm-eval replaces missing and empty arguments, so that the same answer may get another grade each time.
const DRAWN: RowError = RowError::Ungradable(
    "lm-eval draws an argument of this check at random, so the same answer may get different grades",
);

/// The arguments of an instruction, in which nothing is as good as missing.
pub(super) struct Arguments<'a> {
    instruction: &'a str,
    values: &'a Map<String, Value>,
}

impl<'a> Arguments<'a> {
    pub(super) const fn new(instruction: &'a str, values: &'a Map<String, Value>) -> Self {
        Self { instruction, values }
    }

    fn get(&self, key: &str) -> Result<&'a Value, RowError> {
        let value = self.values.get(key).filter(|value| !value.is_null());
        value.ok_or(DRAWN)
    }

    fn malformed(&self, key: &str, form: &str) -> RowError {
        RowError::Malformed(format!("`{key}` of `{}` is not {form}", self.instruction))
    }

    /// A number above zero.
    pub(super) fn count(&self, key: &str) -> Result<u64, RowError> {
        let number = self.get(key)?;
        let number = number
            .as_i64()
            .ok_or_else(|| self.malformed(key, "a whole number"))?;
        u64::try_from(number)
            .ok()
            .filter(|number| *number > 0)
            .ok_or(DRAWN)
    }

    /// A text, without white space around it.
    pub(super) fn text(&self, key: &str) -> Result<String, RowError> {
        let text = self.get(key)?;
        let text = text.as_str().ok_or_else(|| self.malformed(key, "a text"))?;
        match strip(text) {
            "" => Err(DRAWN),
            text => Ok(text.to_owned()),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, RowError> {
        let list = self.get(key)?.as_array();
        let texts = list
            .into_iter()
            .flatten()
            .map(|text| text.as_str().map(str::to_owned));
        let texts: Option<Vec<String>> = texts.collect();
        match texts {
            Some(texts) if list.is_some() && texts.iter().all(|text| !text.is_empty()) => {
                if texts.is_empty() { Err(DRAWN) } else { Ok(texts) }
            }
            _ => Err(self.malformed(key, "a list of texts")),
        }
    }

    pub(super) fn bound(&self, relation: &str, count: &str) -> Result<Bound, RowError> {
        let count = self.count(count)?;
        match self.get(relation)?.as_str() {
            Some("less than") => Ok(Bound::LessThan(count)),
            Some("at least") => Ok(Bound::AtLeast(count)),
            _ => Err(self.malformed(relation, "`less than` or `at least`")),
        }
    }

    /// A letter of English, in lower case. For anything else lm-eval draws a letter.
    pub(super) fn letter(&self) -> Result<char, RowError> {
        let letter = self.get("letter")?.as_str().unwrap_or_default();
        let mut letters = letter.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) if letter.is_ascii_alphabetic() => Ok(letter.to_ascii_lowercase()),
            _ => Err(DRAWN),
        }
    }

    pub(super) fn nth_paragraph(&self) -> Result<Check, RowError> {
        let (paragraphs, nth) = (self.count("num_paragraphs")?, self.count("nth_paragraph")?);
        if nth > paragraphs {
            return Err(DRAWN);
        }
        Ok(Check::NthParagraph {
            paragraphs,
            nth: usize::try_from(nth).map_err(|_| DRAWN)?,
            first_word: self.text("first_word")?.to_lowercase(),
        })
    }
}
