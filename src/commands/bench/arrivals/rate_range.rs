//! The rates of `--multi`.

use crate::base::units::RequestRate;
use crate::cli::bench::BenchArgs;
use crate::config::workload::Profile;

/// Default of `--request-rate-range` in LMDeploy's fork.
const DEFAULT_RANGE: &str = "2,34,2";

/// Returns the rates to measure one after another.
///
/// Source: docs/bench-serving.md 12.2, step 4.
pub(super) fn rates(args: &BenchArgs) -> Result<Vec<RequestRate>, Vec<String>> {
    let execution = &args.execution;
    if !execution.multi {
        return match execution.request_rate_range {
            None => Ok(execution.request_rate.clone()),
            Some(_) => Err(vec![
                "`--request-rate-range` has no effect without `--multi`; add it, or leave the range out"
                    .to_owned(),
            ]),
        };
    }
    let mut errors = Vec::new();
    let mut no = |is_wrong: bool, why: &str| {
        if is_wrong {
            errors.push(why.to_owned());
        }
    };
    no(
        args.extensions.rules != Profile::Classic,
        "`--multi` needs the rules `classic`; add `--rules classic`, or give several rates to `--request-rate`",
    );
    no(
        execution.request_rate.iter().any(|rate| !rate.is_infinite()),
        "`--request-rate` has no effect with `--multi`; give the rates with `--request-rate-range`, or leave `--multi` out",
    );
    no(
        args.search.search.is_some(),
        "`--multi` and `--search` contradict each other; leave one of them out",
    );
    no(
        args.arrival.ramp_up_strategy.is_some() || args.arrival.stages.is_some(),
        "`--multi` contradicts a ramp or stages, which have their own rates; leave one of them out",
    );
    if !errors.is_empty() {
        return Err(errors);
    }
    parse_range(execution.request_rate_range.as_deref().unwrap_or(DEFAULT_RANGE)).map_err(|why| vec![why])
}

/// Parses three whole numbers as first, end (exclusive) and step; any other number of them as a list.
fn parse_range(text: &str) -> Result<Vec<RequestRate>, String> {
    let wrong = || {
        format!(
            "`--request-rate-range {text}` contains no rates; write first, end and step, as in `{DEFAULT_RANGE}`, or a list of rates, as in \
             `1,2,4,8`"
        )
    };
    let numbers: Result<Vec<u32>, _> = text.split(',').map(|part| part.trim().parse()).collect();
    let numbers = numbers.map_err(|_| wrong())?;
    let numbers = match numbers[..] {
        [_, _, 0] => return Err(wrong()),
        [first, end, step] => (first..end).step_by(step as usize).collect(),
        _ => numbers,
    };
    let rates: Option<Vec<RequestRate>> = numbers
        .iter()
        .map(|rate| RequestRate::new(f64::from(*rate)))
        .collect();
    rates.filter(|rates| !rates.is_empty()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers_are_a_range_and_others_a_list() {
        let rates = |text| -> Vec<f64> {
            parse_range(text)
                .unwrap()
                .into_iter()
                .map(RequestRate::per_second)
                .collect()
        };
        assert_eq!(rates("2,9,3"), [2.0, 5.0, 8.0]);
        assert_eq!(rates("4,8"), [4.0, 8.0]);
        assert_eq!(rates("1,2,4,8"), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(rates(DEFAULT_RANGE).len(), 16);
        for wrong in ["", "a", "0", "9,2,1", "1,2,0", "0,4,2"] {
            assert!(
                parse_range(wrong).unwrap_err().contains("contains no rates"),
                "{wrong}"
            );
        }
    }
}
