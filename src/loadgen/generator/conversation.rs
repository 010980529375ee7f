//! Conversations: the messages of the next round, with the previous answers.

use std::time::Duration;

use serde_json::{Value, json};

use super::concurrency_limit::Slot;
use super::load_spec::PlannedRequest;
use crate::loadgen::dataset::Content;
use crate::results::record::request::Request;
use crate::results::record::spilled::SpilledText;

/// The rest of a conversation whose current round is under way.
///
/// A round waits for the answer to the previous round and contains that answer in its messages.
pub(super) struct Conversation {
    request: PlannedRequest,
    /// All messages so far, including the current round.
    history: Vec<Value>,
    /// Number of later turns that have been sent.
    turns_sent: usize,
    /// The slot of its session, held until its last round has ended.
    pub(super) session_slot: Option<Slot>,
}

impl Conversation {
    /// Starts the conversation of an item; `None` if the item is a single request.
    pub(super) fn begin(planned: &PlannedRequest) -> Option<Box<Self>> {
        planned.extras.as_ref()?.turns.as_ref()?;
        let history = match &planned.content {
            Content::Messages(messages) => messages.clone(),
            Content::Text(text) => vec![json!({"role": "user", "content": text.as_str()})],
            // Encoding rejects the first round before anything is sent.
            Content::Ids(_) | Content::Images { .. } | Content::Audio(_) => Vec::new(),
        };
        Some(Box::new(Self {
            request: planned.clone(),
            history,
            turns_sent: 0,
            session_slot: None,
        }))
    }

    fn turns(&self) -> &[Vec<Value>] {
        let extras = self.request.extras.as_ref();
        extras
            .and_then(|extras| extras.turns.as_deref())
            .unwrap_or_default()
    }

    pub(super) fn rounds_left(&self) -> usize {
        self.turns().len() - self.turns_sent
    }

    /// Returns the messages of the next round, after the last answer; `None` if there is no further round.
    ///
    /// A failed round counts as an empty answer, and the conversation continues, as in the Python tool. A round that
    /// was cancelled as planned counts with the text that had arrived, which its user has seen.
    pub(super) fn next_round(&mut self, last: &Request) -> Option<Content> {
        let turn = self.turns().get(self.turns_sent)?.clone();
        self.history.push(answer_message(last));
        self.history.extend(turn);
        self.turns_sent += 1;
        Some(Content::Messages(std::mem::take(&mut self.history)))
    }

    /// Takes the messages of a round back after its bytes are encoded.
    pub(super) fn put_back(&mut self, content: Content) {
        if let Content::Messages(history) = content {
            self.history = history;
        }
    }

    /// Whether it pauses between rounds. Such a conversation holds no slot of a request meanwhile.
    pub(super) fn has_pauses(&self) -> bool {
        let extras = self.request.extras.as_ref();
        extras.is_some_and(|extras| extras.pauses.is_some())
    }

    /// Returns the pause before the current round.
    pub(super) fn pause(&self) -> Duration {
        let extras = self.request.extras.as_ref();
        let pauses = extras.and_then(|extras| extras.pauses.as_ref());
        let pause = pauses.and_then(|pauses| pauses.get(self.turns_sent.checked_sub(1)?));
        pause.copied().unwrap_or_default()
    }

    pub(super) fn request(&self) -> &PlannedRequest {
        &self.request
    }

    /// Returns the index of the current round, from 0.
    pub(super) fn round(&self) -> Option<u32> {
        u32::try_from(self.turns_sent).ok()
    }
}

/// Returns the message with the answer to a request; a failed request counts as an empty answer.
pub(super) fn answer_message(last: &Request) -> Value {
    let answer = last.text.as_ref().filter(|_| !last.is_failed());
    let answer = answer.map(SpilledText::read).unwrap_or_default();
    json!({"role": "assistant", "content": answer})
}

#[cfg(test)]
mod tests;
