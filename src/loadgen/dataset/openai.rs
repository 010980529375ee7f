//! The `openai` data set: chat requests of OpenAI's API in a JSON lines file, sent unchanged.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::jsonl::{Lines, malformed_line, python_json, row_timestamp};
use super::template::ChatTemplate;
use super::{Content, DatasetError, Extras, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::config::dataset::DatasetName;
use crate::config::dataset::openai::Openai;

/// Output tokens if neither the scenario nor the row sets a number.
const DEFAULT_OUTPUT_TOKENS: u32 = 256;

struct Record {
    messages: Vec<Value>,
    output_tokens: u32,
    /// What the answer is compared with; not sent.
    expected_answer: Option<Value>,
    extra_fields: Map<String, Value>,
}

impl MakeRows for Openai {
    /// Reads the rows in file order; 0 prompts means all.
    ///
    /// Lines that are not JSON are skipped and do not count. Lines without messages are skipped too, but
    /// count, as in the Python tool, so there may be fewer rows than requested.
    fn rows(&self, inputs: &RowInputs<'_>, _draws: &mut RngState) -> Result<Rows, DatasetError> {
        let (tokenizer, path) = (inputs.tokenizer, inputs.path()?);
        let requested = match inputs.prompts {
            0 => usize::MAX,
            requested => requested,
        };
        let template = ChatTemplate::open(tokenizer)?;
        let mut prompts = Vec::new();
        for (number, line) in Lines::read(path)?.values().take(requested) {
            let malformed_row = |reason: &str| malformed_line(DatasetName::Openai, path, number, reason);
            let mut record = parse_record(line, self.output_len).map_err(|reason| malformed_row(&reason))?;
            if record.messages.is_empty() {
                continue;
            }
            let at = match self.trace_timestamps {
                // The timestamp must not be sent.
                true => Some(
                    row_timestamp(record.extra_fields.shift_remove("timestamp").as_ref())
                        .map_err(malformed_row)?,
                ),
                false => None,
            };
            let text = template.render(&record.messages, None, true)?;
            // The template writes the special tokens.
            let mut length = tokenizer.count(&text, false)?;
            if let Some(tools) = record.extra_fields.get("tools").filter(|tools| is_truthy(tools)) {
                length += tokenizer.count(&python_json(tools), true)?;
            }
            let mut prompt = Prompt::new(
                Content::Messages(record.messages),
                token_count(length),
                record.output_tokens,
            );
            if at.is_some() || record.expected_answer.is_some() || !record.extra_fields.is_empty() {
                prompt.extras = Some(Arc::new(Extras {
                    at,
                    expected_answer: record.expected_answer,
                    body: record.extra_fields,
                    ..Extras::default()
                }));
            }
            prompts.push(prompt);
        }
        let mut rows = Rows::new(prompts);
        rows.printed_lines
            .insert(0, format!("Loaded {} OpenAI-format requests", rows.prompts.len()));
        Ok(rows)
    }
}

fn parse_record(line: Value, output_len: Option<u32>) -> Result<Record, String> {
    let Value::Object(mut record) = line else {
        return Err("the row is not a JSON object with `messages`".to_owned());
    };
    let messages = match record.shift_remove("messages") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err("`messages` must be a list of messages".to_owned()),
    };
    let row_limit = match record.shift_remove("max_tokens") {
        None | Some(Value::Null) => None,
        Some(count) => Some(
            count
                .as_u64()
                .and_then(|count| u32::try_from(count).ok())
                .ok_or_else(|| format!("`max_tokens` is {count}; write a whole number"))?,
        ),
    };
    for key in ["max_completion_tokens", "model"] {
        record.shift_remove(key);
    }
    let expected_answer = record.shift_remove("expected_answer");
    let is_given = |count: &u32| *count > 0;
    Ok(Record {
        messages,
        output_tokens: output_len
            .or(row_limit.filter(is_given))
            .unwrap_or(DEFAULT_OUTPUT_TOKENS),
        expected_answer: expected_answer.filter(|expected| !expected.is_null()),
        extra_fields: record,
    })
}

/// Whether Python treats a value as true.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}
