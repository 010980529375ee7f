//! A conversation on its way: what is said next, with what was answered before.

use std::time::Duration;

use serde_json::{Value, json};

use super::Item;
use super::tokio_loop::{Composed, Job, Shared, composed};
use crate::loadgen::dataset::Content;
use crate::results::record::outsourced::Text;
use crate::results::record::request::Request;

/// What is left of a conversation whose current round is under way.
///
/// A round waits for the answer to the one before it, and holds that answer in its messages.
pub(super) struct Talk {
    item: Item,
    /// Every message that was said, the current round's included.
    history: Vec<Value>,
    /// Later turns that have been said.
    said: usize,
}

impl Talk {
    /// The conversation that an item begins; `None` if it is a single request.
    pub(super) fn begin(item: &Item) -> Option<Box<Self>> {
        item.extras.as_ref()?.turns.as_ref()?;
        let history = match &item.content {
            Content::Messages(messages) => messages.clone(),
            Content::Text(text) => vec![json!({"role": "user", "content": text.as_str()})],
            // The first round is refused before anything is sent.
            Content::Ids(_) | Content::Pictures { .. } => Vec::new(),
        };
        Some(Box::new(Self {
            item: item.clone(),
            history,
            said: 0,
        }))
    }

    fn turns(&self) -> &[Vec<Value>] {
        let extras = self.item.extras.as_ref();
        extras
            .and_then(|extras| extras.turns.as_deref())
            .unwrap_or_default()
    }

    /// How many rounds are still to come.
    pub(super) fn left(&self) -> usize {
        self.turns().len() - self.said
    }

    /// The next round, due when the last one ended; `None` if that was the last.
    ///
    /// A failed round is answered with nothing, and the conversation goes on, as in the Python tool.
    pub(super) fn next(mut self: Box<Self>, last: &Request, place: usize, shared: &Shared) -> Option<Job> {
        let turn = self.turns().get(self.said)?.clone();
        let answer = last.text.as_ref().filter(|_| last.is_completed());
        let answer = answer.map(Text::read).unwrap_or_default();
        self.history.push(json!({"role": "assistant", "content": answer}));
        self.history.extend(turn);
        self.said += 1;
        let content = Content::Messages(std::mem::take(&mut self.history));
        let Composed {
            bytes,
            limit_tokens,
            model,
        } = composed(&self.item, &content, shared)
            .expect("a protocol that carried the first round carries messages");
        if let Content::Messages(history) = content {
            self.history = history;
        }
        Some(Job {
            index: last.index + 1,
            place: place + 1,
            prompt_tokens: self.item.prompt_tokens,
            vision_tokens: 0,
            round: u32::try_from(self.said).ok(),
            asked_tokens: self.item.asked_tokens,
            limit_tokens,
            model,
            due: Duration::from_nanos(last.end_ns),
            length: bytes.len(),
            bytes,
            item: None,
            talk: Some(self),
        })
    }
}

#[cfg(test)]
mod tests;
