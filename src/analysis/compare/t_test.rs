//! Compares the means of two sides by Student's t.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// A confidence interval, bounds included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower bound.
    pub low: f64,
    /// Its upper bound.
    pub high: f64,
}

impl Interval {
    /// Whether a value lies in it.
    #[cfg(test)]
    pub(crate) fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Difference of two means, with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanDifference {
    /// The second side's mean less the first one's.
    pub(crate) value: f64,
    /// The standard error of `value`.
    pub(crate) error: f64,
    /// Degrees of freedom of the error.
    pub(crate) freedom: f64,
}

/// Returns the difference of two means with one common variance. `None` if a side is empty or both have one
/// value, because the variance is then unknown.
///
/// Both sides are the same engine on the same machine, so a common variance is close to the truth. With
/// similar numbers of starts the test keeps its level even if it is not (G. E. P. Box, "Some theorems on
/// quadratic forms", 1954), and Welch's test would cost half of the few degrees of freedom. A side may have a
/// single value; the variance then comes from the other side.
///
/// Source: Student, "The probable error of a mean", 1908; R. A. Fisher 1925 for two samples.
pub fn difference(first: &[f64], second: &[f64]) -> Option<MeanDifference> {
    let (n, m) = (first.len() as f64, second.len() as f64);
    let freedom = n + m - 2.0;
    if first.is_empty() || second.is_empty() || freedom < 1.0 {
        return None;
    }
    let (a, b) = (mean(first), mean(second));
    let variance = (squares(first, a) + squares(second, b)) / freedom;
    Some(MeanDifference {
        value: b - a,
        error: (variance * (1.0 / n + 1.0 / m)).sqrt(),
        freedom,
    })
}

impl MeanDifference {
    /// The chance of a difference as large, to either side, where there is none.
    pub fn p_two_sided(self) -> f64 {
        (2.0 * self.p_below().min(self.p_above())).min(1.0)
    }

    /// Returns the one-sided p-value of a difference this low.
    pub(crate) fn p_below(self) -> f64 {
        self.tail(self.value)
    }

    /// Returns the one-sided p-value of a difference this high.
    pub(crate) fn p_above(self) -> f64 {
        self.tail(-self.value)
    }

    fn tail(self, value: f64) -> f64 {
        if self.error > 0.0 {
            distribution(self.freedom).cdf(value / self.error)
        } else if value < 0.0 {
            // No value varied, so any difference is beyond chance. The floor decides whether it matters.
            0.0
        } else {
            1.0
        }
    }

    /// Where the true difference lies, with this confidence.
    pub fn interval(self, level: f64) -> Interval {
        let half = self.error * quantile(self.freedom, f64::midpoint(1.0, level));
        Interval {
            low: self.value - half,
            high: self.value + half,
        }
    }
}

/// Returns the probability that Student's t is at least this far from zero, in either direction.
pub(crate) fn two_sided_p(t: f64, freedom: f64) -> f64 {
    (2.0 * distribution(freedom).cdf(-t.abs())).min(1.0)
}

/// The value that Student's t with these degrees of freedom stays below with this chance.
pub fn quantile(freedom: f64, chance: f64) -> f64 {
    distribution(freedom).inverse_cdf(chance)
}

/// Above this many degrees of freedom Student's t is normal to four digits, and its quantiles take ever
/// longer to compute.
const MAX_FREEDOM: f64 = 1e4;

fn distribution(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom.min(MAX_FREEDOM)).expect("degrees of freedom are above zero")
}

/// Returns the sample variance of at least two values, divided by n − 1.
pub(crate) fn variance(values: &[f64]) -> f64 {
    squares(values, mean(values)) / (values.len() as f64 - 1.0)
}

/// Returns the arithmetic mean of at least one value.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(super) fn squares(values: &[f64], mean: f64) -> f64 {
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, chance, value) in [
            (8.0, 0.975, 2.306_004),
            (4.0, 0.975, 2.776_445),
            (8.0, 0.9995, 5.041_305),
        ] {
            assert!(
                (quantile(freedom, chance) - value).abs() < 1e-5,
                "{freedom} {chance}"
            );
        }
    }

    #[test]
    fn a_side_of_one_borrows_the_others_spread_and_two_of_one_have_none() {
        let mean_difference = difference(&[1.0, 2.0, 3.0], &[4.0]).unwrap();
        assert_eq!((mean_difference.value, mean_difference.freedom), (2.0, 2.0));
        assert!((mean_difference.error - (4.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(difference(&[1.0], &[2.0]), None);
        assert_eq!(difference(&[], &[2.0, 3.0]), None);
    }

    #[test]
    fn without_any_spread_every_difference_is_beyond_chance() {
        let mean_difference = difference(&[1.0, 1.0], &[0.5, 0.5]).unwrap();
        assert_eq!(
            (
                mean_difference.p_two_sided(),
                mean_difference.p_below(),
                mean_difference.p_above()
            ),
            (0.0, 0.0, 1.0)
        );
        assert_eq!(difference(&[1.0, 1.0], &[1.0, 1.0]).unwrap().p_two_sided(), 1.0);
    }
}
