//! Begins sessions and conversations with pauses, and sends what follows in them.
//!
//! They wait for a slot of a session once, and for a slot of a request with each request, so that none of them
//! counts as a request under way while it pauses.

use std::time::Duration;

use super::LoopState;
use super::sending::take_from;
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::generator::concurrency_limit::Slot;
use crate::loadgen::generator::pending::PendingRequest;
use crate::loadgen::request::nanos_since;
use crate::results::record::request::Request;

impl LoopState {
    /// Begins the session or conversation of the first pending request; false if it must wait for a slot.
    pub(super) fn begin_session(&mut self, due: MonotonicTime) -> bool {
        let shared = &self.event_loop.shared;
        let slots = shared.session_slots.as_ref();
        let Some((slot, ready)) = take_from(slots, &mut self.session_slot_wait, &self.waker, due) else {
            return false;
        };
        // Without due times, a session begins when there is room for it.
        let at = match shared.is_closed_loop {
            true => Duration::from_nanos(nanos_since(ready, self.zero)),
            false => Duration::from_nanos(nanos_since(due, self.zero)),
        };
        let Some(mut first) = self.pending_requests.pop_front() else {
            return true;
        };
        if let Some(conversation) = &mut first.conversation {
            conversation.session_slot = slot;
            first.due = at;
            self.follow_ups.push(first);
        } else {
            let released = self.sessions.begin(first, slot, at);
            released
                .into_iter()
                .for_each(|request| self.follow_ups.push(request));
        }
        true
    }

    pub(super) fn start_follow_up(
        &mut self,
        mut pending: PendingRequest,
        slot: Option<Slot>,
        ready: MonotonicTime,
    ) {
        self.sessions.encode(&mut pending, &self.event_loop.shared);
        self.start_request(pending, slot, ready);
    }

    /// Queues what waited for the end of this request alone, unless sending is over. In that case it never falls
    /// due. They go to `endpoint`, if it is fixed.
    pub(super) fn follow(&mut self, ended: &PendingRequest, record: &Request, endpoint: Option<usize>) {
        let Some(place) = ended.place else {
            return;
        };
        let released = self.sessions.finish(place, ended.planned.as_deref(), record);
        if self.may_continue() {
            for mut request in released {
                request.endpoint = endpoint;
                self.follow_ups.push(request);
            }
        }
    }

    /// Whether requests may still fall due.
    pub(super) fn may_continue(&self) -> bool {
        self.close_reason.is_none() && self.ends_at.is_none_or(|over| clock::now() < over)
    }
}
