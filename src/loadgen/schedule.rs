//! Computes due times from an arrival and a seed. Pure: it neither waits nor sends.
//!
//! The schedule is absolute: a late request does not delay those behind it. In the Python tool it does,
//! because the tool sleeps one gap after another.

mod ramp;

use std::time::Duration;

use crate::base::ids::ContentHash;
use crate::config::arrival::{Arrival, Spacing};
use crate::config::lora::{Dealt, Lora};
use crate::loadgen::dataset::Draws;
use crate::loadgen::dataset::rng::Numpy;

/// Returns the due time of each of `count` requests, from the start of the measurement. The first is due at
/// once.
///
/// One gap is drawn per request, including the last one, although nothing waits for it. The Python tool does
/// the same, so `numpy` ends in the same state as its generator. An infinite rate and constant spacing draw
/// nothing.
///
/// Where the rate changes, arrivals of one per second are drawn and time is stretched until they fall due at the rate of
/// each moment. There may be fewer due times than `count` then: nothing falls due after the last stage.
#[cfg(test)]
pub(crate) fn due(arrival: &Arrival, count: usize, numpy: &mut Numpy) -> Vec<Duration> {
    let mut gaps = Gaps::new(arrival, count);
    (0..count).map_while(|_| gaps.pass(numpy)).collect()
}

/// Due times, adapters, and the due time of one further request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub due: Vec<Duration>,
    /// The index of each request's adapter; empty without adapters.
    pub adapters: Vec<usize>,
    /// The due time of one further request; `None` if it would not be due, or if all are due at once.
    pub next: Option<Duration>,
}

/// Draws the due times as `due` does, and the adapters of a `lora`.
pub(crate) fn drawn(arrival: &Arrival, lora: Option<&Lora>, count: usize, draws: &mut Draws) -> Drawn {
    let mut gaps = Gaps::new(arrival, count);
    let (due, adapters) = match lora {
        Some(lora) => deal(&mut gaps, lora, count, draws),
        None => {
            let due = (0..count).map_while(|_| gaps.pass(&mut draws.numpy)).collect();
            (due, Vec::new())
        }
    };
    Drawn {
        due,
        adapters,
        next: gaps.moment().filter(|_| !gaps.rate.is_infinite()),
    }
}

/// Draws the due times as `due` does, and the index of each request's adapter.
///
/// A request's adapter is drawn before the gap behind it, as the Python tool does.
#[cfg(test)]
pub(crate) fn dealt(
    arrival: &Arrival,
    lora: &Lora,
    count: usize,
    draws: &mut Draws,
) -> (Vec<Duration>, Vec<usize>) {
    deal(&mut Gaps::new(arrival, count), lora, count, draws)
}

fn deal(gaps: &mut Gaps<'_>, lora: &Lora, count: usize, draws: &mut Draws) -> (Vec<Duration>, Vec<usize>) {
    let names: Vec<usize> = (0..lora.names.len()).collect();
    let shares = match lora.dealt {
        Dealt::Skewed { alpha } => shares(alpha, names.len()),
        Dealt::Uniform | Dealt::Distinct => Vec::new(),
    };
    (0..count)
        .map_while(|row| {
            let adapter = match lora.dealt {
                Dealt::Uniform => *draws.python.choice(&names),
                Dealt::Distinct => row % names.len(),
                Dealt::Skewed { .. } => draws.numpy.choice_weighted(&shares),
            };
            Some((gaps.pass(&mut draws.numpy)?, adapter))
        })
        .unzip()
}

/// Returns the probability of each of `count` names; each is `alpha` times as likely as the next.
fn shares(alpha: f64, count: usize) -> Vec<f64> {
    let weights: Vec<f64> = (0..count).map(|place| alpha.powf(-(place as f64))).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Returns the due times of a trace: the intervals of the trace, stretched by `slowdown`.
pub(crate) fn replayed(moments: &[Duration], slowdown: f64) -> Vec<Duration> {
    let first = moments.iter().min().copied().unwrap_or_default();
    let after = |moment: &Duration| (*moment - first).as_secs_f64() * slowdown;
    moments
        .iter()
        .map(|moment| Duration::try_from_secs_f64(after(moment)).unwrap_or(Duration::MAX))
        .collect()
}

/// Draws the gaps of an arrival, one request after another.
struct Gaps<'a> {
    arrival: &'a Arrival,
    count: usize,
    /// Requests per second. If the rate changes, 1 per second of unstretched time.
    rate: f64,
    row: usize,
    at: f64,
}

impl<'a> Gaps<'a> {
    fn new(arrival: &'a Arrival, count: usize) -> Self {
        Self {
            arrival,
            count,
            rate: match arrival.pace {
                Some(_) => 1.0,
                None => arrival.rate.per_second(),
            },
            row: 0,
            at: 0.0,
        }
    }

    /// Returns when the next request is due and draws the gap behind it; `None` after the last stage.
    fn pass(&mut self, numpy: &mut Numpy) -> Option<Duration> {
        if self.rate.is_infinite() {
            return Some(Duration::ZERO);
        }
        let due = self.moment();
        self.row += 1;
        match self.arrival.spacing {
            Spacing::Poisson => self.at += numpy.exponential(1.0 / self.rate),
            // A product instead of a sum, so that rounding errors do not add up.
            Spacing::Constant => self.at = 1.0 / self.rate * self.row as f64,
            Spacing::Gamma { burstiness } => {
                let shape = burstiness.shape();
                self.at += numpy.gamma(shape, 1.0 / (self.rate * shape));
            }
        }
        due
    }

    /// Returns when the next request is due; `None` after the last stage.
    fn moment(&self) -> Option<Duration> {
        let due = match &self.arrival.pace {
            Some(pace) => ramp::moment(pace, self.count, self.at)?,
            None => self.at,
        };
        Some(Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX))
    }
}

/// Returns a digest of a schedule in nanoseconds and of the adapters, if there are any.
pub(crate) fn hash(due: &[Duration], adapters: &[usize]) -> ContentHash {
    let mut bytes: Vec<u8> = due.iter().flat_map(|due| due.as_nanos().to_le_bytes()).collect();
    bytes.extend(adapters.iter().flat_map(|place| (*place as u64).to_le_bytes()));
    ContentHash::of_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::units::{RequestRate, Span};
    use crate::config::arrival::{Burstiness, Pace, Stage};
    use crate::loadgen::dataset::rng::Python;

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

    /// Computes due times from gaps, to the nanosecond.
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

    /// Draws eight requests with three adapters at a rate, from seed 1.
    fn dealt_three(rate: f64, dealt: Dealt) -> (Vec<Duration>, Vec<usize>) {
        let lora = Lora {
            names: ["a", "b", "c"].map(str::to_owned).into(),
            dealt,
        };
        let mut draws = Draws {
            python: Python::new(1),
            numpy: Numpy::new(1),
        };
        super::dealt(&arrival(rate, Spacing::Poisson), &lora, 8, &mut draws)
    }

    #[test]
    fn adapters_are_dealt_as_the_python_tool_deals_them() {
        let (_, uniform) = dealt_three(f64::INFINITY, Dealt::Uniform);
        assert_eq!(uniform, [0, 2, 0, 1, 0, 1, 1, 1]);
        let (_, distinct) = dealt_three(f64::INFINITY, Dealt::Distinct);
        assert_eq!(distinct, [0, 1, 2, 0, 1, 2, 0, 1]);
        let skewed = Dealt::Skewed { alpha: 1.5 };
        let (_, places) = dealt_three(f64::INFINITY, skewed);
        assert_eq!(places, [0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            shares(1.5, 3),
            [0.4736842105263159, 0.31578947368421056, 0.2105263157894737]
        );
    }

    #[test]
    fn skewed_adapters_and_gaps_are_drawn_in_turn() {
        let (due, places) = dealt_three(4.0, Dealt::Skewed { alpha: 1.5 });
        assert_eq!(places[..4], [0; 4]);
        let gaps = [
            0.31853131325332606,
            0.09000318871347975,
            0.024220967913433363,
            0.1059941204517687,
        ];
        assert_eq!(due[..5], after(&gaps));
    }

    #[test]
    fn uniform_adapters_leave_the_gaps_alone() {
        let (due_, _) = dealt_three(4.0, Dealt::Uniform);
        assert_eq!(due_, due(&arrival(4.0, Spacing::Poisson), 8, &mut Numpy::new(1)));
    }

    #[test]
    fn what_would_fall_due_next_is_known() {
        let draws = || Draws {
            python: Python::new(1),
            numpy: Numpy::new(1),
        };
        let poisson = arrival(4.0, Spacing::Poisson);
        let one_more = due(&poisson, 4, &mut Numpy::new(1));
        let three = drawn(&poisson, None, 3, &mut draws());
        assert_eq!(
            (three.due.as_slice(), three.next),
            (&one_more[..3], Some(one_more[3]))
        );
        let at_once = drawn(&arrival(f64::INFINITY, Spacing::Poisson), None, 3, &mut draws());
        assert_eq!(at_once.next, None);
        let stage = |seconds| Arrival {
            pace: Some(Pace::Stages(vec![Stage {
                rate: RequestRate::new(2.0).unwrap(),
                duration: Span::seconds(seconds),
            }])),
            ..arrival(f64::INFINITY, Spacing::Constant)
        };
        assert_eq!(drawn(&stage(2), None, 4, &mut draws()).next, None);
        let short = drawn(&stage(3), None, 4, &mut draws());
        assert_eq!(short.next, Some(Duration::from_secs(2)));
    }

    #[test]
    fn a_trace_keeps_its_distances_and_is_stretched() {
        let moments = [1500, 1500, 2250].map(Duration::from_millis);
        assert_eq!(replayed(&moments, 2.0), [0, 0, 1500].map(Duration::from_millis));
        assert_eq!(replayed(&moments, 0.0), [Duration::ZERO; 3]);
    }

    #[test]
    fn another_schedule_has_another_hash() {
        let one = due(&arrival(4.0, Spacing::Poisson), 10, &mut Numpy::new(1));
        let other = due(&arrival(4.0, Spacing::Poisson), 10, &mut Numpy::new(2));
        assert_eq!(hash(&one, &[]), hash(&one.clone(), &[]));
        assert_ne!(hash(&one, &[]), hash(&other, &[]));
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
            // The gaps of the burstiest spacing have a standard deviation of √2 means. Six deviations of the
            // mean of 4000 gaps are 14 %.
            let mean = due[4000].as_secs_f64() / 4000.0;
            prop_assert!((mean * rate - 1.0).abs() < 0.14, "{} against {}", mean, 1.0 / rate);
        }
    }
}
