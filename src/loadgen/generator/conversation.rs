//! A conversation on its way: what is said next, with what was answered before.

use serde_json::{Value, json};

use super::load::Item;
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

    /// The messages of the next round, after the answer to the last; `None` if that was the last.
    ///
    /// A failed round is answered with nothing, and the conversation goes on, as in the Python tool.
    pub(super) fn advance(&mut self, last: &Request) -> Option<Content> {
        let turn = self.turns().get(self.said)?.clone();
        let answer = last.text.as_ref().filter(|_| last.is_completed());
        let answer = answer.map(Text::read).unwrap_or_default();
        self.history.push(json!({"role": "assistant", "content": answer}));
        self.history.extend(turn);
        self.said += 1;
        Some(Content::Messages(std::mem::take(&mut self.history)))
    }

    /// Takes the messages of a round back once its bytes are made.
    pub(super) fn restore(&mut self, content: Content) {
        if let Content::Messages(history) = content {
            self.history = history;
        }
    }

    /// What the conversation began with.
    pub(super) fn item(&self) -> &Item {
        &self.item
    }

    /// The index of the current round, from 0.
    pub(super) fn round(&self) -> Option<u32> {
        u32::try_from(self.said).ok()
    }
}

#[cfg(test)]
mod tests;
