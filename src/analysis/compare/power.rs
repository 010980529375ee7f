//! How much starts differ, what can be seen through that, and how many more are worth their time.

use super::t_test::{mean, quantile, squares};
use super::verdict::LEVEL;

/// The spread of measurements, within a start and between starts, as variances.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Components {
    /// Between repeats on one start; `None` where every start has one.
    pub within: Option<f64>,
    /// Between starts, without what repeats within a start explain; `None` with one start.
    pub between: Option<f64>,
}

/// Both variances of repeats that lie in starts.
///
/// Source: analysis of variance of a random one-way layout, S. R. Searle, G. Casella and C. E. McCulloch, "Variance Components", 1992,
/// section 3.6: between = (MSA − MSE) / n₀, never below zero.
pub fn components(starts: &[Vec<f64>]) -> Components {
    let starts: Vec<&Vec<f64>> = starts.iter().filter(|start| !start.is_empty()).collect();
    let (groups, all) = (
        starts.len() as f64,
        starts.iter().map(|start| start.len()).sum::<usize>() as f64,
    );
    let inside = all - groups;
    let within = (inside > 0.0).then(|| {
        let sum: f64 = starts.iter().map(|start| squares(start, mean(start))).sum();
        sum / inside
    });
    let between = (starts.len() > 1).then(|| {
        let grand = starts.iter().flat_map(|start| start.iter()).sum::<f64>() / all;
        let sum: f64 = starts
            .iter()
            .map(|start| start.len() as f64 * (mean(start) - grand).powi(2))
            .sum();
        let sizes: f64 = starts.iter().map(|start| (start.len() as f64).powi(2)).sum();
        let size = (all - sizes / all) / (groups - 1.0);
        ((sum / (groups - 1.0) - within.unwrap_or(0.0)) / size).max(0.0)
    });
    Components { within, between }
}

/// How sure a comparison shall be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Demand {
    /// The chance of a false finding, to one side.
    pub alpha: f64,
    /// The chance that a true one is found.
    pub power: f64,
}

/// The least difference that so many starts on either side show, where one start has the standard deviation `sigma`; infinite where they
/// are too few to show anything.
///
/// Source: H. S. Bloom, "Minimum detectable effects", 1995: the standard error times the sum of two quantiles of t.
pub(crate) fn detectable(sigma: f64, first: usize, second: usize, demand: Demand) -> f64 {
    if first == 0 || second == 0 || first + second < 3 {
        return f64::INFINITY;
    }
    let freedom = (first + second - 2) as f64;
    let error = sigma * (1.0 / first as f64 + 1.0 / second as f64).sqrt();
    error * (quantile(freedom, 1.0 - demand.alpha) + quantile(freedom, demand.power))
}

/// How many starts the second side needs to show `effect` against `first` starts, at least `least`; `most` where even that many may miss
/// it.
#[cfg(test)]
pub(crate) fn starts_needed(
    sigma: f64,
    first: usize,
    effect: f64,
    demand: Demand,
    least: usize,
    most: usize,
) -> usize {
    (least..most)
        .find(|&second| detectable(sigma, first, second, demand) <= effect)
        .unwrap_or(most)
}

/// How far the 95 % interval of the mean of so many starts reaches to either side, of which the first `stage` (two at least) have the
/// standard deviation `sigma`.
///
/// Source: Student, "The probable error of a mean", 1908.
pub(crate) fn half_width(sigma: f64, stage: usize, starts: usize) -> f64 {
    let error = sigma / (starts as f64).sqrt();
    error * quantile(stage as f64 - 1.0, f64::midpoint(1.0, LEVEL))
}

/// How many starts make the interval of a mean reach no further than `target`, of which the first `stage` (two at least) have the standard
/// deviation `sigma`. Their number depends on these alone, so that the mean of all of them, with `sigma` and the degrees of freedom of the
/// first stage, has exactly the confidence that is promised where noise is normal. Later starts do not narrow what is said; they widen it
/// where they vary more than the first.
///
/// Source: C. Stein, "A two-sample test for a linear hypothesis whose power is independent of the variance", 1945.
pub(crate) fn two_stage(sigma: f64, stage: usize, target: f64) -> usize {
    let reach = quantile(stage as f64 - 1.0, f64::midpoint(1.0, LEVEL)) * sigma / target;
    let wanted = (reach * reach).ceil();
    // A float that is no count, infinity included, saturates.
    (wanted as usize).max(stage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_within_starts_and_between_them_is_told_apart() {
        // Means 1, 2, 3; within each start ±0.1.
        let starts: Vec<Vec<f64>> = [1.0, 2.0, 3.0]
            .map(|middle| vec![middle - 0.1, middle + 0.1])
            .to_vec();
        let found = components(&starts);
        assert!((found.within.unwrap() - 0.02).abs() < 1e-12);
        // MSA = 2·1 = 2, so (2 − 0.02) / 2.
        assert!((found.between.unwrap() - 0.99).abs() < 1e-12);
        assert_eq!(components(&[vec![1.0]]), Components::default());
        let single = components(&[vec![1.0], vec![3.0]]);
        assert_eq!((single.within, single.between), (None, Some(2.0)));
    }

    #[test]
    fn five_against_five_at_one_percent_show_a_little_over_two() {
        let demand = Demand {
            alpha: 0.025,
            power: 0.9,
        };
        // (2.306 + 1.397) · 0.01 · √0.4
        assert!((detectable(0.01, 5, 5, demand) - 0.023_42).abs() < 1e-5);
        assert_eq!(detectable(0.01, 1, 1, demand), f64::INFINITY);
        assert_eq!(starts_needed(0.01, 5, 0.05, demand, 3, 20), 3);
        assert_eq!(starts_needed(0.5, 5, 0.05, demand, 3, 20), 20);
    }

    #[test]
    fn so_many_starts_reach_no_further_than_the_target() {
        assert_eq!(two_stage(0.0, 5, 0.02), 5);
        // (2.776 · 0.03 / 0.02)² = 17.3
        let wanted = two_stage(0.03, 5, 0.02);
        assert_eq!(wanted, 18);
        assert!(half_width(0.03, 5, wanted) <= 0.02 && half_width(0.03, 5, wanted - 1) > 0.02);
    }
}
