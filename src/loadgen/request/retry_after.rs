//! The header `Retry-After` (RFC 9110, section 10.2.3).

use std::time::Duration;

use crate::base::{clock, date};

/// Returns the wait that the header asks for, in seconds or until a date; `None` if it is neither.
pub(super) fn parse_retry_after(value: &str) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let at = date::http_date_seconds(value)?;
    Duration::try_from_secs_f64((at - clock::unix_seconds()).max(0.0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_nonsense_is_not() {
        let seconds = |value| parse_retry_after(value).map(|wait| wait.as_secs());
        assert_eq!(seconds(" 2 "), Some(2));
        assert_eq!(seconds("99999999999999999999999999"), Some(u64::MAX));
        assert_eq!(seconds("Wed, 21 Oct 2015 07:28:00 GMT"), Some(0));
        let late = seconds("Tue, 31 Dec 2999 23:59:59 GMT").unwrap();
        assert!(late > 1 << 32, "{late}");
        for nonsense in ["", "-1", "1.5", "soon", "1 s", "Wed, 99 Oct 2015 07:28:00 GMT"] {
            assert_eq!(seconds(nonsense), None, "{nonsense}");
        }
    }
}
