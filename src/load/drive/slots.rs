//! The cap on requests under way. It knows since when there has been a slot to be had, because from then on a delay is our fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::clock::{self, Moment};

/// Slots for requests under way.
#[derive(Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    /// When a slot last fell free while none was.
    freed_ns: AtomicU64,
}

impl Slots {
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(count)),
            freed_ns: AtomicU64::new(0),
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

    /// Since when what was due then could have been sent: since it was due, or since a slot fell free after that.
    pub(super) fn ready(&self, due: Moment) -> Moment {
        due.max(Moment::from_nanos(self.freed_ns.load(Ordering::Relaxed)))
    }

    fn slot(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Slot {
        Slot {
            slots: Arc::clone(self),
            _permit: permit,
        }
    }
}

/// A slot that is taken until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.slots.free.available_permits() == 0 {
            self.slots
                .freed_ns
                .store(clock::now().as_nanos(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_counts_from_the_moment_a_slot_fell_free() {
        let slots = Slots::new(2);
        let due = clock::now();
        let (first, second) = (slots.try_take().unwrap(), slots.try_take().unwrap());
        assert_eq!(slots.ready(due), due, "there was one when it fell due");
        assert!(slots.try_take().is_none());
        let before = clock::now();
        drop(first);
        let freed = slots.ready(due);
        assert!(freed >= before && freed <= clock::now());
        drop(second);
        assert_eq!(slots.ready(due), freed, "one was free already");
        let later = clock::now();
        assert_eq!(slots.ready(later), later);
    }
}
