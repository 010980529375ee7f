//! The `mooncake` data set: a trace of requests with timestamps and ids of their prompt blocks.
//!
//! The trace has no text. Each block id becomes a text, so that requests with common first blocks share a
//! prefix.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::jsonl::{Lines, malformed_line, parse_value, row_timestamp};
use super::template::{ChatTemplate, TemplateError};
use super::{Content, DatasetError, Extras, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::base::text::pluralize;
use crate::config::dataset::mooncake::Mooncake;
use crate::config::dataset::{DatasetName, MAX_DRAWN_TOKENS};

/// Output tokens of an entry without `output_length`.
const DEFAULT_OUTPUT_TOKENS: u32 = 256;
/// Words per block, in the load and in the warm-up.
const WORDS_PER_BLOCK: (usize, usize) = (128, 512);
/// Maximum number of tokens that an entry may have.
const MAX_ENTRY_TOKENS: u64 = 100_000_000;
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
        let mut entries = parse_entries(path, inputs.prompts, spec.rounds)?;
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

/// Checks the first entries of a trace, without making their prompts.
pub(crate) fn check_trace(path: &Path, count: u32, rounds: u32) -> Result<(), DatasetError> {
    parse_entries(path, count as usize, rounds).map(drop)
}

/// The first entries of a trace, in the order of its lines.
fn parse_entries(path: &Path, count: usize, rounds: u32) -> Result<Vec<Entry>, DatasetError> {
    let mut entries = Vec::new();
    let mut sum = 0_u64;
    for (number, line) in Lines::read(path)?.iter().take(count) {
        let malformed_entry = |reason: &str| malformed_line(DatasetName::Mooncake, path, number, reason);
        let line = parse_value(line).map_err(|error| malformed_entry(&error.to_string()))?;
        let entry = parse_entry(&line).map_err(malformed_entry)?;
        let tokens = entry.tokens(rounds);
        if tokens > MAX_ENTRY_TOKENS {
            return Err(malformed_entry(&format!(
                "the prompts of this entry would have up to {tokens} tokens in {}, more than the maximum of \
                 {MAX_ENTRY_TOKENS}; reduce `output_length`, shorten `hash_ids`, or set fewer rounds",
                pluralize(rounds as usize, "round", "rounds")
            )));
        }
        sum += tokens;
        if sum > MAX_DRAWN_TOKENS {
            return Err(malformed_entry(&format!(
                "the prompts up to this line would have up to {sum} tokens in total, but at most \
                 {MAX_DRAWN_TOKENS} are allowed; request fewer prompts or rounds"
            )));
        }
        entries.push(entry);
    }
    Ok(entries)
}

impl Entry {
    /// Tokens of the prompts of all rounds and of one answer, at most: each round repeats those before it.
    fn tokens(&self, rounds: u32) -> u64 {
        const QUESTION: u64 = 16;
        let base = (self.blocks.len() as u64).saturating_mul(WORDS_PER_BLOCK.0 as u64) + QUESTION;
        let (rounds, answer) = (u64::from(rounds), u64::from(self.output_tokens));
        let bases = (rounds * (rounds + 1) / 2).saturating_mul(base);
        let answers = (rounds * rounds.saturating_sub(1) / 2).saturating_mul(answer);
        bases.saturating_add(answers).saturating_add(answer)
    }
}

fn parse_entry(line: &Value) -> Result<Entry, &'static str> {
    let at = row_timestamp(line.get("timestamp"))?;
    let blocks = match line.get("hash_ids") {
        None => Vec::new(),
        Some(ids) => ids
            .as_array()
            .ok_or("`hash_ids` must be a list")?
            .iter()
            .map(ToString::to_string)
            .collect(),
    };
    // The blocks stand for the prompt, so its length is not used.
    if line
        .get("input_length")
        .and_then(Value::as_f64)
        .is_some_and(|length| length < 0.0)
    {
        return Err("`input_length` is negative");
    }
    let output_tokens = match line.get("output_length") {
        None => DEFAULT_OUTPUT_TOKENS,
        Some(length) => length
            .as_u64()
            .and_then(|length| u32::try_from(length).ok())
            .ok_or("`output_length` must be a whole number of tokens")?,
    };
    Ok(Entry {
        timestamp: at,
        blocks,
        output_tokens,
    })
}

/// Joins the texts of the blocks and the question.
fn block_text(entry: &Entry, words: usize, question: &str) -> String {
    let block = repeat_word("hi", words);
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
    let answer = repeat_word("story", entry.output_tokens as usize);
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

/// Repeats a word, with spaces between.
fn repeat_word(word: &str, count: usize) -> String {
    let mut text = format!("{word} ").repeat(count);
    text.pop();
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a trace of these lines.
    fn reason(lines: &str, rounds: u32) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, lines).unwrap();
        match parse_entries(file.path(), 1000, rounds) {
            Ok(entries) => format!("{} entries", entries.len()),
            Err(DatasetError::Malformed { path, reason, .. }) => {
                assert_eq!(path, file.path());
                reason
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn an_entry_that_memory_does_not_hold_is_refused_with_its_line() {
        let line =
            |tokens: u32| format!("{{\"timestamp\": 0, \"hash_ids\": [1], \"output_length\": {tokens}}}\n");
        assert_eq!(reason(&line(99_999_856), 1), "1 entries");
        let long = reason(&(line(1) + &line(99_999_857)), 1);
        assert!(
            long.starts_with(
                "line 2: the prompts of this entry would have up to 100000001 tokens in 1 round"
            ),
            "{long}"
        );
        let rounds = reason(&line(1), u32::MAX);
        assert!(rounds.contains("tokens in 4294967295 rounds"), "{rounds}");
        let many = reason(&line(99_999_856).repeat(41), 1);
        assert!(
            many.starts_with("line 41: the prompts up to this line would have up to 4100000000 tokens"),
            "{many}"
        );
    }

    #[test]
    fn a_negative_length_is_refused_with_its_line() {
        for (key, why) in [
            ("input_length", "line 1: `input_length` is negative"),
            (
                "output_length",
                "line 1: `output_length` must be a whole number of tokens",
            ),
        ] {
            let text = format!("{{\"timestamp\": 0, \"{key}\": -5}}");
            assert_eq!(reason(&text, 1), why);
        }
    }

    #[test]
    fn words_are_repeated_with_spaces_between() {
        assert_eq!(repeat_word("hi", 3), "hi hi hi");
        assert_eq!(repeat_word("hi", 0), "");
    }
}
