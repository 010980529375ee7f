//! The `openai` data set: chat requests as OpenAI's API takes them, recorded in a file of JSON lines and sent as they are.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::jsonl::{Lines, malformed, moment, python_json};
use super::template::ChatTemplate;
use super::{Content, DatasetError, Draws, Extras, MakeRows, Prompt, RowInputs, Rows, tokens};
use crate::config::dataset::DatasetName;
use crate::config::dataset::openai::Openai;

/// Tokens asked for where neither the scenario nor the row says how many.
const OUTPUT_LEN: u32 = 256;

struct Record {
    messages: Vec<Value>,
    output_tokens: u32,
    more: Map<String, Value>,
}

impl MakeRows for Openai {
    /// The rows of a file, in its order; 0 prompts ask for all.
    ///
    /// Lines that are no JSON are passed over and do not count; lines without messages count and are left out, as by the Python
    /// tool, so that fewer rows than asked for may come out.
    fn rows(&self, inputs: &RowInputs<'_>, _draws: &mut Draws) -> Result<Rows, DatasetError> {
        let (tokenizer, path) = (inputs.tokenizer, inputs.path()?);
        let asked = match inputs.prompts {
            0 => usize::MAX,
            asked => asked,
        };
        let template = ChatTemplate::open(tokenizer)?;
        let mut prompts = Vec::new();
        for (number, line) in Lines::read(path)?.values().take(asked) {
            let wrong = |reason: &str| malformed(DatasetName::Openai, path, number, reason);
            let mut record = record(line, self.output_len).map_err(|reason| wrong(&reason))?;
            if record.messages.is_empty() {
                continue;
            }
            let at = match self.trace_timestamps {
                // It belongs to the file then, not to the request.
                true => Some(moment(record.more.shift_remove("timestamp").as_ref()).map_err(wrong)?),
                false => None,
            };
            let text = template.render(&record.messages, None, true)?;
            // The template writes the special tokens itself.
            let mut length = tokenizer.count(&text, false)?;
            if let Some(tools) = record.more.get("tools").filter(|tools| is_something(tools)) {
                length += tokenizer.count(&python_json(tools), true)?;
            }
            let mut prompt = Prompt::plain(
                Content::Messages(record.messages),
                tokens(length),
                record.output_tokens,
            );
            if at.is_some() || !record.more.is_empty() {
                prompt.extras = Some(Arc::new(Extras {
                    at,
                    body: record.more,
                    ..Extras::default()
                }));
            }
            prompts.push(prompt);
        }
        let mut rows = Rows::of(prompts);
        rows.said
            .insert(0, format!("Loaded {} OpenAI-format requests", rows.prompts.len()));
        Ok(rows)
    }
}

fn record(line: Value, output_len: Option<u32>) -> Result<Record, String> {
    let Value::Object(mut record) = line else {
        return Err("it is no object with `messages`".to_owned());
    };
    let messages = match record.shift_remove("messages") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err("its `messages` are no list".to_owned()),
    };
    let own = match record.shift_remove("max_tokens") {
        None | Some(Value::Null) => None,
        Some(count) => Some(
            count
                .as_u64()
                .and_then(|count| u32::try_from(count).ok())
                .ok_or_else(|| format!("its `max_tokens` are {count}; write a whole number"))?,
        ),
    };
    for key in ["max_completion_tokens", "model"] {
        record.shift_remove(key);
    }
    let is_given = |count: &u32| *count > 0;
    Ok(Record {
        messages,
        output_tokens: output_len.or(own.filter(is_given)).unwrap_or(OUTPUT_LEN),
        more: record,
    })
}

/// Whether Python takes a value for true.
fn is_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}
