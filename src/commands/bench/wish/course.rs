//! The rates that are measured, whose profilers run meanwhile, and what would have no effect on either.

use super::Profiled;
use crate::base::units::RequestRate;
use crate::cli::bench::{BenchArgs, Rules};
use crate::load::Address;
use crate::run::server::Server;

/// What `--request-rate-range` is in the fork.
const RANGE: &str = "2,34,2";

/// The rates that are measured one after another.
///
/// Source: spec/bench-serving.md 12.2, step 4.
pub(super) fn rates(args: &BenchArgs) -> Result<Vec<RequestRate>, Vec<String>> {
    let course = &args.course;
    if !course.multi {
        return match course.request_rate_range {
            None => Ok(vec![course.request_rate]),
            Some(_) => Err(vec![
                "`--request-rate-range` has no effect without `--multi`; add it, or leave the range out"
                    .to_owned(),
            ]),
        };
    }
    if args.ours.rules != Rules::Classic {
        return Err(vec![
            "only the rules `classic` have `--multi`; add `--rules classic`, or cross several rates in a matrix".to_owned(),
        ]);
    }
    if !course.request_rate.is_infinite() {
        return Err(vec![
            "`--request-rate` has no effect beside `--multi`; name the rates by `--request-rate-range`, or leave `--multi` out"
                .to_owned(),
        ]);
    }
    if args.ours.vllm_json.is_some() {
        return Err(vec![
            "`--vllm-json` holds one result, and `--multi` has several; leave one of them out".to_owned(),
        ]);
    }
    range(course.request_rate_range.as_deref().unwrap_or(RANGE)).map_err(|why| vec![why])
}

/// Three whole numbers are first, end and step, without the end; any other number of them is a list.
fn range(text: &str) -> Result<Vec<RequestRate>, String> {
    let wrong = || {
        format!(
            "`--request-rate-range {text}` gives no rates; write first, end and step, as in `{RANGE}`, or a list of rates, as in \
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

/// Who profiles itself.
///
/// Source: spec/bench-serving.md 6.1.
pub(super) fn profiled(args: &BenchArgs) -> Result<Profiled, Vec<String>> {
    let wish = &args.profiler;
    let (role, flag, urls) = match (&wish.profile_prefill_url, &wish.profile_decode_url) {
        (Some(_), Some(_)) => {
            return Err(vec![
                "`--profile-prefill-url` and `--profile-decode-url` exclude each other; profile one kind of worker at a time"
                    .to_owned(),
            ]);
        }
        (None, None) if wish.pd_separated => return Ok(Profiled::Nobody),
        (None, None) => return Ok(Profiled::Server),
        (Some(urls), None) => ("Prefill", "profile-prefill-url", urls),
        (None, Some(urls)) => ("Decode", "profile-decode-url", urls),
    };
    if !wish.pd_separated {
        return Err(vec![format!(
            "`--{flag}` has no effect without `--pd-separated`; add it, or leave the workers out"
        )]);
    }
    let mut mistakes = Vec::new();
    let mut servers = Vec::new();
    for url in urls {
        let address = url.parse::<Address>().map_err(|error| error.to_string());
        match address.and_then(|address| Server::new(address.to_string(), None)) {
            Ok(server) => servers.push(server),
            Err(why) => mistakes.push(format!("`--{flag}`: {why}")),
        }
    }
    match mistakes.is_empty() {
        true => Ok(Profiled::Workers { role, servers }),
        false => Err(mistakes),
    }
}

/// Flags whose figures, files or questions these rules do not have.
///
/// Source: spec/bench-serving.md 6, step 10, 12.2 and 12.4.
pub(super) fn without_effect(args: &BenchArgs) -> Vec<String> {
    let mut found = Vec::new();
    let (course, output, ours) = (&args.course, &args.output, &args.ours);
    if args.ours.rules == Rules::Classic {
        for (is_given, flag, why) in [
            (output.goodput.is_some(), "goodput", "they print no goodput"),
            (output.cache_report, "cache-report", "they print no cache report"),
            (
                output.output_details,
                "output-details",
                "their result is a row of CSV",
            ),
            (output.tag.is_some(), "tag", "their result is a row of CSV"),
            (ours.compat_json, "compat-json", "their result is a row of CSV"),
        ] {
            if is_given {
                found.push(format!(
                    "`--{flag}` has no effect under the rules `classic`: {why}; leave it out, or use `--rules current`"
                ));
            }
        }
    }
    let usual = 60.0;
    let waits = course.flush_cache && args.server.backend.name().starts_with("sglang");
    if course.flush_cache_timeout != usual && !waits {
        found.push(
            "`--flush-cache-timeout` has no effect without `--flush-cache` and a backend of SGLang; leave it out".to_owned(),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers_are_a_range_and_others_a_list() {
        let rates = |text| -> Vec<f64> {
            range(text)
                .unwrap()
                .into_iter()
                .map(RequestRate::per_second)
                .collect()
        };
        assert_eq!(rates("2,9,3"), [2.0, 5.0, 8.0]);
        assert_eq!(rates("4,8"), [4.0, 8.0]);
        assert_eq!(rates("1,2,4,8"), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(rates(RANGE).len(), 16);
        for wrong in ["", "a", "0", "9,2,1", "1,2,0", "0,4,2"] {
            assert!(range(wrong).unwrap_err().contains("gives no rates"), "{wrong}");
        }
    }
}
