//! Flags of `matrix bench` for single data sets. Absent flags mean the data set's own default.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum};

use super::limits::parse_share;
use crate::cli::named::variant_parser;
use crate::config::dataset::agentic_sessions::{SessionStart, TraceFormat};
use crate::config::dataset::mooncake::MooncakeTrace;
use crate::config::dataset::random_audio::AudioContent;
use crate::config::dataset::structured::ToolChoice;

#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Data set generated-shared-prefix")]
pub(crate) struct SharedPrefixArgs {
    /// The number of system prompts (groups); 64 by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) gsp_num_groups: Option<u32>,
    /// The number of prompts that begin with each system prompt; 16 by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) gsp_prompts_per_group: Option<u32>,
    /// The largest number of tokens of a system prompt; 2048 by default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) gsp_system_prompt_len: Option<u32>,
    /// The largest number of tokens of a question; 128 by default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) gsp_question_len: Option<u32>,
    /// The largest number of output tokens to request; 256 by default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) gsp_output_len: Option<u32>,
    /// The smallest drawn length, as a share of the largest; 1 by default, so that all have the largest length.
    #[arg(long, value_parser = parse_finite, value_name = "RATIO")]
    pub(crate) gsp_range_ratio: Option<f64>,
    /// Do not count the tokens of prompts; each prompt counts as 1 token.
    #[arg(long)]
    pub(crate) gsp_fast_prepare: bool,
    /// Send the group of each request as a routing key, for a router.
    #[arg(long)]
    pub(crate) gsp_send_routing_key: bool,
    /// The number of questions of a conversation; 1 by default. More than 1 needs a chat backend.
    #[arg(long, value_name = "COUNT")]
    pub(crate) gsp_num_turns: Option<u32>,
    /// Do not shuffle the prompts.
    #[arg(long)]
    pub(crate) gsp_ordered: bool,
    /// The distribution of prompts over groups; `uniform` by default.
    #[arg(long, value_enum)]
    pub(crate) gsp_group_distribution: Option<GroupDistributionArg>,
    /// The exponent of `zipf`, above 0: larger values prefer the first groups more.
    #[arg(long, value_parser = parse_finite, value_name = "ALPHA")]
    pub(crate) gsp_zipf_alpha: Option<f64>,
}

/// The distribution of prompts over groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupDistributionArg {
    Uniform,
    Zipf,
}

#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Data set random-rerank")]
pub(crate) struct RerankArgs {
    /// The largest number of tokens of a query; 32 by default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) rerank_query_len: Option<u32>,
    /// The number of documents of each request; 16 by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) rerank_documents: Option<u32>,
    /// The largest number of tokens of a document; 256 by default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) rerank_document_len: Option<u32>,
    /// The smallest drawn length, as a share of the largest; 1 by default, so that all have the largest length.
    #[arg(long, value_parser = parse_finite, value_name = "RATIO")]
    pub(crate) rerank_range_ratio: Option<f64>,
}

/// Flags of recordings.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Data sets audio and random-audio")]
pub(crate) struct AudioArgs {
    /// The length of the recordings of `random-audio` in seconds; 10 by default. If lengths are drawn, this is the
    /// maximum.
    #[arg(long, value_parser = parse_finite, value_name = "SECONDS")]
    pub(crate) audio_seconds: Option<f64>,
    /// The smallest drawn length, as a share of the largest; 1 by default, so that all have the largest length.
    #[arg(long, value_parser = parse_finite, value_name = "RATIO")]
    pub(crate) audio_range_ratio: Option<f64>,
    /// The samples per second of the recordings of `random-audio`; 16000 by default.
    #[arg(long, value_name = "HERTZ")]
    pub(crate) audio_sample_rate: Option<u32>,
    /// What the recordings of `random-audio` consist of; `tones` by default.
    #[arg(long, value_parser = variant_parser::<AudioContent>(), value_name = "CONTENT")]
    pub(crate) audio_content: Option<AudioContent>,
    /// The limit of output tokens to request; by default `output_tokens` of the row. If the row has none, there is no
    /// limit, and the recording decides how long the answer is.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) audio_output_len: Option<u32>,
}

#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Data set structured")]
pub(crate) struct StructuredArgs {
    /// The share of requests that offer tools; 0 by default. The other requests, except those of
    /// `--structured-plain-share`, demand JSON that matches a schema.
    #[arg(long, value_parser = parse_share, value_name = "SHARE")]
    pub(crate) structured_tools_share: Option<f64>,
    /// The share of requests that neither offer tools nor demand JSON; 0 by default.
    #[arg(long, value_parser = parse_share, value_name = "SHARE")]
    pub(crate) structured_plain_share: Option<f64>,
    /// The number of different schemas and of different tool sets; 16 by default. With 0, each request has its own.
    #[arg(long, value_name = "COUNT")]
    pub(crate) structured_schemas: Option<u32>,
    /// The number of properties of a schema and of parameters of a tool; 5 by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) structured_properties: Option<u32>,
    /// The number of tools that a request offers; 4 by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) structured_tools: Option<u32>,
    /// Whether a tool must be called; `required` by default.
    #[arg(long, value_parser = variant_parser::<ToolChoice>(), value_name = "CHOICE")]
    pub(crate) structured_tool_choice: Option<ToolChoice>,
}

/// Flags of the traces.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Data sets agentic-trace and mooncake")]
pub(crate) struct TraceArgs {
    /// The index of the first conversation of `agentic-trace`; 0 by default.
    #[arg(long, value_name = "PLACE")]
    pub(crate) dataset_offset: Option<u32>,
    /// The largest number of turns of each conversation of `agentic-trace`; no limit by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) agentic_max_turns: Option<u32>,
    /// Send the rows of `custom`, `openai` or `agentic-trace` at their timestamps. Each line, or the first turn of each
    /// conversation, has a `timestamp` in milliseconds. The rows of `mooncake` are always sent at their timestamps.
    #[arg(long)]
    pub(crate) use_trace_timestamps: bool,
    /// The factor by which timestamps of `mooncake` are multiplied; 1 by default.
    #[arg(long, value_parser = parse_finite, value_name = "FACTOR")]
    pub(crate) mooncake_slowdown_factor: Option<f64>,
    /// The number of requests per entry of a `mooncake` trace; 1 by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) mooncake_num_rounds: Option<u32>,
    /// The trace of `mooncake` that is used if `--dataset-path` is not set; `conversation` by default.
    #[arg(long, value_parser = variant_parser::<MooncakeTrace>(), value_name = "TRACE")]
    pub(crate) mooncake_workload: Option<MooncakeTrace>,
}

#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Data set agentic-sessions")]
pub(crate) struct SessionArgs {
    /// The format of the file or folder; recognized by its content by default.
    #[arg(long, value_parser = variant_parser::<TraceFormat>(), value_name = "FORMAT")]
    pub(crate) session_format: Option<TraceFormat>,
    /// Where sessions begin: at the first request (`first`, the default) or at a drawn request (`random`). The
    /// requests before a drawn one are sent before the measurement, with one output token each.
    #[arg(long, value_parser = variant_parser::<SessionStart>(), value_name = "PLACE")]
    pub(crate) session_start: Option<SessionStart>,
    /// The number of tokens of a block of the engine's prefix cache; 16 by default. The highest possible hit rate is
    /// computed with it.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) session_cache_block: Option<u32>,
    /// The number of tokens that each id of a `mooncake` trace stands for; 512 by default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) session_trace_block: Option<u32>,
}

/// Parses a number of things of which there is at least one.
pub(super) fn parse_count(text: &str) -> Result<NonZeroU32, String> {
    let count = text.trim().parse();
    count.map_err(|_| format!("`{text}` is not a whole number from 1 to {}", u32::MAX))
}

/// Parses a number that JSON can hold.
pub(super) fn parse_finite(text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| format!("`{text}` is not a finite number"))
}
