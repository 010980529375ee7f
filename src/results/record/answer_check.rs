//! Whether an answer is what its request demands: JSON of a schema, calls of its tools, or an expected answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::request::Request;

/// What the check of an answer found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum AnswerCheck {
    /// The answer is what its request demands.
    Correct,
    /// It is not.
    Incorrect {
        /// What is wrong.
        class: IncorrectClass,
        /// What is wrong, and where in the answer, without its text.
        message: String,
    },
    /// It is not known whether it is.
    Unchecked {
        /// Why not.
        class: UncheckedClass,
        /// Why not, in words.
        message: String,
    },
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IncorrectClass {
    /// There is no answer beside reasoning.
    Empty,
    /// The text is not JSON and nothing else.
    NotJson,
    /// The JSON, or a text, does not fulfil its schema.
    Schema,
    /// No tool is called, although one must be.
    NoToolCall,
    /// A tool is called that the request does not offer or allow.
    UnknownTool,
    /// Tools are called, although none may be, or more than one.
    SurplusToolCall,
    /// The arguments of a call are not a JSON object, or do not fulfil the parameters of the tool.
    Arguments,
    /// It is not the expected answer.
    Unexpected,
}

impl IncorrectClass {
    /// Its name on disk.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::NotJson => "not-json",
            Self::Schema => "schema",
            Self::NoToolCall => "no-tool-call",
            Self::UnknownTool => "unknown-tool",
            Self::SurplusToolCall => "surplus-tool-call",
            Self::Arguments => "arguments",
            Self::Unexpected => "unexpected",
        }
    }
}

/// Why an answer was not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UncheckedClass {
    /// The limit of output tokens cut it; an incomplete answer is not checked.
    Cut,
    /// The check has a limit that the answer exceeds: its nesting, a number, or the steps of a regular expression.
    TooComplex,
    /// Its text could not be read again.
    TextLost,
}

impl UncheckedClass {
    /// Its name on disk.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::TooComplex => "too-complex",
            Self::TextLost => "text-lost",
        }
    }
}

impl AnswerCheck {
    pub(crate) const fn is_correct(&self) -> bool {
        matches!(self, Self::Correct)
    }

    /// The name of the class and the message of an answer that is not known to be correct.
    pub(crate) fn problem(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Correct => None,
            Self::Incorrect { class, message } => Some((class.name(), message)),
            Self::Unchecked { class, message } => Some((class.name(), message)),
        }
    }
}

/// Describes the checked answers of a load, with an example of each kind that is not correct; `None` if none was checked.
pub(crate) fn describe_checks(requests: &[Request]) -> Option<String> {
    let checks = || {
        requests
            .iter()
            .filter_map(|request| request.answer_check.as_ref())
    };
    let correct = checks().filter(|check| check.is_correct()).count();
    let mut problems: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (class, message) in checks().filter_map(AnswerCheck::problem) {
        problems.entry(class).or_insert((0, message)).0 += 1;
    }
    let all = checks().count();
    if all == 0 {
        return None;
    }
    let problems = problems
        .into_iter()
        .map(|(class, (count, message))| format!("; {count} of class `{class}`, for example: {message}"));
    Some(format!(
        "{correct} of {all} checked answers are correct, and only these count as good{}",
        problems.collect::<String>()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_on_disk_are_those_that_are_shown() {
        use IncorrectClass::{
            Arguments, Empty, NoToolCall, NotJson, Schema, SurplusToolCall, Unexpected, UnknownTool,
        };
        let written = |name: &str| serde_json::Value::from(name);
        for class in [
            Empty,
            NotJson,
            Schema,
            NoToolCall,
            UnknownTool,
            SurplusToolCall,
            Arguments,
            Unexpected,
        ] {
            assert_eq!(serde_json::to_value(class).unwrap(), written(class.name()));
        }
        for class in [
            UncheckedClass::Cut,
            UncheckedClass::TooComplex,
            UncheckedClass::TextLost,
        ] {
            assert_eq!(serde_json::to_value(class).unwrap(), written(class.name()));
        }
        let check = AnswerCheck::Incorrect {
            class: Schema,
            message: "m".to_owned(),
        };
        let text = serde_json::to_string(&check).unwrap();
        assert_eq!(text, r#"{"verdict":"incorrect","class":"schema","message":"m"}"#);
        assert_eq!(serde_json::from_str::<AnswerCheck>(&text).unwrap(), check);
    }
}
