//! The figures of a profile with the faults mended that have no other purpose: requests that failed count as failed, an answer
//! without output has no time to its first token, output tokens are those that were generated, peaks are true peaks.
//!
//! What makes a profile's figures comparable with its published ones stays: where latency ends, what TPOT and ITL are.

use super::bench_serving;
use super::{Basis, Faults, Figures};
use crate::config::workload::Profile;
use crate::plan::Protocol;
use crate::results::record::chunks::Chunks;
use crate::results::record::request::Request;

/// Every figure of a profile, mended.
///
/// Source: docs/bench-serving.md T8, T9, T12, T16, T18, T19 and T21.
pub(super) fn figures(requests: &[Request], basis: &Basis, profile: Profile) -> Figures {
    let sound = sound(requests, basis.protocol);
    super::compat_sheet(&sound, requests, basis, profile, Faults::Mended).0
}

/// The completed requests as the profile should have read them.
pub(super) fn sound(requests: &[Request], protocol: Protocol) -> Vec<Request> {
    let completed = requests.iter().filter(|request| request.is_completed());
    let mut sound = Vec::with_capacity(requests.len());
    sound.extend(completed.map(|request| mend(request, protocol)));
    sound
}

/// Output tokens that were generated, as far as anybody knows: what the server reports, at the end or in an event; the number of
/// events where that is the length at which the server says that it stopped; what we counted; the number of events where nobody
/// counted. The length that was asked for is never taken for a count.
pub(crate) fn generated_tokens(request: &Request) -> u32 {
    let in_events = || request.chunks.last_tokens();
    let reported = request
        .usage
        .and_then(|usage| usage.completion)
        .or_else(in_events);
    let events = u32::try_from(request.chunks.len()).unwrap_or(u32::MAX);
    let is_full = request.finish.as_deref() == Some("length") && events == request.limit();
    reported
        .filter(|tokens| *tokens > 0 || events == 0)
        .or(is_full.then_some(events))
        .or(request.counted_tokens)
        .unwrap_or(events)
}

/// What a profile holds of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Held {
    pub tokens: u32,
    /// Seconds to the first output; 0 without any.
    pub ttft_s: f64,
    /// Seconds between tokens or events.
    pub itl_s: Vec<f64>,
}

/// What the profile's samples hold of one request; of a failed one nothing. `copied` keeps the faults.
pub(crate) fn held(request: &Request, protocol: Protocol, profile: Profile, copied: bool) -> Held {
    let mended;
    let answers = match (copied, request.is_completed()) {
        (true, _) => bench_serving::answers(std::slice::from_ref(request), protocol, profile),
        (false, true) => {
            mended = [mend(request, protocol)];
            bench_serving::answers(&mended, protocol, profile)
        }
        (false, false) => Vec::new(),
    };
    let held = answers.into_iter().next().map(|answer| Held {
        tokens: answer.output,
        ttft_s: answer.ttft,
        itl_s: answer.itl.read(),
    });
    held.unwrap_or_default()
}

/// The record as the profile should have read it; without the text, which no figure needs.
fn mend(request: &Request, protocol: Protocol) -> Request {
    let tokens = generated_tokens(request);
    // `/generate` of a server that does not count in every event: then each event is a gap, as elsewhere.
    let spread = protocol == Protocol::SglangNative && !request.chunks.are_counted();
    // Counts within an answer that its last count contradicts are none: some servers send a usage of zeros with each event.
    let is_contradicted =
        protocol != Protocol::SglangNative && request.chunks.last_tokens().is_some_and(|last| last != tokens);
    let mut usage = request.usage.unwrap_or_default();
    usage.completion = Some(tokens);
    Request {
        chunks: match is_contradicted {
            true => request.chunks.as_uncounted_answers(),
            false => request.chunks.as_answers(spread),
        },
        asked_tokens: tokens,
        usage: Some(usage),
        failure: None,
        finish: None,
        text: None,
        ..shell(request)
    }
}

/// The plain fields of a record.
fn shell(request: &Request) -> Request {
    Request {
        index: request.index,
        prompt_tokens: request.prompt_sent(),
        vision_tokens: request.vision_tokens,
        round: None,
        asked_tokens: request.asked_tokens,
        limit_tokens: None,
        due_ns: request.due_ns,
        sent_ns: request.sent_ns,
        connected_ns: request.connected_ns,
        written_ns: request.written_ns,
        first_byte_ns: request.first_byte_ns,
        chunks: Chunks::default(),
        last_line_ns: request.last_line_ns,
        end_ns: request.end_ns,
        failure: None,
        status: request.status,
        usage: request.usage,
        cached: None,
        oddities: Vec::new(),
        finish: None,
        counted_tokens: request.counted_tokens,
        counted_chunks: request.counted_chunks.clone(),
        counted_prompt: None,
        omittable_prompt: 0,
        uniform: None,
        blank_events: 0,
        counted_first: request.counted_first,
        common_events: 0,
        is_loop: false,
        is_canned: false,
        models: Vec::new(),
        echoes_prompt: false,
        counted_reasoning: None,
        tool_text: None,
        text: None,
    }
}
