//! Extensions of `matrix bench` for the lengths and the common tokens of drawn prompts.

use std::num::NonZeroU32;

use clap::Args;

use super::dataset_options::parse_count;
use super::limits::parse_share;
use crate::config::dataset::length_distribution::LengthDistribution;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Lengths and prefixes of the data sets random and random-ids")]
pub(crate) struct LengthArgs {
    /// The distribution of prompt lengths, such as `lognormal:median=512,sigma=1.0` or `normal:mean=512,stddev=100`, with `min=1` by
    /// default. `--random-input-len` is the maximum; longer lengths are clipped.
    #[arg(long, value_name = "DISTRIBUTION")]
    pub(crate) lengths_input: Option<LengthDistribution>,
    /// The distribution of output lengths, with `--random-output-len` as the maximum.
    #[arg(long, value_name = "DISTRIBUTION")]
    pub(crate) lengths_output: Option<LengthDistribution>,
    /// A file with pairs of prompt and output lengths, CSV or JSON lines, from which pairs are drawn with replacement.
    #[arg(long, value_name = "FILE")]
    pub(crate) lengths_file: Option<String>,
    /// Take the pairs of `--lengths-file` in the order of the file.
    #[arg(long)]
    pub(crate) lengths_in_order: bool,
    /// The share of each prompt's tokens that the prompts of a group have in common, such as `0.5` or `50%`.
    #[arg(long, value_parser = parse_share, value_name = "SHARE")]
    pub(crate) prefix_share: Option<f64>,
    /// The number of groups of `--prefix-share`; 1 by default.
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub(crate) prefix_groups: Option<NonZeroU32>,
    /// Round the number of common tokens down to a multiple of TOKENS, the block size of the server's cache; 1 by
    /// default.
    #[arg(long, value_name = "TOKENS", value_parser = parse_count)]
    pub(crate) prefix_block_tokens: Option<NonZeroU32>,
}
