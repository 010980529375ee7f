//! When a thread that slept was woken. Nothing had arrived before that, so that what it then reads together came later.
//!
//! Between being woken and running on, a thread waits for a processor and uses one; the kernel counts both. What is left of the time is
//! sleep.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::base::clock::{self, Moment};

/// A processor that sleeps itself takes so long to take a thread up, which the kernel does not count.
const WAKE_UP: Duration = Duration::from_micros(100);
/// Timers are late by less. A thread that was away for longer was stopped.
const TIMER: Duration = Duration::from_millis(1);

/// The sleeps of one thread.
pub(super) struct Wakes {
    /// The kernel's account of the thread; `None` where there is none.
    account: Option<File>,
    /// What the thread had spent when it was asked last.
    spent: Duration,
}

impl Wakes {
    /// Of the calling thread.
    pub(super) fn new() -> Self {
        let mut wakes = Self {
            account: File::open("/proc/thread-self/schedstat").ok(),
            spent: Duration::ZERO,
        };
        wakes.spent = wakes.spent().unwrap_or_default();
        wakes
    }

    /// When a thread was woken at the earliest that went to sleep at `slept`, for `wait` at most, and ran on before `now`. `None` where the
    /// kernel does not tell, or something else than sleep kept the thread.
    pub(super) fn woken(&mut self, slept: Moment, wait: Duration, now: Moment) -> Option<Moment> {
        let spent = self.spent()?;
        let busy = spent.saturating_sub(std::mem::replace(&mut self.spent, spent)) + WAKE_UP;
        let is_sleep = now.since(slept) <= wait + busy + TIMER;
        is_sleep.then(|| now.before(busy).max(slept))
    }

    /// Time that the thread has used a processor, or waited for one.
    fn spent(&self) -> Option<Duration> {
        let mut text = [0; 64];
        let length = self.account.as_ref()?.read_at(&mut text, 0).ok()?;
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
        let mut wakes = Wakes::new();
        let slept = clock::now();
        std::thread::sleep(SPAN);
        let now = clock::now();
        let Some(woken) = wakes.woken(slept, SPAN, now) else {
            return assert!(wakes.account.is_none() || now.since(slept) > SPAN + TIMER);
        };
        assert!(woken >= slept && woken.plus(WAKE_UP) <= now);
        // Not told apart from work: then nothing is known but when it began.
        let began = clock::now();
        while clock::now().since(began) < SPAN {
            std::hint::spin_loop();
        }
        // What a hypervisor took of that time is in no account of the kernel's.
        let woken = wakes.woken(began, SPAN, clock::now());
        assert!(
            woken.is_none_or(|woken| woken.since(began) < SPAN / 4),
            "{woken:?}"
        );
    }

    #[test]
    fn a_thread_that_was_away_for_longer_than_it_slept_tells_nothing() {
        let mut wakes = Wakes::new();
        let slept = clock::now();
        std::thread::sleep(5 * SPAN);
        assert_eq!(wakes.woken(slept, SPAN, clock::now()), None);
    }
}
