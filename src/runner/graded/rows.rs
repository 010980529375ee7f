//! Items in a file of JSON Lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::item_text::ItemText;
use crate::analysis::graded::graders::ifeval::{Instructions, RowError};
use crate::base::text::pluralize;
use crate::config::quality::Grader;
use crate::loadgen::Content;

/// Largest file of items in bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Keys of a row that are sent as fields of the request.
const BODY_KEYS: [&str; 3] = ["tools", "tool_choice", "response_format"];

/// The first items of a file.
pub(super) struct Rows {
    pub(super) items: Vec<ItemText>,
    /// Rows before the last item that are left out because they cannot be graded, by the reason.
    pub(super) left_out: BTreeMap<&'static str, usize>,
}

impl Rows {
    /// Says which rows are left out; `None` if none is.
    pub(super) fn describe_left_out(&self) -> Option<String> {
        let reasons: Vec<String> = self
            .left_out
            .iter()
            .map(|(why, rows)| format!("{rows} because {why}"))
            .collect();
        let rows = self.left_out.values().sum();
        (rows > 0).then(|| {
            format!(
                "{} left out: {}",
                pluralize(rows, "row is", "rows are"),
                reasons.join(", ")
            )
        })
    }
}

/// Reads the first items of a file.
///
/// # Errors
/// The file cannot be read or is too large, a row has no prompt or no answer, or there are too few rows.
pub(super) fn read_rows(path: &Path, grader: Grader, count: u32) -> Result<Rows, String> {
    let unreadable = |error: std::io::Error| format!("cannot read `{}`: {error}", path.display());
    let bytes = fs::metadata(path).map_err(unreadable)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(format!(
            "`{}` is larger than {} MiB; use a part of it",
            path.display(),
            MAX_FILE_BYTES >> 20
        ));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    // Some editors begin a file with a byte-order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut rows = Rows {
        items: Vec::new(),
        left_out: BTreeMap::new(),
    };
    for (number, line) in (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty())
    {
        if rows.items.len() == count as usize {
            break;
        }
        let in_line = |why: String| format!("`{}`, line {number}: {why}", path.display());
        let row: Value = serde_json::from_str(line).map_err(|error| in_line(format!("not JSON: {error}")))?;
        match read_row(&row, grader) {
            Ok(item) => rows.items.push(item),
            Err(RowError::Ungradable(why)) => *rows.left_out.entry(why).or_default() += 1,
            Err(RowError::Malformed(why)) => return Err(in_line(why)),
        }
    }
    let found = rows.items.len();
    if found == 0 {
        return Err(format!("`{}` has no items", path.display()));
    }
    if found < count as usize {
        let left_out = rows.describe_left_out().map(|text| format!(" ({text})"));
        return Err(format!(
            "`{}` has {found} items{}, but the task needs {count}; set `items: {}`",
            path.display(),
            left_out.unwrap_or_default(),
            found
        ));
    }
    Ok(rows)
}

/// Reads a row with its prompt and its right answer.
pub(super) fn read_row(row: &Value, grader: Grader) -> Result<ItemText, RowError> {
    let malformed = |why: &str| RowError::Malformed(why.to_owned());
    let text = |keys: [&str; 2]| keys.into_iter().find_map(|key| row.get(key)?.as_str());
    let content = match (
        row.get("messages").and_then(Value::as_array),
        text(["prompt", "question"]),
    ) {
        (Some(messages), _) if !messages.is_empty() => Content::Messages(messages.clone()),
        (_, Some(text)) if !text.trim().is_empty() => Content::Text(with_choices(text, row, grader).into()),
        _ => return Err(malformed("the row has no `prompt`, `question` or `messages`")),
    };
    let mut fields = Map::new();
    for key in BODY_KEYS {
        fields.extend(row.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    Ok(ItemText {
        content,
        fields,
        expected: match grader {
            Grader::Ifeval | Grader::IfevalLoose => instructions(row)?,
            _ => expected_answer(row, grader).map_err(RowError::Malformed)?,
        },
    })
}

/// The instructions of a row of IFEval.
fn instructions(row: &Value) -> Result<Value, RowError> {
    Instructions::read(row)?;
    Ok(json!({"instruction_id_list": row["instruction_id_list"], "kwargs": row["kwargs"]}))
}

/// A question with its choices, each after its letter.
fn with_choices(question: &str, row: &Value, grader: Grader) -> String {
    let Some(choices) = row.get("choices").and_then(Value::as_array) else {
        return question.to_owned();
    };
    let mut text = question.to_owned();
    for (letter, choice) in ('A'..='Z').zip(choices) {
        let choice = choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
        text.push_str(&match grader {
            Grader::ChoiceFlexible => format!("\n({letter}) {choice}"),
            _ => format!("\n{letter}. {choice}"),
        });
    }
    text.push_str(match grader {
        Grader::ChoiceFlexible => "\nThink step by step, then give the letter in parentheses.",
        _ => "\nAnswer with the letter alone.",
    });
    text
}

/// The right answer in the form of the grader.
fn expected_answer(row: &Value, grader: Grader) -> Result<Value, String> {
    let answer = row
        .get("expected_answer")
        .or_else(|| row.get("answer"))
        .filter(|answer| !answer.is_null())
        .ok_or("no `answer` or `expected_answer`")?;
    let wrong = |need: &str| Err(format!("the expected answer is {answer}, but {need}"));
    match (grader, answer) {
        (Grader::Choice | Grader::ChoiceStrict | Grader::ChoiceFlexible, _) => match letter(answer) {
            Some(letter) if grader == Grader::ChoiceFlexible => choices_with_answer(row, &letter),
            Some(letter) => Ok(json!(letter)),
            None => wrong("the grader needs the letter or the number (from 0) of a choice"),
        },
        (Grader::Exact | Grader::Regex, Value::String(_)) | (Grader::Json, _) => Ok(answer.clone()),
        (Grader::Numeric | Grader::NumericStrict, Value::String(_) | Value::Number(_))
            if has_digit(answer) =>
        {
            Ok(answer.clone())
        }
        (Grader::ToolCall, Value::Object(call)) if call.get("name").is_some_and(Value::is_string) => {
            Ok(answer.clone())
        }
        (Grader::ToolCall, _) => wrong("the grader needs a tool call with `name` and `arguments`"),
        (Grader::Exact | Grader::Regex, _) => wrong("the grader needs a text"),
        _ => wrong("the grader needs a number, or a text that contains a number"),
    }
}

/// Whether an answer may be a number: no answer is equal to one without a digit.
fn has_digit(answer: &Value) -> bool {
    answer.to_string().bytes().any(|byte| byte.is_ascii_digit())
}

/// The letter of a right choice, from the letter, also in parentheses, or from the number of the choice, from 0.
fn letter(answer: &Value) -> Option<String> {
    let letter = match answer {
        Value::Number(number) => ('A'..='Z').nth(usize::try_from(number.as_u64()?).ok()?)?,
        Value::String(text) => {
            let text = text.trim();
            let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
            let mut letters = inner.unwrap_or(text).chars();
            letters.next().filter(|_| letters.next().is_none())?
        }
        _ => return None,
    };
    letter
        .is_ascii_alphabetic()
        .then(|| letter.to_ascii_uppercase().to_string())
}

/// The right letter with the texts of all choices, which the grader looks for, too.
fn choices_with_answer(row: &Value, letter: &str) -> Result<Value, String> {
    let choices = row.get("choices").and_then(Value::as_array);
    match choices {
        Some(choices) if !choices.is_empty() && choices.iter().all(Value::is_string) => {
            Ok(json!({"letter": letter, "choices": choices}))
        }
        _ => Err("the grader `choice-flexible` needs `choices`, a list of texts".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, grader: Grader, count: u32) -> Result<Vec<ItemText>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("items.jsonl");
        fs::write(&path, text).unwrap();
        read_rows(&path, grader, count).map(|rows| rows.items)
    }

    #[test]
    fn rows_of_known_data_sets_are_items() {
        let gsm8k = "{\"question\": \"How many?\", \"answer\": \"It is 6 * 2 = 12.\\n#### 12\"}\n";
        let items = read(gsm8k, Grader::Numeric, 1).unwrap();
        assert_eq!(items[0].content, Content::Text("How many?".to_owned().into()));
        let mmlu = "{\"question\": \"Which?\", \"choices\": [\"x\", \"y\"], \"answer\": 1}\n";
        let items = read(mmlu, Grader::Choice, 1).unwrap();
        assert_eq!(items[0].expected, json!("B"));
        let Content::Text(text) = &items[0].content else {
            panic!("a text");
        };
        assert_eq!(text.as_str(), "Which?\nA. x\nB. y\nAnswer with the letter alone.");
        let gpqa = mmlu.replace("1}", "\"(B)\"}");
        let items = read(&gpqa, Grader::ChoiceFlexible, 1).unwrap();
        assert_eq!(items[0].expected, json!({"letter": "B", "choices": ["x", "y"]}));
        let Content::Text(text) = &items[0].content else {
            panic!("a text");
        };
        assert!(text.as_str().starts_with("Which?\n(A) x\n(B) y\n"));
    }

    #[test]
    fn rows_whose_instructions_cannot_be_checked_are_left_out_and_counted() {
        let row = |name: &str| {
            let row = json!({"key": 1, "prompt": "Write.", "instruction_id_list": [name], "kwargs": [{"language": "de"}]});
            format!("{row}\n")
        };
        let language = "language:response_language";
        let text = [
            row(language),
            row("startend:quotation"),
            row(language),
            row("startend:quotation"),
        ]
        .concat();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("items.jsonl");
        fs::write(&path, &text).unwrap();
        let rows = read_rows(&path, Grader::Ifeval, 2).ok().unwrap();
        assert_eq!(rows.items.len(), 2);
        let said = rows.describe_left_out().unwrap();
        assert_eq!(
            said,
            "2 rows are left out: 2 because `matrix` does not detect the language of answers"
        );
        let too_many = read(&text, Grader::Ifeval, 3).err().unwrap();
        assert!(
            too_many.contains("has 2 items (2 rows are left out"),
            "{too_many}"
        );
        let unknown = read(&row("a:b"), Grader::Ifeval, 1).err().unwrap();
        assert!(unknown.contains("line 1: unknown instruction `a:b`"), "{unknown}");
    }

    #[test]
    fn a_file_that_cannot_be_graded_is_refused_with_its_line() {
        for (text, grader, count, error) in [
            ("{}\n", Grader::Exact, 1, "line 1: the row has no `prompt`"),
            ("{\"prompt\": \"a\"}\n", Grader::Exact, 1, "line 1: no `answer`"),
            ("\n{\n", Grader::Exact, 1, "line 2: not JSON"),
            (
                "{\"prompt\": \"a\", \"answer\": \"b\"}\n",
                Grader::Exact,
                2,
                "has 1 items, but the task needs 2; set `items: 1`",
            ),
            (
                "{\"prompt\": \"a\", \"answer\": 5}\n",
                Grader::Exact,
                1,
                "needs a text",
            ),
            (
                "{\"prompt\": \"a\", \"answer\": \"b\"}\n",
                Grader::ToolCall,
                1,
                "needs a tool call",
            ),
            (
                "{\"prompt\": \"a\", \"answer\": \"yes\"}\n",
                Grader::Choice,
                1,
                "needs the letter or the number",
            ),
            (
                "{\"prompt\": \"a\", \"answer\": \"B\"}\n",
                Grader::ChoiceFlexible,
                1,
                "needs `choices`",
            ),
        ] {
            let found = read(text, grader, count).err().unwrap();
            assert!(found.contains(error), "{text}: {found}");
        }
        assert!(
            read_rows(Path::new("/nowhere/items.jsonl"), Grader::Exact, 1)
                .err()
                .unwrap()
                .contains("cannot read")
        );
    }
}
