//! The `agentic-trace` data set: recorded conversations of an agent, replayed turn by turn with the server's
//! answers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::jsonl;
use super::{Content, DatasetError, Extras, MakeRows, Prompt, RngState, RowInputs, Rows};
use crate::config::dataset::DatasetName;
use crate::config::dataset::agentic_trace::AgenticTrace;

/// Output tokens of each turn if the scenario does not set a number.
const DEFAULT_OUTPUT_TOKENS: u32 = 220;

impl MakeRows for AgenticTrace {
    /// Reads the conversations of a file, from the offset to the end and then from the start to the offset.
    fn rows(&self, inputs: &RowInputs<'_>, _draws: &mut RngState) -> Result<Rows, DatasetError> {
        let spec = self.agentic_trace.clone().unwrap_or_default();
        let path = inputs.path()?;
        let malformed_error = |reason: String| DatasetError::Malformed {
            dataset: DatasetName::AgenticTrace,
            path: path.to_owned(),
            reason,
        };
        let text = std::fs::read_to_string(path).map_err(|error| DatasetError::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        let file = jsonl::parse_value(&text).map_err(|error| malformed_error(error.to_string()))?;
        let conversations = file
            .get("conversations")
            .and_then(Value::as_array)
            .ok_or_else(|| malformed_error("the file has no list of `conversations`".to_owned()))?;
        let output_tokens = self.output_len.unwrap_or(DEFAULT_OUTPUT_TOKENS);
        let longest = spec.max_turns.map_or(usize::MAX, |turns| turns as usize);
        let offset = spec.offset as usize % conversations.len().max(1);
        let rotated = conversations.iter().enumerate().cycle().skip(offset);
        let mut prompts = Vec::new();
        let mut turns = Vec::new();
        for (number, conversation) in rotated.take(conversations.len()) {
            if prompts.len() == inputs.prompts {
                break;
            }
            let of_this = |reason: &str| malformed_error(format!("conversation {number}: {reason}"));
            let prompt = conversation_prompt(conversation, longest, output_tokens)
                .map_err(|reason| of_this(&reason))?;
            if let Some((mut prompt, count)) = prompt {
                if self.trace_timestamps {
                    let begins = conversation.get(0).and_then(|turn| turn.get("timestamp"));
                    let at = jsonl::row_timestamp(begins)
                        .map_err(|_| of_this("the first turn has no `timestamp` in milliseconds"))?;
                    prompt.extras_mut().at = Some(at);
                }
                prompts.push(prompt);
                turns.push(count);
            }
        }
        let mut rows = Rows::new(prompts);
        rows.printed_lines = printed_lines(&turns, spec.offset, output_tokens);
        Ok(rows)
    }
}

/// Returns a conversation with its number of turns; `None` if it has no messages.
fn conversation_prompt(
    conversation: &Value,
    longest: usize,
    output_tokens: u32,
) -> Result<Option<(Prompt, usize)>, String> {
    let list = conversation
        .as_array()
        .ok_or_else(|| "the conversation is not a list of turns".to_owned())?;
    let mut turns: Vec<Vec<Value>> = Vec::new();
    for turn in list {
        let messages = turn
            .get("messages")
            .and_then(Value::as_array)
            .ok_or_else(|| "a turn has no list of `messages`".to_owned())?;
        if !messages.is_empty() {
            turns.push(messages.iter().map(message).collect::<Result<_, _>>()?);
        }
    }
    turns.truncate(longest);
    if turns.is_empty() {
        return Ok(None);
    }
    let count = turns.len();
    let prompt_tokens = list[0]
        .get("prompt_tokens")
        .and_then(Value::as_u64)
        .and_then(|tokens| u32::try_from(tokens).ok())
        .ok_or_else(|| "the first turn has no `prompt_tokens`".to_owned())?;
    let first = turns.remove(0);
    let mut prompt = Prompt::new(Content::Messages(first), prompt_tokens, output_tokens);
    prompt.extras = Some(Arc::new(Extras {
        turns: Some(turns),
        ..Extras::default()
    }));
    Ok(Some((prompt, count)))
}

/// Reduces a message to its role and its content.
fn message(message: &Value) -> Result<Value, String> {
    match (message.get("role"), message.get("content")) {
        (Some(role), Some(content)) => Ok(json!({"role": role, "content": content})),
        _ => Err("a message has no `role` or no `content`".to_owned()),
    }
}

fn printed_lines(turns: &[usize], offset: u32, output_tokens: u32) -> Vec<String> {
    let (Some(min), Some(max)) = (turns.iter().min(), turns.iter().max()) else {
        return Vec::new();
    };
    let mean = turns.iter().sum::<usize>() as f64 / turns.len() as f64;
    vec![
        format!(
            "#Conversations: {} (offset={offset}, turns/conv min={min} max={max} avg={mean:.1})",
            turns.len()
        ),
        format!("#Output tokens per turn: {output_tokens}"),
    ]
}
