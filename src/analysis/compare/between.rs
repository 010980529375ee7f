//! Estimates how much the level of a metric differs between nightly runs without a change. A host changes
//! from night to night. The starts of a single night do not show this, so a test on starts cannot see it.

use std::collections::BTreeMap;

use super::decision::Variance;
use super::t_test;

/// Fewest differences between nights that give a variance.
const LEAST: usize = 4;
/// Distance of a broken night from the median of its series, in standard deviations.
const BROKEN: f64 = 5.0;
/// A night closer to the median than this is not broken, of logarithms.
const LEAST_BROKEN: f64 = 0.02;
/// At most one night in this many may be broken. If more are that far off, nights are normally like that.
const RARE: usize = 10;
/// Ratio of the standard deviation of normal values to their median absolute deviation.
const OF_MEDIAN: f64 = 1.4826;

/// A metric of one earlier nightly run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Past {
    pub logs: Vec<f64>,
    /// The baseline that the night was compared against. Nights with the same number belong to one series; 0
    /// is the present baseline.
    pub series: usize,
}

/// Variance of the level of a night, beyond what its starts explain. There are two estimates. The first uses
/// neighbouring nights without broken ones, and a level change hardly affects it. The second is the larger
/// one of all nights, from neighbours or around the mean; a host that wanders needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Between {
    /// From neighbouring nights, without broken ones.
    pub neighbours: Variance,
    /// The larger estimate of all nights.
    pub largest: Variance,
}

impl Between {
    /// Estimates both variances from nights in the order of time. `None` if there are too few nights.
    ///
    /// Source: J. von Neumann and others, "The mean square successive difference", 1941.
    pub(crate) fn of(nights: &[Past]) -> Option<Self> {
        let all: Vec<&Past> = nights.iter().filter(|night| !night.logs.is_empty()).collect();
        let of_all = of_neighbours(&all)?;
        let around = around_means(&all).map_or(of_all, |around| beyond_starts(around, &all));
        Some(Self {
            neighbours: of_neighbours(&usual(nights)).unwrap_or(of_all),
            largest: if around.value > of_all.value {
                around
            } else {
                of_all
            },
        })
    }
}

/// Returns the nights that are not broken. A night is broken if it is far from the median of its series and
/// such nights are rare. One night at half speed says nothing about how much other nights differ. It would
/// hide every loss as long as it is in the history.
///
/// Source: the median of absolute deviations as a scale, F. R. Hampel, "The influence curve and its role in
/// robust estimation", 1974.
pub(crate) fn usual(nights: &[Past]) -> Vec<&Past> {
    let all: Vec<&Past> = nights.iter().filter(|night| !night.logs.is_empty()).collect();
    let mut levels: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for night in &all {
        levels.entry(night.series).or_default().push(level(night));
    }
    let medians: BTreeMap<usize, f64> = levels
        .into_iter()
        .map(|(series, levels)| (series, median(levels)))
        .collect();
    let distance = |night: &Past| (level(night) - medians[&night.series]).abs();
    let spread = OF_MEDIAN * median(all.iter().map(|night| distance(night)).collect());
    let most = (BROKEN * spread).max(LEAST_BROKEN);
    let usual: Vec<&Past> = all
        .iter()
        .copied()
        .filter(|night| distance(night) <= most)
        .collect();
    let is_rare = (all.len() - usual.len()) * RARE <= all.len();
    if is_rare { usual } else { all }
}

fn level(night: &Past) -> f64 {
    t_test::mean(&night.logs)
}

/// Returns the median of the values, or 0 if there are none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else {
        return 0.0;
    };
    f64::midpoint(values[last / 2], values[last.div_ceil(2)])
}

/// Returns the variance of the level from neighbouring nights. `None` if there are too few.
fn of_neighbours(nights: &[&Past]) -> Option<Variance> {
    let pairs = nights.windows(2).filter(|pair| pair[0].series == pair[1].series);
    let steps: Vec<f64> = pairs.map(|pair| level(pair[1]) - level(pair[0])).collect();
    if steps.len() < LEAST {
        return None;
    }
    let m = steps.len() as f64;
    let variance = Variance {
        value: steps.iter().map(|step| step * step).sum::<f64>() / 2.0 / m,
        // The efficiency of successive differences is two thirds.
        df: m * 2.0 / 3.0,
    };
    Some(beyond_starts(variance, nights))
}

/// Subtracts the variance that the starts of the nights explain.
fn beyond_starts(variance: Variance, nights: &[&Past]) -> Variance {
    Variance {
        value: (variance.value - of_starts(nights)).max(0.0),
        ..variance
    }
}

/// Returns the variance of the levels around the mean of their series.
fn around_means(nights: &[&Past]) -> Option<Variance> {
    let (mut squares, mut df) = (0.0, 0);
    let numbers: std::collections::BTreeSet<usize> = nights.iter().map(|night| night.series).collect();
    for number in numbers {
        let of_series = nights.iter().filter(|night| night.series == number);
        let levels: Vec<f64> = of_series.map(|night| level(night)).collect();
        squares += t_test::squares(&levels, t_test::mean(&levels));
        df += levels.len() - 1;
    }
    (df > 0).then(|| Variance {
        value: squares / df as f64,
        df: df as f64,
    })
}

/// Returns the variance of a night's level that its starts explain.
fn of_starts(nights: &[&Past]) -> f64 {
    let (mut squares, mut df, mut inverse) = (0.0, 0, 0.0);
    for night in nights {
        squares += t_test::squares(&night.logs, t_test::mean(&night.logs));
        df += night.logs.len() - 1;
        inverse += 1.0 / night.logs.len() as f64;
    }
    match df {
        0 => 0.0,
        df => squares / df as f64 * inverse / nights.len() as f64,
    }
}

/// Returns the variance of the difference of two nights. `None` if it is zero.
pub(crate) fn of_two(night: Variance) -> Option<Variance> {
    (night.value > 0.0).then_some(Variance {
        value: 2.0 * night.value,
        ..night
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nights(levels: &[f64]) -> Vec<Past> {
        let night = |level: &f64| Past {
            logs: vec![*level; 2],
            series: 0,
        };
        levels.iter().map(night).collect()
    }

    #[test]
    fn few_nights_tell_nothing_and_a_change_of_level_little() {
        assert_eq!(Between::of(&nights(&[0.0, 0.01, 0.0, 0.01])), None);
        let quiet = nights(&[0.0, 0.01, 0.0, 0.01, 0.0, 0.01, 0.0, 0.01, 0.0, 0.01]);
        let between = Between::of(&quiet).unwrap();
        assert!((between.neighbours.value - 0.00005).abs() < 1e-12, "{between:?}");
        let stepped = nights(&[0.0, 0.01, 0.0, 0.01, 0.0, 0.11, 0.1, 0.11, 0.1, 0.11]);
        let between = Between::of(&stepped).unwrap();
        assert!(
            between.neighbours.value < 0.001 && between.largest.value > 0.002,
            "{between:?}"
        );
    }

    #[test]
    fn a_broken_night_says_nothing_of_how_nights_differ_and_many_do() {
        let level = |at: usize| 0.005 * (at % 3) as f64;
        let with = |broken: &[usize]| {
            let levels: Vec<f64> = (0..40)
                .map(|at| level(at) + if broken.contains(&at) { 0.7 } else { 0.0 })
                .collect();
            Between::of(&nights(&levels)).unwrap()
        };
        let (none, one, many) = (with(&[]), with(&[10]), with(&[3, 10, 17, 24, 31]));
        assert!(
            one.neighbours.value < 1.5 * none.neighbours.value,
            "{one:?} {none:?}"
        );
        assert!(one.largest.value > 0.01, "{one:?}");
        assert!(many.neighbours.value > 0.01, "{many:?}");
        // A level that half of the nights have is not broken.
        let halves: Vec<f64> = (0..40).map(|at| 0.06 * f64::from(at / 5 % 2)).collect();
        assert_eq!(usual(&nights(&halves)).len(), 40);
    }

    #[test]
    fn what_starts_explain_is_not_between_nights() {
        let night = |at: usize| Past {
            logs: vec![0.01 * (at % 2) as f64, 0.01 * (at % 2) as f64 - 0.04],
            series: 0,
        };
        let between = Between::of(&(0..10).map(night).collect::<Vec<_>>()).unwrap();
        assert_eq!(between.neighbours.value, 0.0);
        assert_eq!(of_two(between.neighbours), None);
    }

    #[test]
    fn nights_of_two_baselines_are_no_neighbours() {
        let night = |at: usize| Past {
            logs: vec![if at < 5 { 0.0 } else { 0.3 } + 0.01 * (at % 2) as f64],
            series: usize::from(at >= 5),
        };
        let between = Between::of(&(0..10).map(night).collect::<Vec<_>>()).unwrap();
        assert!(between.largest.value < 0.0001, "{between:?}");
    }
}
