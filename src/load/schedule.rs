//! Arrival and seed to due times. Pure: waits for nothing and sends nothing.
//!
//! The schedule is absolute: a request that goes out late does not push back the ones behind it, as it would in the
//! Python tool, which sleeps the gaps one after another.

mod pace;

use std::time::Duration;

use crate::base::ids::ContentHash;
use crate::load::dataset::rng::Numpy;
use crate::matrix::spec::arrival::{Arrival, Spacing};

/// When each of `count` requests falls due, counted from the start of the measurement; the first at once.
///
/// One gap is drawn per request, the last one too although nothing waits for it, as the Python tool does: `numpy`
/// ends where its generator ends. An infinite rate and constant spacing draw nothing.
///
/// Where the rate changes, arrivals of one per second are drawn and time is stretched until they fall due at the rate of
/// each moment. There may be fewer due times than `count` then: nothing falls due after the last stage.
pub fn due(arrival: &Arrival, count: usize, numpy: &mut Numpy) -> Vec<Duration> {
    if let Some(pace) = &arrival.pace {
        let units = units(arrival.spacing, count, numpy);
        return units
            .into_iter()
            .map_while(|unit| pace::moment(pace, count, unit))
            .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
            .collect();
    }
    if arrival.rate.is_infinite() {
        return vec![Duration::ZERO; count];
    }
    let mean = 1.0 / arrival.rate.per_second();
    let mut at = 0.0;
    (0..count)
        .map(|row| {
            let due = at;
            match arrival.spacing {
                Spacing::Poisson => at += numpy.exponential(mean),
                // A product instead of a sum, so that rounding does not add up.
                Spacing::Constant => at = mean * (row + 1) as f64,
                Spacing::Gamma { burstiness } => {
                    let shape = burstiness.shape();
                    at += numpy.gamma(shape, 1.0 / (arrival.rate.per_second() * shape));
                }
            }
            Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX)
        })
        .collect()
}

/// Arrivals at one per second.
fn units(spacing: Spacing, count: usize, numpy: &mut Numpy) -> Vec<f64> {
    let mut at = 0.0;
    let unit = |row: usize| {
        let unit = at;
        match spacing {
            Spacing::Poisson => at += numpy.exponential(1.0),
            Spacing::Constant => at = (row + 1) as f64,
            Spacing::Gamma { burstiness } => {
                at += numpy.gamma(burstiness.shape(), 1.0 / burstiness.shape());
            }
        }
        unit
    };
    (0..count).map(unit).collect()
}

/// A digest of a schedule, to the nanosecond.
pub fn hash(due: &[Duration]) -> ContentHash {
    let bytes: Vec<u8> = due.iter().flat_map(|due| due.as_nanos().to_le_bytes()).collect();
    ContentHash::of_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::units::RequestRate;
    use crate::matrix::spec::arrival::Burstiness;

    fn arrival(rate: f64, spacing: Spacing) -> Arrival {
        Arrival {
            rate: RequestRate::new(rate).unwrap(),
            pace: None,
            spacing,
            concurrency: None,
        }
    }

    fn gamma(shape: f64) -> Spacing {
        Spacing::Gamma {
            burstiness: Burstiness::new(shape).unwrap(),
        }
    }

    /// Due times from gaps, to the nanosecond.
    fn after(gaps: &[f64]) -> Vec<Duration> {
        let mut at = 0.0;
        let mut due = vec![Duration::ZERO];
        for gap in gaps {
            at += gap;
            due.push(Duration::from_secs_f64(at));
        }
        due
    }

    #[test]
    fn poisson_gaps_are_numpys_exponential_draws() {
        let mut numpy = Numpy::new(1);
        assert_eq!(
            due(&arrival(4.0, Spacing::Poisson), 6, &mut numpy),
            after(&[
                0.13490145931479636,
                0.31853131325332606,
                2.859533966077148e-05,
                0.09000318871347975,
                0.039677398798668474
            ])
        );
    }

    #[test]
    fn the_last_gap_is_drawn_although_nothing_waits_for_it() {
        let mut numpy = Numpy::new(1);
        due(&arrival(4.0, Spacing::Poisson), 4, &mut numpy);
        assert_eq!(numpy.exponential(0.25), 0.039677398798668474);
    }

    #[test]
    fn an_infinite_rate_makes_everything_due_at_once_and_draws_nothing() {
        let mut numpy = Numpy::new(1);
        let everything = Arrival {
            rate: RequestRate::INFINITE,
            pace: None,
            spacing: Spacing::Poisson,
            concurrency: None,
        };
        assert_eq!(due(&everything, 3, &mut numpy), [Duration::ZERO; 3]);
        assert_eq!(numpy, Numpy::new(1));
    }

    #[test]
    fn constant_spacing_neither_draws_nor_drifts() {
        let mut numpy = Numpy::new(1);
        let due = due(&arrival(10.0, Spacing::Constant), 100_001, &mut numpy);
        assert_eq!(due[3], Duration::from_millis(300));
        assert_eq!(due[100_000], Duration::from_secs(10_000));
        assert_eq!(numpy, Numpy::new(1));
    }

    #[test]
    fn gamma_of_burstiness_one_is_poisson() {
        let mut one = Numpy::new(7);
        let mut other = Numpy::new(7);
        assert_eq!(
            due(&arrival(4.0, gamma(1.0)), 100, &mut one),
            due(&arrival(4.0, Spacing::Poisson), 100, &mut other)
        );
    }

    #[test]
    fn a_burstiness_below_one_spreads_the_gaps_wider() {
        let spread = |spacing| {
            let due = due(&arrival(1.0, spacing), 5000, &mut Numpy::new(3));
            let gaps: Vec<f64> = due
                .windows(2)
                .map(|pair| (pair[1] - pair[0]).as_secs_f64())
                .collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64
        };
        assert!(spread(gamma(0.25)) > 2.0 * spread(Spacing::Poisson));
        assert!(spread(gamma(4.0)) < 0.5 * spread(Spacing::Poisson));
    }

    #[test]
    fn a_rate_too_slow_for_a_clock_ends_at_its_end() {
        let due = due(&arrival(1e-300, Spacing::Constant), 2, &mut Numpy::new(0));
        assert_eq!(due, [Duration::ZERO, Duration::MAX]);
    }

    #[test]
    fn another_schedule_has_another_hash() {
        let one = due(&arrival(4.0, Spacing::Poisson), 10, &mut Numpy::new(1));
        let other = due(&arrival(4.0, Spacing::Poisson), 10, &mut Numpy::new(2));
        assert_eq!(hash(&one), hash(&one.clone()));
        assert_ne!(hash(&one), hash(&other));
    }

    fn spacing() -> impl Strategy<Value = Spacing> {
        prop_oneof![
            Just(Spacing::Poisson),
            Just(Spacing::Constant),
            (0.5..4.0).prop_map(gamma)
        ]
    }

    proptest! {
        #[test]
        fn due_times_never_go_back_and_keep_their_mean(rate in 0.01..1e4, seed: u32, spacing in spacing()) {
            let due = due(&arrival(rate, spacing), 4001, &mut Numpy::new(seed));
            prop_assert_eq!(due[0], Duration::ZERO);
            prop_assert!(due.is_sorted());
            // Gaps of the burstiest spacing deviate by √2 means; six deviations of the mean of 4000 are 14 %.
            let mean = due[4000].as_secs_f64() / 4000.0;
            prop_assert!((mean * rate - 1.0).abs() < 0.14, "{} against {}", mean, 1.0 / rate);
        }
    }
}
