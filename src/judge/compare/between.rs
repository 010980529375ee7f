//! How much the level of a figure differs between nights though nothing changed: what a host does from night to night is in no start of one
//! night, and so in no test on starts.

use super::decision::Variance;
use super::student;

/// The fewest differences between nights that tell their variance.
const LEAST: usize = 4;

/// A figure of one night in the past.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// The logarithms of its starts.
    pub logs: Vec<f64>,
    /// Which baseline the night was compared against: nights of one number lie in one series, 0 is that of the present baseline.
    pub series: usize,
}

/// The variance of a night's level, beyond what its starts explain, where the nights, the oldest first, are enough to tell. Two estimates:
/// from neighbouring nights, which a change of level hardly moves, and the larger of that and the one around the mean, which a host that wanders
/// needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between {
    /// From neighbouring nights.
    pub neighbours: Variance,
    /// The larger one.
    pub largest: Variance,
}

impl Between {
    /// What nights tell.
    ///
    /// Source: J. von Neumann and others, "The mean square successive difference", 1941.
    pub fn of(nights: &[Past]) -> Option<Self> {
        let nights: Vec<&Past> = nights.iter().filter(|night| !night.logs.is_empty()).collect();
        let level = |night: &Past| student::mean(&night.logs);
        let steps: Vec<f64> = nights
            .windows(2)
            .filter(|pair| pair[0].series == pair[1].series)
            .map(|pair| level(pair[1]) - level(pair[0]))
            .collect();
        if steps.len() < LEAST {
            return None;
        }
        let m = steps.len() as f64;
        let neighbours = Variance {
            value: steps.iter().map(|step| step * step).sum::<f64>() / 2.0 / m,
            // The efficiency of successive differences is two thirds.
            df: m * 2.0 / 3.0,
        };
        let around = around_means(&nights, level);
        let of_starts = of_starts(&nights);
        let beyond = |variance: Variance| Variance {
            value: (variance.value - of_starts).max(0.0),
            ..variance
        };
        let neighbours = beyond(neighbours);
        let around = around.map_or(neighbours, beyond);
        Some(Self {
            neighbours,
            largest: if around.value > neighbours.value {
                around
            } else {
                neighbours
            },
        })
    }
}

/// The variance of levels around the mean of their series.
fn around_means(nights: &[&Past], level: impl Fn(&Past) -> f64) -> Option<Variance> {
    let (mut squares, mut df) = (0.0, 0);
    let numbers: std::collections::BTreeSet<usize> = nights.iter().map(|night| night.series).collect();
    for number in numbers {
        let of_series = nights.iter().filter(|night| night.series == number);
        let levels: Vec<f64> = of_series.map(|night| level(night)).collect();
        squares += student::squares(&levels, student::mean(&levels));
        df += levels.len() - 1;
    }
    (df > 0).then(|| Variance {
        value: squares / df as f64,
        df: df as f64,
    })
}

/// What the starts of a night explain of the variance of its level.
fn of_starts(nights: &[&Past]) -> f64 {
    let (mut squares, mut df, mut inverse) = (0.0, 0, 0.0);
    for night in nights {
        squares += student::squares(&night.logs, student::mean(&night.logs));
        df += night.logs.len() - 1;
        inverse += 1.0 / night.logs.len() as f64;
    }
    match df {
        0 => 0.0,
        df => squares / df as f64 * inverse / nights.len() as f64,
    }
}

/// The variance of the difference of two nights.
pub fn of_two(night: Variance) -> Option<Variance> {
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
