//! Starts requests that are due, as far as there are slots for them.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{LoopState, MAX_STARTS_PER_PASS, SlotFuture};
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::generator::concurrency_limit::{Slot, Slots};

impl LoopState {
    /// Sends up to [`MAX_STARTS_PER_PASS`] requests that are due and have a slot. Returns whether more are due, and when
    /// the next one is due if it only waits for its time.
    pub(super) fn send_due(&mut self) -> (bool, Option<MonotonicTime>) {
        for _ in 0..MAX_STARTS_PER_PASS {
            if let Some((pending, slot)) = self.next_rounds.pop_front() {
                let ready = self.zero.plus(pending.due);
                self.start_request(pending, slot, ready);
                continue;
            }
            // What has begun goes on before something else begins.
            let follow_up = self.follow_ups.next_due().map(|due| self.zero.plus(due));
            if let Some(due) = follow_up.filter(|due| *due <= clock::now()) {
                let Some((slot, ready)) = self.take_slot(due) else {
                    return (false, None);
                };
                if let Some(pending) = self.follow_ups.pop() {
                    self.start_follow_up(pending, slot, ready);
                }
                continue;
            }
            let Some(pending) = self.pending_requests.front() else {
                return (false, follow_up);
            };
            let due = self.zero.plus(pending.due);
            if clock::now() < due {
                return (false, Some(follow_up.map_or(due, |other| due.min(other))));
            }
            if pending.begins_session() {
                if !self.begin_session(due) {
                    return (false, follow_up);
                }
                continue;
            }
            let Some((slot, ready)) = self.take_slot(due) else {
                return (false, None);
            };
            if let Some(pending) = self.pending_requests.pop_front() {
                self.start_request(pending, slot, ready);
            }
        }
        (true, None)
    }

    /// Takes a slot if one is needed, with the moment from which a delay is the client's error; `None` if it
    /// must wait.
    fn take_slot(&mut self, due: MonotonicTime) -> Option<(Option<Slot>, MonotonicTime)> {
        let slots = self.event_loop.shared.slots.as_ref();
        take_from(slots, &mut self.slot_wait, &self.waker, due)
    }
}

/// Takes a slot if there is a limit, with the moment from which a delay is the client's error; `None` if it must
/// wait.
pub(super) fn take_from(
    slots: Option<&Arc<Slots>>,
    wait: &mut Option<SlotFuture>,
    waker: &Waker,
    due: MonotonicTime,
) -> Option<(Option<Slot>, MonotonicTime)> {
    let Some(slots) = slots else {
        return Some((None, due));
    };
    if wait.is_none() {
        if let Some(slot) = slots.try_take() {
            let ready = slot.ready_at(due);
            return Some((Some(slot), ready));
        }
        *wait = Some(Box::pin(Arc::clone(slots).take()));
    }
    let mut context = Context::from_waker(waker);
    match wait.as_mut()?.as_mut().poll(&mut context) {
        Poll::Pending => None,
        Poll::Ready(slot) => {
            *wait = None;
            let ready = slot.ready_at(due);
            Some((Some(slot), ready))
        }
    }
}
