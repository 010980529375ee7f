//! Requests that are ready to be sent.

use std::sync::Arc;
use std::time::Duration;

use super::conversation::Conversation;
use super::load_result::LoadError;
use super::load_spec::PlannedRequest;
use super::request_bytes::{EncodedRequest, encode_request};
use super::session::SessionPlace;
use super::shared::Shared;
use crate::base::clock::MonotonicTime;
use crate::loadgen::protocol::ExpectedResults;
use crate::loadgen::request::{Outgoing, ResponseLimits, nanos_since};
use crate::results::record::request::{AudioInput, Request};

/// Bytes of bodies that are made before the load begins, because many requests may be due at once then. Tests
/// use few, so that bodies are made both ways.
pub(super) const MAX_PREPARED_BYTES: usize = if cfg!(test) { 1 << 10 } else { 16 << 20 };

pub(super) struct PendingRequest {
    pub(super) index: u32,
    /// Its index in the share.
    pub(super) position: usize,
    pub(super) prompt_tokens: u32,
    pub(super) vision_tokens: u32,
    /// The recording in its prompt.
    pub(super) audio: Option<AudioInput>,
    /// The index of its round within a conversation.
    pub(super) round: Option<u32>,
    pub(super) requested_tokens: u32,
    /// The maximum of output tokens that its body allows, if it differs from the requested number.
    pub(super) limit_tokens: Option<u32>,
    /// The model that its body names, if it differs from the load's model.
    pub(super) model: Option<String>,
    /// What a complete answer without text has.
    pub(super) expected_results: Option<ExpectedResults>,
    pub(super) due: Duration,
    pub(super) bytes: Outgoing,
    /// What the bytes are made of shortly before sending, if they are not held in memory; `length` is their
    /// number.
    pub(super) planned: Option<Arc<PlannedRequest>>,
    pub(super) length: usize,
    pub(super) conversation: Option<Box<Conversation>>,
    /// Its place in a session.
    pub(super) place: Option<SessionPlace>,
    /// The endpoint that it must go to.
    pub(super) endpoint: Option<usize>,
}

impl PendingRequest {
    pub(super) fn bounds(&self, shared: &Shared) -> ResponseLimits {
        let requested = self.limit_tokens.unwrap_or(self.requested_tokens);
        let tokens = self
            .audio
            .map_or(requested, |audio| requested.max(audio.max_tokens()));
        let cancellations = shared.cancellations.as_ref();
        let cancel = cancellations.and_then(|cancellations| cancellations.point(self.index));
        ResponseLimits::new(tokens, &shared.limits, cancel)
    }

    /// Returns the number of later requests of its conversation.
    pub(super) fn rounds_left(&self) -> usize {
        self.conversation
            .as_ref()
            .map_or(0, |conversation| conversation.rounds_left())
    }

    /// Whether it begins a session, or a conversation that holds no slot of a request between its rounds.
    pub(super) fn begins_session(&self) -> bool {
        let conversation = self.conversation.as_ref();
        self.place.is_some() || conversation.is_some_and(|conversation| conversation.has_pauses())
    }

    /// Returns true if the request falls due before `end`. Always false in a closed loop: there a request falls
    /// due when it gets a slot, and a pending one has none.
    pub(super) fn falls_due_before(&self, end: MonotonicTime, zero: MonotonicTime, shared: &Shared) -> bool {
        !shared.is_closed_loop && zero.plus(self.due) < end
    }

    /// Sets the due time of a closed-loop request to the moment at which it got a slot.
    pub(super) fn set_due(&mut self, ready: MonotonicTime, zero: MonotonicTime, shared: &Shared) {
        if shared.is_closed_loop {
            self.due = self.due.max(Duration::from_nanos(nanos_since(ready, zero)));
        }
    }

    /// Returns the next round of a conversation, due when the last one ended; `None` if there is no further
    /// round.
    pub(super) fn next_round(
        mut conversation: Box<Conversation>,
        last: &Request,
        position: usize,
        shared: &Shared,
    ) -> Option<Self> {
        let content = conversation.next_round(last)?;
        let EncodedRequest {
            bytes,
            limit_tokens,
            model,
            expected_results,
        } = encode_request(conversation.request(), &content, shared)
            .expect("a protocol that carried the first round carries messages");
        conversation.put_back(content);
        Some(Self {
            index: last.index + 1,
            position: position + 1,
            prompt_tokens: conversation.request().prompt_tokens,
            vision_tokens: 0,
            audio: None,
            round: conversation.round(),
            requested_tokens: conversation.request().requested_tokens,
            limit_tokens,
            model,
            expected_results,
            due: Duration::from_nanos(last.end_ns).saturating_add(conversation.pause()),
            length: bytes.len(),
            bytes,
            planned: None,
            conversation: Some(conversation),
            place: None,
            endpoint: None,
        })
    }
}

/// Prepares a share of the requests, with their bytes as far as the memory budget allows.
pub(super) fn prepare(
    share: Vec<(u32, PlannedRequest)>,
    shared: &Shared,
) -> Result<Vec<PendingRequest>, LoadError> {
    let (mut next, mut held_bytes) = (0, 0);
    share
        .into_iter()
        .map(|(index, planned)| {
            let EncodedRequest {
                bytes,
                limit_tokens,
                model,
                expected_results,
            } = encode_request(&planned, &planned.content, shared)
                .map_err(|source| LoadError::Encode { index, source })?;
            let position = next;
            next += planned.rounds();
            let conversation = Conversation::begin(&planned);
            let key = planned
                .extras
                .as_ref()
                .and_then(|extras| extras.routing_key.as_deref());
            let length = bytes.len();
            // Each body is encoded once, so that encoding errors appear before the load begins. Those of
            // sessions are made again shortly before sending.
            let is_held = planned.session().is_none() && held_bytes + bytes.own_len() <= MAX_PREPARED_BYTES;
            let (bytes, later) = match is_held {
                true => (bytes, None),
                false => (Outgoing::default(), Some(Arc::new(planned.clone()))),
            };
            held_bytes += bytes.own_len();
            Ok(PendingRequest {
                index,
                position,
                prompt_tokens: planned.prompt_tokens,
                vision_tokens: planned.vision_tokens(),
                audio: planned.audio(),
                round: conversation.as_ref().map(|_| 0),
                requested_tokens: planned.requested_tokens,
                limit_tokens,
                model,
                expected_results,
                due: planned.due,
                bytes,
                planned: later,
                length,
                conversation,
                place: None,
                endpoint: key.and_then(|key| shared.route.of_routing_key(key)),
            })
        })
        .collect()
}
