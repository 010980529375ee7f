//! Precise timer. Tokio's timers round to milliseconds, which is too coarse for a calibration. One thread
//! sleeps until the next due time and wakes the waiting task.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::base::clock::{self, Moment};

/// The timer's queue and thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Metronome {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// The mutex is held only for pushes and pops; the thread sleeps on the condition variable.
#[derive(Debug, Default)]
struct Desk {
    orders: Mutex<Orders>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    due: BinaryHeap<Reverse<Order>>,
    taken: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Order {
    at: Moment,
    /// Orders with the same time are served in order of arrival.
    number: u64,
    bell: oneshot::Sender<()>,
}

impl PartialEq for Order {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Order {}

impl PartialOrd for Order {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Order {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Metronome {
    pub(crate) fn start() -> std::io::Result<Self> {
        let desk = Arc::new(Desk::default());
        let worker = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("metronome".to_owned())
            .spawn(move || worker.serve())?;
        Ok(Self {
            desk,
            thread: Some(thread),
        })
    }

    /// Waits until `at`; returns at once if it has passed.
    pub(crate) async fn until(&self, at: Moment) {
        if clock::now() >= at {
            return;
        }
        let (bell, rung) = oneshot::channel();
        {
            let mut orders = self.desk.orders.lock().unwrap_or_else(PoisonError::into_inner);
            let number = orders.taken;
            orders.taken += 1;
            let is_next = orders.due.peek().is_none_or(|Reverse(next)| at < next.at);
            orders.due.push(Reverse(Order { at, number, bell }));
            if is_next {
                self.desk.changed.notify_one();
            }
        }
        // The sender is dropped without a signal only when the thread ends.
        let _ = rung.await;
    }
}

impl Desk {
    fn serve(&self) {
        // By default the kernel may delay timers by 50 µs to save wake-ups. If this call fails, that delay
        // remains.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        while !orders.is_closed {
            let now = clock::now();
            while orders.due.peek().is_some_and(|Reverse(next)| next.at <= now) {
                if let Some(Reverse(order)) = orders.due.pop() {
                    // The receiver may have been dropped.
                    let _ = order.bell.send(());
                }
            }
            orders = match orders.due.peek() {
                None => self.changed.wait(orders).unwrap_or_else(PoisonError::into_inner),
                Some(Reverse(next)) => {
                    let wait = next.at.since(clock::now());
                    self.changed
                        .wait_timeout(orders, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }
}

impl Drop for Metronome {
    fn drop(&mut self) {
        self.desk
            .orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_closed = true;
        self.desk.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already; do not panic again.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn waits_end_in_the_order_of_their_moments_and_never_early() {
        let metronome = Metronome::start().unwrap();
        let start = clock::now();
        let wait = async |millis| {
            let at = start.plus(Duration::from_millis(millis));
            metronome.until(at).await;
            assert!(clock::now() >= at);
            clock::now()
        };
        let (late, early, past) = tokio::join!(wait(20), wait(10), wait(0));
        assert!(past < early && early < late);
    }
}
