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

/// So many bytes of bodies are made before the load begins, as many requests may be due at once then; in tests few, so that bodies are
/// made both ways.
pub(super) const BEFORE: usize = if cfg!(test) { 1 << 10 } else { 16 << 20 };

/// A request ready to be sent.
pub(super) struct Job {
    pub(super) index: u32,
    /// Its place in the share.
    pub(super) place: usize,
    pub(super) prompt_tokens: u32,
    pub(super) vision_tokens: u32,
    /// Which round of its conversation it is.
    pub(super) round: Option<u32>,
    pub(super) asked_tokens: u32,
    /// The most output tokens that its body allows, where that is another number.
    pub(super) limit_tokens: Option<u32>,
    /// The model that its body names, where it is another than the load's.
    pub(super) model: Option<String>,
    pub(super) due: Duration,
    pub(super) bytes: Vec<u8>,
    /// What the bytes are made of when its turn comes, where memory is not to hold them until then, and how many they are.
    pub(super) item: Option<Arc<Item>>,
    pub(super) length: usize,
    /// The conversation that it belongs to.
    pub(super) talk: Option<Box<Talk>>,
}

impl Job {
    /// How far it may go.
    pub(super) fn bounds(&self, limits: &Limits) -> Bounds {
        Bounds::of(self.limit_tokens.unwrap_or(self.asked_tokens), limits)
    }

    /// How many requests come after it in its conversation.
    pub(super) fn later(&self) -> usize {
        self.talk.as_ref().map_or(0, |talk| talk.left())
    }

    /// Whether it falls due before nothing more does. In a closed loop nothing does that has no slot by then.
    pub(super) fn falls_due_before(&self, end: Moment, zero: Moment, shared: &Shared) -> bool {
        !shared.is_closed_loop && zero.plus(self.due) < end
    }

    /// Notes that its turn has come: in a closed loop it falls due now that it has a slot.
    pub(super) fn take_turn(&mut self, ready: Moment, zero: Moment, shared: &Shared) {
        if shared.is_closed_loop {
            self.due = self.due.max(Duration::from_nanos(nanos(ready, zero)));
        }
    }

    /// The next round of a conversation, due when the last one ended; `None` if that was the last.
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

/// Makes a share of the requests ready to be sent, with their bytes as far as memory is to hold them.
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
            // Each is made once, so that one that cannot be is known now.
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
