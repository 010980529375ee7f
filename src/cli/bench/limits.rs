//! Extensions of `matrix bench` for limits of a load and for output about its requests.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::base::units::HumanDuration;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// The time after which no more requests are scheduled, such as `60s`; no limit by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<HumanDuration>,
    /// How long requests in flight may continue after the end of `--duration`; 6h by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) drain: Option<HumanDuration>,
    /// The timeout of a request; 6h by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) request_timeout: Option<HumanDuration>,
    /// The timeout of the first byte of a response; `--request-timeout` by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) first_byte_timeout: Option<HumanDuration>,
    /// Exit with code 3 if more than this share of the requests failed, such as `0.01` or `1%`; no effect with
    /// `--compat-figures`.
    #[arg(long, default_value = "1%", value_parser = parse_share, value_name = "SHARE")]
    pub(crate) max_failed: f64,
    /// Stop the load if more than this share of the ended requests has failed, once 20 requests have ended; by default
    /// the load is never stopped for this reason.
    #[arg(long, value_parser = parse_share, value_name = "SHARE")]
    pub(crate) abort_error_share: Option<f64>,
    /// The number of output tokens that a response may have beyond the requested number; 1024 by default. A longer
    /// response is ended as endless.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) excess_tokens: Option<u32>,
    /// Append a record of each request to this file, one per line: when it was due and sent, when its tokens arrived, and its outcome.
    /// During the load, records of ended requests are in `FILE.partial` within about a second. A crash therefore
    /// loses only about a second of records.
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
    /// Print these percentiles of the latencies, such as `75 99.9`, in addition, after the block of results.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_parser = parse_percentile, value_name = "PERCENT")]
    pub(crate) percentiles: Option<Vec<f64>>,
}

/// Parses a share, as a number from 0 to 1 or in percent.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = text
        .strip_suffix('%')
        .map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / scale);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "write a share from 0 to 1 or from 0% to 100%".to_owned())
}

fn parse_percentile(text: &str) -> Result<f64, String> {
    let number = text.trim_start_matches(['p', 'P']).parse::<f64>().ok();
    number
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "write a percentile from 0 to 100, such as 99.9".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_percentiles_are_read() {
        assert_eq!((parse_share("1%"), parse_share("0.5")), (Ok(0.01), Ok(0.5)));
        assert!(parse_share("2").is_err() && parse_share("x").is_err());
        assert_eq!(
            (parse_percentile("p99.9"), parse_percentile("75")),
            (Ok(99.9), Ok(75.0))
        );
        assert!(parse_percentile("101").is_err());
    }
}
