//! The arrival of a bench like vLLM's: rate, ramp, gaps and concurrency.

use std::num::NonZeroU32;

use crate::base::units::RequestRate;
use crate::cli::bench::{RampStrategy, VllmArgs};
use crate::config::arrival::{Arrival, ArrivalProcess, Burstiness, Ramp, RampCurve, RateProfile};

pub(super) fn arrival(args: &VllmArgs) -> Result<Arrival, Vec<String>> {
    let load = &args.load;
    let mut errors = Vec::new();
    let rate = rate(load.request_rate).map_err(|error| errors.push(error));
    let spacing = spacing(load.burstiness).map_err(|error| errors.push(error));
    let concurrency = concurrency(load.max_concurrency).map_err(|error| errors.push(error));
    let pace = ramp(args).map_err(|error| errors.push(error));
    match (rate, spacing, concurrency, pace) {
        (Ok(rate), Ok(spacing), Ok(concurrency), Ok(pace)) => Ok(Arrival {
            rate,
            pace,
            spacing,
            concurrency,
        }),
        _ => Err(errors),
    }
}

fn rate(rate: f64) -> Result<RequestRate, String> {
    match rate.is_infinite() && rate > 0.0 {
        true => Ok(RequestRate::INFINITE),
        false => rate
            .to_string()
            .parse()
            .map_err(|error| format!("`--request-rate`: {error}")),
    }
}

fn spacing(shape: f64) -> Result<ArrivalProcess, String> {
    match shape {
        1.0 => Ok(ArrivalProcess::Poisson),
        f64::INFINITY => Ok(ArrivalProcess::Constant),
        shape => Burstiness::new(shape)
            .map(|burstiness| ArrivalProcess::Gamma { burstiness })
            .ok_or_else(|| format!("`--burstiness` must be a number above 0 (1 is Poisson), not {shape}")),
    }
}

fn concurrency(limit: Option<i64>) -> Result<Option<NonZeroU32>, String> {
    let Some(limit) = limit else {
        return Ok(None);
    };
    let number = u32::try_from(limit).ok().and_then(NonZeroU32::new);
    number
        .map(Some)
        .ok_or_else(|| format!("`--max-concurrency` is {limit}; write at least 1, or leave it out"))
}

fn ramp(args: &VllmArgs) -> Result<Option<RateProfile>, String> {
    let load = &args.load;
    let Some(strategy) = load.ramp_up_strategy else {
        return match (load.ramp_up_start_rps, load.ramp_up_end_rps) {
            (None, None) => Ok(None),
            _ => Err(
                "`--ramp-up-start-rps` and `--ramp-up-end-rps` have no effect without `--ramp-up-strategy`; add it, or leave them \
                 out"
                .to_owned(),
            ),
        };
    };
    if !load.request_rate.is_infinite() {
        return Err("`--request-rate` contradicts a ramp, which has its own rates; leave it out".to_owned());
    }
    let (Some(from), Some(to)) = (load.ramp_up_start_rps, load.ramp_up_end_rps) else {
        return Err("a ramp needs `--ramp-up-start-rps` and `--ramp-up-end-rps`; give both".to_owned());
    };
    if from < 1 || to < from {
        return Err(format!(
            "a ramp from {from} to {to} requests per second is not possible; the first rate must be at least 1, and the last rate must not be lower"
        ));
    }
    let rate = |rps: i64| RequestRate::new(rps as f64).expect("it is at least 1");
    Ok(Some(RateProfile::Ramp(Ramp {
        from: rate(from),
        to: rate(to),
        curve: match strategy {
            RampStrategy::Linear => RampCurve::Linear,
            RampStrategy::Exponential => RampCurve::Exponential,
        },
        over: None,
    })))
}
