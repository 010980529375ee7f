//! Decides how long the loop may pause between two looks at its sockets.
//!
//! For several unread segments the kernel keeps only the last timestamp, so a look must come before the next
//! event of any stream. In a flood single events cannot be timed anyway (the measurement is marked
//! accordingly), and frequent looks would only take processor time from the sender.

use std::time::Duration;

use crate::base::clock::MonotonicTime;

const MAX_PAUSE: Duration = Duration::from_millis(1);
/// A pause is at most this long per stream under way, so that a few streams are looked at without pauses.
const PER_STREAM: Duration = Duration::from_micros(16);
/// If a request waits for a slot, a pause is at most this fraction of an answer's duration, because a slot
/// that becomes free is noticed only by a look.
const PER_ANSWER: u32 = 1000;
/// A pause is at most this fraction of the 10th percentile of the gaps between events.
const PER_GAP: u32 = 4;
/// In a flood with gaps below this, a pause spans several gaps. If the client reads each event separately,
/// the server's kernel also sends each separately, which takes the server twice the time.
const FLOOD_GAP: Duration = Duration::from_millis(2);
const GAPS_IN_FLOOD: u32 = 8;
/// A shorter pause is not worth its timer.
const MIN_PAUSE: Duration = Duration::from_micros(50);
/// While streams are under way, the loop looks at least this often, even if nothing arrives.
const MAX_WAIT: Duration = Duration::from_millis(20);
/// Number of gaps that are remembered; `REFRESH_AFTER` is the number of new gaps after which the percentile is
/// computed again.
const MAX_GAPS: usize = 256;
const REFRESH_AFTER: usize = 64;

/// The time between the events of one stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gap {
    last: Option<MonotonicTime>,
    mean: Option<Duration>,
}

impl Gap {
    /// Adds events, the last of which came at `at`. Returns the moving average of the time between events.
    pub(super) fn add_events(&mut self, events: u64, at: MonotonicTime) -> Option<Duration> {
        let events = u32::try_from(events).ok().filter(|events| *events > 0)?;
        let last = self.last.replace(at)?;
        let gap = at.since(last) / events;
        let mean = self.mean.map_or(gap, |mean| mean / 4 * 3 + gap / 4);
        self.mean = Some(mean);
        self.mean
    }
}

/// The latest gaps of all streams.
pub(super) struct Gaps {
    last: Vec<Duration>,
    next: usize,
    new_gaps: usize,
    shortest_tenth: Option<Duration>,
}

impl Gaps {
    pub(super) fn new() -> Self {
        Self {
            last: Vec::with_capacity(MAX_GAPS),
            next: 0,
            new_gaps: 0,
            shortest_tenth: None,
        }
    }

    pub(super) fn add(&mut self, gap: Duration) {
        match self.last.get_mut(self.next) {
            Some(place) => *place = gap,
            None => self.last.push(gap),
        }
        self.next = (self.next + 1) % MAX_GAPS;
        self.new_gaps += 1;
        if self.new_gaps >= REFRESH_AFTER || self.shortest_tenth.is_none() {
            self.new_gaps = 0;
            let mut sorted = self.last.clone();
            let rank = sorted.len() / 10;
            self.shortest_tenth = Some(*sorted.select_nth_unstable(rank).1);
        }
    }

    /// Returns the pause for this many streams. `typical` is the duration of an answer if a request waits for
    /// a slot. Returns `None` if a pause is not worth it, or no gap is known yet.
    pub(super) fn pause(
        &self,
        streams: usize,
        typical: Option<Duration>,
        is_flooded: bool,
    ) -> Option<Duration> {
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        let gap = self.shortest_tenth?;
        let pause = match is_flooded {
            // Single events could not be told apart anyway.
            true if gap < FLOOD_GAP => (gap * GAPS_IN_FLOOD).max(MAX_PAUSE),
            true => MAX_PAUSE,
            false => (gap / PER_GAP).min(MAX_PAUSE),
        };
        let pause = pause.min(PER_STREAM.saturating_mul(streams));
        let pause = typical.map_or(pause, |typical| pause.min(typical / PER_ANSWER));
        (pause >= MIN_PAUSE).then_some(pause)
    }

    /// Returns the longest wait for data.
    pub(super) fn wait(&self) -> Duration {
        let wait = self.shortest_tenth.map_or(MAX_WAIT, |gap| gap / PER_GAP);
        wait.clamp(MAX_PAUSE, MAX_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn gaps_from(gaps: impl IntoIterator<Item = Duration>) -> Gaps {
        let mut all = Gaps::new();
        gaps.into_iter().for_each(|gap| all.add(gap));
        all
    }

    #[test]
    fn a_pause_is_a_quarter_of_the_shortest_tenth_of_the_gaps_and_a_millisecond_at_most() {
        let one = |gap| gaps_from([micros(gap); 300]).pause(1000, None, false);
        assert_eq!(one(500), Some(micros(125)));
        assert_eq!(one(2000), Some(micros(500)));
        assert_eq!(one(20_000), Some(micros(1000)));
        assert_eq!(one(100), None, "it is not worth its timer");
        let flood = |gap| gaps_from([micros(gap); 300]).pause(1000, None, true);
        assert_eq!(flood(100), Some(micros(1000)));
        assert_eq!(
            flood(900),
            Some(micros(7200)),
            "events of one stream are read together"
        );
        assert_eq!(
            flood(4000),
            Some(micros(1000)),
            "moments are told as well as they can be"
        );
        let mixed = |fast: usize| {
            gaps_from((0..200).map(|place| micros(if place % 100 < fast { 400 } else { 20_000 })))
        };
        assert_eq!(mixed(5).pause(1000, None, false), Some(micros(1000)));
        assert_eq!(mixed(20).pause(1000, None, false), Some(micros(100)));
    }

    #[test]
    fn few_streams_and_slots_that_are_waited_for_shorten_it_and_nothing_known_means_none() {
        let slow = gaps_from([micros(20_000); 10]);
        assert_eq!(slow.pause(4, None, false), Some(micros(64)));
        assert_eq!(slow.pause(2, None, false), None);
        assert_eq!(slow.pause(1000, Some(micros(200_000)), false), Some(micros(200)));
        assert_eq!(Gaps::new().pause(1000, None, false), None);
    }

    #[test]
    fn old_gaps_are_forgotten() {
        let mut gaps = gaps_from([micros(400); 300]);
        (0..MAX_GAPS + REFRESH_AFTER).for_each(|_| gaps.add(micros(8000)));
        assert_eq!(gaps.pause(1000, None, false), Some(micros(1000)));
        assert_eq!(gaps.wait(), micros(2000));
    }

    #[test]
    fn several_events_of_one_read_share_the_time_since_the_last() {
        let mut gap = Gap::default();
        let at = |millis: u64| MonotonicTime::from_nanos(millis * 1_000_000);
        assert_eq!(gap.add_events(1, at(100)), None);
        assert_eq!(gap.add_events(4, at(120)), Some(micros(5000)));
        assert_eq!(gap.add_events(0, at(130)), None);
        assert_eq!(gap.add_events(1, at(129)), Some(micros(6000)));
    }
}
