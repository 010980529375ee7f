//! Items of graded tasks: their requests, and how their answers are graded.

mod greedy;
mod item_text;
mod probes;
pub(super) mod public;
mod rows;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use greedy::{count_tokens, greedy_fields};
use item_text::ItemText;
pub(super) use probes::{answer_text, probe_requests, probes_hash};
use regex::Regex;
use serde_json::{Value, json};

use crate::base::ids::ContentHash;
use crate::config::quality::{Grader, Quality, Task, TaskSource};
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::{Caches, Extras};
use crate::loadgen::{Content, PlannedRequest};
use crate::plan::Protocol;
use crate::results::record::answer_check::AnswerCheck;
use crate::results::record::request::Request;
use crate::runner::answers::checks::grade_answer;

/// An item with its request.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) task: String,
    /// Number of the item in its task, from 0.
    pub(super) number: u32,
    pub(super) request: PlannedRequest,
    grader: Grader,
    pattern: Option<Regex>,
    expected: Value,
    /// Digest of everything that decides which answer is correct. What the protocol adds to the request is no part of
    /// it.
    digest: ContentHash,
}

impl Item {
    /// Grades an answer without its reasoning. A failed request is wrong; of an answer that was cut off, the text counts that it has.
    pub(super) fn grade(&self, request: &Request) -> AnswerCheck {
        grade_answer(request, self.grader, self.pattern.as_ref(), &self.expected)
    }
}

/// The digest of items in this order.
pub(super) fn items_hash<'a>(items: impl Iterator<Item = &'a Item>) -> ContentHash {
    ContentHash::from_value(&items.map(|item| &item.digest).collect::<Vec<_>>())
}

/// Where the items of tasks lie.
pub(super) struct ItemFiles<'a> {
    /// The folder to which paths are relative.
    pub(super) folder: &'a Path,
    /// Where the files of public tasks are searched.
    pub(super) caches: &'a Caches,
}

/// The items of all tasks, in turns.
///
/// # Errors
/// A file cannot be read, a row has no prompt or no answer, or the file has fewer items than the task.
pub(super) fn prepare_items(
    quality: &Quality,
    seed: u64,
    protocol: Protocol,
    tokenizer: &Tokenizer,
    files: &ItemFiles<'_>,
) -> Result<Vec<Item>, String> {
    let mut by_task: Vec<std::vec::IntoIter<Item>> = Vec::new();
    for task in &quality.tasks {
        let items = task_items(task, seed, protocol, tokenizer, files)
            .map_err(|why| format!("task `{}`: {why}", task.name))?;
        by_task.push(items.into_iter());
    }
    let mut all = Vec::with_capacity(quality.items() as usize);
    while all.len() < all.capacity() {
        let before = all.len();
        all.extend(by_task.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            break;
        }
    }
    Ok(all)
}

/// Checks that the items of a task can be read, and says which rows are left out.
///
/// # Errors
/// Its file cannot be read, a row cannot be graded, or there are too few rows.
pub(super) fn check_items(task: &Task, folder: &Path) -> Result<Option<String>, String> {
    match &task.source {
        TaskSource::Generated { .. } | TaskSource::Public { .. } => Ok(None),
        TaskSource::File { path, grader, .. } => {
            let rows = rows::read_rows(&folder.join(path), *grader, task.items)?;
            Ok(rows.describe_left_out())
        }
    }
}

fn task_items(
    task: &Task,
    seed: u64,
    protocol: Protocol,
    tokenizer: &Tokenizer,
    files: &ItemFiles<'_>,
) -> Result<Vec<Item>, String> {
    let (texts, grader, pattern) = match &task.source {
        TaskSource::Generated {
            task: generated,
            input_len,
        } => {
            let text = |number| {
                let item = generated.item(seed, number, *input_len);
                ItemText {
                    content: Content::Text(item.prompt.into()),
                    fields: item.fields,
                    expected: item.expected,
                }
            };
            ((0..task.items).map(text).collect(), generated.grader(), None)
        }
        TaskSource::Public { task: public, grader } => {
            let texts = public::read_items(*public, *grader, task.items, files.caches)?;
            (texts, *grader, None)
        }
        TaskSource::File {
            path,
            grader,
            pattern,
        } => {
            let texts = rows::read_rows(&files.folder.join(path), *grader, task.items)?.items;
            let pattern = pattern.as_deref().map(Regex::new).transpose();
            (texts, *grader, pattern.map_err(|error| error.to_string())?)
        }
    };
    let item = |(number, text): (u32, ItemText)| {
        let prompt_tokens = count_tokens(&text.content, tokenizer)?;
        let prompt = match &text.content {
            Content::Text(text) => json!(text.as_str()),
            Content::Messages(messages) => json!(messages),
            _ => Value::Null,
        };
        let pattern_text = pattern.as_ref().map(Regex::as_str);
        let described = json!([
            prompt,
            text.fields,
            text.expected,
            grader,
            pattern_text,
            task.max_tokens
        ]);
        let extras = Extras {
            body: greedy_fields(text.fields, protocol, task.max_tokens),
            ..Extras::default()
        };
        Ok(Item {
            task: task.name.clone(),
            number,
            request: PlannedRequest {
                content: text.content,
                prompt_tokens,
                requested_tokens: task.max_tokens,
                due: Duration::ZERO,
                lora_adapter: None,
                extras: Some(Arc::new(extras)),
            },
            grader,
            pattern: pattern.clone(),
            expected: text.expected,
            digest: ContentHash::from_value(&described),
        })
    };
    (0..).zip(texts).map(item).collect()
}
