//! Estimates when a sleeping thread was woken. Nothing had arrived before, so what it reads then arrived
//! later.
//!
//! Between waking up and continuing, a thread waits for a processor and uses it. The kernel counts both
//! times; the rest is sleep.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::base::clock::{self, MonotonicTime};

/// Assumed maximum time that an idle processor needs to resume a thread. The kernel counts it as sleep.
const MAX_IDLE_EXIT_LATENCY: Duration = Duration::from_micros(100);
/// Timers are late by less than this. A thread that was away for longer was stopped.
const MAX_TIMER_LATENCY: Duration = Duration::from_millis(1);

/// Tracks the sleeps of one thread.
pub(super) struct WakeTracker {
    /// The kernel's scheduler statistics of the thread; `None` if the kernel has none.
    schedstat: Option<File>,
    /// Processor and waiting time of the thread at the last query.
    last_spent: Duration,
}

impl WakeTracker {
    pub(super) fn new() -> Self {
        let mut wakes = Self {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
            last_spent: Duration::ZERO,
        };
        wakes.last_spent = wakes.cpu_and_wait_time().unwrap_or_default();
        wakes
    }

    /// Returns the earliest moment at which the thread was woken. It went to sleep at `slept`, for `wait` at
    /// most, and continued before `now`. Returns `None` if the kernel has no statistics, or if the thread did
    /// more than sleep.
    pub(super) fn earliest_wake(
        &mut self,
        slept: MonotonicTime,
        wait: Duration,
        now: MonotonicTime,
    ) -> Option<MonotonicTime> {
        let spent = self.cpu_and_wait_time()?;
        let busy =
            spent.saturating_sub(std::mem::replace(&mut self.last_spent, spent)) + MAX_IDLE_EXIT_LATENCY;
        let is_sleep = now.since(slept) <= wait + busy + MAX_TIMER_LATENCY;
        is_sleep.then(|| now.minus(busy).max(slept))
    }

    /// Returns the time that the thread has used a processor or waited for one.
    fn cpu_and_wait_time(&self) -> Option<Duration> {
        let mut text = [0; 64];
        let length = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..length)?).ok()?;
        let waited = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(clock::thread_cpu() + Duration::from_nanos(waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(20);

    #[test]
    fn a_thread_that_slept_was_woken_late_in_that_time_and_one_that_worked_was_not() {
        let mut wakes = WakeTracker::new();
        let slept = clock::now();
        std::thread::sleep(SPAN);
        let now = clock::now();
        let Some(woken) = wakes.earliest_wake(slept, SPAN, now) else {
            return assert!(wakes.schedstat.is_none() || now.since(slept) > SPAN + MAX_TIMER_LATENCY);
        };
        assert!(woken >= slept && woken.plus(MAX_IDLE_EXIT_LATENCY) <= now);
        // Work cannot be told apart from sleep here, so only the start is known.
        let began = clock::now();
        while clock::now().since(began) < SPAN {
            std::hint::spin_loop();
        }
        // The kernel does not count time that the hypervisor took.
        let woken = wakes.earliest_wake(began, SPAN, clock::now());
        assert!(
            woken.is_none_or(|woken| woken.since(began) < SPAN / 4),
            "{woken:?}"
        );
    }

    #[test]
    fn a_thread_that_was_away_for_longer_than_it_slept_tells_nothing() {
        let mut wakes = WakeTracker::new();
        let slept = clock::now();
        std::thread::sleep(5 * SPAN);
        assert_eq!(wakes.earliest_wake(slept, SPAN, clock::now()), None);
    }
}
