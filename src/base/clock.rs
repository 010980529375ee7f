//! The only module that reads the time.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// A point on the monotonic clock, in nanoseconds since this process first read the clock (its zero).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonotonicTime(u64);

impl MonotonicTime {
    /// The moment `nanos` nanoseconds after the zero.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the zero.
    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub const fn since(self, earlier: MonotonicTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment `by` later.
    pub fn plus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// Returns the moment `by` earlier, but not before the zero.
    pub(crate) fn minus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

fn process_start() -> Instant {
    static ZERO: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "only this module reads the clock")]
    *ZERO.get_or_init(Instant::now)
}

/// Reads the monotonic clock.
pub fn now() -> MonotonicTime {
    let zero = process_start();
    #[expect(clippy::disallowed_methods, reason = "only this module reads the clock")]
    let now = Instant::now();
    MonotonicTime(u64::try_from(now.saturating_duration_since(zero).as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the time since the machine booted, on the clock that the kernel's log uses (`CLOCK_MONOTONIC`).
pub(crate) fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Returns the processor time that the calling thread has used.
pub(crate) fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Returns the processor time that all threads of this process have used, including ended threads.
pub(crate) fn process_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Converts wall time to the monotonic clock. The kernel's receive timestamps are in wall time.
///
/// Both clocks are slewed alike, so their offset changes only when the wall clock is set. On virtual machines
/// the offset also drifts by some microseconds; [`Self::refresh`] follows the drift, but counts only changes
/// that affect the results.
#[derive(Clone, Copy, Debug)]
pub struct WallClockOffset {
    /// Wall time at the zero of the monotonic clock, in nanoseconds since the Unix epoch.
    zero_unix_ns: i64,
    jumps: u32,
}

impl WallClockOffset {
    /// A larger change of the offset is followed. Two undisturbed readings differ by less.
    const JUMP_NS: u64 = 20_000;
    /// From this size on, a change counts as a setting of the wall clock. Measured times are in milliseconds.
    const CLOCK_SET_NS: u64 = 1_000_000;
    /// A reading that took longer was interrupted and is not used.
    const SLOW_NS: u64 = 2_000;

    /// Measures the offset of the two clocks.
    pub fn new() -> Self {
        // The quickest reading is the most accurate.
        let best = (0..100)
            .map(|_| Self::read_offset())
            .min_by_key(|(_, took)| *took);
        Self {
            zero_unix_ns: best.map_or(0, |(zero, _)| zero),
            jumps: 0,
        }
    }

    /// Measures the offset again; call this before converting timestamps. A change counts only if two
    /// readings agree.
    pub fn refresh(&mut self) {
        let Some(zero) = Self::read_uninterrupted_offset() else {
            return;
        };
        if self.differs_from(zero)
            && let Some(again) = Self::read_uninterrupted_offset()
        {
            self.follow_change([zero, again]);
        }
    }

    /// Measures the offset; `None` if three readings in a row were interrupted.
    fn read_uninterrupted_offset() -> Option<i64> {
        let mut readings = (0..3).map(|_| Self::read_offset());
        let quick = readings.find(|(_, took)| *took <= Self::SLOW_NS)?;
        Some(quick.0)
    }

    fn differs_from(&self, zero_unix_ns: i64) -> bool {
        zero_unix_ns.abs_diff(self.zero_unix_ns) > Self::JUMP_NS
    }

    /// Adopts a new offset if both readings agree on it.
    fn follow_change(&mut self, readings: [i64; 2]) {
        let [one, other] = readings;
        if one.abs_diff(other) > Self::JUMP_NS || !self.differs_from(other) {
            return;
        }
        self.jumps += u32::from(other.abs_diff(self.zero_unix_ns) >= Self::CLOCK_SET_NS);
        self.zero_unix_ns = other;
    }

    /// How often the wall clock was set, by a millisecond or more.
    pub(crate) const fn jumps(&self) -> u32 {
        self.jumps
    }

    /// Converts wall time, in nanoseconds since the Unix epoch.
    pub fn to_monotonic(&self, unix_ns: i64) -> MonotonicTime {
        MonotonicTime(u64::try_from(unix_ns.saturating_sub(self.zero_unix_ns)).unwrap_or(0))
    }

    /// Measures the wall time at the monotonic zero, and how long the reading took, both in nanoseconds.
    fn read_offset() -> (i64, u64) {
        let before = now().0;
        #[expect(clippy::disallowed_methods, reason = "only this module reads the clock")]
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let after = now().0;
        let wall = i64::try_from(wall.unwrap_or_default().as_nanos()).unwrap_or(i64::MAX);
        let middle = before + (after - before) / 2;
        (
            wall.saturating_sub(i64::try_from(middle).unwrap_or(i64::MAX)),
            after - before,
        )
    }
}

impl Default for WallClockOffset {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the seconds since the Unix epoch, with a fraction.
pub fn unix_seconds() -> f64 {
    #[expect(clippy::disallowed_methods, reason = "only this module reads the clock")]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// Returns the date and time in UTC as RFC 3339 with milliseconds: `2026-11-21T06:53:11.250Z`.
pub(crate) fn timestamp() -> String {
    let now = jiff::Timestamp::from_nanosecond((unix_seconds() * 1e9) as i128).unwrap_or_default();
    now.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Returns the date and time in UTC for the name of a folder: `20261121-065311`.
pub(crate) fn stamp() -> String {
    let now = jiff::Timestamp::from_second(unix_seconds() as i64).unwrap_or_default();
    now.strftime("%Y%m%d-%H%M%S").to_string()
}

/// Returns the local date and time for the name of a file: `20261121-065311`.
pub(crate) fn local_stamp() -> String {
    let now = jiff::Timestamp::from_second(unix_seconds() as i64).unwrap_or_default();
    now.to_zoned(jiff::tz::TimeZone::system())
        .strftime("%Y%m%d-%H%M%S")
        .to_string()
}

/// Formats a moment as local date and time in ISO 8601, with microseconds and without offset.
pub(crate) fn local_iso(unix_s: f64) -> String {
    let micros = (unix_s * 1e6).round() as i64;
    let moment = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    moment
        .to_zoned(jiff::tz::TimeZone::system())
        .strftime("%Y-%m-%dT%H:%M:%S.%6f")
        .to_string()
}

/// Formats the local date and time with a `strftime` format.
///
/// # Errors
/// The format has an unknown directive.
pub(crate) fn format_local(format: &str) -> Result<String, String> {
    let now = jiff::Timestamp::from_second(unix_seconds() as i64).unwrap_or_default();
    jiff::fmt::strtime::format(format, &now.to_zoned(jiff::tz::TimeZone::system()))
        .map_err(|error| format!("cannot write the date as `{format}`: {error}"))
}

/// Returns the local month and day: `1121`.
pub(crate) fn local_date() -> String {
    local_stamp()[4..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_is_told_on_the_monotonic_clock() {
        let wall = WallClockOffset::new();
        let before = now();
        #[expect(clippy::disallowed_methods, reason = "only this module reads the clock")]
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let after = now();
        let converted = wall.to_monotonic(i64::try_from(unix.as_nanos()).unwrap());
        let grace = Duration::from_millis(1);
        assert!(before <= converted.plus(grace) && converted <= after.plus(grace));
    }

    #[test]
    fn a_wall_clock_that_is_set_is_counted_once_and_followed() {
        let mut wall = WallClockOffset::new();
        let unix = wall.zero_unix_ns;
        let set = unix + 3_600_000_000_000;
        wall.follow_change([unix + 1000; 2]);
        assert_eq!((wall.jumps(), wall.to_monotonic(unix + 5)), (0, MonotonicTime(5)));
        wall.follow_change([set, unix]);
        assert_eq!(
            wall.to_monotonic(unix + 5),
            MonotonicTime(5),
            "the second reading does not agree"
        );
        wall.follow_change([set; 2]);
        wall.follow_change([set + 1000; 2]);
        assert_eq!((wall.jumps(), wall.to_monotonic(set + 7)), (1, MonotonicTime(7)));
        assert_eq!(wall.to_monotonic(unix), MonotonicTime(0));
    }

    /// On virtual machines the clocks are corrected independently of each other.
    #[test]
    fn a_distance_that_moves_by_microseconds_is_followed_and_not_counted() {
        let mut wall = WallClockOffset::new();
        let drifted = wall.zero_unix_ns + 300_000;
        wall.follow_change([drifted, drifted + 500]);
        assert_eq!(
            (wall.jumps(), wall.to_monotonic(drifted + 500)),
            (0, MonotonicTime(0))
        );
    }
}
