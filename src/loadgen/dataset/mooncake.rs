//! The `mooncake` data set: a trace of requests with timestamps and ids of their prompt blocks.
//!
//! The trace has no text. Each block id becomes a text, so that requests with common first blocks share a
//! prefix.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::jsonl::{Lines, malformed_line, parse_value, row_timestamp};
use super::template::{ChatTemplate, TemplateError};
use super::{Content, DatasetError, Extras, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::config::dataset::DatasetName;
use crate::config::dataset::mooncake::Mooncake;

/// Output tokens of an entry without `output_length`.
const DEFAULT_OUTPUT_TOKENS: u32 = 256;
/// Words per block, in the load and in the warm-up.
const WORDS_PER_BLOCK: (usize, usize) = (128, 512);
/// Maximum number of entries that are tokenized at once.
const MAX_BATCH: usize = 256;

/// An entry of the trace.
struct Entry {
    timestamp: Duration,
    blocks: Vec<String>,
    output_tokens: u32,
}

impl MakeRows for Mooncake {
    /// Returns the requests in the order of their timestamps; the rounds of an entry follow one another.
    fn rows(&self, inputs: &RowInputs<'_>, _draws: &mut RngState) -> Result<Rows, DatasetError> {
        let (tokenizer, path) = (inputs.tokenizer, inputs.path()?);
        let spec = self.replay();
        let mut entries = Vec::new();
        for (number, line) in Lines::read(path)?.iter().take(inputs.prompts) {
            let malformed_entry = |reason: &str| malformed_line(DatasetName::Mooncake, path, number, reason);
            let line = parse_value(line).map_err(|error| malformed_entry(&error.to_string()))?;
            entries.push(parse_entry(&line).map_err(malformed_entry)?);
        }
        let template = match ChatTemplate::open(tokenizer) {
            Ok(template) => Some(template),
            Err(TemplateError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let warmup = entries.first().map(|entry| {
            let text = block_text(
                entry,
                WORDS_PER_BLOCK.1,
                "Can you tell me a detailed story in 1000 words?",
            );
            Prompt::new(Content::Text(text.into()), 0, entry.output_tokens)
        });
        entries.sort_by_key(|entry| entry.timestamp);
        let mut prompts = Vec::with_capacity(entries.len() * spec.rounds as usize);
        for entries in entries.chunks(MAX_BATCH) {
            let mut texts = Vec::new();
            for entry in entries {
                texts.extend(round_prompts(entry, spec.rounds, template.as_ref())?);
            }
            let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
            let lengths = tokenizer.count_batch(&borrowed, true)?;
            let owners = entries
                .iter()
                .flat_map(|entry| std::iter::repeat_n(entry, spec.rounds as usize));
            for ((text, length), entry) in texts.into_iter().zip(lengths).zip(owners) {
                let mut prompt = Prompt::new(
                    Content::Text(text.into()),
                    token_count(length),
                    entry.output_tokens,
                );
                prompt.extras = Some(Arc::new(Extras {
                    at: Some(entry.timestamp),
                    ..Extras::default()
                }));
                prompts.push(prompt);
            }
        }
        let mut rows = Rows::new(prompts);
        rows.printed_lines.clear();
        rows.warmup = warmup;
        Ok(rows)
    }
}

fn parse_entry(line: &Value) -> Result<Entry, &'static str> {
    let at = row_timestamp(line.get("timestamp"))?;
    let blocks = match line.get("hash_ids") {
        None => Vec::new(),
        Some(ids) => ids
            .as_array()
            .ok_or("its `hash_ids` are not a list")?
            .iter()
            .map(ToString::to_string)
            .collect(),
    };
    let output_tokens = match line.get("output_length") {
        None => DEFAULT_OUTPUT_TOKENS,
        Some(length) => length
            .as_u64()
            .and_then(|length| u32::try_from(length).ok())
            .ok_or("its `output_length` is not a number of tokens")?,
    };
    Ok(Entry {
        timestamp: at,
        blocks,
        output_tokens,
    })
}

/// Joins the texts of the blocks and the question.
fn block_text(entry: &Entry, words: usize, question: &str) -> String {
    let block = vec!["hi"; words].join(" ");
    let mut text = String::with_capacity(entry.blocks.len() * (block.len() + 12) + question.len());
    for id in &entry.blocks {
        text.push_str(id);
        text.push_str(&block);
    }
    text.push_str(question);
    text
}

/// Returns the prompt of each round: all earlier rounds, with filler words of the requested number as
/// answers.
fn round_prompts(
    entry: &Entry,
    count: u32,
    template: Option<&ChatTemplate>,
) -> Result<Vec<String>, DatasetError> {
    let base = block_text(entry, WORDS_PER_BLOCK.0, "Tell me a story based on this context.");
    let answer = vec!["story"; entry.output_tokens as usize].join(" ");
    let mut history = Vec::new();
    let mut prompts = Vec::new();
    for round in 1..=count {
        history.push(json!({"role": "user", "content": format!("Round {round}: {base}")}));
        prompts.push(match template {
            Some(template) => template.render(&history, None, true)?,
            None => plain_text(&history),
        });
        history.push(json!({"role": "assistant", "content": answer}));
    }
    Ok(prompts)
}

/// Formats the messages as lines, for a tokenizer without a template.
fn plain_text(history: &[Value]) -> String {
    let lines: Vec<String> = history
        .iter()
        .map(|message| {
            let word = |key: &str| message[key].as_str().unwrap_or_default();
            format!("{}: {}", word("role"), word("content"))
        })
        .collect();
    lines.join("\n")
}
