//! How much starts differ, what can be seen through that, and how many more are worth their time.

use super::student::{mean, quantile, squares};
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
pub struct Demand {
    /// The chance of a false finding, to one side.
    pub alpha: f64,
    /// The chance that a true one is found.
    pub power: f64,
}

/// The least difference that so many starts on either side show, where one start has the standard deviation `sigma`; infinite where they
/// are too few to show anything.
///
/// Source: H. S. Bloom, "Minimum detectable effects", 1995: the standard error times the sum of two quantiles of t.
pub fn detectable(sigma: f64, first: usize, second: usize, demand: Demand) -> f64 {
    if first == 0 || second == 0 || first + second < 3 {
        return f64::INFINITY;
    }
    let freedom = (first + second - 2) as f64;
    let error = sigma * (1.0 / first as f64 + 1.0 / second as f64).sqrt();
    error * (quantile(freedom, 1.0 - demand.alpha) + quantile(freedom, demand.power))
}

/// How many starts the second side needs to show `effect` against `first` starts, at least `least`; `most` where even that many may miss
/// it.
pub fn starts_needed(
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

/// What to do after so many starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// What is known is precise enough.
    Enough,
    /// Start this many more.
    More(usize),
    /// It is not, and the budget is spent.
    Spent,
}

/// Whether to start again: until a half interval of `half` is at most `target`, or `left` starts are spent. It looks at the width alone and
/// never at what was found, so that stopping favours no finding.
///
/// Source: Y. S. Chow and H. Robbins, "On the asymptotic theory of fixed-width sequential confidence intervals", 1965.
pub fn next(half: f64, target: f64, starts: usize, left: usize) -> Next {
    if half <= target {
        return Next::Enough;
    }
    // The half width falls with the root of the number of starts.
    let wanted = (starts.max(1) as f64 * (half / target).powi(2)).ceil();
    let more = if wanted.is_finite() {
        wanted as usize
    } else {
        starts + 1
    };
    match more.saturating_sub(starts).max(1).min(left) {
        0 => Next::Spent,
        more => Next::More(more),
    }
}

/// How far the interval of a mean reaches to either side, with this confidence, where so many starts (two at least) have the standard
/// deviation `sigma`.
///
/// Source: Student, "The probable error of a mean", 1908.
pub fn half_width(sigma: f64, starts: usize, level: f64) -> f64 {
    let error = sigma / (starts as f64).sqrt();
    error * quantile(starts as f64 - 1.0, f64::midpoint(1.0, level))
}

/// How many starts make the interval of a mean reach no further than `target`, of which the first `stage` (two at least) have the standard
/// deviation `sigma`. Their number depends on these alone, so that the mean of all of them, with `sigma` and the degrees of freedom of the
/// first stage, has exactly the confidence that is promised: later starts neither widen nor narrow what is said.
///
/// Source: C. Stein, "A two-sample test for a linear hypothesis whose power is independent of the variance", 1945.
pub fn two_stage(sigma: f64, stage: usize, target: f64) -> usize {
    let reach = quantile(stage as f64 - 1.0, f64::midpoint(1.0, LEVEL)) * sigma / target;
    let wanted = (reach * reach).ceil();
    // A float that is no count, infinity included, saturates.
    (wanted as usize).max(stage)
}

/// As [`next`], until the interval of the mean of so many starts (two at least) reaches no further than `target`. How many more are begun
/// allows for t, which itself falls as starts are added: by the root alone three starts would ask for many times what they need.
pub fn narrow(sigma: f64, target: f64, starts: usize, left: usize) -> Next {
    let reaches = |starts: usize| half_width(sigma, starts, LEVEL) <= target;
    if reaches(starts) {
        return Next::Enough;
    }
    match (1..=left).find(|more| reaches(starts + more)).unwrap_or(left) {
        0 => Next::Spent,
        more => Next::More(more),
    }
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
    fn starting_again_ends_when_it_is_precise_or_spent() {
        assert_eq!(next(0.01, 0.02, 5, 10), Next::Enough);
        assert_eq!(next(0.03, 0.02, 4, 10), Next::More(5));
        assert_eq!(next(0.03, 0.02, 4, 2), Next::More(2));
        assert_eq!(next(0.03, 0.02, 4, 0), Next::Spent);
        assert_eq!(next(f64::INFINITY, 0.02, 1, 3), Next::More(1));
    }

    #[test]
    fn an_interval_by_t_asks_for_as_many_starts_as_make_it_narrow() {
        assert_eq!(narrow(0.0, 0.02, 2, 10), Next::Enough);
        // 4.303 · 0.016 / √3 is too wide, 3.182 · 0.016 / √4 is too, 2.776 · 0.016 / √5 is not.
        assert_eq!(narrow(0.016, 0.02, 3, 10), Next::More(2));
        assert_eq!(narrow(0.016, 0.02, 5, 10), Next::Enough);
        assert_eq!(narrow(0.016, 0.02, 3, 1), Next::More(1));
        assert_eq!(narrow(0.016, 0.02, 3, 0), Next::Spent);
        // Where even all that are left would not do, all are begun.
        assert_eq!(narrow(1.0, 0.02, 2, 7), Next::More(7));
    }
}
