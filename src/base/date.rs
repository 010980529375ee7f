//! Conversions of timestamps to text and to positions on an axis. Pure: only [`super::clock`] reads the time.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// Milliseconds per day.
const DAY: f64 = 86_400_000.0;

/// Returns the days from 1970-01-01 UTC to an RFC 3339 timestamp; `None` if it cannot be parsed.
pub(crate) fn days(moment: &str) -> Option<f64> {
    let moment: Timestamp = moment.parse().ok()?;
    Some(moment.as_millisecond() as f64 / DAY)
}

/// Returns the seconds between two timestamps; `None` if one cannot be parsed.
pub(crate) fn seconds_between(earlier: &str, later: &str) -> Option<f64> {
    let earlier: Timestamp = earlier.parse().ok()?;
    let later: Timestamp = later.parse().ok()?;
    Some(later.duration_since(earlier).as_secs_f64())
}

/// Formats the moment `days` after 1970-01-01 UTC with a `strftime` format.
pub(crate) fn written(days: f64, format: &str) -> String {
    moment(days).strftime(format).to_string()
}

fn moment(days: f64) -> Timestamp {
    Timestamp::from_millisecond((days * DAY).round() as i64).unwrap_or_default()
}

/// Returns the first days of months between two moments, all in days after 1970-01-01 UTC. With `every` above
/// 1 only each `every`-th month is included, counted from January.
pub(crate) fn months(from: f64, to: f64, every: i8) -> Vec<f64> {
    let mut found = Vec::new();
    let mut day = moment(from).to_zoned(TimeZone::UTC).date().first_of_month();
    while let Ok(zoned) = day.to_zoned(TimeZone::UTC) {
        let at = zoned.timestamp().as_millisecond() as f64 / DAY;
        if at > to {
            break;
        }
        if at >= from && (day.month() - 1) % every == 0 {
            found.push(at);
        }
        let Ok(next) = day.checked_add(1.month()) else {
            break;
        };
        day = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::timestamp;

    #[test]
    fn the_time_between_two_timestamps_is_read_back() {
        let (a, b) = ("2026-11-21T06:53:11.250Z", "2026-11-21T07:53:11.500Z");
        assert_eq!(seconds_between(a, b), Some(3600.25));
        assert_eq!(seconds_between(&timestamp(), "soon"), None);
    }

    #[test]
    fn a_moment_is_a_number_and_comes_back() {
        assert_eq!(days("1970-01-02T12:00:00Z"), Some(1.5));
        assert_eq!(days("soon"), None);
        let told = days("2026-11-21T06:53:11.250Z").unwrap();
        assert_eq!(written(told, "%Y-%m-%d %H:%M"), "2026-11-21 06:53");
    }

    #[test]
    fn months_begin_where_calendars_say() {
        let (from, to) = (
            days("2026-01-15T00:00:00Z").unwrap(),
            days("2026-07-01T00:00:00Z").unwrap(),
        );
        let told = |every| -> Vec<String> {
            months(from, to, every)
                .into_iter()
                .map(|day| written(day, "%m-%d"))
                .collect()
        };
        assert_eq!(told(1), ["02-01", "03-01", "04-01", "05-01", "06-01", "07-01"]);
        assert_eq!(told(3), ["04-01", "07-01"]);
    }
}
