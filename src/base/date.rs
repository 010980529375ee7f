//! Conversions of timestamps to text and to positions on an axis. Pure: only [`super::clock`] reads the time.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// Milliseconds per day.
const DAY_MS: f64 = 86_400_000.0;

/// Returns the days from 1970-01-01 UTC to an RFC 3339 timestamp; `None` if it cannot be parsed.
pub(crate) fn days_since_epoch(moment: &str) -> Option<f64> {
    let moment: Timestamp = moment.parse().ok()?;
    Some(moment.as_millisecond() as f64 / DAY_MS)
}

/// Returns the seconds between two timestamps; `None` if one cannot be parsed.
pub(crate) fn seconds_between(earlier: &str, later: &str) -> Option<f64> {
    let earlier: Timestamp = earlier.parse().ok()?;
    let later: Timestamp = later.parse().ok()?;
    Some(later.duration_since(earlier).as_secs_f64())
}

/// Reads a date as HTTP writes it, such as `Wed, 21 Oct 2015 07:28:00 GMT`; returns seconds since 1970.
pub(crate) fn http_date_seconds(text: &str) -> Option<f64> {
    let moment = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(moment.timestamp().as_second() as f64)
}

/// Formats the moment `days` after 1970-01-01 UTC with a `strftime` format.
pub(crate) fn format_date(days: f64, format: &str) -> String {
    to_timestamp(days).strftime(format).to_string()
}

fn to_timestamp(days: f64) -> Timestamp {
    Timestamp::from_millisecond((days * DAY_MS).round() as i64).unwrap_or_default()
}

/// Returns the first days of months between two moments, all in days after 1970-01-01 UTC. With `every` above
/// 1 only each `every`-th month is included, counted from January.
pub(crate) fn month_starts(from: f64, to: f64, every: i8) -> Vec<f64> {
    let mut starts = Vec::new();
    let mut day = to_timestamp(from).to_zoned(TimeZone::UTC).date().first_of_month();
    while let Ok(zoned) = day.to_zoned(TimeZone::UTC) {
        let days = zoned.timestamp().as_millisecond() as f64 / DAY_MS;
        if days > to {
            break;
        }
        if days >= from && (day.month() - 1) % every == 0 {
            starts.push(days);
        }
        let Ok(next) = day.checked_add(1.month()) else {
            break;
        };
        day = next;
    }
    starts
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
        assert_eq!(days_since_epoch("1970-01-02T12:00:00Z"), Some(1.5));
        assert_eq!(days_since_epoch("soon"), None);
        let actual = days_since_epoch("2026-11-21T06:53:11.250Z").unwrap();
        assert_eq!(format_date(actual, "%Y-%m-%d %H:%M"), "2026-11-21 06:53");
    }

    #[test]
    fn months_begin_where_calendars_say() {
        let (from, to) = (
            days_since_epoch("2026-01-15T00:00:00Z").unwrap(),
            days_since_epoch("2026-07-01T00:00:00Z").unwrap(),
        );
        let actual = |every| -> Vec<String> {
            month_starts(from, to, every)
                .into_iter()
                .map(|day| format_date(day, "%m-%d"))
                .collect()
        };
        assert_eq!(actual(1), ["02-01", "03-01", "04-01", "05-01", "06-01", "07-01"]);
        assert_eq!(actual(3), ["04-01", "07-01"]);
    }
}
