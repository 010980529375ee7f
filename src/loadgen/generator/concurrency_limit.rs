//! Limits the number of requests under way. It records when each slot became free, because a delay after that
//! is the client's error.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::clock::{self, MonotonicTime};

#[derive(Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    /// When each free slot became free, in order. The slot that has been free the longest is taken first.
    free_since: Mutex<VecDeque<MonotonicTime>>,
}

impl Slots {
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(count)),
            free_since: Mutex::new(vec![MonotonicTime::default(); count].into()),
        })
    }

    pub(super) fn try_take(self: &Arc<Self>) -> Option<Slot> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(self.slot(permit))
    }

    /// Waits for a free slot and takes it.
    pub(super) async fn take(self: Arc<Self>) -> Slot {
        let permit = Arc::clone(&self.free).acquire_owned().await;
        self.slot(permit.expect("it is never closed"))
    }

    fn slot(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Slot {
        Slot {
            slots: Arc::clone(self),
            free_since: self.lock_free_since().pop_front().unwrap_or_default(),
            _permit: permit,
        }
    }

    fn lock_free_since(&self) -> MutexGuard<'_, VecDeque<MonotonicTime>> {
        self.free_since.lock().expect("no holder panics")
    }
}

/// A slot that is taken until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    /// When the slot was last given back before it was taken.
    free_since: MonotonicTime,
    _permit: OwnedSemaphorePermit,
}

impl Slot {
    /// Returns the earliest moment at which a request could have been sent: its due time, or when the slot
    /// became free if that was later.
    pub(super) fn ready_at(&self, due: MonotonicTime) -> MonotonicTime {
        due.max(self.free_since)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The permit is released after this, so its next owner finds the moment.
        self.slots.lock_free_since().push_back(clock::now());
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
        assert_eq!(second.ready_at(due), due, "there was one when it fell due");
        assert!(slots.try_take().is_none());
        let before = clock::now();
        drop(first);
        let between = clock::now();
        drop(second);
        let (first, second) = (slots.try_take().unwrap(), slots.try_take().unwrap());
        // Both were given back before either was taken, so the first to be taken has been free for longer.
        assert!(first.ready_at(due) >= before && first.ready_at(due) <= between);
        assert!(second.ready_at(due) >= between && second.ready_at(due) <= clock::now());
        let later = clock::now();
        assert_eq!(first.ready_at(later), later);
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
        let ready = waiting.await.ready_at(due);
        assert!(ready >= before && ready <= after);
    }
}
