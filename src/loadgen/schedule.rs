//! Computes due times from an arrival and a seed. Pure: it neither waits nor sends.
//!
//! The schedule is absolute: a late request does not delay those behind it. In the Python tool it does,
//! because the tool sleeps one gap after another.

mod ramp;
mod vllm_serve;

use std::time::Duration;

use crate::base::ids::ContentHash;
use crate::config::arrival::{Arrival, ArrivalProcess};
use crate::config::lora::{AdapterDistribution, Lora};
use crate::loadgen::dataset::RngState;
use crate::loadgen::dataset::rng::Numpy;

pub(crate) use vllm_serve::{draw_vllm_schedule, ordered_times};

/// Returns the due time of each of `count` requests, from the start of the measurement. The first is due at
/// once.
///
/// One gap is drawn per request, including the last one, although nothing waits for it. The Python tool does
/// the same, so `numpy` ends in the same state as its generator. An infinite rate and constant spacing draw
/// nothing.
///
/// If the rate changes, arrivals of one per second are drawn, and time is stretched so that they fall due at
/// the current rate. There may then be fewer due times than `count`: nothing falls due after the last stage.
#[cfg(test)]
pub(crate) fn due_times(arrival: &Arrival, count: usize, numpy: &mut Numpy) -> Vec<Duration> {
    let mut gaps = ArrivalTimes::new(arrival, count);
    (0..count).map_while(|_| gaps.next_due(numpy)).collect()
}

/// Due times, adapters, and the due time of one further request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrawnSchedule {
    pub(crate) due: Vec<Duration>,
    /// The index of each request's adapter; empty without adapters.
    pub(crate) adapters: Vec<usize>,
    /// The due time of one further request; `None` if it would not be due, or if all are due at once.
    pub(crate) next: Option<Duration>,
}

/// Draws the due times as `due` does, and the adapters of a `lora`.
pub(crate) fn draw_schedule(
    arrival: &Arrival,
    lora: Option<&Lora>,
    count: usize,
    rng: &mut RngState,
) -> DrawnSchedule {
    let mut gaps = ArrivalTimes::new(arrival, count);
    let (due, adapters) = match lora {
        Some(lora) => assign_adapters(&mut gaps, lora, count, rng),
        None => {
            let due = (0..count).map_while(|_| gaps.next_due(&mut rng.numpy)).collect();
            (due, Vec::new())
        }
    };
    DrawnSchedule {
        due,
        adapters,
        next: gaps.current_due().filter(|_| !gaps.rate.is_infinite()),
    }
}

/// Draws the due times as `due` does, and the index of each request's adapter.
///
/// A request's adapter is drawn before the gap behind it, as the Python tool does.
#[cfg(test)]
pub(crate) fn due_times_and_adapters(
    arrival: &Arrival,
    lora: &Lora,
    count: usize,
    rng: &mut RngState,
) -> (Vec<Duration>, Vec<usize>) {
    assign_adapters(&mut ArrivalTimes::new(arrival, count), lora, count, rng)
}

fn assign_adapters(
    gaps: &mut ArrivalTimes<'_>,
    lora: &Lora,
    count: usize,
    rng: &mut RngState,
) -> (Vec<Duration>, Vec<usize>) {
    let names: Vec<usize> = (0..lora.names.len()).collect();
    let shares = match lora.distribution {
        AdapterDistribution::Skewed { alpha } => zipf_weights(alpha, names.len()),
        AdapterDistribution::Uniform | AdapterDistribution::Distinct => Vec::new(),
    };
    (0..count)
        .map_while(|row| {
            let adapter = match lora.distribution {
                AdapterDistribution::Uniform => *rng.python.choice(&names),
                AdapterDistribution::Distinct => row % names.len(),
                AdapterDistribution::Skewed { .. } => rng.numpy.choice_weighted(&shares),
            };
            Some((gaps.next_due(&mut rng.numpy)?, adapter))
        })
        .unzip()
}

/// Returns the probability of each of `count` names; each is `alpha` times as likely as the next.
fn zipf_weights(alpha: f64, count: usize) -> Vec<f64> {
    let weights: Vec<f64> = (0..count).map(|place| alpha.powf(-(place as f64))).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Returns the due times of a trace: the intervals of the trace, stretched by `slowdown`.
pub(crate) fn replay_times(moments: &[Duration], slowdown: f64) -> Vec<Duration> {
    let first = moments.iter().min().copied().unwrap_or_default();
    let after = |moment: &Duration| (*moment - first).as_secs_f64() * slowdown;
    moments
        .iter()
        .map(|moment| Duration::try_from_secs_f64(after(moment)).unwrap_or(Duration::MAX))
        .collect()
}

/// Draws the gaps of an arrival, one request after another.
struct ArrivalTimes<'a> {
    arrival: &'a Arrival,
    count: usize,
    /// Requests per second. If the rate changes, 1 per second of unstretched time.
    rate: f64,
    next_index: usize,
    elapsed: f64,
}

impl<'a> ArrivalTimes<'a> {
    fn new(arrival: &'a Arrival, count: usize) -> Self {
        Self {
            arrival,
            count,
            rate: match arrival.pace {
                Some(_) => 1.0,
                None => arrival.rate.per_second(),
            },
            next_index: 0,
            elapsed: 0.0,
        }
    }

    /// Returns when the next request is due and draws the gap behind it; `None` after the last stage.
    fn next_due(&mut self, numpy: &mut Numpy) -> Option<Duration> {
        if self.rate.is_infinite() {
            return Some(Duration::ZERO);
        }
        let due = self.current_due();
        self.next_index += 1;
        match self.arrival.spacing {
            ArrivalProcess::Poisson => self.elapsed += numpy.exponential(1.0 / self.rate),
            // A product instead of a sum, so that rounding errors do not add up.
            ArrivalProcess::Constant => self.elapsed = 1.0 / self.rate * self.next_index as f64,
            ArrivalProcess::Gamma { burstiness } => {
                let shape = burstiness.shape();
                self.elapsed += numpy.gamma(shape, 1.0 / (self.rate * shape));
            }
        }
        due
    }

    /// Returns when the next request is due; `None` after the last stage.
    fn current_due(&self) -> Option<Duration> {
        let due = match &self.arrival.pace {
            Some(pace) => ramp::moment(pace, self.count, self.elapsed)?,
            None => self.elapsed,
        };
        Some(Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX))
    }
}

/// Returns a digest of a schedule in nanoseconds and of the adapters, if there are any.
pub(crate) fn schedule_hash(due: &[Duration], adapters: &[usize]) -> ContentHash {
    let mut bytes: Vec<u8> = due.iter().flat_map(|due| due.as_nanos().to_le_bytes()).collect();
    bytes.extend(adapters.iter().flat_map(|place| (*place as u64).to_le_bytes()));
    ContentHash::from_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::units::{HumanDuration, RequestRate};
    use crate::config::arrival::{Burstiness, RateProfile, Stage};
    use crate::loadgen::dataset::rng::Python;

    fn arrival(rate: f64, spacing: ArrivalProcess) -> Arrival {
        Arrival {
            rate: RequestRate::new(rate).unwrap(),
            pace: None,
            spacing,
            concurrency: None,
        }
    }

    fn gamma(shape: f64) -> ArrivalProcess {
        ArrivalProcess::Gamma {
            burstiness: Burstiness::new(shape).unwrap(),
        }
    }

    /// Computes due times from gaps, to the nanosecond.
    fn due_after(gaps: &[f64]) -> Vec<Duration> {
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
            due_times(&arrival(4.0, ArrivalProcess::Poisson), 6, &mut numpy),
            due_after(&[
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
        due_times(&arrival(4.0, ArrivalProcess::Poisson), 4, &mut numpy);
        assert_eq!(numpy.exponential(0.25), 0.039677398798668474);
    }

    #[test]
    fn an_infinite_rate_makes_everything_due_at_once_and_draws_nothing() {
        let mut numpy = Numpy::new(1);
        let everything = Arrival {
            rate: RequestRate::INFINITE,
            pace: None,
            spacing: ArrivalProcess::Poisson,
            concurrency: None,
        };
        assert_eq!(due_times(&everything, 3, &mut numpy), [Duration::ZERO; 3]);
        assert_eq!(numpy, Numpy::new(1));
    }

    #[test]
    fn constant_spacing_neither_draws_nor_drifts() {
        let mut numpy = Numpy::new(1);
        let due = due_times(&arrival(10.0, ArrivalProcess::Constant), 100_001, &mut numpy);
        assert_eq!(due[3], Duration::from_millis(300));
        assert_eq!(due[100_000], Duration::from_secs(10_000));
        assert_eq!(numpy, Numpy::new(1));
    }

    #[test]
    fn gamma_of_burstiness_one_is_poisson() {
        let mut one = Numpy::new(7);
        let mut other = Numpy::new(7);
        assert_eq!(
            due_times(&arrival(4.0, gamma(1.0)), 100, &mut one),
            due_times(&arrival(4.0, ArrivalProcess::Poisson), 100, &mut other)
        );
    }

    #[test]
    fn a_burstiness_below_one_spreads_the_gaps_wider() {
        let spread = |spacing| {
            let due = due_times(&arrival(1.0, spacing), 5000, &mut Numpy::new(3));
            let gaps: Vec<f64> = due
                .windows(2)
                .map(|pair| (pair[1] - pair[0]).as_secs_f64())
                .collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64
        };
        assert!(spread(gamma(0.25)) > 2.0 * spread(ArrivalProcess::Poisson));
        assert!(spread(gamma(4.0)) < 0.5 * spread(ArrivalProcess::Poisson));
    }

    #[test]
    fn a_rate_too_slow_for_a_clock_ends_at_its_end() {
        let due = due_times(&arrival(1e-300, ArrivalProcess::Constant), 2, &mut Numpy::new(0));
        assert_eq!(due, [Duration::ZERO, Duration::MAX]);
    }

    /// Draws eight requests with three adapters at a rate, from seed 1.
    fn assign_three(rate: f64, distribution: AdapterDistribution) -> (Vec<Duration>, Vec<usize>) {
        let lora = Lora {
            names: ["a", "b", "c"].map(str::to_owned).into(),
            distribution,
        };
        let mut rng = RngState {
            python: Python::new(1),
            numpy: Numpy::new(1),
        };
        due_times_and_adapters(&arrival(rate, ArrivalProcess::Poisson), &lora, 8, &mut rng)
    }

    #[test]
    fn adapters_are_dealt_as_the_python_tool_deals_them() {
        let (_, uniform) = assign_three(f64::INFINITY, AdapterDistribution::Uniform);
        assert_eq!(uniform, [0, 2, 0, 1, 0, 1, 1, 1]);
        let (_, distinct) = assign_three(f64::INFINITY, AdapterDistribution::Distinct);
        assert_eq!(distinct, [0, 1, 2, 0, 1, 2, 0, 1]);
        let skewed = AdapterDistribution::Skewed { alpha: 1.5 };
        let (_, places) = assign_three(f64::INFINITY, skewed);
        assert_eq!(places, [0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            zipf_weights(1.5, 3),
            [0.4736842105263159, 0.31578947368421056, 0.2105263157894737]
        );
    }

    #[test]
    fn skewed_adapters_and_gaps_are_drawn_in_turn() {
        let (due, places) = assign_three(4.0, AdapterDistribution::Skewed { alpha: 1.5 });
        assert_eq!(places[..4], [0; 4]);
        let gaps = [
            0.31853131325332606,
            0.09000318871347975,
            0.024220967913433363,
            0.1059941204517687,
        ];
        assert_eq!(due[..5], due_after(&gaps));
    }

    #[test]
    fn uniform_adapters_leave_the_gaps_alone() {
        let (due_, _) = assign_three(4.0, AdapterDistribution::Uniform);
        assert_eq!(
            due_,
            due_times(&arrival(4.0, ArrivalProcess::Poisson), 8, &mut Numpy::new(1))
        );
    }

    #[test]
    fn what_would_fall_due_next_is_known() {
        let rng = || RngState {
            python: Python::new(1),
            numpy: Numpy::new(1),
        };
        let poisson = arrival(4.0, ArrivalProcess::Poisson);
        let one_more = due_times(&poisson, 4, &mut Numpy::new(1));
        let three = draw_schedule(&poisson, None, 3, &mut rng());
        assert_eq!(
            (three.due.as_slice(), three.next),
            (&one_more[..3], Some(one_more[3]))
        );
        let at_once = draw_schedule(
            &arrival(f64::INFINITY, ArrivalProcess::Poisson),
            None,
            3,
            &mut rng(),
        );
        assert_eq!(at_once.next, None);
        let stage = |seconds| Arrival {
            pace: Some(RateProfile::Stages(vec![Stage {
                rate: RequestRate::new(2.0).unwrap(),
                duration: HumanDuration::from_secs(seconds),
            }])),
            ..arrival(f64::INFINITY, ArrivalProcess::Constant)
        };
        assert_eq!(draw_schedule(&stage(2), None, 4, &mut rng()).next, None);
        let short = draw_schedule(&stage(3), None, 4, &mut rng());
        assert_eq!(short.next, Some(Duration::from_secs(2)));
    }

    #[test]
    fn a_trace_keeps_its_distances_and_is_stretched() {
        let moments = [1500, 1500, 2250].map(Duration::from_millis);
        assert_eq!(
            replay_times(&moments, 2.0),
            [0, 0, 1500].map(Duration::from_millis)
        );
        assert_eq!(replay_times(&moments, 0.0), [Duration::ZERO; 3]);
    }

    #[test]
    fn another_schedule_has_another_hash() {
        let one = due_times(&arrival(4.0, ArrivalProcess::Poisson), 10, &mut Numpy::new(1));
        let other = due_times(&arrival(4.0, ArrivalProcess::Poisson), 10, &mut Numpy::new(2));
        assert_eq!(schedule_hash(&one, &[]), schedule_hash(&one.clone(), &[]));
        assert_ne!(schedule_hash(&one, &[]), schedule_hash(&other, &[]));
    }

    fn spacing() -> impl Strategy<Value = ArrivalProcess> {
        prop_oneof![
            Just(ArrivalProcess::Poisson),
            Just(ArrivalProcess::Constant),
            (0.5..4.0).prop_map(gamma)
        ]
    }

    proptest! {
        #[test]
        fn due_times_never_go_back_and_keep_their_mean(rate in 0.01..1e4, seed: u32, spacing in spacing()) {
            let due = due_times(&arrival(rate, spacing), 4001, &mut Numpy::new(seed));
            prop_assert_eq!(due[0], Duration::ZERO);
            prop_assert!(due.is_sorted());
            // The gaps of the burstiest spacing have a standard deviation of √2 means. Six deviations of the
            // mean of 4000 gaps are 14 %.
            let mean = due[4000].as_secs_f64() / 4000.0;
            prop_assert!((mean * rate - 1.0).abs() < 0.14, "{} against {}", mean, 1.0 / rate);
        }
    }
}
