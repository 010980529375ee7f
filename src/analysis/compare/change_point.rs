//! Finds level changes in a series of nightly values.
//!
//! A level change must pass two tests. It must be beyond the noise from night to night, and beyond everything
//! that the series has shown before. The first test alone fails on series that wander or switch between
//! levels, the second alone on a single bad night. If a series visits a second level for the first time, this
//! cannot be distinguished from a level change.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::t_test::{mean, squares};

/// Fewest nights of a level.
const MIN_LEVEL_NIGHTS: usize = 4;
/// Most nights that are tested together.
const MAX_WINDOW_NIGHTS: usize = 30;
/// Fewest nights before a change that `recent` reports.
const MIN_NIGHTS_BEFORE: usize = 8;
/// Number of last nights whose mean is the present level.
const PRESENT_LEVEL_NIGHTS: usize = 8;
/// Distance that the present level must have from all nights before the change, in their standard deviations,
/// if consecutive nights are independent. If they are correlated, the distance is larger, because a few
/// nights then show less of the range of the series.
const RECENT_MARGIN: f64 = 1.25;
/// Highest autocorrelation that is assumed.
const MAX_AUTOCORRELATION: f64 = 0.9;
/// Probability of a false level change in one test of one series.
const ALPHA: f64 = 0.000_03;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// Index of the first value of the new level.
    pub(crate) at: usize,
    /// Mean before, back to the previous level change.
    pub(crate) before: f64,
    /// Mean after, up to the next level change.
    pub(crate) after: f64,
    /// Probability of such a difference without a change.
    pub(crate) p: f64,
}

/// Returns every level change of at least `floor` (a share) in a series of logarithms, in order.
///
/// Source: hierarchical divisive estimation with the energy statistic, D. S. Matteson and N. A. James, "A
/// nonparametric approach for multiple change point analysis of multivariate data", 2014. Significance comes
/// from t instead of permutations as in "Hunter: using change point detection to hunt for performance
/// regressions" (M. Fleming and others, 2023), with the variance of an autocorrelated series.
pub(crate) fn find_changes(series: &[f64], floor: f64) -> Vec<Change> {
    let mut changes = Vec::new();
    find_changes_in(series, 0, floor.ln_1p(), &mut changes);
    changes.sort_by_key(|change| change.at);
    changes
}

fn find_changes_in(series: &[f64], offset: usize, min_change: f64, changes: &mut Vec<Change>) {
    let Some(at) = best_split(series) else { return };
    let (left, right) = series.split_at(at);
    let (before, after) = (mean(left), mean(right));
    let p = significance(series, at);
    if p > ALPHA || (after - before).abs() < min_change {
        return;
    }
    changes.push(Change {
        at: offset + at,
        before,
        after,
        p,
    });
    find_changes_in(left, offset, min_change, changes);
    find_changes_in(right, offset + at, min_change, changes);
}

/// Returns the level change at the end of a series if it passes both tests: the mean of the last nights is
/// beyond every single night before the change, by more than these vary. `floor` is the smallest change that
/// matters, as a share.
pub(crate) fn recent_change(series: &[f64], floor: f64) -> Option<Change> {
    let window = &series[series.len().saturating_sub(MAX_WINDOW_NIGHTS)..];
    let offset = series.len() - window.len();
    let change = find_changes(window, floor).pop()?;
    let at = offset + change.at;
    let (before, since) = series.split_at(at);
    if before.len() < MIN_NIGHTS_BEFORE {
        return None;
    }
    if since.len() < PRESENT_LEVEL_NIGHTS {
        return None;
    }
    let present = mean(&since[since.len() - PRESENT_LEVEL_NIGHTS..]);
    let lowest = before.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = before.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let spread = (squares(before, mean(before)) / (before.len() - 1) as f64).sqrt();
    let memory = autocorrelation(before);
    let wandering = ((1.0 + memory) / (1.0 - memory)).sqrt();
    let margin = (RECENT_MARGIN * spread * wandering).max(floor.ln_1p() / 2.0);
    let is_new = present < lowest - margin || present > highest + margin;
    // A level that was left again is no present change.
    let holds = (present - change.before).signum() == (change.after - change.before).signum();
    (is_new && holds).then_some(Change { at, ..change })
}

/// Returns the first autocorrelation of the series, corrected for the bias of a short series, at least 0.
///
/// Source: M. G. Kendall, "Note on bias in the estimation of autocorrelation", 1954: `E[r] = ρ − (1 + 3ρ)/n`.
fn autocorrelation(series: &[f64]) -> f64 {
    let (n, mean) = (series.len() as f64, mean(series));
    let total_squares = squares(series, mean);
    if total_squares == 0.0 {
        return 0.0;
    }
    let neighbours: f64 = series
        .windows(2)
        .map(|pair| (pair[0] - mean) * (pair[1] - mean))
        .sum();
    ((n * neighbours / total_squares + 1.0) / (n - 3.0)).clamp(0.0, MAX_AUTOCORRELATION)
}

/// Returns the split into the two levels that differ most. `None` if the series is too short for two levels.
///
/// Source: the energy statistic of G. J. Székely and M. L. Rizzo, n·m/(n+m) · (2·mean|x−y| − mean|x−x′| −
/// mean|y−y′|).
fn best_split(series: &[f64]) -> Option<usize> {
    if series.len() < 2 * MIN_LEVEL_NIGHTS {
        return None;
    }
    let distances =
        |value: f64, others: &[f64]| others.iter().map(|other| (value - other).abs()).sum::<f64>();
    let pairs = |values: &[f64]| -> f64 {
        (0..values.len())
            .map(|at| distances(values[at], &values[at + 1..]))
            .sum()
    };
    let (left, right) = series.split_at(MIN_LEVEL_NIGHTS);
    let (mut inside, mut outside) = (pairs(left), pairs(right));
    let mut across: f64 = left.iter().map(|value| distances(*value, right)).sum();
    let mut best: Option<(usize, f64)> = None;
    for at in MIN_LEVEL_NIGHTS..=series.len() - MIN_LEVEL_NIGHTS {
        let (n, m) = (at as f64, (series.len() - at) as f64);
        let energy = n * m / (n + m)
            * (2.0 * across / (n * m) - 2.0 * inside / (n * (n - 1.0)) - 2.0 * outside / (m * (m - 1.0)));
        if best.is_none_or(|(_, max_energy)| energy > max_energy) {
            best = Some((at, energy));
        }
        // The value at the border moves to the left part.
        let to_left = distances(series[at], &series[..at]);
        let to_right = distances(series[at], &series[at + 1..]);
        across += to_right - to_left;
        inside += to_left;
        outside -= to_right;
    }
    best.map(|(at, _)| at)
}

/// Returns the probability that two parts of one series differ this much by chance: t with the variance of a
/// mean of autocorrelated values.
///
/// Source: the long-run variance of an autoregression of order one, σ²·(1+ρ)/(1−ρ), J. D. Hamilton, "Time
/// Series Analysis", 1994, section 7.2. σ² and ρ come from the differences of neighbours, which neither a
/// step nor a steady drift can inflate. For such a series their variance is 2σ²·(1−ρ) and their first
/// autocorrelation −(1−ρ)/2.
fn significance(series: &[f64], at: usize) -> f64 {
    let mut steps: Vec<f64> = series.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The step at the border is what is tested, so it is left out of the variance.
    let observed = steps.remove(at - 1);
    let drift = mean(&steps);
    steps.iter_mut().for_each(|step| *step -= drift);
    let variance = steps.iter().map(|step| step * step).sum::<f64>() / steps.len() as f64;
    if variance == 0.0 {
        return if observed == 0.0 { 1.0 } else { 0.0 };
    }
    let neighbours: f64 = steps.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / steps.len() as f64;
    let memory = (1.0 + 2.0 * neighbours / variance).clamp(0.0, 0.95);
    let long_run = variance * (1.0 + memory) / (2.0 * (1.0 - memory).powi(2));
    let (left, right) = series.split_at(at);
    let error = (long_run * (1.0 / left.len() as f64 + 1.0 / right.len() as f64)).sqrt();
    let t = (mean(right) - mean(left)).abs() / error;
    let freedom = (series.len() - 2) as f64;
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |student| 2.0 * student.sf(t))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_found_where_it_is() {
        let wobble = |at: usize| [0.004, -0.006, 0.001, 0.005, -0.004][at % 5];
        let series: Vec<f64> = (0..26)
            .map(|at| wobble(at) - if at >= 15 { 0.06 } else { 0.0 })
            .collect();
        let changes = find_changes(&series, 0.02);
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!(changes[0].at, 15);
        assert_eq!(recent_change(&series, 0.02).unwrap().at, 15);
        assert_eq!(find_changes(&series, 0.1), []);
        assert_eq!(
            recent_change(&series[..17], 0.02),
            None,
            "two nights are no level"
        );
    }

    #[test]
    fn short_and_constant_series_have_no_change() {
        assert_eq!(find_changes(&[], 0.02), []);
        assert_eq!(find_changes(&[1.0; 7], 0.02), []);
        assert_eq!(recent_change(&[1.0; 30], 0.02), None);
        let mut step = vec![0.0; 20];
        step[12..].fill(-0.1);
        assert_eq!(recent_change(&step, 0.02).unwrap().at, 12);
    }
}
