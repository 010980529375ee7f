//! Arrivals from flags: rates and concurrencies, ramps and stages, a search, the steady state.

mod rate_range;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::units::{HumanDuration, RequestRate};
use crate::cli::bench::{BenchArgs, GapDistribution};
use crate::config::arrival::{Arrival, ArrivalProcess, Burstiness, Ramp, RateProfile, Stage};
use crate::config::search::{Search, SearchVariable};

/// Settings of the steady state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SteadyStateOptions {
    /// Share of the peak concurrency from which the load counts as steady.
    pub(crate) ratio: f64,
    /// The file to which a line is appended.
    pub(crate) output_file: Option<PathBuf>,
}

/// Returns all arrivals to measure, at least one: for each rate, every concurrency.
pub(super) fn arrivals(args: &BenchArgs) -> Result<Vec<Arrival>, Vec<String>> {
    let mut errors = Vec::new();
    let spacing = arrival_process(args).map_err(|error| errors.push(error));
    let pace = rate_profile(args).map_err(|error| errors.push(error));
    let rates = rate_range::rates(args).map_err(|error| errors.extend(error));
    let users: Vec<Option<NonZeroU32>> = match &args.execution.max_concurrency {
        None => vec![None],
        Some(users) => users.iter().map(|users| NonZeroU32::new(*users)).collect(),
    };
    let is_trace = args.is_replayed();
    if is_trace && (!matches!(pace, Ok(None)) || args.search.search.is_some()) {
        errors.push(
            "a trace is sent at its own timestamps; leave out the ramp, the stages or the search".to_owned(),
        );
    }
    if matches!(pace, Ok(Some(_))) && args.execution.request_rate.iter().any(|rate| !rate.is_infinite()) {
        errors.push(
            "`--request-rate` contradicts a ramp or stages, which have their own rates; leave it out"
                .to_owned(),
        );
    }
    let (Ok(rates), Ok(spacing), Ok(pace), true) = (rates, spacing, pace, errors.is_empty()) else {
        return Err(errors);
    };
    if rates.len() * users.len() > 1 && args.extensions.vllm_json.is_some() {
        return Err(vec![
            "`--vllm-json` holds one result; give one rate and one concurrency, or leave it out".to_owned(),
        ]);
    }
    let arrival = |rate: RequestRate, concurrency: Option<NonZeroU32>| Arrival {
        rate,
        pace: pace.clone(),
        spacing,
        concurrency,
    };
    Ok(rates
        .iter()
        .flat_map(|rate| users.iter().map(|users| arrival(*rate, *users)))
        .collect())
}

fn arrival_process(args: &BenchArgs) -> Result<ArrivalProcess, String> {
    let (gaps, shape) = (args.arrival.spacing, args.arrival.burstiness);
    match (gaps, shape) {
        (None | Some(GapDistribution::Poisson), None) => Ok(ArrivalProcess::Poisson),
        (Some(GapDistribution::Constant), None) => Ok(ArrivalProcess::Constant),
        (None, Some(shape)) => Burstiness::new(shape)
            .map(|burstiness| ArrivalProcess::Gamma { burstiness })
            .ok_or_else(|| format!("`--burstiness` must be a number above 0 (1 is Poisson), not {shape}")),
        (Some(_), Some(_)) => {
            Err("`--spacing` and `--burstiness` contradict each other; leave one out".to_owned())
        }
    }
}

fn rate_profile(args: &BenchArgs) -> Result<Option<RateProfile>, String> {
    let flags = &args.arrival;
    let ramp = (
        flags.ramp_up_strategy,
        flags.ramp_up_start_rps,
        flags.ramp_up_end_rps,
    );
    let pace = match (ramp, &flags.stages) {
        ((None, None, None), None) if flags.ramp_up_seconds.is_none() => return Ok(None),
        ((None, None, None), Some(stages)) if flags.ramp_up_seconds.is_none() => RateProfile::Stages(
            stages
                .iter()
                .map(|text| parse_stage(text))
                .collect::<Result<_, _>>()?,
        ),
        (_, Some(_)) => return Err("a ramp and `--stages` contradict each other; leave one out".to_owned()),
        ((Some(curve), Some(from), Some(to)), None) => RateProfile::Ramp(Ramp {
            from,
            to,
            curve,
            over: flags
                .ramp_up_seconds
                .map(|seconds| parse_duration("--ramp-up-seconds", seconds))
                .transpose()?,
        }),
        _ => {
            return Err(
                "a ramp needs `--ramp-up-strategy`, `--ramp-up-start-rps` and `--ramp-up-end-rps`; give all three"
                    .to_owned(),
            );
        }
    };
    match pace.find_error(args.dataset.num_prompts) {
        Some(error) => Err(format!(
            "invalid {}: {error}; change this setting, or `--num-prompts`",
            pace.name()
        )),
        None => Ok(Some(pace)),
    }
}

fn parse_stage(text: &str) -> Result<Stage, String> {
    let parts = text.split_once(':').and_then(|(rate, seconds)| {
        let rate: RequestRate = rate.parse().ok()?;
        let seconds: f64 = seconds.parse().ok()?;
        Some((rate, seconds))
    });
    let (rate, seconds) = parts.ok_or_else(|| {
        format!("`--stages {text}` is not a stage; write requests per second and seconds, as in `4:30`")
    })?;
    let duration = parse_duration("--stages", seconds)?;
    Ok(Stage { rate, duration })
}

fn parse_duration(flag: &str, seconds: f64) -> Result<HumanDuration, String> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|span| !span.is_zero())
        .map(HumanDuration)
        .ok_or_else(|| format!("`{flag}` must be above 0 seconds, not {seconds}"))
}

/// Returns the search, if one is requested.
pub(super) fn search_options(args: &BenchArgs) -> Result<Option<Search>, Vec<String>> {
    let flags = &args.search;
    let Some(by) = flags.search else {
        let is_lost = flags.search_from.is_some()
            || flags.search_to.is_some()
            || flags.search_target.is_some()
            || flags.search_resolution.is_some()
            || flags.search_points.is_some()
            || flags.search_prompts.is_some()
            || flags.search_seconds.is_some();
        return match is_lost {
            true => Err(vec![
                "flags of the search have no effect without `--search`; add it, or leave them out".to_owned(),
            ]),
            false => Ok(None),
        };
    };
    let mut errors = Vec::new();
    let defaults = Search::new(by);
    let duration = flags
        .search_seconds
        .map(|seconds| parse_duration("--search-seconds", seconds));
    let duration = duration.transpose().unwrap_or_else(|error| {
        errors.push(error);
        None
    });
    let search = Search {
        from: flags.search_from.unwrap_or(defaults.from),
        to: flags.search_to.unwrap_or(defaults.to),
        target: flags.search_target.unwrap_or(defaults.target),
        resolution: flags.search_resolution.unwrap_or(defaults.resolution),
        points: flags.search_points.unwrap_or(defaults.points),
        prompts: flags.search_prompts,
        duration,
        ..defaults
    };
    errors.extend(
        search
            .find_error()
            .map(|error| format!("invalid `--search {}`: {error}", by.name())),
    );
    errors.extend(search_conflicts(args, by));
    errors.extend(too_few_prompts(&search, args.dataset.num_prompts));
    match errors.is_empty() {
        true => Ok(Some(search)),
        false => Err(errors),
    }
}

/// Says that not even the first point of a search has enough prompts for its time.
fn too_few_prompts(search: &Search, prompts: u32) -> Option<String> {
    let duration = search.duration.filter(|_| search.by == SearchVariable::Rate)?;
    let needed = |rate: f64| (rate * duration.duration().as_secs_f64()).ceil();
    let (lowest, highest) = (needed(search.from), needed(search.to));
    (f64::from(prompts) < lowest).then(|| {
        format!(
            "the first point of the search needs {lowest} prompts ({duration} at {} req/s), but there are only {prompts}; lower `--search-from` or `--search-seconds`, or raise `--num-prompts` (the highest rate needs {highest})",
            search.from
        )
    })
}

/// Returns errors for flags that contradict a search.
fn search_conflicts(args: &BenchArgs, by: SearchVariable) -> Vec<String> {
    let mut errors = Vec::new();
    let mut no = |is_wrong: bool, error: &str| {
        if is_wrong {
            errors.push(error.to_owned());
        }
    };
    let rates = &args.execution.request_rate;
    let users = args.execution.max_concurrency.as_deref().unwrap_or_default();
    no(
        args.output.goodput.is_none(),
        "`--search` needs the SLO of a good request; add `--goodput`, such as `--goodput ttft:500 tpot:50`",
    );
    no(
        by == SearchVariable::Rate && rates.iter().any(|rate| !rate.is_infinite()),
        "`--search rate` varies the rate; leave `--request-rate` out",
    );
    no(
        by == SearchVariable::Concurrency && !users.is_empty(),
        "`--search concurrency` varies the concurrency; leave `--max-concurrency` out",
    );
    no(
        rates.len() > 1 || users.len() > 1,
        "`--search` varies either the rate or the concurrency; give the other one a single value",
    );
    no(
        args.arrival.ramp_up_strategy.is_some() || args.arrival.stages.is_some(),
        "`--search` needs a constant rate at each point; leave out the ramp or the stages",
    );
    no(
        args.extensions.vllm_json.is_some(),
        "`--vllm-json` holds one result, and a search has several; leave it out",
    );
    errors
}

/// Returns the settings of the steady state, if it is requested.
pub(super) fn steady_state_options(args: &BenchArgs) -> Result<Option<SteadyStateOptions>, Vec<String>> {
    let flags = &args.steady;
    match (
        flags.steady_state_concurrency_ratio,
        &flags.steady_state_output_file,
    ) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(vec![
            "`--steady-state-output-file` needs `--steady-state-concurrency-ratio`, such as 0.9; add it"
                .to_owned(),
        ]),
        // This form also rejects NaN.
        (Some(ratio), file) if ratio > 0.0 && ratio <= 1.0 => Ok(Some(SteadyStateOptions {
            ratio,
            output_file: file.clone(),
        })),
        (Some(ratio), _) => Err(vec![format!(
            "`--steady-state-concurrency-ratio` must be above 0 and at most 1, not {ratio}"
        )]),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(more: &[&str]) -> BenchArgs {
        let all = ["matrix", "bench"].iter().chain(more);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Bench(args) => *args,
            _ => panic!("`bench` is a command"),
        }
    }

    #[test]
    fn lists_are_crossed_with_concurrencies_within_rates() {
        let all = arrivals(&args(&[
            "--request-rate",
            "2",
            "4",
            "--max-concurrency",
            "8",
            "0",
        ]))
        .unwrap();
        let actual: Vec<_> = all
            .iter()
            .map(|one| (one.rate.per_second(), one.concurrency.map(NonZeroU32::get)))
            .collect();
        assert_eq!(actual, [(2.0, Some(8)), (2.0, None), (4.0, Some(8)), (4.0, None)]);
        let usual = arrivals(&args(&[])).unwrap();
        assert_eq!((usual.len(), usual[0].rate.is_infinite()), (1, true));
    }

    #[test]
    fn ramps_and_stages_are_read() {
        let ramp = [
            "--ramp-up-strategy",
            "exponential",
            "--ramp-up-start-rps",
            "1",
            "--ramp-up-end-rps",
            "16",
            "--burstiness",
            "0.5",
        ];
        let all = arrivals(&args(&ramp)).unwrap();
        assert_eq!(
            all[0].pace.as_ref().unwrap().to_string(),
            "exponential ramp from 1 to 16"
        );
        assert!(matches!(all[0].spacing, ArrivalProcess::Gamma { .. }));
        let all = arrivals(&args(&["--stages", "2:30", "8:1.5", "--spacing", "constant"])).unwrap();
        let pace = all[0].pace.as_ref().unwrap();
        assert_eq!(pace.to_string(), "stages 2 for 30s, 8 for 1s 500ms");
        assert_eq!(all[0].spacing, ArrivalProcess::Constant);
    }

    #[test]
    fn arrivals_that_cannot_be_are_refused() {
        for (flags, error) in [
            (&["--ramp-up-strategy", "linear"][..], "give all three"),
            (&["--ramp-up-seconds", "3"], "give all three"),
            (&["--stages", "2"], "is not a stage"),
            (&["--stages", "2:0"], "above 0 seconds"),
            (
                &["--stages", "200:10"],
                "need 2000 requests, but there are 1000 prompts",
            ),
            (
                &["--stages", "2:10", "--request-rate", "4"],
                "contradicts a ramp or stages",
            ),
            (
                &["--spacing", "poisson", "--burstiness", "2"],
                "contradict each other",
            ),
            (&["--burstiness", "0"], "above 0"),
            (
                &["--dataset-name", "mooncake", "--stages", "2:10"],
                "at its own timestamps",
            ),
            (
                &["--request-rate", "1", "2", "--vllm-json", "f"],
                "holds one result",
            ),
        ] {
            let said = arrivals(&args(flags)).unwrap_err().join("\n");
            assert!(said.contains(error), "{said}");
        }
    }

    #[test]
    fn searches_that_cannot_be_are_refused() {
        let usual = ["--search", "rate", "--goodput", "ttft:500"];
        assert_eq!(
            search_options(&args(&usual)).unwrap(),
            Some(Search::new(SearchVariable::Rate))
        );
        assert_eq!(search_options(&args(&[])).unwrap(), None);
        for (flags, error) in [
            (&["--search-to", "8"][..], "no effect without `--search`"),
            (&["--search", "rate"], "add `--goodput`"),
            (
                &[&usual[..], &["--request-rate", "4"]].concat(),
                "leave `--request-rate` out",
            ),
            (
                &[&usual[..], &["--search-to", "0.5"]].concat(),
                "are not a valid range",
            ),
            (
                &[&usual[..], &["--search-seconds", "0"]].concat(),
                "above 0 seconds",
            ),
            (
                &[&usual[..], &["--max-concurrency", "4", "8"]].concat(),
                "a single value",
            ),
            (
                &[&usual[..], &["--stages", "2:10"]].concat(),
                "leave out the ramp or the stages",
            ),
            (&[&usual[..], &["--vllm-json", "f"]].concat(), "holds one result"),
        ] {
            let said = search_options(&args(flags)).unwrap_err().join("\n");
            assert!(said.contains(error), "{said}");
        }
    }

    #[test]
    fn the_steady_state_needs_a_ratio_within_its_range() {
        let file = ["--steady-state-output-file", "f"];
        assert!(steady_state_options(&args(&file)).unwrap_err()[0].contains("needs"));
        for ratio in ["0", "1.1", "NaN"] {
            let said = steady_state_options(&args(&["--steady-state-concurrency-ratio", ratio])).unwrap_err();
            assert!(said[0].contains("above 0 and at most 1"), "{said:?}");
        }
        assert_eq!(steady_state_options(&args(&[])).unwrap(), None);
    }
}
