//! The due times of `vllm bench serve`. Unlike those of bench_serving, the first request waits for a gap too, a
//! constant rate is stretched so that the last request is due when the rate says, and a ramp grows with the
//! number of requests, not with time.

use std::time::Duration;

use super::DrawnSchedule;
use crate::config::arrival::{Arrival, ArrivalProcess};
use crate::config::lora::{AdapterDistribution, Lora};
use crate::loadgen::dataset::RngState;
use crate::loadgen::dataset::rng::Numpy;

/// Draws the adapters of all requests, and then their due times.
pub(crate) fn draw_vllm_schedule(
    arrival: &Arrival,
    lora: Option<&Lora>,
    count: usize,
    rng: &mut RngState,
) -> DrawnSchedule {
    let adapters = lora.map_or_else(Vec::new, |lora| {
        let names: Vec<usize> = (0..lora.names.len()).collect();
        let adapter = |row: usize| match lora.distribution {
            AdapterDistribution::Distinct => row % names.len(),
            _ => *rng.python.choice(&names),
        };
        (0..count).map(adapter).collect()
    });
    DrawnSchedule {
        due: due_times(arrival, count, &mut rng.numpy),
        adapters,
        next: None,
    }
}

fn due_times(arrival: &Arrival, count: usize, numpy: &mut Numpy) -> Vec<Duration> {
    let mut at = 0.0;
    let gap = |row: usize, numpy: &mut Numpy| {
        let rate = arrival.rate_of_request(row, count);
        match arrival.spacing {
            _ if rate.is_infinite() => 0.0,
            ArrivalProcess::Constant => 1.0 / rate,
            ArrivalProcess::Poisson => numpy.gamma(1.0, 1.0 / rate),
            ArrivalProcess::Gamma { burstiness } => {
                let shape = burstiness.shape();
                numpy.gamma(shape, 1.0 / (rate * shape))
            }
        }
    };
    let mut due: Vec<f64> = (0..count)
        .map(|row| {
            at += gap(row, numpy);
            at
        })
        .collect();
    if arrival.pace.is_none() && at > 0.0 {
        let factor = count as f64 / arrival.rate.per_second() / at;
        due.iter_mut().for_each(|due| *due *= factor);
    }
    due.into_iter()
        .map(|due| Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX))
        .collect()
}

/// The due times of a trace in the order of its rows: a row is never sent before the one ahead of it.
pub(crate) fn ordered_times(moments: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut latest = Duration::ZERO;
    moments
        .map(|moment| {
            latest = latest.max(moment);
            latest
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::RequestRate;
    use crate::config::arrival::{Burstiness, Ramp, RampCurve, RateProfile};

    fn seconds(arrival: &Arrival) -> Vec<f64> {
        let due = due_times(arrival, 4, &mut Numpy::new(1));
        due.iter().map(Duration::as_secs_f64).collect()
    }

    fn arrival(rate: RequestRate, pace: Option<RateProfile>, spacing: ArrivalProcess) -> Arrival {
        Arrival {
            rate,
            pace,
            spacing,
            concurrency: None,
        }
    }

    fn assert_close(actual: &[f64], expected: &[f64]) {
        let is_close = |(one, other): (&f64, &f64)| (one - other).abs() < 2e-9;
        assert!(
            actual.len() == expected.len() && actual.iter().zip(expected).all(is_close),
            "{actual:?} is not {expected:?}"
        );
    }

    /// Source: the delays that `get_request` of vLLM 0.32 computes, with numpy 2.4 and seed 1.
    #[test]
    fn due_times_are_those_of_vllm() {
        let rate = |per_second| RequestRate::new(per_second).unwrap();
        let gamma = ArrivalProcess::Gamma {
            burstiness: Burstiness::new(0.5).unwrap(),
        };
        assert_close(
            &seconds(&arrival(rate(4.0), None, ArrivalProcess::Poisson)),
            &[0.2482249443339697, 0.8343373400229268, 0.8343899567746718, 1.0],
        );
        assert_close(
            &seconds(&arrival(rate(4.0), None, gamma)),
            &[0.7556670893887372, 0.7556671462312607, 0.8492515873030584, 1.0],
        );
        assert_close(
            &seconds(&arrival(rate(4.0), None, ArrivalProcess::Constant)),
            &[0.25, 0.5, 0.75, 1.0],
        );
        let ramp = |curve| {
            Some(RateProfile::Ramp(Ramp {
                from: rate(2.0),
                to: rate(16.0),
                curve,
                over: None,
            }))
        };
        let infinite = RequestRate::INFINITE;
        assert_close(
            &seconds(&arrival(
                infinite,
                ramp(RampCurve::Linear),
                ArrivalProcess::Poisson,
            )),
            &[
                0.26980291862959405,
                0.46092170658158693,
                0.46093179905440707,
                0.4834325962327739,
            ],
        );
        assert_close(
            &seconds(&arrival(infinite, ramp(RampCurve::Exponential), gamma)),
            &[
                0.17390735240614674,
                0.17390735894694842,
                0.1792916818193362,
                0.18362829011213933,
            ],
        );
        assert_close(&seconds(&arrival(infinite, None, gamma)), &[0.0; 4]);
    }

    #[test]
    fn a_trace_that_goes_back_in_time_waits_for_the_row_ahead() {
        let moments = [5, 3, 9].map(Duration::from_secs);
        assert_eq!(
            ordered_times(moments.into_iter()),
            [5, 5, 9].map(Duration::from_secs)
        );
    }
}
