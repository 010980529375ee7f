//! Samples of times and their statistics.

use super::chunk_tokens::{chunk_tokens, tokens_after};
use super::coalesced::is_coalesced;
use super::dimensions::{LatencyKind, Statistic};
use super::metric::Metric;
use super::metric_set::MetricSet;
use super::stats::Statistics;
use crate::results::record::request::Request;

/// Times of one completed request under the definitions of `matrix`, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub(super) ttft: Option<f64>,
    pub(super) e2e: Option<f64>,
    pub(super) tpot: Option<f64>,
}

impl Times {
    /// Computes TTFT and E2E from sending to the first and to the last event with output. TPOT divides the
    /// time after the first moment by the tokens that came in it. It is `None` if no token came later.
    ///
    /// Source: docs/bench-serving.md 7.2 with T6, T7, T8 and T16 fixed.
    pub(super) fn from_sending(request: &Request) -> Self {
        request
            .sent_ns
            .map_or_else(Self::default, |sent| Self::from_start(request, sent))
    }

    /// Computes E2E alone, without reading all events.
    pub(super) fn e2e_ms(request: &Request) -> Option<f64> {
        Some(millis_between(request.sent_ns?, request.chunks.last()?.at_ns))
    }

    /// Computes the same times from when the request was due.
    pub(super) fn from_due(request: &Request) -> Self {
        Self::from_start(request, request.due_ns)
    }

    fn from_start(request: &Request, sent: u64) -> Self {
        let (Some(first), Some(last)) = (request.chunks.first(), request.chunks.last()) else {
            return Self::default();
        };
        let ttft = millis_between(sent, first.at_ns);
        let e2e = millis_between(sent, last.at_ns);
        let moments = request.chunks.moments();
        let tpot = tokens_after(request, moments.first)
            .filter(|_| !is_coalesced(request))
            .filter(|tokens| *tokens > 0)
            .map(|tokens| millis_between(moments.first_end_ns, last.at_ns) / f64::from(tokens));
        Self {
            ttft: Some(ttft),
            e2e: Some(e2e),
            tpot,
        }
    }
}

/// Computes the statistics of every sample under the definitions of `matrix`.
pub(super) fn add_latencies(metrics: &mut MetricSet, requests: &[Request]) {
    for kind in LatencyKind::ALL {
        let statistics = Statistics::from_repeatable(|| latency_values(requests, kind));
        for statistic in Statistic::ALL {
            let value = statistics.map(|statistics| statistic_value(&statistics, statistic));
            metrics.insert(Metric::Time(statistic, kind), value);
        }
    }
}

/// Returns the values of a sample in milliseconds. Failed requests have no latency.
pub(super) fn latency_values(requests: &[Request], kind: LatencyKind) -> Box<dyn Iterator<Item = f64> + '_> {
    let completed = requests.iter().filter(|request| request.is_completed());
    match kind {
        // Every request that was sent has a lag, also if it failed.
        LatencyKind::Lag => {
            let lag = |request: &Request| request.sent_ns.map(|sent| millis_between(request.due_ns, sent));
            Box::new(requests.iter().filter_map(lag))
        }
        LatencyKind::ChunkGap => Box::new(completed.flat_map(|request| {
            let pairs = request.chunks.pairs();
            pairs.map(|(one, next)| millis_between(one.at_ns, next.at_ns))
        })),
        LatencyKind::Itl => Box::new(completed.flat_map(token_gaps)),
        kind => Box::new(completed.filter_map(move |request| latency_ms(request, kind))),
    }
}

/// Returns the value of a sample that has at most one value per completed request.
fn latency_ms(request: &Request, kind: LatencyKind) -> Option<f64> {
    let first = || request.chunks.first().map(|chunk| chunk.at_ns);
    let last = || request.chunks.last().map(|chunk| chunk.at_ns);
    let answer = || {
        let mut chunks = request.chunks.iter();
        chunks
            .find(|chunk| !chunk.kind.is_reasoning())
            .map(|chunk| chunk.at_ns)
    };
    let between = |from: Option<u64>, to: Option<u64>| Some(millis_between(from?, to?));
    let due = Some(request.due_ns);
    match kind {
        // As in [`Times`], but without reading all events.
        LatencyKind::Ttft => between(request.sent_ns, first()),
        LatencyKind::E2e => Times::e2e_ms(request),
        LatencyKind::Tpot => Times::from_sending(request).tpot,
        LatencyKind::TtftAnswer => between(request.sent_ns, answer()),
        LatencyKind::TtftConnected => between(request.connected_ns, first()),
        LatencyKind::TtftDue => between(due, first()),
        LatencyKind::E2eDue => between(due, last()),
        LatencyKind::E2eLine => between(request.sent_ns, request.last_line_ns),
        LatencyKind::E2eLineDue => between(due, request.last_line_ns),
        LatencyKind::Lag | LatencyKind::ChunkGap | LatencyKind::Itl => None,
    }
}

/// A response with more tokens gets no gaps: the server's count is impossible, and a value for each token would
/// take all memory.
const MAX_ANSWER_TOKENS: u64 = 10_000_000;

/// Returns the gaps per token in milliseconds: the gap before an event is divided evenly among its tokens. An
/// event without a new token is skipped, so the next gap includes its time.
///
/// Source: docs/bench-serving.md 2.2 (the native rule), applied to every protocol for T1.
pub(super) fn token_gaps(request: &Request) -> Vec<f64> {
    let mut gaps = Vec::new();
    let Some(tokens) = chunk_tokens(request) else {
        return gaps;
    };
    let Some(first) = request.chunks.first().filter(|_| !is_coalesced(request)) else {
        return gaps;
    };
    if tokens.iter().copied().map(u64::from).sum::<u64>() > MAX_ANSWER_TOKENS {
        return gaps;
    }
    let mut before = first.at_ns;
    for (chunk, &count) in request.chunks.iter().zip(&tokens).skip(1) {
        if count == 0 {
            continue;
        }
        let share = millis_between(before, chunk.at_ns) / f64::from(count);
        gaps.extend((0..count).map(|_| share));
        before = chunk.at_ns;
    }
    gaps
}

pub(super) fn statistic_value(statistics: &Statistics, statistic: Statistic) -> f64 {
    let [p50, p90, p95, p99, p999] = statistics.percentiles;
    match statistic {
        Statistic::Mean => statistics.mean,
        Statistic::Median => statistics.median,
        Statistic::Std => statistics.std,
        Statistic::P50 => p50,
        Statistic::P90 => p90,
        Statistic::P95 => p95,
        Statistic::P99 => p99,
        Statistic::P999 => p999,
        Statistic::Max => statistics.max,
    }
}

/// Returns the milliseconds between two times. Negative if the second is earlier, which only a broken clock
/// gives.
fn millis_between(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns as f64 - from_ns as f64) / 1e6
}
