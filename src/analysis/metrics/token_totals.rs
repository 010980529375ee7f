//! Token totals of completed requests, and tokens per event.

use super::dimensions::TokenCount;
use super::metric::Metric;
use super::metric_set::MetricSet;
use crate::results::record::request::Request;

/// Computes the output tokens per event, over all completed requests whose tokens are known.
///
/// Source: docs/bench-serving.md T1 and 13.3.
pub(super) fn add_tokens_per_chunk(metrics: &mut MetricSet, requests: &[Request]) {
    let (mut tokens, mut chunks) = (0u64, 0u64);
    for request in requests.iter().filter(|request| request.is_completed()) {
        if let Some(output) = request.visible_tokens().filter(|_| !request.chunks.is_empty()) {
            tokens += u64::from(output);
            chunks += request.chunks.len() as u64;
        }
    }
    let ratio = (chunks > 0).then(|| tokens as f64 / chunks as f64);
    metrics.insert(Metric::TokensPerChunk, ratio);
}

/// Computes token totals of completed requests. A total is `None` if one request lacks the count.
pub(super) fn add_token_totals(metrics: &mut MetricSet, requests: &[Request]) -> (Option<u64>, Option<u64>) {
    let total = |count: &dyn Fn(&Request) -> Option<u32>| {
        requests
            .iter()
            .filter(|request| request.is_completed())
            .map(|request| count(request).map(u64::from))
            .sum::<Option<u64>>()
    };
    let usage = |request: &Request| request.usage.unwrap_or_default();
    // There is no such metric if no answer has reasoning.
    let has_reasoning =
        |request: &Request| request.reasoning_tokens().is_some() || request.chunks.has_reasoning();
    let reasoning = requests
        .iter()
        .any(|request| request.is_completed() && has_reasoning(request))
        .then(|| {
            total(&|request| match has_reasoning(request) {
                true => request.reasoning_tokens(),
                false => Some(0),
            })
        })
        .flatten();
    let input = total(&|request| Some(request.prompt_sent()));
    let output = total(&Request::output_tokens);
    for (count, value) in [
        (TokenCount::Input, input),
        (
            TokenCount::InputVision,
            total(&|request| Some(request.vision_tokens)),
        ),
        (TokenCount::InputReported, total(&|request| usage(request).prompt)),
        (TokenCount::InputCached, total(&Request::cached_tokens)),
        (TokenCount::Output, output),
        (
            TokenCount::OutputReported,
            total(&|request| usage(request).completion),
        ),
        (
            TokenCount::OutputCounted,
            total(&|request| request.counted_tokens),
        ),
        (
            TokenCount::OutputRequested,
            total(&|request| Some(request.max_output_tokens())),
        ),
        (TokenCount::OutputReasoning, reasoning),
    ] {
        metrics.insert(Metric::Tokens(count), value.map(|tokens| tokens as f64));
    }
    // There is no such metric if no request was cancelled.
    let mut cancelled = requests.iter().filter(|request| request.cancelled).peekable();
    if cancelled.peek().is_some() {
        let tokens = cancelled
            .map(|request| u64::from(request.received_tokens()))
            .sum::<u64>();
        metrics.insert(Metric::Tokens(TokenCount::OutputCancelled), Some(tokens as f64));
    }
    (input, output)
}
