//! Reads requests as bench_serving does, including its known bugs.
//!
//! Some of what bench_serving sees is not in a record: events that repeat the whole text without a new token
//! (`classic` counts a gap for each on the native protocol), and the length of a line (`classic` fails at 128
//! KiB).

use super::answer_checks::may_be_good;
use crate::config::api::CountedAs;
use crate::config::workload::Profile;
use crate::plan::Protocol;
use crate::results::record::request::{
    Chunk, ChunkKind, Oddity, Request, RequestFailureClass, is_failed_finish,
};

/// Whether the known bugs of bench_serving are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compat {
    AsPublished,
    Fixed,
}

/// Returns whether `current` divides gaps by the tokens of each chunk's text. These tokens must then be
/// counted.
///
/// Source: docs/bench-serving.md 7.2, retokenized ITL.
pub(crate) fn divides_gaps(backend: &str, accept_length: Option<f64>) -> bool {
    accept_length.is_some_and(|length| length > 0.0) && ["sglang-oai", "sglang-oai-chat"].contains(&backend)
}

/// Whether bench_serving asks a backend how many tokens it accepts per step of speculative decoding.
///
/// Source: docs/bench-serving.md 6, step 17.
pub(crate) fn asks_accept_length(backend: &str) -> bool {
    backend.contains("sglang")
}

/// A request that bench_serving takes for a success. Times in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SuccessfulRequest<'r> {
    /// When it was sent, after the start of the measurement.
    pub(super) start: f64,
    /// From sending to the first event with output, or 0 if there was none.
    pub(super) ttft: f64,
    /// From sending to the last line that was not empty.
    pub(super) latency: f64,
    pub(super) itl: Gaps<'r>,
    /// Tokens in the text at the end of each gap, each text counted separately. `None` if they were not
    /// counted.
    pub(super) itl_tokens: Option<GapTokens<'r>>,
    pub(super) output: u32,
    /// Prompt tokens of the data set.
    pub(super) prompt: u32,
    /// The prompt tokens that stand for images.
    pub(super) vision: u32,
    /// Output tokens counted again from the text.
    pub(super) counted: Option<u32>,
    /// Whether the answer is correct, or is not checked.
    pub(super) may_be_good: bool,
}

impl SuccessfulRequest<'_> {
    /// Returns the time per output token after the first. `None` for fewer than two tokens.
    ///
    /// Source: docs/bench-serving.md 7.2.
    pub(super) fn tpot(&self) -> Option<f64> {
        (self.output > 1).then(|| (self.latency - self.ttft) / f64::from(self.output - 1))
    }
}

/// Gaps between tokens or events, in seconds. They are computed at each read, to save memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Gaps<'r> {
    /// Gaps between the events that a profile reads.
    PerEvent(&'r Request, Profile),
    /// Gaps per token of each event, for the native protocol.
    PerToken(&'r Request, Profile),
    #[cfg(test)]
    Values(Vec<f64>),
}

impl Gaps<'_> {
    pub(super) fn collect(&self) -> Vec<f64> {
        match self {
            Self::PerEvent(request, profile) => {
                let mut events = read_chunks(request, *profile).map(|chunk| chunk.at_ns);
                let Some(mut before) = events.next() else {
                    return Vec::new();
                };
                events
                    .map(|at| seconds_between(std::mem::replace(&mut before, at), at))
                    .collect()
            }
            Self::PerToken(request, profile) => {
                native_gaps(read_chunks(request, *profile)).unwrap_or_default()
            }
            #[cfg(test)]
            Self::Values(gaps) => gaps.clone(),
        }
    }
}

/// Tokens in the text at the end of each gap. They are computed at each read, to save memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GapTokens<'r>(&'r Request, Profile);

impl GapTokens<'_> {
    pub(super) fn collect(&self) -> Vec<u32> {
        let counts = self.0.counted_chunks.iter().flat_map(|counts| counts.iter());
        let read = self.0.chunks.iter().zip(counts);
        let read = read.filter(|(chunk, _)| is_read(chunk.kind, self.1));
        read.skip(1).map(|(_, count)| *count).collect()
    }
}

fn read_chunks(request: &Request, profile: Profile) -> impl Iterator<Item = Chunk> + '_ {
    request
        .chunks
        .iter()
        .filter(move |chunk| is_read(chunk.kind, profile))
}

/// Returns the successful requests, in the order of the data set.
pub(super) fn successful_requests(
    requests: &[Request],
    protocol: Protocol,
    profile: Profile,
) -> Vec<SuccessfulRequest<'_>> {
    let mut ordered: Vec<&Request> = requests.iter().collect();
    ordered.sort_by_key(|request| request.index);
    ordered
        .into_iter()
        .filter_map(|request| successful_request(request, protocol, profile))
        .collect()
}

fn successful_request(
    request: &Request,
    protocol: Protocol,
    profile: Profile,
) -> Option<SuccessfulRequest<'_>> {
    if !is_success(request, protocol, profile) {
        return None;
    }
    let sent = request.sent_ns?;
    // Source: docs/bench-serving.md 2.1: an answer without a single line fails.
    let last_line = request.last_line_ns?;
    let first = read_chunks(request, profile).next();
    // Source: docs/bench-serving.md 7.1 and T29: rounds of conversations have no prompt tokens.
    let stands_alone = request.round.is_none();
    let prompt = |tokens: u32| if stands_alone { tokens } else { 0 };
    let itl = match (protocol, profile) {
        (Protocol::SglangNative, Profile::Current) => {
            // An event without a token count fails the request.
            native_gaps(read_chunks(request, profile))?;
            Gaps::PerToken(request, profile)
        }
        _ => Gaps::PerEvent(request, profile),
    };
    Some(SuccessfulRequest {
        start: seconds_between(0, sent),
        ttft: first.map_or(0.0, |first| seconds_between(sent, first.at_ns)),
        latency: seconds_between(sent, last_line),
        itl,
        itl_tokens: request
            .counted_chunks
            .is_some()
            .then_some(GapTokens(request, profile)),
        output: output_tokens(request, first.is_none(), protocol, profile),
        prompt: prompt(match request.audio {
            Some(_) => request.prompt_sent(),
            None => request.prompt_tokens,
        }),
        vision: prompt(request.vision_tokens),
        counted: match request.counted_tokens {
            None if request.chunks.is_empty() => Some(0),
            counted => counted,
        },
        may_be_good: may_be_good(request),
    })
}

/// Source: docs/bench-serving.md 2.1 to 2.4, 12.1, T8 and T9: a stream that ends normally is a success,
/// whatever it held. An error event is noticed only if other fields are required in it. The finish reason is
/// ignored.
fn is_success(request: &Request, protocol: Protocol, profile: Profile) -> bool {
    if request
        .oddities
        .iter()
        .any(|oddity| is_failure(*oddity, protocol))
    {
        return false;
    }
    if request.cancelled {
        return false;
    }
    let has_failed_end = request.finish.as_deref().is_some_and(is_failed_finish);
    match request.failure.as_ref().map(|failure| failure.class) {
        None | Some(RequestFailureClass::Empty) => true,
        Some(RequestFailureClass::ErrorEvent) if has_failed_end => true,
        Some(RequestFailureClass::ErrorEvent) => match protocol {
            Protocol::SglangNative => profile == Profile::Current,
            Protocol::Chat => true,
            _ => false,
        },
        Some(_) => false,
    }
}

/// Source: docs/bench-serving.md 2.1, 2.3, 2.5 to 2.7, T10 and T11.
fn is_failure(oddity: Oddity, protocol: Protocol) -> bool {
    // bench_serving does not have these protocols, so nothing in them is odd to it.
    if matches!(
        protocol,
        Protocol::Messages | Protocol::Responses | Protocol::Rerank | Protocol::Transcription
    ) {
        return false;
    }
    match oddity {
        Oddity::Field => protocol != Protocol::Embeddings,
        Oddity::Unspaced => !matches!(protocol, Protocol::Embeddings | Protocol::Trt),
        Oddity::NoChoice => matches!(protocol, Protocol::Completions | Protocol::Truss),
    }
}

/// Source: docs/bench-serving.md T15 and T16: only `current` reads reasoning, and neither profile reads tool
/// calls.
fn is_read(kind: ChunkKind, profile: Profile) -> bool {
    match kind {
        ChunkKind::Answer | ChunkKind::Thought => true,
        ChunkKind::Reasoning => profile == Profile::Current,
        ChunkKind::Tool => false,
    }
}

/// Source: docs/bench-serving.md 2.2: a gap is divided evenly among the tokens of its event. An event without
/// a new token is skipped, so the next gap includes its time. `None` if an event has no token count, which
/// fails the request.
fn native_gaps(mut chunks: impl Iterator<Item = Chunk>) -> Option<Vec<f64>> {
    let mut gaps = Vec::new();
    let Some(first) = chunks.next() else {
        return Some(gaps);
    };
    let (mut before, mut known) = (first.at_ns, i64::from(first.tokens?));
    for chunk in chunks {
        let tokens = i64::from(chunk.tokens?);
        let added = tokens - known;
        if added == 0 {
            continue;
        }
        let share = seconds_between(before, chunk.at_ns) / added as f64;
        gaps.extend((0..added).map(|_| share));
        (before, known) = (chunk.at_ns, tokens);
    }
    Some(gaps)
}

/// Source: docs/bench-serving.md 2.2 to 2.7 and 12.1: the requested length, unless the protocol has usage
/// that is read.
fn output_tokens(request: &Request, is_empty: bool, protocol: Protocol, profile: Profile) -> u32 {
    let requested = request.requested_tokens;
    let facts = protocol.facts();
    if !facts.generates_text {
        return 0;
    }
    if profile == Profile::Classic {
        return requested;
    }
    let last_reported = || {
        read_chunks(request, profile)
            .filter_map(|chunk| chunk.tokens)
            .last()
    };
    let reported = request.usage.and_then(|usage| usage.completion);
    let is_ours = request.usage.is_some_and(|usage| usage.is_ours);
    let counted = match facts.bench_serving_tokens {
        CountedAs::Requested => None,
        CountedAs::Reported if is_empty => None,
        CountedAs::Reported => reported.or_else(last_reported),
        CountedAs::LastEvent => last_reported(),
        CountedAs::UnaskedUsage => reported.filter(|_| !is_ours),
    };
    counted.unwrap_or(requested)
}

fn seconds_between(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}
