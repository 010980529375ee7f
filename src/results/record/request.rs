//! One request: when it was due and sent, when its tokens arrived, how it ended.
//!
//! All times are nanoseconds since the start of the measurement, on the monotonic clock. Records hold only
//! facts; every metric is derived from them.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use super::answer_check::{AnswerCheck, IncorrectClass, UncheckedClass};
pub(crate) use super::chunk::{Chunk, ChunkKind};
use super::chunks::Chunks;
use super::final_answer::FinalAnswer;
use super::prompt::CountedPrompt;
pub(crate) use super::request_failure::format_failures;
pub use super::request_failure::{Failure, RequestFailureClass};
use super::spilled::SpilledText;
use super::tool_call::ToolCall;

/// The record of one request that fell due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Index in the order of the data set, from 0.
    pub index: u32,
    /// How it was sent, if not once over a connection of its own to the only address.
    #[serde(default, skip_serializing_if = "ConnectionUse::is_default")]
    pub(crate) connection: ConnectionUse,
    /// Prompt tokens as the data set counts them; for a round, as the server counts them, if our count
    /// agrees.
    pub prompt_tokens: u32,
    /// Prompt tokens that stand for images.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) vision_tokens: u32,
    /// The recording in the prompt; absent for prompts without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) audio: Option<AudioInput>,
    /// Index of the round in its conversation, from 0; absent for a single request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) round: Option<u32>,
    /// Number of its session, from 0; absent outside of sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<u32>,
    /// Prompt tokens that an unlimited prefix cache would hold when it was sent, from the prompts sent before
    /// it. Present only where it is computed: in loads of sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reusable_prompt: Option<u32>,
    /// Prompt tokens that were looked up in that cache: with the chat template, by our own tokenizer. Absent if they
    /// are `prompt_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queried_prompt: Option<u32>,
    /// Requested output tokens, as the data set gives them.
    #[serde(rename = "requested_tokens", alias = "asked_tokens")]
    pub requested_tokens: u32,
    /// Limit of output tokens in the request body, if it differs from `asked_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit_tokens: Option<u32>,
    /// When it was due.
    pub due_ns: u64,
    /// When it was sent: after waiting for a free slot, before connecting. Absent if it was not sent.
    pub sent_ns: Option<u64>,
    /// When the connection was established.
    pub(crate) connected_ns: Option<u64>,
    /// When the last byte of the request was passed to the kernel.
    pub(crate) written_ns: Option<u64>,
    /// When the first byte of the answer arrived.
    pub(crate) first_byte_ns: Option<u64>,
    /// The events with output, in order of arrival.
    pub chunks: Chunks,
    /// When the last non-empty line arrived, including `[DONE]`: the end of bench_serving's latency.
    pub(crate) last_line_ns: Option<u64>,
    /// When the request ended, with any outcome.
    pub end_ns: u64,
    /// The failure; `None` for a completed answer and for one that the client cancelled as planned.
    pub failure: Option<Failure>,
    /// Whether the client cancelled it as planned. Such a request neither completed nor failed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancelled: bool,
    /// The HTTP status, if one arrived.
    pub(crate) status: Option<u16>,
    /// The token counts that the server reported.
    pub usage: Option<Usage>,
    /// Where the cached tokens of the prompt were stored, if the server reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cached: Option<CachedTokens>,
    /// Parts of the answer that bench_serving cannot parse.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) oddities: Vec<Oddity>,
    /// Models that the answer names although they were not requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) models: Vec<String>,
    /// The server's finish reason, such as `length` or `stop`.
    pub(crate) finish: Option<String>,
    /// Output tokens by our own tokenizer, without special tokens; `None` if they were not counted.
    pub(crate) counted_tokens: Option<u32>,
    /// Tokens of each chunk's text alone by our own tokenizer, 0 for a piece of a tool call. Present only if
    /// a metric divides by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) counted_chunks: Option<TokenCounts>,
    /// Tokens of the prompt's text by our own tokenizer, if the server's count differs from `prompt_tokens`.
    /// For a round, the tokens of the whole conversation so far and of the new message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) counted_prompt: Option<u32>,
    /// Of `counted_prompt`, the tokens that a chat template may leave out: reasoning and white space of
    /// earlier answers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) omittable_prompt: u32,
    /// Share of the most frequent token, event or character in the answer, 0 to 1. Absent for short answers
    /// and if the text was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uniform: Option<f64>,
    /// Number of events at the start of the answer that hold only white space or zero-width characters.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) blank_events: u32,
    /// Number of events at the start of the answer that almost all answers share: at most 8, or 32 if the
    /// prompts have nothing in common.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) common_events: u32,
    /// Whether the answer is almost entirely a loop of two to eight tokens or events.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_loop: bool,
    /// Whether another prompt received the same text; both answers must have a minimum length.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_canned: bool,
    /// Whether the answer begins with the text of its prompt.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) echoes_prompt: bool,
    /// Tokens of the reasoning by our own tokenizer; absent without reasoning and if tokens were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) counted_reasoning: Option<u32>,
    /// Tokens of the text that arrived at the first moment, by our own tokenizer. Present only if the answer
    /// has more tokens than events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) counted_first: Option<u32>,
    /// The text of the answer, if the scenario keeps texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<SpilledText>,
    /// The text of the answer's tool calls, if the scenario keeps texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_text: Option<String>,
    /// The tool calls, until they were checked; their text is stored.
    #[serde(skip)]
    pub(crate) tool_calls: Vec<ToolCall>,
    /// What the end of the answer says of it, until it was checked; absent if the pieces say the same.
    #[serde(skip)]
    pub(crate) final_answer: Option<Box<FinalAnswer>>,
    /// Whether the answer is what its request demands; absent where nothing is demanded or answers are not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer_check: Option<AnswerCheck>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How a request was sent. `sent_ns` is the first time; the other times are those of the last attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectionUse {
    /// Index of the address that it was sent to last; absent for loads with one address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<u32>,
    /// How often it was sent again because the server answered 429 or 503.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) retries: u32,
    /// Indexes of the addresses that answered its earlier attempts with 429 or 503; empty for loads with one address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) turned_away: Vec<u32>,
    /// Whether it was not sent again, although retries were left, because the pause would have outlasted its timeout.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) is_retry_skipped: bool,
    /// Whether its connection had served another request.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) is_reused: bool,
    /// Whether it was sent again over a new connection, because a reused one ended before any byte of the answer.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) is_reconnected: bool,
}

impl ConnectionUse {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A recording that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AudioInput {
    /// Its length in seconds; absent if the file does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
    /// The length that the answer reports in seconds, often rounded up; absent if it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reported_seconds: Option<f64>,
}

impl AudioInput {
    /// The largest number of output tokens that a recording of this length can have: one for each 10 ms, the step at which
    /// speech is analysed.
    pub(crate) fn max_tokens(self) -> u32 {
        const STEPS_PER_SECOND: f64 = 100.0;
        // A conversion from a float saturates.
        self.seconds
            .map_or(u32::MAX, |seconds| (seconds * STEPS_PER_SECOND).ceil() as u32)
    }
}

/// Token counts, one for each event. Clones share the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u32>", into = "Vec<u32>")]
pub(crate) struct TokenCounts(Arc<[u32]>);

impl From<Vec<u32>> for TokenCounts {
    fn from(counts: Vec<u32>) -> Self {
        Self(counts.into())
    }
}

impl From<TokenCounts> for Vec<u32> {
    fn from(counts: TokenCounts) -> Self {
        counts.0.to_vec()
    }
}

impl Deref for TokenCounts {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.0
    }
}

impl Request {
    /// Whether it is the first request of its conversation, or the only one.
    pub(crate) fn is_first_round(&self) -> bool {
        self.round.is_none_or(|round| round == 0)
    }

    /// Whether a complete answer arrived.
    pub fn is_completed(&self) -> bool {
        self.failure.is_none() && !self.cancelled
    }

    /// Whether it failed. A request that the client cancelled as planned did not.
    pub fn is_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Output tokens: the server's count, otherwise our own, otherwise `None`. A reported count of 0 is
    /// ignored if there is output.
    pub fn output_tokens(&self) -> Option<u32> {
        self.usage
            .and_then(|usage| usage.completion)
            .filter(|tokens| *tokens > 0 || self.chunks.is_empty())
            .or(self.counted_tokens)
    }

    /// Output tokens that arrived, of a request with any outcome: as counted, or else one for each event.
    pub(crate) fn received_tokens(&self) -> u32 {
        let events = || u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        self.output_tokens().unwrap_or_else(events)
    }

    /// Prompt tokens: the data set's count. For a recording the server's count, if there is one: the data set knows only the
    /// tokens of the text beside it. For a round, the server's count, which includes the chat
    /// template, unless our own count contradicts it.
    pub(crate) fn prompt_sent(&self) -> u32 {
        if self.audio.is_some() {
            return self
                .usage
                .and_then(|usage| usage.prompt)
                .unwrap_or(self.prompt_tokens);
        }
        let Some(round) = self.round else {
            return self.prompt_tokens;
        };
        let is_borne_out = CountedPrompt::from_round(self).is_none_or(|prompt| prompt.is_plausible());
        let reported = self.usage.and_then(|usage| usage.prompt);
        let own = self.counted_prompt.filter(|_| round > 0);
        reported
            .filter(|_| is_borne_out)
            .or(own)
            .unwrap_or(self.prompt_tokens)
    }

    /// Prompt tokens as [`Self::prompt_sent`] counts them; `None` for a recording whose tokens the server does not report,
    /// because only the server knows how many it makes of a second.
    pub(crate) fn known_prompt(&self) -> Option<u32> {
        match self.audio {
            Some(_) => self.usage.and_then(|usage| usage.prompt),
            None => Some(self.prompt_sent()),
        }
    }

    /// The largest allowed number of output tokens.
    pub(crate) fn max_output_tokens(&self) -> u32 {
        self.limit_tokens.unwrap_or(self.requested_tokens)
    }

    /// Prompt tokens from the prefix cache, as reported; `None` if the report exceeds the prompt.
    pub(crate) fn cached_tokens(&self) -> Option<u32> {
        let usage = self.usage?;
        let prompt = usage.prompt.unwrap_or_else(|| self.prompt_sent());
        usage.cached.filter(|cached| *cached <= prompt)
    }

    /// Reasoning tokens, as reported; `None` if the report exceeds the output.
    fn reported_reasoning(&self) -> Option<u32> {
        let usage = self.usage?;
        let limit = usage.completion.unwrap_or(u32::MAX);
        usage.reasoning.filter(|tokens| *tokens <= limit)
    }

    /// Whether the server reports impossible counts: more cached tokens than the prompt has, or more
    /// reasoning than output.
    pub(crate) fn has_impossible_counts(&self) -> bool {
        let usage = self.usage.unwrap_or_default();
        usage.cached.is_some() && self.cached_tokens().is_none()
            || usage.reasoning.is_some() && self.reported_reasoning().is_none()
    }

    /// Reasoning tokens: the server's count, otherwise our own count of the text.
    pub(crate) fn reasoning_tokens(&self) -> Option<u32> {
        self.reported_reasoning().or(self.counted_reasoning)
    }

    /// Output tokens without an event: reasoning that the server does not show.
    pub(crate) fn hidden_tokens(&self) -> u32 {
        let reported = self.reported_reasoning().unwrap_or(0);
        if reported > 0 && self.chunks.has_reasoning() {
            0
        } else {
            reported
        }
    }

    /// Output tokens that arrived in events.
    pub(crate) fn visible_tokens(&self) -> Option<u32> {
        Some(self.output_tokens()?.saturating_sub(self.hidden_tokens()))
    }
}

/// Substrings of the finish reasons of incomplete answers.
const FAILED_FINISH_WORDS: [&str; 10] = [
    "abort",
    "cancel",
    "content_filter",
    "disconnect",
    "error",
    "fail",
    "insufficient",
    "interrupt",
    "timed_out",
    "timeout",
];

/// Finish reasons of complete answers.
const COMPLETE_FINISH_REASONS: [&str; 17] = [
    "complete",
    "completed",
    "end_turn",
    "eos",
    "eos_token",
    "function_call",
    "length",
    "max_output_tokens",
    "max_tokens",
    "model_length",
    "repetition",
    "stop",
    "stop_sequence",
    "stop_str",
    "tool_call",
    "tool_calls",
    "tool_use",
];

/// Whether the finish reason means that the server could not complete the answer.
pub(crate) fn is_failed_finish(finish: &str) -> bool {
    let finish = finish.to_ascii_lowercase();
    FAILED_FINISH_WORDS.iter().any(|word| finish.contains(word))
}

/// Whether the finish reason is a known one of complete answers.
pub(crate) fn is_known_finish(finish: &str) -> bool {
    COMPLETE_FINISH_REASONS
        .iter()
        .any(|word| finish.eq_ignore_ascii_case(word))
}

/// Whether the finish reason means that the token limit was reached.
pub(crate) fn is_limit_finish(finish: &str) -> bool {
    ["length", "max_output_tokens", "max_tokens", "model_length"]
        .iter()
        .any(|word| finish.eq_ignore_ascii_case(word))
}

/// Whether two model names denote the same model: a path equals its last part, and a name equals its dated
/// version (`gpt-4o-2024-08-06`).
pub(crate) fn is_same_model(one: &str, other: &str) -> bool {
    let last = |name: &str| {
        let name = name.trim_end_matches('/');
        let last = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
        last.trim_end_matches(".gguf").to_owned()
    };
    let (one, other) = (last(one), last(other));
    let is_dated = |long: &str, short: &str| {
        let day = long.strip_prefix(short).and_then(|rest| rest.strip_prefix('-'));
        day.is_some_and(|day| day.len() >= 6 && day.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'))
    };
    one == other || is_dated(&one, &other) || is_dated(&other, &one)
}

/// Token counts that the server reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Number of prompt tokens.
    pub prompt: Option<u32>,
    /// Number of output tokens.
    pub completion: Option<u32>,
    /// Prompt tokens from the prefix cache.
    pub(crate) cached: Option<u32>,
    /// Output tokens that are reasoning, visible or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning: Option<u32>,
    /// Whether the report came only because we requested it; bench_serving would not have.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_ours: bool,
}

/// Where the cached tokens of a prompt were stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CachedTokens {
    /// On the device; `None` if the server does not report it.
    pub(crate) device: Option<u32>,
    pub(crate) host: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage: Option<u32>,
    /// Name of the storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage_backend: Option<String>,
}

/// A permitted feature of an answer that bench_serving cannot parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Oddity {
    /// An SSE comment, or an event field other than `data`.
    Field,
    /// `data:` without the space after it.
    Unspaced,
    /// A completions event without a choice, such as a usage event that was not requested.
    NoChoice,
}

/// Counts the requests that are judged: all that fell due except those that the client cancelled as planned.
pub(crate) fn judged_requests(requests: &[Request]) -> usize {
    requests.iter().filter(|request| !request.cancelled).count()
}

/// Counts failed requests by class.
pub(crate) fn count_failures(requests: &[Request]) -> BTreeMap<RequestFailureClass, u32> {
    let mut failures = BTreeMap::new();
    for failure in requests.iter().filter_map(|request| request.failure.as_ref()) {
        *failures.entry(failure.class).or_default() += 1;
    }
    failures
}
