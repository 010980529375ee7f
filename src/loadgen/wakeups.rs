//! When a thread that slept was woken. Nothing had arrived before that, so that what it then reads together came later.
//!
//! Between being woken and running on, a thread waits for a processor and uses one; the kernel counts both. What is left of the time is
//! sleep.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::clock::{self, Moment};
use crate::loadgen::lateness::HEARTBEAT;

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

thread_local! {
    static WOKEN: Cell<Moment> = const { Cell::new(Moment::from_nanos(0)) };
}

/// When a runtime's only thread was woken last; its first moment before that.
pub(super) fn woken() -> Moment {
    WOKEN.get()
}

/// Has the runtime of the calling thread note when it is woken. Its timers wake it after [`HEARTBEAT`] at the latest.
pub(super) fn note_wakes(runtime: &mut tokio::runtime::Builder) {
    let state = Arc::new(Mutex::new((Wakes::new(), clock::now())));
    let parked = Arc::clone(&state);
    runtime.on_thread_park(move || {
        if let Ok(mut state) = parked.lock() {
            state.1 = clock::now();
        }
    });
    runtime.on_thread_unpark(move || {
        if let Ok(mut state) = state.lock() {
            let slept = state.1;
            let woken = state.0.woken(slept, HEARTBEAT, clock::now());
            WOKEN.set(woken.unwrap_or(slept));
        }
    });
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
    fn a_runtime_notes_when_it_was_woken() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all();
        note_wakes(&mut runtime);
        let before = clock::now();
        runtime.build().unwrap().block_on(async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(woken() >= before && woken() <= clock::now());
        });
    }

    #[test]
    fn a_thread_that_was_away_for_longer_than_it_slept_tells_nothing() {
        let mut wakes = Wakes::new();
        let slept = clock::now();
        std::thread::sleep(5 * SPAN);
        assert_eq!(wakes.woken(slept, SPAN, clock::now()), None);
    }
}
