//! Conversations: the messages of the next round, with the previous answers.

use serde_json::{Value, json};

use super::load::Item;
use crate::loadgen::dataset::Content;
use crate::results::record::outsourced::Text;
use crate::results::record::request::Request;

/// The rest of a conversation whose current round is under way.
///
/// A round waits for the answer to the previous round and contains that answer in its messages.
pub(super) struct Talk {
    item: Item,
    /// All messages so far, including the current round.
    history: Vec<Value>,
    /// Number of later turns that have been sent.
    said: usize,
}

impl Talk {
    /// Starts the conversation of an item; `None` if the item is a single request.
    pub(super) fn begin(item: &Item) -> Option<Box<Self>> {
        item.extras.as_ref()?.turns.as_ref()?;
        let history = match &item.content {
            Content::Messages(messages) => messages.clone(),
            Content::Text(text) => vec![json!({"role": "user", "content": text.as_str()})],
            // Encoding rejects the first round before anything is sent.
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

    pub(super) fn left(&self) -> usize {
        self.turns().len() - self.said
    }

    /// Returns the messages of the next round, after the last answer; `None` if there is no further round.
    ///
    /// A failed round counts as an empty answer, and the conversation continues, as in the Python tool.
    pub(super) fn advance(&mut self, last: &Request) -> Option<Content> {
        let turn = self.turns().get(self.said)?.clone();
        let answer = last.text.as_ref().filter(|_| last.is_completed());
        let answer = answer.map(Text::read).unwrap_or_default();
        self.history.push(json!({"role": "assistant", "content": answer}));
        self.history.extend(turn);
        self.said += 1;
        Some(Content::Messages(std::mem::take(&mut self.history)))
    }

    /// Takes the messages of a round back after its bytes are encoded.
    pub(super) fn restore(&mut self, content: Content) {
        if let Content::Messages(history) = content {
            self.history = history;
        }
    }

    pub(super) fn item(&self) -> &Item {
        &self.item
    }

    /// Returns the index of the current round, from 0.
    pub(super) fn round(&self) -> Option<u32> {
        u32::try_from(self.said).ok()
    }
}

#[cfg(test)]
mod tests;
