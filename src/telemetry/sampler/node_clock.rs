//! Converts times of another node's monotonic clock to those of this process.

use std::time::Duration;

use crate::base::clock::MonotonicTime;

/// Time over which the fastest line counts, at least; twice as long at most.
const SPAN: Duration = Duration::from_secs(10);

/// The difference between the monotonic clocks of this process and of one on another node, from the lines that arrive.
///
/// Each line says when it was sent, by the sender's clock. Its arrival here minus that time is the difference of the clocks
/// plus the time that the line took. The smallest of the last 10 to 20 seconds is taken as the difference, so a line that
/// is delayed does not shift its samples. A converted time is too late by what the fastest line took (the network and the
/// scheduler's forwarding, usually less than a millisecond), and wrong by how far the clocks drift apart in 20 seconds (a
/// millisecond at 50 ppm). It is never after the arrival of its line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeClock {
    /// Start of the current span.
    since: MonotonicTime,
    /// The smallest difference in nanoseconds, of the current and of the previous span.
    smallest: [Option<i64>; 2],
}

impl NodeClock {
    /// Records that a line arrived that was sent at this time of the sender's clock.
    pub(super) fn observe(&mut self, sent_ns: u64, arrived: MonotonicTime) {
        let difference = signed(arrived.as_nanos()).saturating_sub(signed(sent_ns));
        if arrived.since(self.since) > SPAN {
            self.since = arrived;
            self.smallest = [None, self.smallest[0]];
        }
        let [current, _] = &mut self.smallest;
        *current = Some(current.map_or(difference, |smallest| smallest.min(difference)));
    }

    /// A time of the sender's clock on the clock of this process.
    pub(super) fn convert(&self, at_ns: u64) -> MonotonicTime {
        let difference = self.smallest.iter().flatten().min().copied().unwrap_or(0);
        let at = signed(at_ns).saturating_add(difference);
        MonotonicTime::from_nanos(u64::try_from(at).unwrap_or(0))
    }
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_delayed_line_does_not_shift_its_sample_and_drift_is_followed() {
        let mut clock = NodeClock::default();
        let at = |nanos: u64| MonotonicTime::from_nanos(nanos);
        // The other process began 100 s later; its lines take 1 ms, and one takes 2 s.
        clock.observe(SECOND, at(101 * SECOND + 1_000_000));
        clock.observe(2 * SECOND, at(104 * SECOND));
        assert_eq!(clock.convert(2 * SECOND), at(102 * SECOND + 1_000_000));
        // It began earlier.
        let mut earlier = NodeClock::default();
        earlier.observe(500 * SECOND, at(3 * SECOND));
        assert_eq!(earlier.convert(499 * SECOND), at(2 * SECOND));
        // The clock of the other process is slower by 1 ms in each second.
        let mut drifting = NodeClock::default();
        for second in 0..60 {
            drifting.observe(second * 999_000_000, at(second * SECOND));
        }
        let error = at(59 * SECOND).since(drifting.convert(59 * 999_000_000));
        assert!(error <= Duration::from_millis(23), "{error:?}");
    }
}
