//! bench_serving's metrics with its known bugs fixed: failed requests count as failed, an answer without
//! output has no TTFT, output tokens are those that were generated, peaks are true peaks.
//!
//! What makes the metrics comparable with published ones is kept: the end of latency, and the definitions of
//! TPOT and ITL.

use super::bench_serving::Compat;
use super::inputs::MetricInputs;
use super::{bench_serving, bench_serving_metrics};
use crate::config::workload::Profile;
use crate::plan::Protocol;
use crate::results::record::cell::MetricValues;
use crate::results::record::chunks::Chunks;
use crate::results::record::request::ConnectionUse;
use crate::results::record::request::Request;

/// Computes every metric of a profile, fixed.
///
/// Source: docs/bench-serving.md T8, T9, T12, T16, T18, T19 and T21.
pub(super) fn fixed_figures(requests: &[Request], inputs: &MetricInputs, profile: Profile) -> MetricValues {
    let sound = corrected_requests(requests, inputs.protocol);
    bench_serving_metrics::bench_serving_metrics(&sound, requests, inputs, profile, Compat::Fixed).0
}

/// Returns the completed requests as the profile should have read them.
pub(super) fn corrected_requests(requests: &[Request], protocol: Protocol) -> Vec<Request> {
    let completed = requests.iter().filter(|request| request.is_completed());
    let mut sound = Vec::with_capacity(requests.len());
    sound.extend(completed.map(|request| corrected_request(request, protocol)));
    sound
}

/// Returns the output tokens that were generated. The sources are, in this order: the server's count at the
/// end or in an event; the number of events, if the server stopped at a length equal to it; our own count;
/// the number of events. The requested length is never used as a count.
pub(crate) fn generated_tokens(request: &Request) -> u32 {
    let in_events = || request.chunks.last_tokens();
    let reported = request
        .usage
        .and_then(|usage| usage.completion)
        .or_else(in_events);
    let events = u32::try_from(request.chunks.len()).unwrap_or(u32::MAX);
    let is_full = request.finish.as_deref() == Some("length") && events == request.max_output_tokens();
    reported
        .filter(|tokens| *tokens > 0 || events == 0)
        .or(is_full.then_some(events))
        .or(request.counted_tokens)
        .unwrap_or(events)
}

/// The samples of one request under a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BenchServingView {
    pub(crate) tokens: u32,
    /// Seconds to the first output, or 0 if there was none.
    pub(crate) ttft_s: f64,
    /// Gaps between tokens or events, in seconds.
    pub(crate) itl_s: Vec<f64>,
}

/// Returns the samples of one request under a profile. They are empty for a failed request. `copied` keeps
/// the known bugs.
pub(crate) fn bench_serving_view(
    request: &Request,
    protocol: Protocol,
    profile: Profile,
    as_published: bool,
) -> BenchServingView {
    let corrected;
    let answers = match (as_published, request.is_completed()) {
        (true, _) => bench_serving::successful_requests(std::slice::from_ref(request), protocol, profile),
        (false, true) => {
            corrected = [corrected_request(request, protocol)];
            bench_serving::successful_requests(&corrected, protocol, profile)
        }
        (false, false) => Vec::new(),
    };
    let view = answers.into_iter().next().map(|answer| BenchServingView {
        tokens: answer.output,
        ttft_s: answer.ttft,
        itl_s: answer.itl.collect(),
    });
    view.unwrap_or_default()
}

/// Changes a record to what the profile should have read. The text is left out, because no metric needs it.
fn corrected_request(request: &Request, protocol: Protocol) -> Request {
    let tokens = generated_tokens(request);
    // On `/generate`, a server may not count tokens in every event. Then each event makes one gap, as in
    // other protocols.
    let spread = protocol == Protocol::SglangNative && !request.chunks.are_counted();
    // Counts in an answer are ignored if the last one contradicts the total. Some servers send a usage of
    // zeros with each event.
    let is_contradicted =
        protocol != Protocol::SglangNative && request.chunks.last_tokens().is_some_and(|last| last != tokens);
    let mut usage = request.usage.unwrap_or_default();
    usage.completion = Some(tokens);
    Request {
        chunks: match is_contradicted {
            true => request.chunks.as_uncounted_answers(),
            false => request.chunks.as_answers(spread),
        },
        requested_tokens: tokens,
        usage: Some(usage),
        failure: None,
        finish: None,
        text: None,
        ..without_payload(request)
    }
}

/// Returns the fields of a record without text and chunks.
fn without_payload(request: &Request) -> Request {
    Request {
        index: request.index,
        connection: ConnectionUse::default(),
        prompt_tokens: request.prompt_sent(),
        vision_tokens: request.vision_tokens,
        audio: request.audio,
        round: None,
        requested_tokens: request.requested_tokens,
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
        cancelled: false,
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
        session: None,
        reusable_prompt: None,
        queried_prompt: None,
        is_loop: false,
        is_canned: false,
        models: Vec::new(),
        echoes_prompt: false,
        counted_reasoning: None,
        tool_text: None,
        tool_calls: Vec::new(),
        final_answer: None,
        answer_check: request.answer_check.clone(),
        text: None,
    }
}
