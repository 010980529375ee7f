//! One request: when it was due and sent, when its tokens arrived, how it ended.
//!
//! All moments are nanoseconds after the start of the cell's measurement, on the monotonic clock. Records hold facts only;
//! every figure is derived from them.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::chunks::Chunks;
use super::outsourced::Text;
use super::prompt::CountedPrompt;

/// The record of one request that fell due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Its place in the order of the data set, from 0.
    pub index: u32,
    /// Prompt tokens as the data set counts them; of a round as the server counts them, where our count bears it out.
    pub prompt_tokens: u32,
    /// How many of them stand for pictures.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub vision_tokens: u32,
    /// Which round of its conversation it is, from 0; absent for a request that stands alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u32>,
    /// Output tokens asked for, as the data set has it.
    #[serde(rename = "requested_tokens", alias = "asked_tokens")]
    pub asked_tokens: u32,
    /// The most output tokens that the body allowed, where it was another number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_tokens: Option<u32>,
    /// When it should have gone.
    pub due_ns: u64,
    /// When it was begun: its slot won, the connection not yet asked for. Absent if it never was.
    pub sent_ns: Option<u64>,
    /// When the connection stood.
    pub connected_ns: Option<u64>,
    /// When the last byte of the request was handed to the kernel.
    pub written_ns: Option<u64>,
    /// When the first byte of the answer arrived.
    pub first_byte_ns: Option<u64>,
    /// Each event that carried output, in order of arrival.
    pub chunks: Chunks,
    /// When the last line that was not empty arrived, `[DONE]` included: where bench_serving's latency ends.
    pub last_line_ns: Option<u64>,
    /// When it ended, in whatever way.
    pub end_ns: u64,
    /// How it ended: `None` for a completed answer.
    pub failure: Option<Failure>,
    /// The HTTP status, where one arrived.
    pub status: Option<u16>,
    /// What the server reported of its token counts.
    pub usage: Option<Usage>,
    /// Where the cached tokens of the prompt lay, where the server says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<CachedTokens>,
    /// What the answer held that bench_serving cannot read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub oddities: Vec<Oddity>,
    /// Models that the answer names and that were not asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Why the server says the answer ended, such as `length` or `stop`.
    pub finish: Option<String>,
    /// Output tokens as our tokenizer counts the text, without special tokens; `None` where nobody counted.
    pub counted_tokens: Option<u32>,
    /// Tokens of each chunk's text by itself as our tokenizer counts them, 0 for a piece of a tool call; only where a figure
    /// divides by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_chunks: Option<TokenCounts>,
    /// Tokens of the prompt's text as our tokenizer counts them, where the server's count lies apart from `prompt_tokens`; of a
    /// round those of everything that was said and answered before, and of what is said next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_prompt: Option<u32>,
    /// How many of these a chat template may leave out of a round: reasoning and white space of earlier answers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omittable_prompt: u32,
    /// The share of the answer that is one and the same token, event or character, whichever repeats most, from 0 to 1; absent for
    /// short answers and where the text was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uniform: Option<f64>,
    /// How many events with white space or characters without width alone it begins with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub blank_events: u32,
    /// How many events this answer begins with that nearly all answers begin with, up to eight, or 32 where prompts have nothing in common.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub common_events: u32,
    /// Whether the answer is nearly all a loop of two to eight tokens or events.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_loop: bool,
    /// Whether an answer to another prompt is the same text, both of some length.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_canned: bool,
    /// Whether the answer begins with the text of its prompt.
    #[serde(default, skip_serializing_if = "is_false")]
    pub echoes_prompt: bool,
    /// Tokens of the reasoning as our tokenizer counts its text; absent where there was none and where nobody counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_reasoning: Option<u32>,
    /// Tokens of the text that came at the first moment, as our tokenizer counts them; only where the answer has more tokens than
    /// events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_first: Option<u32>,
    /// The text of the answer, where the scenario keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    /// What the tool calls of the answer say, where the scenario keeps texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_text: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Numbers of tokens, one for each event. A clone shares them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u32>", into = "Vec<u32>")]
pub struct TokenCounts(Arc<[u32]>);

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
    /// Whether a complete answer came.
    pub fn is_completed(&self) -> bool {
        self.failure.is_none()
    }

    /// Output tokens: what the server reported, else what we counted, else `None`. A report of 0 beside output is no count.
    pub fn output_tokens(&self) -> Option<u32> {
        self.usage
            .and_then(|usage| usage.completion)
            .filter(|tokens| *tokens > 0 || self.chunks.is_empty())
            .or(self.counted_tokens)
    }

    /// Prompt tokens: as the data set counts them; of rounds as the server counts them, which knows its template, unless our count
    /// contradicts it.
    pub(crate) fn prompt_sent(&self) -> u32 {
        let Some(round) = self.round else {
            return self.prompt_tokens;
        };
        let is_borne_out = CountedPrompt::of_round(self).is_none_or(|prompt| prompt.is_borne_out());
        let reported = self.usage.and_then(|usage| usage.prompt);
        let own = self.counted_prompt.filter(|_| round > 0);
        reported
            .filter(|_| is_borne_out)
            .or(own)
            .unwrap_or(self.prompt_tokens)
    }

    /// The most output tokens that were allowed.
    pub(crate) fn limit(&self) -> u32 {
        self.limit_tokens.unwrap_or(self.asked_tokens)
    }

    /// Prompt tokens from the prefix cache as the server reports them; more than the prompt has are none.
    pub(crate) fn cached_tokens(&self) -> Option<u32> {
        let usage = self.usage?;
        let prompt = usage.prompt.unwrap_or_else(|| self.prompt_sent());
        usage.cached.filter(|cached| *cached <= prompt)
    }

    /// Output tokens that the server reports as reasoning; more than all output tokens are none.
    fn reported_reasoning(&self) -> Option<u32> {
        let usage = self.usage?;
        let most = usage.completion.unwrap_or(u32::MAX);
        usage.reasoning.filter(|tokens| *tokens <= most)
    }

    /// Whether the server reports counts that cannot be: more cached tokens than the prompt has, or more reasoning than output.
    pub(crate) fn has_impossible_counts(&self) -> bool {
        let told = self.usage.unwrap_or_default();
        told.cached.is_some() && self.cached_tokens().is_none()
            || told.reasoning.is_some() && self.reported_reasoning().is_none()
    }

    /// Output tokens that are reasoning: what the server reported, else what we counted of its text.
    pub(crate) fn reasoning_tokens(&self) -> Option<u32> {
        self.reported_reasoning().or(self.counted_reasoning)
    }

    /// Output tokens that no event carried: reasoning that the server keeps to itself.
    pub(crate) fn hidden_tokens(&self) -> u32 {
        let reported = self.reported_reasoning().unwrap_or(0);
        if reported > 0 && self.chunks.has_reasoning() {
            0
        } else {
            reported
        }
    }

    /// Output tokens that came in events.
    pub(crate) fn visible_tokens(&self) -> Option<u32> {
        Some(self.output_tokens()?.saturating_sub(self.hidden_tokens()))
    }
}

/// Words within the reasons with which servers end answers that they did not finish.
const FAILED_ENDS: [&str; 10] = [
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

/// The reasons with which servers end whole answers.
const WHOLE_ENDS: [&str; 16] = [
    "complete",
    "completed",
    "end_turn",
    "eos",
    "eos_token",
    "function_call",
    "length",
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

/// Whether a server ends an answer for this reason that it could not finish.
pub(crate) fn is_failed_end(finish: &str) -> bool {
    let finish = finish.to_ascii_lowercase();
    FAILED_ENDS.iter().any(|word| finish.contains(word))
}

/// Whether it is known what an answer is that ends for this reason.
pub(crate) fn is_known_end(finish: &str) -> bool {
    WHOLE_ENDS.iter().any(|word| finish.eq_ignore_ascii_case(word))
}

/// Whether an answer ends for this reason because no more tokens were allowed.
pub(crate) fn is_limit_end(finish: &str) -> bool {
    ["length", "max_tokens", "model_length"]
        .iter()
        .any(|word| finish.eq_ignore_ascii_case(word))
}

/// Whether two names of a model stand for the same one: a path and its last part do, as do a name and the version of a day
/// (`gpt-4o-2024-08-06`).
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

/// One event that carried output. On disk `[at_ns, kind, tokens, bytes]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "(u64, ChunkKind, Option<u32>, u32)",
    into = "(u64, ChunkKind, Option<u32>, u32)"
)]
pub struct Chunk {
    /// When the bytes that hold it arrived.
    pub at_ns: u64,
    /// What it carries.
    pub kind: ChunkKind,
    /// Output tokens so far as the server reports them in this very event, where it does.
    pub tokens: Option<u32>,
    /// Bytes of text it adds.
    pub bytes: u32,
}

impl From<(u64, ChunkKind, Option<u32>, u32)> for Chunk {
    fn from((at_ns, kind, tokens, bytes): (u64, ChunkKind, Option<u32>, u32)) -> Self {
        Self {
            at_ns,
            kind,
            tokens,
            bytes,
        }
    }
}

impl From<Chunk> for (u64, ChunkKind, Option<u32>, u32) {
    fn from(chunk: Chunk) -> Self {
        (chunk.at_ns, chunk.kind, chunk.tokens, chunk.bytes)
    }
}

/// What an event carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkKind {
    /// Text of the answer.
    #[serde(rename = "a")]
    Answer,
    /// Text of the reasoning before the answer.
    #[serde(rename = "r")]
    Reasoning,
    /// Reasoning in the text of the answer, between `<think>` and `</think>`.
    #[serde(rename = "h")]
    Thought,
    /// A piece of a tool call.
    #[serde(rename = "t")]
    Tool,
}

impl ChunkKind {
    /// Whether it is reasoning, wherever the server puts it.
    pub(crate) const fn is_reasoning(self) -> bool {
        matches!(self, Self::Reasoning | Self::Thought)
    }
}

/// Token counts that the server reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: Option<u32>,
    /// Tokens of the output.
    pub completion: Option<u32>,
    /// Tokens of the prompt that came from the prefix cache.
    pub cached: Option<u32>,
    /// Tokens of the output that are reasoning, shown or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u32>,
    /// Whether it came because we asked for it, and bench_serving would not have.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_ours: bool,
}

/// Where the tokens of a prompt lay that came from the prefix cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedTokens {
    /// On the device; `None` where the server does not say.
    pub device: Option<u32>,
    /// In the host's memory.
    pub host: Option<u32>,
    /// In storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<u32>,
    /// The storage's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_backend: Option<String>,
}

/// Something in an answer that is allowed and that bench_serving fails at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Oddity {
    /// A comment, or a field of an event other than its data.
    Field,
    /// `data:` without the space after it.
    Unspaced,
    /// An event of completions without a choice, such as a usage event that we did not ask for.
    NoChoice,
}

/// How a request failed, with the server's or the system's own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class, for counting.
    pub class: Class,
    /// What was said.
    pub message: String,
}

/// The classes of failure: closed, so that counts can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// No connection: unreachable, name unknown, out of ports or file handles.
    Connect,
    /// The connection was refused: nobody listens.
    Refused,
    /// An HTTP status other than 200.
    Status,
    /// The connection broke before the answer was whole.
    Reset,
    /// An error event inside the stream.
    ErrorEvent,
    /// The stream ended well and held no output at all.
    Empty,
    /// Bytes that are neither HTTP, SSE nor JSON.
    Garbled,
    /// A line longer than the limit.
    HugeLine,
    /// More output than was asked for, without an end; cut.
    Endless,
    /// Nothing arrived in time.
    TimeoutBeforeFirst,
    /// It began and did not end in time.
    TimeoutAfterFirst,
    /// We ended it: the run was stopped, or the time to drain was over.
    Cancelled,
    /// It fell due and was never sent: the engine was dead, or the time was over.
    Unsent,
}

/// How many of the requests failed, by class.
pub(crate) fn failures(requests: &[Request]) -> BTreeMap<Class, u32> {
    let mut failures = BTreeMap::new();
    for failure in requests.iter().filter_map(|request| request.failure.as_ref()) {
        *failures.entry(failure.class).or_default() += 1;
    }
    failures
}

/// How many failures there are of each class, in words: `refused 20, reset 5`; empty where there are none.
pub(crate) fn by_class(failures: impl IntoIterator<Item = (Class, u32)>) -> String {
    let mut counts: BTreeMap<Class, u32> = BTreeMap::new();
    for (class, count) in failures {
        *counts.entry(class).or_default() += count;
    }
    let counted = Class::ALL.into_iter().filter_map(|class| {
        let count = counts.get(&class).filter(|count| **count > 0)?;
        Some(format!("{} {count}", class.name()))
    });
    counted.collect::<Vec<_>>().join(", ")
}

impl Class {
    /// Every class, in the order of tables.
    pub(crate) const ALL: [Self; 13] = [
        Self::Connect,
        Self::Refused,
        Self::Status,
        Self::Reset,
        Self::ErrorEvent,
        Self::Empty,
        Self::Garbled,
        Self::HugeLine,
        Self::Endless,
        Self::TimeoutBeforeFirst,
        Self::TimeoutAfterFirst,
        Self::Cancelled,
        Self::Unsent,
    ];

    /// The class as it is written on disk and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refused => "refused",
            Self::Status => "status",
            Self::Reset => "reset",
            Self::ErrorEvent => "error-event",
            Self::Empty => "empty",
            Self::Garbled => "garbled",
            Self::HugeLine => "huge-line",
            Self::Endless => "endless",
            Self::TimeoutBeforeFirst => "timeout-before-first",
            Self::TimeoutAfterFirst => "timeout-after-first",
            Self::Cancelled => "cancelled",
            Self::Unsent => "unsent",
        }
    }
}
