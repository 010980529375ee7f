//! Ends the sending: stops, time that is over, and requests that are given up.

use std::task::Context;

use super::LoopState;
use crate::base::clock;
use crate::loadgen::generator::load_spec::LoadWatch;
use crate::loadgen::generator::request_outcome::{CloseReason, record_unsent};

impl LoopState {
    /// Checks whether more requests may be sent. If not, drops those that will never be due.
    pub(super) fn close_if_over(&mut self) {
        let before = self.close_reason;
        self.end_if_enough();
        if self.is_stopped() {
            self.close_reason = Some(CloseReason::Stopped);
            self.cancel_all();
        } else if self.ends_at.is_some_and(|over| clock::now() >= over) {
            self.close_reason = Some(CloseReason::TimeOver);
        }
        let Some(closed) = self.close_reason.filter(|_| self.close_reason != before) else {
            return;
        };
        let end = self.ends_at.filter(|_| closed == CloseReason::TimeOver);
        let end = end.unwrap_or_else(clock::now);
        let (zero, shared) = (self.zero, &self.event_loop.shared);
        self.pending_requests
            .retain(|pending| pending.falls_due_before(end, zero, shared));
        let kept = self
            .follow_ups
            .drain(|pending| pending.falls_due_before(end, zero, shared));
        kept.into_iter().for_each(|pending| self.follow_ups.push(pending));
        if closed == CloseReason::Stopped {
            self.next_rounds.clear();
            self.give_up_waiting();
        }
    }

    /// Ends the time of sending now if who watches the load has seen enough.
    fn end_if_enough(&mut self) {
        let shared = &self.event_loop.shared;
        let is_enough = |watch: &LoadWatch| watch.enough.is_cancelled();
        let now = clock::now();
        if shared.watch.as_ref().is_some_and(is_enough) && self.ends_at.is_none_or(|end| end > now) {
            self.ends_at = Some(now);
            self.drain_deadline = Some(now.plus(shared.limits.drain.duration()));
        }
    }

    /// Gives up requests that are due and wait for a slot.
    pub(super) fn give_up_waiting(&mut self) {
        self.slot_wait = None;
        self.session_slot_wait = None;
        let closed = self.close_reason.unwrap_or(CloseReason::Stopped);
        let follow_ups = self.follow_ups.drain(|_| true);
        for pending in follow_ups
            .into_iter()
            .chain(std::mem::take(&mut self.pending_requests))
        {
            record_unsent(
                &pending,
                closed,
                self.zero,
                &self.event_loop.shared,
                &mut self.outcomes,
            );
        }
    }

    fn is_stopped(&mut self) -> bool {
        let mut context = Context::from_waker(&self.waker);
        // A future that has completed must not be polled again.
        self.close_reason == Some(CloseReason::Stopped)
            || self.stop_signal.as_mut().poll(&mut context).is_ready()
    }

    pub(super) fn cancel_all(&mut self) {
        let closed = self.close_reason.unwrap_or(CloseReason::Stopped);
        for slotted in std::mem::take(&mut self.unconnected) {
            record_unsent(
                &slotted.request,
                closed,
                self.zero,
                &self.event_loop.shared,
                &mut self.outcomes,
            );
        }
        self.closing_sockets.clear();
        for index in 0..self.streams.len() {
            if let Some(stream) = &mut self.streams[index] {
                let answer = stream.in_flight.cancel();
                self.finish(index, *answer);
            }
        }
    }
}
