//! Estimates how much the level of a metric differs between nightly runs without a change. A host changes
//! from night to night. The starts of a single night do not show this, so a test on starts cannot see it.

use std::collections::BTreeMap;

use super::decision::Variance;
use super::t_test;

/// Fewest differences between nights that give a variance.
const MIN_DIFFERENCES: usize = 4;
/// Distance of a broken night from the median of its series, in standard deviations.
const OUTLIER_DEVIATIONS: f64 = 5.0;
/// A night closer to the median than this is not broken, of logarithms.
const MIN_OUTLIER_LOG: f64 = 0.02;
/// At most one night in this many may be broken. If more are that far off, nights are normally like that.
const NIGHTS_PER_OUTLIER: usize = 10;
/// Ratio of the standard deviation of normal values to their median absolute deviation.
const MAD_TO_SIGMA: f64 = 1.4826;

/// A metric of one earlier nightly run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PastNight {
    pub(crate) logs: Vec<f64>,
    /// The baseline that the night was compared against. Nights with the same number belong to one series; 0
    /// is the present baseline.
    pub(crate) series: usize,
}

/// Variance of the level of a night, beyond what its starts explain. There are two estimates. The first uses
/// neighbouring nights without broken ones, and a level change hardly affects it. The second is the larger
/// one of all nights, from neighbours or around the mean; a host that wanders needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NightVariance {
    /// From neighbouring nights, without broken ones.
    pub(crate) between_neighbours: Variance,
    /// The larger estimate of all nights.
    pub(crate) upper_bound: Variance,
}

impl NightVariance {
    /// Estimates both variances from nights in the order of time. `None` if there are too few nights.
    ///
    /// Source: J. von Neumann and others, "The mean square successive difference", 1941.
    pub(crate) fn from_nights(nights: &[PastNight]) -> Option<Self> {
        let measured: Vec<&PastNight> = nights.iter().filter(|night| !night.logs.is_empty()).collect();
        let of_all = variance_of_neighbours(&measured)?;
        let around = variance_around_means(&measured)
            .map_or(of_all, |around| without_start_variance(around, &measured));
        Some(Self {
            between_neighbours: variance_of_neighbours(&without_outliers(nights)).unwrap_or(of_all),
            upper_bound: if around.value > of_all.value {
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
pub(crate) fn without_outliers(nights: &[PastNight]) -> Vec<&PastNight> {
    let measured: Vec<&PastNight> = nights.iter().filter(|night| !night.logs.is_empty()).collect();
    let mut levels: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for night in &measured {
        levels.entry(night.series).or_default().push(level(night));
    }
    let medians: BTreeMap<usize, f64> = levels
        .into_iter()
        .map(|(series, levels)| (series, median(levels)))
        .collect();
    let distance = |night: &PastNight| (level(night) - medians[&night.series]).abs();
    let spread = MAD_TO_SIGMA * median(measured.iter().map(|night| distance(night)).collect());
    let max_distance = (OUTLIER_DEVIATIONS * spread).max(MIN_OUTLIER_LOG);
    let usual: Vec<&PastNight> = measured
        .iter()
        .copied()
        .filter(|night| distance(night) <= max_distance)
        .collect();
    let is_rare = (measured.len() - usual.len()) * NIGHTS_PER_OUTLIER <= measured.len();
    if is_rare { usual } else { measured }
}

fn level(night: &PastNight) -> f64 {
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
fn variance_of_neighbours(nights: &[&PastNight]) -> Option<Variance> {
    let pairs = nights.windows(2).filter(|pair| pair[0].series == pair[1].series);
    let steps: Vec<f64> = pairs.map(|pair| level(pair[1]) - level(pair[0])).collect();
    if steps.len() < MIN_DIFFERENCES {
        return None;
    }
    let m = steps.len() as f64;
    let variance = Variance {
        value: steps.iter().map(|step| step * step).sum::<f64>() / 2.0 / m,
        // The efficiency of successive differences is two thirds.
        df: m * 2.0 / 3.0,
    };
    Some(without_start_variance(variance, nights))
}

/// Subtracts the variance that the starts of the nights explain.
fn without_start_variance(variance: Variance, nights: &[&PastNight]) -> Variance {
    Variance {
        value: (variance.value - start_variance(nights)).max(0.0),
        ..variance
    }
}

/// Returns the variance of the levels around the mean of their series.
fn variance_around_means(nights: &[&PastNight]) -> Option<Variance> {
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
fn start_variance(nights: &[&PastNight]) -> f64 {
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
pub(crate) fn variance_of_difference(night: Variance) -> Option<Variance> {
    (night.value > 0.0).then_some(Variance {
        value: 2.0 * night.value,
        ..night
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nights(levels: &[f64]) -> Vec<PastNight> {
        let night = |level: &f64| PastNight {
            logs: vec![*level; 2],
            series: 0,
        };
        levels.iter().map(night).collect()
    }

    #[test]
    fn few_nights_tell_nothing_and_a_change_of_level_little() {
        assert_eq!(NightVariance::from_nights(&nights(&[0.0, 0.01, 0.0, 0.01])), None);
        let quiet = nights(&[0.0, 0.01, 0.0, 0.01, 0.0, 0.01, 0.0, 0.01, 0.0, 0.01]);
        let between = NightVariance::from_nights(&quiet).unwrap();
        assert!(
            (between.between_neighbours.value - 0.00005).abs() < 1e-12,
            "{between:?}"
        );
        let stepped = nights(&[0.0, 0.01, 0.0, 0.01, 0.0, 0.11, 0.1, 0.11, 0.1, 0.11]);
        let between = NightVariance::from_nights(&stepped).unwrap();
        assert!(
            between.between_neighbours.value < 0.001 && between.upper_bound.value > 0.002,
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
            NightVariance::from_nights(&nights(&levels)).unwrap()
        };
        let (none, one, many) = (with(&[]), with(&[10]), with(&[3, 10, 17, 24, 31]));
        assert!(
            one.between_neighbours.value < 1.5 * none.between_neighbours.value,
            "{one:?} {none:?}"
        );
        assert!(one.upper_bound.value > 0.01, "{one:?}");
        assert!(many.between_neighbours.value > 0.01, "{many:?}");
        // A level that half of the nights have is not broken.
        let halves: Vec<f64> = (0..40).map(|at| 0.06 * f64::from(at / 5 % 2)).collect();
        assert_eq!(without_outliers(&nights(&halves)).len(), 40);
    }

    #[test]
    fn what_starts_explain_is_not_between_nights() {
        let night = |at: usize| PastNight {
            logs: vec![0.01 * (at % 2) as f64, 0.01 * (at % 2) as f64 - 0.04],
            series: 0,
        };
        let between = NightVariance::from_nights(&(0..10).map(night).collect::<Vec<_>>()).unwrap();
        assert_eq!(between.between_neighbours.value, 0.0);
        assert_eq!(variance_of_difference(between.between_neighbours), None);
    }

    #[test]
    fn nights_of_two_baselines_are_no_neighbours() {
        let night = |at: usize| PastNight {
            logs: vec![if at < 5 { 0.0 } else { 0.3 } + 0.01 * (at % 2) as f64],
            series: usize::from(at >= 5),
        };
        let between = NightVariance::from_nights(&(0..10).map(night).collect::<Vec<_>>()).unwrap();
        assert!(between.upper_bound.value < 0.0001, "{between:?}");
    }
}
