//! Our own flags for the limits of a load and for the output about its requests.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::base::units::HumanDuration;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Let nothing fall due after this long, such as `60s`.
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<HumanDuration>,
    /// How long what is under way may go on after `--duration`.
    #[arg(long, value_name = "TIME")]
    pub(crate) drain: Option<HumanDuration>,
    /// The longest a request may take; 6h by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) request_timeout: Option<HumanDuration>,
    /// The longest wait for the first byte of an answer; as long as the request may take by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) first_byte_timeout: Option<HumanDuration>,
    /// End with exit code 3 when a larger share of the requests failed, such as `0.01` or `1%`; not with `--compat-figures`.
    #[arg(long, default_value = "1%", value_parser = parse_share, value_name = "SHARE")]
    pub(crate) max_failed: f64,
    /// End the load when a larger share of the requests has failed, once 20 have ended.
    #[arg(long, value_parser = parse_share, value_name = "SHARE")]
    pub(crate) abort_error_share: Option<f64>,
    /// The most tokens an answer may have beyond those asked for before it is cut as endless; 1024 by default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) excess_tokens: Option<u32>,
    /// Write a record of each request into this file, one in a line: when it was due, sent and answered, and how it ended. While the
    /// load runs, `FILE.partial` gets those of requests that ended, about a second late, so that a crash loses no more.
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
    /// Print more percentiles of the times after the block, such as `75 99.9`.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_parser = parse_percentile, value_name = "PERCENT")]
    pub(crate) percentiles: Option<Vec<f64>>,
}

/// Parses a share, as a number from 0 to 1 or in percent.
fn parse_share(text: &str) -> Result<f64, String> {
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
