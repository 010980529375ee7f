//! How far moments of arrival may be off, and pauses of the client. A read that brings several events has one moment, that of the last:
//! the others came after the look before, at the earliest. So did all of them where the moment is ours and not the kernel's.

use std::time::Duration;

use crate::load::client::Stamp;

/// A client that did nothing for so long was stopped, or had no processor.
pub(super) const PAUSE: Duration = Duration::from_millis(300);
/// How often a client that waits shows that it runs.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(50);
/// Each doubling of an error has so many classes.
const CLASSES: u32 = 8;

/// How far the moments of one thread may be off.
#[derive(Clone, Debug, Default)]
pub(super) struct Late {
    /// Events whose moment is exact.
    exact: u64,
    /// The other events, by the logarithm of how far they may be off.
    classes: Vec<u64>,
    max: Duration,
    pauses: u32,
    longest_pause: Duration,
}

/// How far the moments of arrival of a load may be off, because looks came late; and pauses of the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Nine of ten events may be off by so much at most.
    pub p90: Duration,
    /// 99 of 100 events may be off by so much at most.
    pub p99: Duration,
    /// The most.
    pub max: Duration,
    /// How often the client did nothing for 0.3 s or longer.
    pub pauses: u32,
    /// The longest of these pauses.
    pub longest_pause: Duration,
}

impl Late {
    /// Takes in so many events of one read, which may be off by so much: the last is not, where the kernel took the moment.
    pub(super) fn take(&mut self, events: u64, stamp: Stamp, off: Duration) {
        let doubtful = match stamp {
            Stamp::Kernel => events.saturating_sub(1),
            Stamp::User => events,
        };
        self.exact += events - doubtful;
        if doubtful == 0 {
            return;
        }
        let class = class(off);
        if self.classes.len() <= class {
            self.classes.resize(class + 1, 0);
        }
        self.classes[class] += doubtful;
        self.max = self.max.max(off);
    }

    /// Takes in a time during which the client did nothing, if it is one.
    pub(super) fn rest(&mut self, span: Duration) {
        if span >= PAUSE {
            self.pauses += 1;
            self.longest_pause = self.longest_pause.max(span);
        }
    }

    /// Adds another thread.
    pub(super) fn add(&mut self, other: &Self) {
        self.exact += other.exact;
        let length = self.classes.len().max(other.classes.len());
        self.classes.resize(length, 0);
        for (ours, theirs) in self.classes.iter_mut().zip(&other.classes) {
            *ours += theirs;
        }
        self.max = self.max.max(other.max);
        // A pause of the process is one of each thread.
        self.pauses = self.pauses.max(other.pauses);
        self.longest_pause = self.longest_pause.max(other.longest_pause);
    }

    pub(super) fn lateness(&self) -> Lateness {
        Lateness {
            p90: self.quantile(10),
            p99: self.quantile(100),
            max: self.max,
            pauses: self.pauses,
            longest_pause: self.longest_pause,
        }
    }

    /// What all but one of so many events are off by at most.
    fn quantile(&self, one_of: u64) -> Duration {
        let all = self.exact + self.classes.iter().sum::<u64>();
        let mut beyond = 0;
        for (class, count) in self.classes.iter().enumerate().rev() {
            beyond += count;
            if beyond > all / one_of {
                return upper(class).min(self.max);
            }
        }
        Duration::ZERO
    }
}

fn class(off: Duration) -> usize {
    let nanos = u64::try_from(off.as_nanos()).unwrap_or(u64::MAX).max(1);
    let doublings = nanos.ilog2();
    let within = ((u128::from(nanos) * u128::from(CLASSES)) >> doublings) as usize - CLASSES as usize;
    doublings as usize * CLASSES as usize + within
}

/// The end of a class.
fn upper(class: usize) -> Duration {
    let (doublings, within) = (class / CLASSES as usize, class % CLASSES as usize);
    let nanos = (1_u128 << doublings) * (CLASSES as u128 + within as u128 + 1) / CLASSES as u128;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn single_events_are_exact_and_the_last_of_several_is() {
        let mut late = Late::default();
        (0..98).for_each(|_| late.take(1, Stamp::Kernel, micros(500)));
        assert_eq!(late.lateness(), Lateness::default());
        late.take(3, Stamp::Kernel, micros(500));
        let lateness = late.lateness();
        assert_eq!((lateness.p90, lateness.max), (Duration::ZERO, micros(500)));
        assert_eq!(lateness.p99, micros(500));
    }

    #[test]
    fn where_the_moments_are_ours_every_event_may_be_off() {
        let mut late = Late::default();
        late.take(1, Stamp::User, micros(300));
        assert_eq!(late.lateness().p90, micros(300));
    }

    #[test]
    fn a_quantile_is_right_within_an_eighth_and_never_too_small() {
        let mut late = Late::default();
        (1..=1000).for_each(|micro| late.take(2, Stamp::Kernel, micros(micro)));
        let (p90, p99) = (late.lateness().p90, late.lateness().p99);
        assert!(p90 >= micros(800) && p90 <= micros(900), "{p90:?}");
        assert!(p99 >= micros(980) && p99 <= micros(1000), "{p99:?}");
        for nanos in [1, 7, 8, 9, 1000, 123_456_789] {
            let off = Duration::from_nanos(nanos);
            assert!(upper(class(off)) >= off && upper(class(off)) <= off * 5 / 4 + micros(1));
        }
    }

    #[test]
    fn threads_add_up_and_a_pause_of_the_process_counts_once() {
        let mut one = Late::default();
        one.take(3, Stamp::Kernel, micros(10));
        one.rest(Duration::from_millis(400));
        one.rest(Duration::from_millis(200));
        let mut both = one.clone();
        both.add(&one);
        let lateness = both.lateness();
        assert_eq!(
            (lateness.pauses, lateness.longest_pause),
            (1, Duration::from_millis(400))
        );
        assert_eq!(lateness.p90, micros(10));
        assert_eq!(both.exact, 2);
    }
}
