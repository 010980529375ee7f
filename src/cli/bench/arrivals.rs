//! Extensions of `matrix bench` for arrivals, searches and the steady state.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use crate::base::units::RequestRate;
use crate::config::arrival::RampCurve;
use crate::config::search::SearchVariable;

/// The distribution of gaps between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GapDistribution {
    Poisson,
    Constant,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Arrivals")]
pub(crate) struct ArrivalArgs {
    /// The distribution of gaps between requests; `poisson` by default.
    #[arg(long, value_enum)]
    pub(crate) spacing: Option<GapDistribution>,
    /// Gamma-distributed gaps of this shape: 1 is Poisson, below 1 burstier, above 1 more even.
    #[arg(long, value_name = "SHAPE")]
    pub(crate) burstiness: Option<f64>,
    /// Ramp the rate, instead of `--request-rate`: `linear` (the same amount every second) or `exponential` (the same factor).
    #[arg(long, value_name = "CURVE", value_parser = parse_curve)]
    pub(crate) ramp_up_strategy: Option<RampCurve>,
    /// Requests per second at the beginning of the ramp.
    #[arg(long, value_name = "RATE")]
    pub(crate) ramp_up_start_rps: Option<RequestRate>,
    /// Requests per second at the end of the ramp.
    #[arg(long, value_name = "RATE")]
    pub(crate) ramp_up_end_rps: Option<RequestRate>,
    /// The duration of the ramp, in seconds; the whole measurement by default.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) ramp_up_seconds: Option<f64>,
    /// Stages of constant rate, instead of `--request-rate`, such as `2:30 8:30`. In each stage, the first number is
    /// the rate in requests per second, and the second number is the duration in seconds.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_name = "RATE:SECONDS")]
    pub(crate) stages: Option<Vec<String>>,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Search for the highest rate or concurrency that meets --goodput")]
pub(crate) struct SearchArgs {
    /// The variable of the search: `rate` or `concurrency`.
    #[arg(long, value_name = "WHAT", value_parser = parse_search_variable)]
    pub(crate) search: Option<SearchVariable>,
    /// The lowest value, tried first [default: 1].
    #[arg(long, value_name = "VALUE")]
    pub(crate) search_from: Option<f64>,
    /// The highest value that is tried [default: 1024].
    #[arg(long, value_name = "VALUE")]
    pub(crate) search_to: Option<f64>,
    /// The share of all requests, including failed ones, that must be good [default: 0.99].
    #[arg(long, value_name = "SHARE")]
    pub(crate) search_target: Option<f64>,
    /// The search ends when the lowest value that misses the targets is at most this share above the highest value that
    /// meets them [default: 0.05].
    #[arg(long, value_name = "SHARE")]
    pub(crate) search_resolution: Option<f64>,
    /// The largest number of points that are measured [default: 24].
    #[arg(long, value_name = "COUNT")]
    pub(crate) search_points: Option<u32>,
    /// The number of requests per point; `--num-prompts` by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) search_prompts: Option<u32>,
    /// For how many seconds requests are sent at each point, instead of a number of requests.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) search_seconds: Option<f64>,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Steady state")]
pub(crate) struct SteadyStateArgs {
    /// Also report the longest period in which the concurrency is at least this share of its peak. The share
    /// must be above 0 and at most 1.
    #[arg(long, value_name = "SHARE")]
    pub(crate) steady_state_concurrency_ratio: Option<f64>,
    /// The file to which a line about the steady state is appended.
    #[arg(long, value_name = "FILE")]
    pub(crate) steady_state_output_file: Option<PathBuf>,
}

fn parse_curve(text: &str) -> Result<RampCurve, String> {
    [RampCurve::Linear, RampCurve::Exponential]
        .into_iter()
        .find(|curve| curve.name() == text)
        .ok_or_else(|| format!("`{text}` is not a curve of a ramp; write `linear` or `exponential`"))
}

fn parse_search_variable(text: &str) -> Result<SearchVariable, String> {
    // The number of sessions is varied by a matrix alone.
    [SearchVariable::Rate, SearchVariable::Concurrency]
        .into_iter()
        .find(|by| by.key() == text)
        .ok_or_else(|| format!("a search cannot vary `{text}`; write `rate` or `concurrency`"))
}
