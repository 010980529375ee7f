//! Intervals that follow from the printed digits of a value.

use crate::analysis::metrics::Metric;
use crate::import::result_block::PrintedValue;

/// The interval that certainly contains a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Range {
    /// The range of a metric that is printed as `value`.
    pub(super) fn from_metric(metric: Metric, printed: PrintedValue, value: f64) -> Self {
        // Machine-readable files may be rounded too.
        let half = match printed.half_digit == 0.0 && !metric.is_count() {
            true => half_digit(value),
            false => printed.half_digit,
        };
        Self::from_printed(
            PrintedValue {
                half_digit: half,
                ..printed
            },
            value,
        )
    }

    fn from_printed(printed: PrintedValue, value: f64) -> Self {
        // Even values with all digits may differ in the last digit of a sum.
        let slack = printed.half_digit * (1.0 + 1e-6) + value.abs() * 1e-9;
        Self {
            low: value - slack,
            high: value + slack,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            low: self.low + other.low,
            high: self.high + other.high,
        }
    }

    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            low: self.low * factor,
            high: self.high * factor,
        }
    }

    /// Division; `None` if the divisor may be zero or negative.
    pub(super) fn divided_by(self, other: Self) -> Option<Self> {
        (other.low > 0.0).then(|| Self {
            low: self.low / other.high,
            high: self.high / other.low,
        })
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    pub(super) fn midpoint(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

/// Half a unit of the last written digit. A whole number counts as one with one decimal.
fn half_digit(value: f64) -> f64 {
    let written = value.to_string();
    let decimals = written.split_once('.').map_or(1, |(_, digits)| digits.len());
    0.5 * 0.1_f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX))
}

/// Formats two numbers with the fewest decimals at which they differ, at least two.
pub(super) fn with_differing_digits(one: f64, other: f64) -> [String; 2] {
    let with = |decimals: usize| [one, other].map(|value| format!("{value:.decimals$}"));
    let enough = (2..16).find(|decimals| {
        let [one, other] = with(*decimals);
        one != other
    });
    with(enough.unwrap_or(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_printed_digits() {
        let printed = PrintedValue {
            value: Some(23.62),
            half_digit: 0.005,
            line: 1,
        };
        let range = Range::from_printed(printed, 23.62);
        let duration = Range::from_printed(
            PrintedValue {
                half_digit: 0.005,
                ..printed
            },
            423.29,
        );
        let exact = Range::from_printed(
            PrintedValue {
                half_digit: 0.0,
                ..printed
            },
            10_000.0,
        );
        assert!(exact.divided_by(duration).unwrap().overlaps(range));
        let off = Range::from_printed(printed, 23.64);
        assert!(!exact.divided_by(duration).unwrap().overlaps(off));
    }

    #[test]
    fn a_number_for_programs_is_as_exact_as_its_digits_and_a_count_is_exact() {
        let printed = PrintedValue {
            value: None,
            half_digit: 0.0,
            line: 1,
        };
        let width = |metric, value| {
            let range = Range::from_metric(metric, printed, value);
            range.high - range.low
        };
        assert!((width(Metric::Duration, 27.35) - 0.01).abs() < 1e-6);
        assert!((width(Metric::Duration, 27.0) - 0.1).abs() < 1e-5);
        assert!(width(Metric::Duration, 1e-7) < 1e-6);
        assert!(width(Metric::Duration, 27.351_234_567_891_23) < 1e-7);
        assert!(width(Metric::Completed, 200.0) < 1e-6);
    }

    #[test]
    fn numbers_that_differ_are_written_differently() {
        assert_eq!(with_differing_digits(7.31, 8.0), ["7.31", "8.00"]);
        assert_eq!(with_differing_digits(7.3126, 7.3131), ["7.3126", "7.3131"]);
    }
}
