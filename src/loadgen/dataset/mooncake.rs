//! The `mooncake` data set: a trace of requests with their moments, whose blocks say what they share.
//!
//! The trace holds no text. Each block becomes a text of its own, so that requests which share blocks begin alike.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::jsonl::{Lines, malformed, moment, value};
use super::template::{ChatTemplate, TemplateError};
use super::{Content, DatasetError, Draws, Extras, MakeRows, Prompt, RowInputs, Rows, tokens};
use crate::config::dataset::DatasetName;
use crate::config::dataset::mooncake::Mooncake;

/// Tokens asked for where an entry does not say how many.
const OUTPUT_LEN: u32 = 256;
/// Words of a block, in the load and in the warm-up.
const WORDS: (usize, usize) = (128, 512);
/// How many prompts are tokenized at once.
const BLOCK: usize = 256;

/// An entry of the trace.
struct Entry {
    at: Duration,
    blocks: Vec<String>,
    output_tokens: u32,
}

impl MakeRows for Mooncake {
    /// The requests of a trace in the order of their moments, the rounds of an entry one after the other.
    fn rows(&self, inputs: &RowInputs<'_>, _draws: &mut Draws) -> Result<Rows, DatasetError> {
        let (tokenizer, path) = (inputs.tokenizer, inputs.path()?);
        let wish = self.replay();
        let mut entries = Vec::new();
        for (number, line) in Lines::read(path)?.iter().take(inputs.prompts) {
            let wrong = |reason: &str| malformed(DatasetName::Mooncake, path, number, reason);
            let line = value(line).map_err(|error| wrong(&error.to_string()))?;
            entries.push(entry(&line).map_err(wrong)?);
        }
        let template = match ChatTemplate::open(tokenizer) {
            Ok(template) => Some(template),
            Err(TemplateError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let warmup = entries.first().map(|entry| {
            let text = text(entry, WORDS.1, "Can you tell me a detailed story in 1000 words?");
            Prompt::plain(Content::Text(text.into()), 0, entry.output_tokens)
        });
        entries.sort_by_key(|entry| entry.at);
        let mut prompts = Vec::with_capacity(entries.len() * wish.rounds as usize);
        for entries in entries.chunks(BLOCK) {
            let mut texts = Vec::new();
            for entry in entries {
                texts.extend(rounds(entry, wish.rounds, template.as_ref())?);
            }
            let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
            let lengths = tokenizer.count_batch(&borrowed, true)?;
            let owners = entries
                .iter()
                .flat_map(|entry| std::iter::repeat_n(entry, wish.rounds as usize));
            for ((text, length), entry) in texts.into_iter().zip(lengths).zip(owners) {
                let mut prompt =
                    Prompt::plain(Content::Text(text.into()), tokens(length), entry.output_tokens);
                prompt.extras = Some(Arc::new(Extras {
                    at: Some(entry.at),
                    ..Extras::default()
                }));
                prompts.push(prompt);
            }
        }
        let mut rows = Rows::of(prompts);
        rows.said.clear();
        rows.warmup = warmup;
        Ok(rows)
    }
}

fn entry(line: &Value) -> Result<Entry, &'static str> {
    let at = moment(line.get("timestamp"))?;
    let blocks = match line.get("hash_ids") {
        None => Vec::new(),
        Some(ids) => ids
            .as_array()
            .ok_or("its `hash_ids` are no list")?
            .iter()
            .map(ToString::to_string)
            .collect(),
    };
    let output_tokens = match line.get("output_length") {
        None => OUTPUT_LEN,
        Some(length) => length
            .as_u64()
            .and_then(|length| u32::try_from(length).ok())
            .ok_or("its `output_length` is no number of tokens")?,
    };
    Ok(Entry {
        at,
        blocks,
        output_tokens,
    })
}

/// The text that the blocks stand for, and what is asked about it.
fn text(entry: &Entry, words: usize, question: &str) -> String {
    let block = vec!["hi"; words].join(" ");
    let mut text = String::with_capacity(entry.blocks.len() * (block.len() + 12) + question.len());
    for id in &entry.blocks {
        text.push_str(id);
        text.push_str(&block);
    }
    text.push_str(question);
    text
}

/// The prompt of each round: all that was said before it, with as many words as were asked for in place of each answer.
fn rounds(entry: &Entry, count: u32, template: Option<&ChatTemplate>) -> Result<Vec<String>, DatasetError> {
    let base = text(entry, WORDS.0, "Tell me a story based on this context.");
    let answer = vec!["story"; entry.output_tokens as usize].join(" ");
    let mut history = Vec::new();
    let mut prompts = Vec::new();
    for round in 1..=count {
        history.push(json!({"role": "user", "content": format!("Round {round}: {base}")}));
        prompts.push(match template {
            Some(template) => template.render(&history, None, true)?,
            None => plain(&history),
        });
        history.push(json!({"role": "assistant", "content": answer}));
    }
    Ok(prompts)
}

/// The messages as lines, for a tokenizer without a template.
fn plain(history: &[Value]) -> String {
    let lines: Vec<String> = history
        .iter()
        .map(|message| {
            let word = |key: &str| message[key].as_str().unwrap_or_default();
            format!("{}: {}", word("role"), word("content"))
        })
        .collect();
    lines.join("\n")
}
