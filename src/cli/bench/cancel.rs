//! Extensions of `matrix bench` for requests that the client cancels.

use std::num::NonZeroU32;

use clap::Args;

use super::dataset_options::parse_count;
use super::limits::parse_share;
use crate::base::units::HumanDuration;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cancellation by the client")]
pub(crate) struct CancelArgs {
    /// The share of requests, chosen by the seed, whose connections the client closes before their responses end, such as `0.2` or `20%`.
    #[arg(long, value_parser = parse_share, value_name = "SHARE")]
    pub(crate) cancel_share: Option<f64>,
    /// Cancel the requests of `--cancel-share` after this number of output tokens.
    #[arg(long, value_name = "TOKENS", value_parser = parse_count)]
    pub(crate) cancel_after_tokens: Option<NonZeroU32>,
    /// Cancel the requests of `--cancel-share` after this time, such as `2s`. It is counted from the moment when the
    /// whole request was written.
    #[arg(long, value_name = "TIME")]
    pub(crate) cancel_after: Option<HumanDuration>,
}
