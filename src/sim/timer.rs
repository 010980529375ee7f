//! Precise timer. Tokio's timers round to milliseconds, which is too coarse for a calibration. One thread
//! sleeps until the next due time and wakes the waiting task.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::base::clock::{self, MonotonicTime};

/// The timer's queue and thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct PreciseTimer {
    queue: Arc<TimerQueue>,
    thread: Option<JoinHandle<()>>,
}

/// The mutex is held only for pushes and pops; the thread sleeps on the condition variable.
#[derive(Debug, Default)]
struct TimerQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    due: BinaryHeap<Reverse<PendingWait>>,
    next_number: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct PendingWait {
    due: MonotonicTime,
    /// Orders with the same time are served in order of arrival.
    number: u64,
    wake: oneshot::Sender<()>,
}

impl PartialEq for PendingWait {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for PendingWait {}

impl PartialOrd for PendingWait {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PendingWait {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl PreciseTimer {
    pub(crate) fn start() -> std::io::Result<Self> {
        let queue = Arc::new(TimerQueue::default());
        let worker = Arc::clone(&queue);
        let thread = std::thread::Builder::new()
            .name("metronome".to_owned())
            .spawn(move || worker.serve())?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    /// Waits until `at`; returns at once if it has passed.
    pub(crate) async fn sleep_until(&self, at: MonotonicTime) {
        if clock::now() >= at {
            return;
        }
        let (wake, rung) = oneshot::channel();
        {
            let mut state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
            let number = state.next_number;
            state.next_number += 1;
            let is_next = state.due.peek().is_none_or(|Reverse(next)| at < next.due);
            state.due.push(Reverse(PendingWait {
                due: at,
                number,
                wake,
            }));
            if is_next {
                self.queue.changed.notify_one();
            }
        }
        // The sender is dropped without a signal only when the thread ends.
        let _ = rung.await;
    }
}

impl TimerQueue {
    fn serve(&self) {
        // By default the kernel may delay timers by 50 µs to save wake-ups. If this call fails, that delay
        // remains.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.is_closed {
            let now = clock::now();
            while state.due.peek().is_some_and(|Reverse(next)| next.due <= now) {
                if let Some(Reverse(pending)) = state.due.pop() {
                    // The receiver may have been dropped.
                    let _ = pending.wake.send(());
                }
            }
            state = match state.due.peek() {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Reverse(next)) => {
                    let wait = next.due.since(clock::now());
                    self.changed
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }
}

impl Drop for PreciseTimer {
    fn drop(&mut self) {
        self.queue
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_closed = true;
        self.queue.changed.notify_one();
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
        let timer = PreciseTimer::start().unwrap();
        let start = clock::now();
        let wait = async |millis| {
            let at = start.plus(Duration::from_millis(millis));
            timer.sleep_until(at).await;
            assert!(clock::now() >= at);
            clock::now()
        };
        let (late, early, past) = tokio::join!(wait(20), wait(10), wait(0));
        assert!(past < early && early < late);
    }
}
