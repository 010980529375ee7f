//! Flags of `matrix sim` that inject faults.

use clap::Args;

use super::parse_share;
use crate::base::units::{Bytes, HumanDuration};
use crate::cli::named::variant_parser;
use crate::sim::{DieAfter, FalseHealth, Faults, HugeLine, Loading};

/// Faults of the process, which every role can have.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Injected faults")]
pub(super) struct ProcessFaultArgs {
    /// Duration of loading, such as `3s`; connections are refused until it ends.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub(super) start_delay: HumanDuration,
    /// Accepts connections while loading and responds with status 503.
    #[arg(long)]
    pub(super) listen_while_loading: bool,
    /// Exits with status 1 and resets all connections, either after a time since the start (`200ms`), after a number of
    /// written tokens (`40tokens`), or after a number of ended generation requests (`3requests`).
    #[arg(long, value_name = "WHEN")]
    pub(super) die_after: Option<DieAfter>,
    /// Exits with status 1 after this time. The engine is still loading then, even if this time is long.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "0s", conflicts_with = "hang_while_loading")]
    die_while_loading: Option<HumanDuration>,
    /// Never finishes loading the model.
    #[arg(long)]
    hang_while_loading: bool,
    /// Keeps running after a SIGTERM.
    #[arg(long)]
    ignore_sigterm: bool,
    /// Leaves a child process in the same process group. The child runs for ten minutes.
    #[arg(long)]
    leak_child: bool,
    /// Writes this amount to the log, such as `1GB`, as fast as possible when the engine is ready.
    #[arg(long, value_name = "SIZE")]
    log_flood: Option<Bytes>,
    /// Leaves a file of this size in `/dev/shm`, like an engine that was killed while it used shared memory.
    #[arg(long, value_name = "SIZE")]
    leave_shm: Option<Bytes>,
}

/// Faults of responses, which only servers that compute them can have.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Injected faults")]
pub(super) struct ResponseFaultArgs {
    /// After N generation requests, responds to no further request. Connections are still accepted, and streams in
    /// progress end normally.
    #[arg(long, value_name = "N")]
    hang_after: Option<u64>,
    /// Stops listening once N generation requests have arrived. Requests on open connections are still answered; then
    /// these connections are closed.
    #[arg(long, value_name = "N")]
    refuse: Option<u64>,
    /// Ends every N-th stream halfway with an error event.
    #[arg(long, value_name = "N")]
    error_event_every: Option<u64>,
    /// Cuts every N-th response inside a chunk and closes the connection.
    #[arg(long, value_name = "N")]
    half_stream_every: Option<u64>,
    /// Writes invalid data in the middle of every N-th stream.
    #[arg(long, value_name = "N")]
    garbage_every: Option<u64>,
    /// Writes one huge line in the middle of every N-th stream; `--huge-line-bytes` is its size.
    #[arg(long, value_name = "N")]
    huge_line_every: Option<u64>,
    /// The size of the line of `--huge-line-every`, such as `32MiB`.
    #[arg(long, value_name = "SIZE", default_value = "32MiB")]
    huge_line_bytes: Bytes,
    /// Makes every N-th stream endless: tokens continue beyond the requested number.
    #[arg(long, value_name = "N")]
    endless_stream_every: Option<u64>,
    /// Responds to every N-th generation request with status 500.
    #[arg(long, value_name = "N")]
    http_error_every: Option<u64>,
    /// Reports good health although generation requests get no response (`hang`) or a response without a token (`empty`).
    #[arg(long, value_parser = variant_parser::<FalseHealth>(), value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "hang")]
    lying_health: Option<FalseHealth>,
    /// Reports success for a cache reset but resets nothing.
    #[arg(long)]
    fake_reset: bool,
    /// Ends every output after this share of the requested tokens, such as `50%`, even if `ignore_eos` is set.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    early_end: Option<f64>,
    /// Writes additional tokens, as a share of the requested number, such as `100%`.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    extra_output: Option<f64>,
    /// Reads and reports only the first N tokens of each prompt.
    #[arg(long, value_name = "N")]
    truncate_prompts: Option<usize>,
    /// Repeats the same token in every output.
    #[arg(long)]
    same_token: bool,
    /// Completes requests even if their clients disconnect.
    #[arg(long)]
    ignore_disconnects: bool,
    /// Makes this share of the JSON answers and tool calls wrong, such as `10%`: text before the JSON, a missing end, or another type or tool.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    wrong_answers: Option<f64>,
    /// Varies this share of the answers, such as `10%`: from a random token on, they have other words, as with engines
    /// whose rounding depends on the batch. JSON answers, tool calls and answers to graded tasks do not vary. Without this
    /// option, the same prompt has the same answer.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    varied_answers: Option<f64>,
    /// Makes all JSON answers and tool calls wrong while more than N requests are in flight. The same holds for answers
    /// to the items of graded tasks (`quality:`), which are right without injected faults.
    #[arg(long, value_name = "N")]
    wrong_above: Option<u64>,
    /// Like `--wrong-above`, but for the answers to prompts of more than N tokens.
    #[arg(long, value_name = "N")]
    wrong_beyond: Option<usize>,
    /// Solves no item of graded tasks, like a model with a wrong chat template.
    #[arg(long)]
    wrong_template: bool,
    /// Writes tool calls as plain text in the answers to items of graded tasks.
    #[arg(long)]
    broken_tool_parser: bool,
    /// Reports no token counts.
    #[arg(long)]
    hide_usage: bool,
    /// Reports the requested number of output tokens, even if another number of tokens was written.
    #[arg(long)]
    claim_full_length: bool,
    /// Serves the model under another name than that of `--model`.
    #[arg(long)]
    wrong_model: bool,
    /// Lists another model name at `/v1/models` after N generation requests.
    #[arg(long, value_name = "N")]
    rename_after: Option<u64>,
    /// Resets all metrics to 0 after N generation requests, like an engine that was restarted.
    #[arg(long, value_name = "N")]
    forget_metrics_after: Option<u64>,
    /// Does not respond to `/metrics` after N generation requests.
    #[arg(long, value_name = "N")]
    hang_metrics_after: Option<u64>,
}

impl ProcessFaultArgs {
    /// All faults, those of responses included.
    pub(super) fn into_faults(self, responses: ResponseFaultArgs) -> Faults {
        let bytes = usize::try_from(responses.huge_line_bytes.0).unwrap_or(usize::MAX);
        Faults {
            die_after: self.die_after,
            loading: match (self.die_while_loading, self.hang_while_loading) {
                (Some(after), _) => Loading::Dies(after.duration()),
                (None, true) => Loading::Hangs,
                (None, false) => Loading::Ends,
            },
            hang_after: responses.hang_after,
            refuse_after: responses.refuse,
            error_event_every: responses.error_event_every,
            half_stream_every: responses.half_stream_every,
            garbage_every: responses.garbage_every,
            huge_line: responses.huge_line_every.map(|every| HugeLine { every, bytes }),
            endless_stream_every: responses.endless_stream_every,
            http_error_every: responses.http_error_every,
            false_health: responses.lying_health,
            fake_reset: responses.fake_reset,
            early_end: responses.early_end,
            extra_output: responses.extra_output,
            truncate_prompts: responses.truncate_prompts,
            same_token: responses.same_token,
            ignore_disconnects: responses.ignore_disconnects,
            wrong_answers: responses.wrong_answers,
            varied_answers: responses.varied_answers,
            wrong_above: responses.wrong_above,
            wrong_beyond: responses.wrong_beyond,
            wrong_template: responses.wrong_template,
            broken_tool_parser: responses.broken_tool_parser,
            hide_usage: responses.hide_usage,
            claim_full_length: responses.claim_full_length,
            wrong_model: responses.wrong_model,
            rename_after: responses.rename_after,
            forget_metrics_after: responses.forget_metrics_after,
            hang_metrics_after: responses.hang_metrics_after,
            ignore_sigterm: self.ignore_sigterm,
            leak_child: self.leak_child,
            log_flood: self.log_flood.map(|bytes| bytes.0),
            leave_shm: self.leave_shm.map(|size| size.0),
        }
    }
}
