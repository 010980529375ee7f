//! Grades answers to items of tasks.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::verdict::{Answer, incorrect};
use crate::config::quality::Grader;
use crate::results::record::request::{AnswerCheck, IncorrectClass, Request};

/// The groups of lm-eval's `flexible-extract` of GSM8K.
///
/// Source: lm-evaluation-harness, lm_eval/tasks/gsm8k/gsm8k.yaml.
static FLEXIBLE: LazyLock<Regex> = LazyLock::new(|| compiled(r"(-?[$0-9.,]{2,})|(-?[0-9]+)"));
/// The group of its `strict-match`.
static STRICT: LazyLock<Regex> = LazyLock::new(|| compiled(r"#### (-?[0-9.,]+)"));
/// A letter after the words that announce it.
static ANNOUNCED: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"(?i)answer(?:\s+is|\s*:)?\s*:?\s*\**\(?([A-Z])\b"));
/// A letter at the beginning.
static LEADING: LazyLock<Regex> = LazyLock::new(|| compiled(r"^\s*\**\(?([A-Z])\**(?:[\s.,:)]|$)"));

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is constant")
}

/// Grades the answer to an item. An answer that was cut counts like any other.
pub(in crate::runner) fn grade_answer(
    request: &Request,
    grader: Grader,
    pattern: Option<&Regex>,
    expected: &Value,
) -> AnswerCheck {
    if let Some(failure) = &request.failure {
        return incorrect(
            IncorrectClass::Empty,
            format!(
                "the request failed: {}: {}",
                failure.class.name(),
                failure.message
            ),
        );
    }
    let answer = Answer::of(request);
    let checked = match grader {
        Grader::ToolCall => answer.check_expected(&json!({"tool_calls": [expected]})),
        Grader::Exact | Grader::Json => answer.check_expected(expected),
        Grader::Numeric | Grader::NumericStrict | Grader::Choice | Grader::Regex => {
            answer.text().and_then(|text| {
                let (found, expected) = match grader {
                    Grader::Choice => (chosen(&text).map(Cow::Borrowed), plain_text(expected)),
                    Grader::Regex => (
                        first_match(&text, pattern).map(Cow::Borrowed),
                        plain_text(expected),
                    ),
                    _ => (
                        number_in(&text, grader).map(|number| Cow::Owned(normalize(number))),
                        normalize(&plain_text(expected)),
                    ),
                };
                compare(found.as_deref(), &expected)
            })
        }
    };
    checked.err().unwrap_or(AnswerCheck::Correct)
}

fn compare(found: Option<&str>, expected: &str) -> Result<(), AnswerCheck> {
    match found {
        Some(found) if found == expected => Ok(()),
        Some(_) => Err(incorrect(
            IncorrectClass::Unexpected,
            "the answer is not the expected one",
        )),
        None => Err(incorrect(
            IncorrectClass::Unexpected,
            "the text has no answer of the expected form",
        )),
    }
}

fn plain_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), |text| text.trim().to_owned())
}

/// The number that lm-eval's filter extracts: the last one, or the first after `####`.
fn number_in(text: &str, grader: Grader) -> Option<&str> {
    if grader == Grader::NumericStrict {
        return Some(STRICT.captures(text)?.get(1)?.as_str().trim());
    }
    Some(FLEXIBLE.find_iter(text).last()?.as_str().trim())
}

/// Removes what lm-eval ignores in numbers: commas, dollar signs, everything up to `#### `, and a full stop at the end.
fn normalize(number: &str) -> String {
    let number: String = number.chars().filter(|letter| !",$".contains(*letter)).collect();
    let number = number.rsplit_once("#### ").map_or(&*number, |(_, rest)| rest);
    number.strip_suffix('.').unwrap_or(number).to_lowercase()
}

/// The letter that an answer names: after "answer", at its beginning, or as the only one.
fn chosen(text: &str) -> Option<&str> {
    let announced = ANNOUNCED.captures_iter(text).last();
    let found = announced.or_else(|| LEADING.captures(text));
    Some(found?.get(1)?.as_str()).filter(|letter| letter.as_bytes()[0].is_ascii_uppercase())
}

fn first_match<'t>(text: &'t str, pattern: Option<&Regex>) -> Option<&'t str> {
    let found = pattern?.captures(text)?;
    Some(found.get(1).or_else(|| found.get(0))?.as_str().trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::answers::tests::request;

    fn is_correct(text: &str, grader: Grader, expected: Value) -> bool {
        let length = u32::try_from(text.len()).unwrap();
        let request = request(Some(text), &[("a", length)]);
        grade_answer(
            &request,
            grader,
            Some(&Regex::new("code (\\d+)").unwrap()),
            &expected,
        )
        .is_correct()
    }

    #[test]
    fn answers_are_graded_by_their_form() {
        for (text, grader, expected, right) in [
            ("7595", Grader::Numeric, json!(7595), true),
            (" It is $7,595.", Grader::Numeric, json!(7595), true),
            ("First 12, then -5", Grader::Numeric, json!("-5"), true),
            ("First -5, then 12", Grader::Numeric, json!("-5"), false),
            ("none", Grader::Numeric, json!(1), false),
            ("so 4 + 5 = 9\n#### 9", Grader::Numeric, json!("x\n#### 9"), true),
            (
                "so 4 + 5 = 9\n#### 9",
                Grader::NumericStrict,
                json!("x\n#### 9"),
                true,
            ),
            ("so 4 + 5 = 9", Grader::NumericStrict, json!("x\n#### 9"), false),
            ("#### 8 and #### 9", Grader::NumericStrict, json!(8), true),
            ("B", Grader::Choice, json!("B"), true),
            ("(B) because", Grader::Choice, json!("B"), true),
            (
                "A first thought. The answer is C.",
                Grader::Choice,
                json!("C"),
                true,
            ),
            ("Both are wrong", Grader::Choice, json!("B"), false),
            ("the code 12 and the code 13", Grader::Regex, json!("12"), true),
            ("no match", Grader::Regex, json!("12"), false),
            (" a b\n", Grader::Exact, json!("a b"), true),
            ("a  b", Grader::Exact, json!("a b"), false),
            ("{\"a\": 1.0}", Grader::Json, json!({"a": 1}), true),
            ("{\"a\": 1} ok", Grader::Json, json!({"a": 1}), false),
            (
                "f",
                Grader::ToolCall,
                json!({"name": "f", "arguments": {}}),
                false,
            ),
        ] {
            assert_eq!(is_correct(text, grader, expected), right, "{text:?} {grader:?}");
        }
    }
}
