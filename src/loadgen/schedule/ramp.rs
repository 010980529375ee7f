//! Rates that change: converts a number of arrivals to the moment at which that many requests have fallen
//! due.

use crate::config::arrival::{Ramp, RampCurve, RateProfile, Stage};

/// Returns the seconds after which `arrived` of `count` requests have fallen due on average; `None` if that
/// never happens.
///
/// This is the inverse of the rate's integral. It maps arrivals at one per second to arrivals at the changing
/// rate.
pub(super) fn moment(pace: &RateProfile, count: usize, arrived: f64) -> Option<f64> {
    match pace {
        RateProfile::Ramp(ramp) => Some(ramp_moment(ramp, count, arrived)),
        RateProfile::Stages(stages) => stages_moment(stages, arrived),
    }
}

/// A ramp without a duration lasts until `count` requests have fallen due.
fn ramp_moment(ramp: &Ramp, count: usize, arrived: f64) -> f64 {
    let (from, to) = (ramp.from.per_second(), ramp.to.per_second());
    let lasts = ramp.over.map_or(count as f64 / ramp.mean_rate(), |over| {
        over.duration().as_secs_f64()
    });
    let on_it = lasts * ramp.mean_rate();
    if arrived >= on_it {
        return lasts + (arrived - on_it) / to;
    }
    match ramp.curve {
        RampCurve::Linear => {
            let slope = (to - from) / lasts;
            // The root of `from·t + slope·t²/2 = arrived`, in the form that works for a slope of 0. The
            // square root must not get a negative number from rounding when a ramp ends near 0.
            let root = (from * from + 2.0 * slope * arrived).max(0.0).sqrt();
            2.0 * arrived / (from + root)
        }
        RampCurve::Exponential => {
            let growth = (to / from).ln() / lasts;
            match growth == 0.0 {
                true => arrived / from,
                false => (growth * arrived / from).ln_1p() / growth,
            }
        }
    }
}

fn stages_moment(stages: &[Stage], arrived: f64) -> Option<f64> {
    let (mut began, mut before) = (0.0, 0.0);
    for stage in stages {
        let (rate, lasts) = (stage.rate.per_second(), stage.duration.duration().as_secs_f64());
        let fall_due = rate * lasts;
        if arrived < before + fall_due {
            return Some(began + (arrived - before) / rate);
        }
        began += lasts;
        before += fall_due;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::base::units::{HumanDuration, RequestRate};
    use crate::config::arrival::{Arrival, ArrivalProcess, Burstiness};
    use crate::loadgen::dataset::rng::Numpy;
    use crate::loadgen::schedule::due_times;

    fn rate(per_second: f64) -> RequestRate {
        RequestRate::new(per_second).unwrap()
    }

    fn ramp(from: f64, to: f64, curve: RampCurve, over: Option<HumanDuration>) -> RateProfile {
        RateProfile::Ramp(Ramp {
            from: rate(from),
            to: rate(to),
            curve,
            over,
        })
    }

    fn arrival(pace: RateProfile, spacing: ArrivalProcess) -> Arrival {
        Arrival {
            rate: RequestRate::INFINITE,
            pace: Some(pace),
            spacing,
            concurrency: None,
        }
    }

    fn even_due_times(pace: RateProfile, count: usize) -> Vec<Duration> {
        due_times(
            &arrival(pace, ArrivalProcess::Constant),
            count,
            &mut Numpy::new(1),
        )
    }

    /// Counts the requests that fall due between two times in seconds.
    fn within(due: &[Duration], from: f64, to: f64) -> usize {
        due.iter()
            .filter(|due| (from..to).contains(&due.as_secs_f64()))
            .count()
    }

    #[test]
    fn a_linear_ramp_takes_the_whole_measurement_and_grows_by_the_same_amount() {
        // From 0.1 to 9.9 per second 100 requests take 20 s: 5 per second on average.
        let due = even_due_times(ramp(0.1, 9.9, RampCurve::Linear, None), 100);
        assert_eq!(due.len(), 100);
        let quarters: Vec<usize> = [0.0, 5.0, 10.0, 15.0]
            .map(|from| within(&due, from, from + 5.0))
            .to_vec();
        // The integral of the rate over each five seconds: 6.625, 18.875, 31.125, 43.375.
        assert_eq!(quarters, [7, 19, 31, 43]);
    }

    #[test]
    fn an_exponential_ramp_grows_by_the_same_factor() {
        // From 1 to 16 per second within 4 s: it doubles every second.
        let due = even_due_times(
            ramp(
                1.0,
                16.0,
                RampCurve::Exponential,
                Some(HumanDuration::from_secs(4)),
            ),
            40,
        );
        let counts: Vec<usize> = [0.0, 1.0, 2.0, 3.0]
            .map(|from| within(&due, from, from + 1.0))
            .to_vec();
        // The cumulative sums of 1/ln 2, 2/ln 2, 4/ln 2 and 8/ln 2 (1.44, 2.89, 5.77 and 11.54), rounded up.
        assert_eq!(counts, [2, 3, 6, 11]);
        // Afterwards the rate stays at 16.
        assert_eq!(within(&due, 4.0, 5.0), 16);
    }

    #[test]
    fn stages_follow_one_another_and_nothing_falls_due_after_the_last() {
        let stage = |per_second: f64, seconds: u64| Stage {
            rate: rate(per_second),
            duration: HumanDuration::from_secs(seconds),
        };
        let due = even_due_times(
            RateProfile::Stages(vec![stage(2.0, 10), stage(10.0, 5), stage(1.0, 5)]),
            1000,
        );
        assert_eq!(due.len(), 20 + 50 + 5);
        assert_eq!(within(&due, 0.0, 10.0), 20);
        assert_eq!(within(&due, 10.0, 15.0), 50);
        assert_eq!(within(&due, 15.0, 20.0), 5);
    }

    #[test]
    fn a_flat_ramp_is_a_steady_rate() {
        for curve in [RampCurve::Linear, RampCurve::Exponential] {
            let flat = even_due_times(ramp(4.0, 4.0, curve, None), 9);
            assert_eq!(flat[8], Duration::from_secs(2));
        }
    }

    fn curve() -> impl Strategy<Value = RampCurve> {
        prop_oneof![Just(RampCurve::Linear), Just(RampCurve::Exponential)]
    }

    fn spacing() -> impl Strategy<Value = ArrivalProcess> {
        let gamma = (0.5..4.0).prop_map(|shape| ArrivalProcess::Gamma {
            burstiness: Burstiness::new(shape).unwrap(),
        });
        prop_oneof![
            Just(ArrivalProcess::Poisson),
            Just(ArrivalProcess::Constant),
            gamma
        ]
    }

    proptest! {
        #[test]
        fn due_times_of_a_ramp_never_go_back_and_their_mean_rate_is_that_of_the_ramp(
            from in 0.1..1e3, to in 0.1..1e3, curve in curve(), spacing in spacing(), seed: u32,
        ) {
            let pace = ramp(from, to, curve, None);
            let due = due_times(&arrival(pace.clone(), spacing), 4000, &mut Numpy::new(seed));
            prop_assert_eq!(due.len(), 4000);
            prop_assert_eq!(due[0], Duration::ZERO);
            prop_assert!(due.is_sorted());
            let RateProfile::Ramp(ramp) = pace else { unreachable!() };
            let lasts = 4000.0 / ramp.mean_rate();
            // Half of the requests are expected before this moment. A tolerance of 14 % is more than four
            // standard deviations of the burstiest spacing.
            let half = moment(&RateProfile::Ramp(ramp), 4000, 2000.0).unwrap();
            let early = within(&due, 0.0, half) as f64;
            prop_assert!((early / 2000.0 - 1.0).abs() < 0.14, "{} before {} of {}", early, half, lasts);
        }

        #[test]
        fn the_moment_of_an_arrival_is_where_the_rates_integral_reaches_it(
            from in 0.1..100.0, to in 0.1..100.0, curve in curve(), share in 0.0..1.0f64,
        ) {
            let over = 10.0;
            let pace = ramp(from, to, curve, Some(HumanDuration::from_secs(10)));
            let at = over * share;
            // The rate's integral, in a thousand steps of the midpoint rule.
            let step = at / 1000.0;
            let rate_at = |t: f64| match curve {
                RampCurve::Linear => from + (to - from) * t / over,
                RampCurve::Exponential => from * (to / from).powf(t / over),
            };
            let arrived: f64 = (0..1000).map(|i| rate_at((f64::from(i) + 0.5) * step) * step).sum();
            let seconds = moment(&pace, 1, arrived).unwrap();
            prop_assert!((seconds - at).abs() < 1e-3, "{} instead of {}", seconds, at);
        }
    }
}
