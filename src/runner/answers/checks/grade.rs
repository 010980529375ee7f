//! Grades answers to items of tasks.

use regex::Regex;
use serde_json::{Value, json};

use super::verdict::{Answer, incorrect};
use crate::analysis::graded::graders::ifeval::{Instructions, Reading};
use crate::analysis::graded::graders::{choice, number};
use crate::config::quality::Grader;
use crate::results::record::request::{AnswerCheck, IncorrectClass, Request};

/// Grades the answer to an item, without its reasoning. An answer that was cut off counts like any other.
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
    let answer = Answer::of(request).with_inline_reasoning();
    let checked = match grader {
        Grader::ToolCall => answer.check_expected(&json!({"tool_calls": [expected]})),
        Grader::Exact | Grader::Json => answer.check_expected(expected),
        Grader::Ifeval => answer
            .text()
            .and_then(|text| follow(&text, expected, Reading::Strict)),
        Grader::IfevalLoose => answer
            .text()
            .and_then(|text| follow(&text, expected, Reading::Loose)),
        _ => answer.text().and_then(|text| {
            let (found, expected) = compared_texts(&text, grader, pattern, expected);
            compare(found.as_deref(), &expected)
        }),
    };
    checked.err().unwrap_or(AnswerCheck::Correct)
}

/// The text of an answer without its reasoning; `None` if it was not kept.
pub(in crate::runner) fn text_without_reasoning(request: &Request) -> Option<String> {
    let answer = Answer::of(request).with_inline_reasoning();
    answer.text().ok().map(std::borrow::Cow::into_owned)
}

/// Whether a text follows the instructions of a row of IFEval.
fn follow(text: &str, row: &Value, reading: Reading) -> Result<(), AnswerCheck> {
    let broken = match &Instructions::read(row) {
        Ok(instructions) => instructions.broken_by(text, reading).join(", "),
        Err(_) => {
            let why = "the instructions of the item cannot be read";
            return Err(incorrect(IncorrectClass::Unexpected, why));
        }
    };
    match broken.is_empty() {
        true => Ok(()),
        false => Err(incorrect(
            IncorrectClass::Unexpected,
            format!("the answer does not follow these instructions: {broken}"),
        )),
    }
}

/// What a grader reads from a text, if it has an answer, and what that must be.
fn compared_texts(
    text: &str,
    grader: Grader,
    pattern: Option<&Regex>,
    expected: &Value,
) -> (Option<String>, String) {
    let choices = || -> Vec<&str> {
        let choices = expected["choices"].as_array().into_iter().flatten();
        choices.filter_map(Value::as_str).collect()
    };
    let found = match grader {
        Grader::Numeric => number::flexible(text),
        Grader::NumericStrict => number::strict(text),
        Grader::Choice => choice::named(text).map(str::to_owned),
        Grader::ChoiceStrict => Some(choice::strict(text)),
        Grader::ChoiceFlexible => choice::flexible(text, &choices()),
        _ => first_match(text, pattern).map(str::to_owned),
    };
    let expected = match grader {
        Grader::Numeric | Grader::NumericStrict => number::normalize(&plain_text(expected)),
        Grader::ChoiceStrict => choice::normalize(&plain_text(expected)),
        Grader::ChoiceFlexible => choice::normalize(&plain_text(&expected["letter"])),
        _ => plain_text(expected),
    };
    (found, expected)
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
    fn reasoning_in_the_text_is_no_part_of_an_answer() {
        for (text, expected, right) in [
            ("<think>code 7</think> code 8", json!("8"), true),
            ("<think>code 7</think> code 8", json!("7"), false),
            ("maybe code 7</think> code 8", json!("8"), true),
            ("<think>it is code 7", json!("7"), false),
            ("code 7", json!("7"), true),
        ] {
            assert_eq!(is_correct(text, Grader::Regex, expected), right, "{text}");
        }
    }

    #[test]
    fn answers_are_graded_by_their_form() {
        for (text, grader, expected, right) in [
            ("7595", Grader::Numeric, json!(7595), true),
            (" It is $7,595.", Grader::Numeric, json!(7595), true),
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
            ("B.\nIt is so.", Grader::ChoiceStrict, json!("B"), true),
            ("It is B", Grader::ChoiceStrict, json!("B"), false),
            (
                "It is (B)",
                Grader::ChoiceFlexible,
                json!({"letter": "B", "choices": ["x", "y"]}),
                true,
            ),
            (
                "It is x",
                Grader::ChoiceFlexible,
                json!({"letter": "B", "choices": ["x", "y"]}),
                false,
            ),
            (
                "a, b",
                Grader::Ifeval,
                json!({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}),
                false,
            ),
            (
                "Sure, I do:\na b",
                Grader::IfevalLoose,
                json!({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}),
                true,
            ),
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
