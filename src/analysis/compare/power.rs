//! Computes how much starts differ, which differences can be found, and how many more starts are needed.

use super::t_test::{mean, quantile, squares};
use super::verdict::CONFIDENCE;

/// Variance of measurements, within a start and between starts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VarianceComponents {
    /// Between repeats on one start; `None` where every start has one.
    pub within: Option<f64>,
    /// Between starts, without the variance of repeats. `None` for one start.
    pub between: Option<f64>,
}

/// Estimates both variances from the repeats of each start.
///
/// Source: analysis of variance of a random one-way layout, S. R. Searle, G. Casella and C. E. McCulloch, "Variance Components", 1992,
/// section 3.6: between = (MSA − MSE) / n₀, never below zero.
pub fn variance_components(starts: &[Vec<f64>]) -> VarianceComponents {
    let starts: Vec<&Vec<f64>> = starts.iter().filter(|start| !start.is_empty()).collect();
    let (groups, values) = (
        starts.len() as f64,
        starts.iter().map(|start| start.len()).sum::<usize>() as f64,
    );
    let inside = values - groups;
    let within = (inside > 0.0).then(|| {
        let sum: f64 = starts.iter().map(|start| squares(start, mean(start))).sum();
        sum / inside
    });
    let between = (starts.len() > 1).then(|| {
        let grand = starts.iter().flat_map(|start| start.iter()).sum::<f64>() / values;
        let sum: f64 = starts
            .iter()
            .map(|start| start.len() as f64 * (mean(start) - grand).powi(2))
            .sum();
        let sizes: f64 = starts.iter().map(|start| (start.len() as f64).powi(2)).sum();
        let size = (values - sizes / values) / (groups - 1.0);
        ((sum / (groups - 1.0) - within.unwrap_or(0.0)) / size).max(0.0)
    });
    VarianceComponents { within, between }
}

/// Required error rates of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PowerTarget {
    /// Probability of a false result, one-sided.
    pub(crate) alpha: f64,
    /// Probability that a true difference is found.
    pub(crate) power: f64,
}

/// Returns the smallest difference that these numbers of starts can show, if one start has the standard
/// deviation `sigma`. Infinite if there are too few starts.
///
/// Source: H. S. Bloom, "Minimum detectable effects", 1995: the standard error times the sum of two quantiles
/// of t.
pub(crate) fn detectable_difference(sigma: f64, first: usize, second: usize, target: PowerTarget) -> f64 {
    if first == 0 || second == 0 || first + second < 3 {
        return f64::INFINITY;
    }
    let freedom = (first + second - 2) as f64;
    let error = sigma * (1.0 / first as f64 + 1.0 / second as f64).sqrt();
    error * (quantile(freedom, 1.0 - target.alpha) + quantile(freedom, target.power))
}

/// How many starts the second side needs to show `effect` against `first` starts, at least `least`; `most` where even that many may miss
/// it.
#[cfg(test)]
pub(crate) fn starts_needed(
    sigma: f64,
    first: usize,
    effect: f64,
    target: PowerTarget,
    least: usize,
    most: usize,
) -> usize {
    (least..most)
        .find(|&second| detectable_difference(sigma, first, second, target) <= effect)
        .unwrap_or(most)
}

/// Returns half the width of the 95 % interval of the mean of `starts` starts. The first `stage` of them (at
/// least two) have the standard deviation `sigma`.
///
/// Source: Student, "The probable error of a mean", 1908.
pub(crate) fn half_width(sigma: f64, stage: usize, starts: usize) -> f64 {
    let error = sigma / (starts as f64).sqrt();
    error * quantile(stage as f64 - 1.0, f64::midpoint(1.0, CONFIDENCE))
}

/// Returns the number of starts for which the 95 % interval of the mean is at most `target` to either side.
/// The first `stage` of them (at least two) have the standard deviation `sigma`. The number depends on the
/// first stage alone. So the mean of all starts, with `sigma` and the degrees of freedom of the first stage,
/// has exactly the promised confidence if the noise is normal. Later starts do not narrow the interval;
/// callers widen it if they vary more than the first.
///
/// Source: C. Stein, "A two-sample test for a linear hypothesis whose power is independent of the variance",
/// 1945.
pub(crate) fn two_stage_starts(sigma: f64, stage: usize, target: f64) -> usize {
    let reach = quantile(stage as f64 - 1.0, f64::midpoint(1.0, CONFIDENCE)) * sigma / target;
    let wanted = (reach * reach).ceil();
    // The cast saturates for values that do not fit, infinity included.
    (wanted as usize).max(stage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_within_starts_and_between_them_is_told_apart() {
        // Means 1, 2 and 3; ±0.1 within each start.
        let starts: Vec<Vec<f64>> = [1.0, 2.0, 3.0]
            .map(|middle| vec![middle - 0.1, middle + 0.1])
            .to_vec();
        let components = variance_components(&starts);
        assert!((components.within.unwrap() - 0.02).abs() < 1e-12);
        // MSA = 2·1 = 2, so (2 − 0.02) / 2.
        assert!((components.between.unwrap() - 0.99).abs() < 1e-12);
        assert_eq!(variance_components(&[vec![1.0]]), VarianceComponents::default());
        let single = variance_components(&[vec![1.0], vec![3.0]]);
        assert_eq!((single.within, single.between), (None, Some(2.0)));
    }

    #[test]
    fn five_against_five_at_one_percent_show_a_little_over_two() {
        let target = PowerTarget {
            alpha: 0.025,
            power: 0.9,
        };
        // (2.306 + 1.397) · 0.01 · √0.4
        assert!((detectable_difference(0.01, 5, 5, target) - 0.023_42).abs() < 1e-5);
        assert_eq!(detectable_difference(0.01, 1, 1, target), f64::INFINITY);
        assert_eq!(starts_needed(0.01, 5, 0.05, target, 3, 20), 3);
        assert_eq!(starts_needed(0.5, 5, 0.05, target, 3, 20), 20);
    }

    #[test]
    fn so_many_starts_reach_no_further_than_the_target() {
        assert_eq!(two_stage_starts(0.0, 5, 0.02), 5);
        // (2.776 · 0.03 / 0.02)² = 17.3
        let wanted = two_stage_starts(0.03, 5, 0.02);
        assert_eq!(wanted, 18);
        assert!(half_width(0.03, 5, wanted) <= 0.02 && half_width(0.03, 5, wanted - 1) > 0.02);
    }
}
