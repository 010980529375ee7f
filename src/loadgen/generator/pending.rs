//! Requests that are ready to be sent.

use std::sync::Arc;
use std::time::Duration;

use super::composed::{Composed, composed};
use super::conversation::Talk;
use super::load::Item;
use super::result::DriveError;
use super::shared::Shared;
use crate::base::clock::Moment;
use crate::config::scenario::Limits;
use crate::loadgen::request::{Bounds, nanos};
use crate::results::record::request::Request;

/// Bytes of bodies that are made before the load begins, because many requests may be due at once then. Tests
/// use few, so that bodies are made both ways.
pub(super) const BEFORE: usize = if cfg!(test) { 1 << 10 } else { 16 << 20 };

pub(super) struct Job {
    pub(super) index: u32,
    /// Its index in the share.
    pub(super) place: usize,
    pub(super) prompt_tokens: u32,
    pub(super) vision_tokens: u32,
    /// The index of its round within a conversation.
    pub(super) round: Option<u32>,
    pub(super) asked_tokens: u32,
    /// The maximum of output tokens that its body allows, if it differs from the requested number.
    pub(super) limit_tokens: Option<u32>,
    /// The model that its body names, if it differs from the load's model.
    pub(super) model: Option<String>,
    pub(super) due: Duration,
    pub(super) bytes: Vec<u8>,
    /// What the bytes are made of shortly before sending, if they are not held in memory; `length` is their
    /// number.
    pub(super) item: Option<Arc<Item>>,
    pub(super) length: usize,
    pub(super) talk: Option<Box<Talk>>,
}

impl Job {
    pub(super) fn bounds(&self, limits: &Limits) -> Bounds {
        Bounds::of(self.limit_tokens.unwrap_or(self.asked_tokens), limits)
    }

    /// Returns the number of later requests of its conversation.
    pub(super) fn later(&self) -> usize {
        self.talk.as_ref().map_or(0, |talk| talk.left())
    }

    /// Returns true if the request falls due before `end`. In a closed loop, a request without a slot by then
    /// never does.
    pub(super) fn falls_due_before(&self, end: Moment, zero: Moment, shared: &Shared) -> bool {
        !shared.is_closed_loop && zero.plus(self.due) < end
    }

    /// Sets the due time of a closed-loop request to the moment at which it got a slot.
    pub(super) fn take_turn(&mut self, ready: Moment, zero: Moment, shared: &Shared) {
        if shared.is_closed_loop {
            self.due = self.due.max(Duration::from_nanos(nanos(ready, zero)));
        }
    }

    /// Returns the next round of a conversation, due when the last one ended; `None` if there is no further
    /// round.
    pub(super) fn next_round(
        mut talk: Box<Talk>,
        last: &Request,
        place: usize,
        shared: &Shared,
    ) -> Option<Self> {
        let content = talk.advance(last)?;
        let Composed {
            bytes,
            limit_tokens,
            model,
        } = composed(talk.item(), &content, shared)
            .expect("a protocol that carried the first round carries messages");
        talk.restore(content);
        Some(Self {
            index: last.index + 1,
            place: place + 1,
            prompt_tokens: talk.item().prompt_tokens,
            vision_tokens: 0,
            round: talk.round(),
            asked_tokens: talk.item().asked_tokens,
            limit_tokens,
            model,
            due: Duration::from_nanos(last.end_ns),
            length: bytes.len(),
            bytes,
            item: None,
            talk: Some(talk),
        })
    }
}

/// Prepares a share of the requests, with their bytes as far as the memory budget allows.
pub(super) fn prepare(share: Vec<(u32, Item)>, shared: &Shared) -> Result<Vec<Job>, DriveError> {
    let (mut next, mut held) = (0, 0);
    share
        .into_iter()
        .map(|(index, item)| {
            let Composed {
                bytes,
                limit_tokens,
                model,
            } = composed(&item, &item.content, shared)
                .map_err(|source| DriveError::Encode { index, source })?;
            let place = next;
            next += item.rounds();
            let talk = Talk::begin(&item);
            let length = bytes.len();
            // Each body is encoded once, so that encoding errors appear before the load begins.
            let (bytes, later) = match held + length <= BEFORE {
                true => (bytes, None),
                false => (Vec::new(), Some(Arc::new(item.clone()))),
            };
            held += bytes.len();
            Ok(Job {
                index,
                place,
                prompt_tokens: item.prompt_tokens,
                vision_tokens: item.vision_tokens(),
                round: talk.as_ref().map(|_| 0),
                asked_tokens: item.asked_tokens,
                limit_tokens,
                model,
                due: item.due,
                bytes,
                item: later,
                length,
                talk,
            })
        })
        .collect()
}
