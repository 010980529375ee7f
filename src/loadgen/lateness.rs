//! Bounds the error of arrival times, and counts pauses of the client.
//!
//! A read that returns several events has one time of arrival, that of the last event. The others arrived
//! between the previous look at the socket and that time. If the time is the client's and not the kernel's,
//! this holds for all of them.

use std::time::Duration;

use crate::loadgen::arrival::TimestampSource;
use crate::results::record::client::MAX_EVENTS_PER_S;

/// If a client did nothing for this long, it was stopped or had no processor.
pub(super) const MIN_PAUSE: Duration = Duration::from_millis(300);
/// Maximum time between two passes of a waiting client, so that pauses can be detected.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(50);
/// Number of histogram classes per doubling of an error.
const CLASSES: u32 = 8;
/// Rates are counted over spans of this length.
const SPAN: Duration = Duration::from_millis(250);

#[derive(Clone, Debug, Default)]
pub(super) struct LatenessCounter {
    exact: u64,
    /// The other events, by the logarithm of their maximum error.
    classes: Vec<u64>,
    max: Duration,
    /// Events in each span since the start.
    spans: Vec<u64>,
    pauses: u32,
    longest_pause: Duration,
}

/// Errors of the arrival times of a load that are due to late looks, and pauses of the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Maximum error of 90 % of the events.
    pub p90: Duration,
    /// Maximum error of 99 % of the events.
    pub p99: Duration,
    pub(crate) max: Duration,
    /// A tenth of the events arrived at this rate or a higher one, counted over quarters of a second.
    pub events_per_s: u64,
    /// How often the client did nothing for 0.3 s or longer.
    pub pauses: u32,
    pub longest_pause: Duration,
}

impl LatenessCounter {
    /// Adds the events of one read, whose times are off by up to `error`. With a kernel timestamp the last
    /// event is exact.
    pub(super) fn add_read(&mut self, events: u64, timestamp_source: TimestampSource, error: Duration) {
        let doubtful = match timestamp_source {
            TimestampSource::Kernel => events.saturating_sub(1),
            TimestampSource::User => events,
        };
        self.exact += events - doubtful;
        if doubtful == 0 {
            return;
        }
        let class = class_index(error);
        if self.classes.len() <= class {
            self.classes.resize(class + 1, 0);
        }
        self.classes[class] += doubtful;
        self.max = self.max.max(error);
    }

    /// Counts events that were read at a time since the start.
    pub(super) fn count_events(&mut self, events: u64, at: Duration) {
        if events == 0 {
            return;
        }
        let span = span_index(at);
        if self.spans.len() <= span {
            self.spans.resize(span + 1, 0);
        }
        self.spans[span] += events;
    }

    /// Returns true if the current or the previous span has more events than one client can timestamp
    /// separately.
    pub(super) fn is_flooded(&self, at: Duration) -> bool {
        let most = u128::from(MAX_EVENTS_PER_S) * SPAN.as_millis() / 1000;
        let is_beyond = |span: usize| {
            self.spans
                .get(span)
                .is_some_and(|events| u128::from(*events) > most)
        };
        let span = span_index(at);
        is_beyond(span) || span.checked_sub(1).is_some_and(is_beyond)
    }

    /// Records a time without activity as a pause, if it is long enough.
    pub(super) fn add_pause(&mut self, span: Duration) {
        if span >= MIN_PAUSE {
            self.pauses += 1;
            self.longest_pause = self.longest_pause.max(span);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.exact += other.exact;
        for (ours, theirs) in [
            (&mut self.classes, &other.classes),
            (&mut self.spans, &other.spans),
        ] {
            ours.resize(ours.len().max(theirs.len()), 0);
            ours.iter_mut()
                .zip(theirs)
                .for_each(|(ours, theirs)| *ours += theirs);
        }
        self.max = self.max.max(other.max);
        // If the whole process pauses, every thread sees the same pause.
        self.pauses = self.pauses.max(other.pauses);
        self.longest_pause = self.longest_pause.max(other.longest_pause);
    }

    pub(super) fn lateness(&self) -> Lateness {
        Lateness {
            p90: self.quantile(10),
            p99: self.quantile(100),
            max: self.max,
            events_per_s: self.rate(),
            pauses: self.pauses,
            longest_pause: self.longest_pause,
        }
    }

    /// Returns the maximum error of all events but one in `one_of`.
    fn quantile(&self, one_of: u64) -> Duration {
        let total = self.exact + self.classes.iter().sum::<u64>();
        let mut beyond = 0;
        for (class, count) in self.classes.iter().enumerate().rev() {
            beyond += count;
            if beyond > total / one_of {
                return class_upper_bound(class).min(self.max);
            }
        }
        Duration::ZERO
    }

    /// Returns the rate that a tenth of the events reached or exceeded.
    fn rate(&self) -> u64 {
        let mut spans = self.spans.clone();
        spans.sort_unstable_by(|one, other| other.cmp(one));
        let tenth = spans.iter().sum::<u64>() / 10;
        let mut events = 0;
        let span = spans.into_iter().find(|span| {
            events += span;
            events > tenth
        });
        span.unwrap_or(0) * 1000 / SPAN.as_millis() as u64
    }
}

/// Returns the index of the span that contains a time since the start.
fn span_index(at: Duration) -> usize {
    usize::try_from(at.as_millis() / SPAN.as_millis()).unwrap_or(usize::MAX)
}

fn class_index(error: Duration) -> usize {
    let nanos = u64::try_from(error.as_nanos()).unwrap_or(u64::MAX).max(1);
    let doublings = nanos.ilog2();
    let within = ((u128::from(nanos) * u128::from(CLASSES)) >> doublings) as usize - CLASSES as usize;
    doublings as usize * CLASSES as usize + within
}

/// Returns the upper end of a class.
fn class_upper_bound(class: usize) -> Duration {
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
        let mut counter = LatenessCounter::default();
        (0..98).for_each(|_| counter.add_read(1, TimestampSource::Kernel, micros(500)));
        assert_eq!(counter.lateness(), Lateness::default());
        counter.add_read(3, TimestampSource::Kernel, micros(500));
        let lateness = counter.lateness();
        assert_eq!((lateness.p90, lateness.max), (Duration::ZERO, micros(500)));
        assert_eq!(lateness.p99, micros(500));
    }

    #[test]
    fn where_the_moments_are_ours_every_event_may_be_off() {
        let mut counter = LatenessCounter::default();
        counter.add_read(1, TimestampSource::User, micros(300));
        assert_eq!(counter.lateness().p90, micros(300));
    }

    #[test]
    fn a_quantile_is_right_within_an_eighth_and_never_too_small() {
        let mut counter = LatenessCounter::default();
        (1..=1000).for_each(|micro| counter.add_read(2, TimestampSource::Kernel, micros(micro)));
        let (p90, p99) = (counter.lateness().p90, counter.lateness().p99);
        assert!(p90 >= micros(800) && p90 <= micros(900), "{p90:?}");
        assert!(p99 >= micros(980) && p99 <= micros(1000), "{p99:?}");
        for nanos in [1, 7, 8, 9, 1000, 123_456_789] {
            let error = Duration::from_nanos(nanos);
            assert!(
                class_upper_bound(class_index(error)) >= error
                    && class_upper_bound(class_index(error)) <= error * 5 / 4 + micros(1)
            );
        }
    }

    #[test]
    fn a_flood_lasts_to_the_end_of_the_next_span() {
        let mut counter = LatenessCounter::default();
        let at = Duration::from_millis;
        counter.count_events(37_500, at(100));
        assert!(!counter.is_flooded(at(200)), "150,000 in a second are none");
        counter.count_events(1, at(200));
        assert!(counter.is_flooded(at(249)) && counter.is_flooded(at(499)));
        assert!(!counter.is_flooded(at(500)));
    }

    #[test]
    fn the_rate_is_that_of_the_busiest_tenth_of_the_events() {
        let rate = |spans: &[u64]| {
            let mut counter = LatenessCounter::default();
            for (place, events) in spans.iter().enumerate() {
                counter.count_events(*events, SPAN * place as u32 + micros(7));
            }
            counter.lateness().events_per_s
        };
        assert_eq!(rate(&[]), 0);
        assert_eq!(rate(&[0, 50_000]), 200_000, "a load may be shorter than a second");
        // The wait for the first token and a long tail do not lower the rate, and a short burst does not
        // raise it.
        assert_eq!(rate(&[0, 0, 0, 0, 50_000, 100, 100, 100]), 200_000);
        assert_eq!(rate(&[20_000; 40]), 80_000);
        assert_eq!(rate(&[&[50_000], &[20_000; 40][..]].concat()), 80_000);
    }

    #[test]
    fn threads_add_up_and_a_pause_of_the_process_counts_once() {
        let mut one = LatenessCounter::default();
        one.add_read(3, TimestampSource::Kernel, micros(10));
        one.count_events(3, SPAN * 2);
        one.add_pause(Duration::from_millis(400));
        one.add_pause(Duration::from_millis(200));
        let mut both = one.clone();
        both.merge(&one);
        let lateness = both.lateness();
        assert_eq!(
            (lateness.pauses, lateness.longest_pause),
            (1, Duration::from_millis(400))
        );
        assert_eq!(lateness.p90, micros(10));
        assert_eq!((both.exact, lateness.events_per_s), (2, 24));
    }
}
