//! Flags of `matrix bench` for single data sets. Absent flags mean the data set's own default.

use clap::{Args, ValueEnum};

use crate::cli::named::variant_parser;
use crate::config::dataset::mooncake::MooncakeTrace;

/// Flags of `generated-shared-prefix`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Data set generated-shared-prefix")]
pub(crate) struct SharedPrefixArgs {
    /// How many system prompts there are; 64 by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) gsp_num_groups: Option<u32>,
    /// How many prompts begin with each of them; 16 by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) gsp_prompts_per_group: Option<u32>,
    /// Tokens of a system prompt, at most; 2048 by default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) gsp_system_prompt_len: Option<u32>,
    /// Tokens of a question, at most; 128 by default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) gsp_question_len: Option<u32>,
    /// Tokens to ask for, at most; 256 by default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) gsp_output_len: Option<u32>,
    /// Lengths are drawn from this share of the most up to the most; 1 by default.
    #[arg(long, value_name = "RATIO")]
    pub(crate) gsp_range_ratio: Option<f64>,
    /// Do not count the prompts' tokens.
    #[arg(long)]
    pub(crate) gsp_fast_prepare: bool,
    /// Tell a router the group of each request.
    #[arg(long)]
    pub(crate) gsp_send_routing_key: bool,
    /// Questions of a conversation; 1 by default. More need a chat backend.
    #[arg(long, value_name = "COUNT")]
    pub(crate) gsp_num_turns: Option<u32>,
    /// Do not shuffle.
    #[arg(long)]
    pub(crate) gsp_ordered: bool,
    /// How prompts are spread over groups; `uniform` by default.
    #[arg(long, value_enum)]
    pub(crate) gsp_group_distribution: Option<GroupDistributionArg>,
    /// How steeply the shares of groups fall, for `zipf`.
    #[arg(long, value_name = "ALPHA")]
    pub(crate) gsp_zipf_alpha: Option<f64>,
}

/// How prompts are spread over groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupDistributionArg {
    Uniform,
    Zipf,
}

/// Flags of the traces.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Data sets agentic-trace and mooncake")]
pub(crate) struct TraceArgs {
    /// The conversation of `agentic-trace` to begin with; 0 by default.
    #[arg(long, value_name = "PLACE")]
    pub(crate) dataset_offset: Option<u32>,
    /// The most turns of each conversation of `agentic-trace`.
    #[arg(long, value_name = "COUNT")]
    pub(crate) agentic_max_turns: Option<u32>,
    /// Send the rows of `custom`, `openai` or `agentic-trace` at their moments, as is always done with `mooncake`: each line, or the
    /// first turn of each conversation, has a `timestamp` in milliseconds.
    #[arg(long)]
    pub(crate) use_trace_timestamps: bool,
    /// By how much the time of a trace of `mooncake` is stretched; 1 by default.
    #[arg(long, value_name = "FACTOR")]
    pub(crate) mooncake_slowdown_factor: Option<f64>,
    /// How many requests each entry of a trace of `mooncake` makes; 1 by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) mooncake_num_rounds: Option<u32>,
    /// Which trace of `mooncake`, where no file is named; `conversation` by default.
    #[arg(long, value_parser = variant_parser::<MooncakeTrace>(), value_name = "TRACE")]
    pub(crate) mooncake_workload: Option<MooncakeTrace>,
}
