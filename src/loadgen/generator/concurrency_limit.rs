//! The cap on requests under way. It knows since when each free slot has been free, because from then on a delay is our fault.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::clock::{self, Moment};

/// Slots for requests under way.
#[derive(Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    /// Since when each free slot is free, in order: the slot that has been free the longest is taken first.
    since: Mutex<VecDeque<Moment>>,
}

impl Slots {
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(count)),
            since: Mutex::new(vec![Moment::default(); count].into()),
        })
    }

    /// A slot, if one is free.
    pub(super) fn try_take(self: &Arc<Self>) -> Option<Slot> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(self.slot(permit))
    }

    /// A slot, as soon as one is free.
    pub(super) async fn take(self: Arc<Self>) -> Slot {
        let permit = Arc::clone(&self.free).acquire_owned().await;
        self.slot(permit.expect("it is never closed"))
    }

    fn slot(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Slot {
        Slot {
            slots: Arc::clone(self),
            freed: self.since().pop_front().unwrap_or_default(),
            _permit: permit,
        }
    }

    fn since(&self) -> MutexGuard<'_, VecDeque<Moment>> {
        self.since.lock().expect("nobody panics with it")
    }
}

/// A slot that is taken until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    /// When it was given back before it was taken.
    freed: Moment,
    _permit: OwnedSemaphorePermit,
}

impl Slot {
    /// Since when what was due then could have been sent: since it was due, or since this slot fell free after that.
    pub(super) fn ready(&self, due: Moment) -> Moment {
        due.max(self.freed)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The permit goes back after this: whoever gets it finds the moment.
        self.slots.since().push_back(clock::now());
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_delay_counts_from_the_moment_its_slot_fell_free() {
        let slots = Slots::new(2);
        let due = clock::now();
        let (first, second) = (slots.try_take().unwrap(), slots.try_take().unwrap());
        assert_eq!(second.ready(due), due, "there was one when it fell due");
        assert!(slots.try_take().is_none());
        let before = clock::now();
        drop(first);
        let between = clock::now();
        drop(second);
        let (first, second) = (slots.try_take().unwrap(), slots.try_take().unwrap());
        // Both were given back before either was taken: the first taker has waited longer.
        assert!(first.ready(due) >= before && first.ready(due) <= between);
        assert!(second.ready(due) >= between && second.ready(due) <= clock::now());
        let later = clock::now();
        assert_eq!(first.ready(later), later);
    }

    #[tokio::test]
    async fn a_slot_that_was_waited_for_bears_the_moment_it_was_given_back() {
        let slots = Slots::new(1);
        let (due, slot) = (clock::now(), slots.try_take().unwrap());
        let waiting = Arc::clone(&slots).take();
        tokio::pin!(waiting);
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        let before = clock::now();
        drop(slot);
        let after = clock::now();
        let ready = waiting.await.ready(due);
        assert!(ready >= before && ready <= after);
    }
}
