//! Samples of times and their statistics.

use super::bench_serving::SuccessfulRequest;
use super::dimensions::{LatencyKind, Statistic};
use super::metric::Metric;
use super::stats::Statistics;
use super::{Compat, MetricSet, TokenCount};
use crate::config::workload::Profile;
use crate::results::record::chunks::moments::Moments;
use crate::results::record::request::Request;

const CLASSIC_STATISTICS: [Statistic; 4] =
    [Statistic::Mean, Statistic::Median, Statistic::Std, Statistic::P99];
const CURRENT_STATISTICS: [Statistic; 6] = [
    Statistic::Mean,
    Statistic::Median,
    Statistic::Std,
    Statistic::P90,
    Statistic::P95,
    Statistic::P99,
];

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

/// Minimum factor between the mean pace of a beginning that was held back and the pace of the end.
/// [`HELD_BACK_GAP_FACTOR`] is the minimum factor for each single gap.
const HELD_BACK_RATE_FACTOR: f64 = 6.0;
const HELD_BACK_GAP_FACTOR: f64 = 3.0;
/// Minimum wait before a beginning that was held back, as a share of the time that its events take at the
/// pace of the end.
const HELD_BACK_PAUSE_SHARE: f64 = 0.7;

/// Returns whether the beginning of an answer seems to have been held back, for example by a proxy, and then
/// passed on event by event. Such a beginning has at least eight gaps that are much shorter than those at the
/// end of the answer, after a wait in which the events could have been made at the pace of the end. That pace
/// is the median gap of the last quarter, so that a pause of the server does not change it. A single answer
/// proves nothing: an engine is also slower at the end while it reads other prompts. An answer that was held
/// back in several parts looks like an engine that pauses.
pub(crate) fn is_held_back(request: &Request) -> bool {
    const MAX_HELD_BACK: usize = MAX_SIMULTANEOUS_TOKENS as usize;
    let chunks = &request.chunks;
    let ends = request.sent_ns.zip(chunks.first()).zip(chunks.last());
    let Some(((sent, first), last)) = ends else {
        return false;
    };
    let Some(gaps) = chunks.len().checked_sub(1).filter(|gaps| *gaps > MAX_HELD_BACK) else {
        return false;
    };
    let mean_ns = last.at_ns.saturating_sub(first.at_ns) as f64 / gaps as f64;
    let begun = chunks
        .iter()
        .nth(MAX_HELD_BACK)
        .map_or(u64::MAX, |chunk| chunk.at_ns);
    // Most answers begin about as fast as they continue, so their events need not be read one by one.
    if 2.0 * begun.saturating_sub(first.at_ns) as f64 > mean_ns * MAX_HELD_BACK as f64 {
        return false;
    }
    let pairs = chunks.pairs();
    let waits: Vec<u64> = pairs
        .map(|(one, next)| next.at_ns.saturating_sub(one.at_ns))
        .collect();
    let mut end = waits[gaps - gaps.div_ceil(4)..].to_vec();
    let middle = end.len() / 2;
    let pace_ns = *end.select_nth_unstable(middle).1 as f64;
    let max_pause = waits
        .iter()
        .take_while(|wait| **wait as f64 * HELD_BACK_GAP_FACTOR <= pace_ns)
        .count();
    let within_ns = waits[..max_pause].iter().sum::<u64>() as f64;
    let silence_ns = first.at_ns.saturating_sub(sent) as f64;
    max_pause >= MAX_HELD_BACK
        && within_ns * HELD_BACK_RATE_FACTOR <= pace_ns * max_pause as f64
        && silence_ns >= HELD_BACK_PAUSE_SHARE * (max_pause + 1) as f64 * pace_ns
}

/// If tokens and events differ by less than this factor, each event counts as one token.
const ONE_TOKEN_FACTOR: f64 = 1.25;

/// Returns the tokens in the events after the first `events`. `None` if tokens were not counted, or if there
/// are no later events.
fn tokens_after(request: &Request, events: usize) -> Option<u32> {
    let tokens = request.visible_tokens()?;
    if events >= request.chunks.len() {
        return None;
    }
    let per_event = f64::from(tokens) / request.chunks.len() as f64;
    let is_each = per_event < ONE_TOKEN_FACTOR && per_event * ONE_TOKEN_FACTOR > 1.0;
    let is_known = !is_each || request.chunks.are_counted();
    let per_chunk = is_known.then(|| chunk_tokens(request)).flatten();
    let first: u32 = match per_chunk {
        Some(tokens) => tokens.iter().take(events).sum(),
        None => {
            let events = u32::try_from(events).unwrap_or(u32::MAX);
            // The later events have at least one token each.
            let later = u32::try_from(request.chunks.len()).unwrap_or(u32::MAX) - events;
            let counted = request.counted_first.unwrap_or(events);
            counted.clamp(events, tokens.saturating_sub(later).max(events))
        }
    };
    Some(tokens.saturating_sub(first.max(1)))
}

/// Number of tokens that may come at one moment in any answer. Engines with speculative decoding accept
/// several at once.
const MAX_SIMULTANEOUS_TOKENS: f64 = 8.0;
/// Largest share of an answer that may come at one moment, if that is more tokens.
const MAX_SIMULTANEOUS_SHARE: f64 = 0.2;

/// Other moments that an answer must have at least before its large part counts as late and not as gathered.
const MIN_OTHER_ARRIVALS: usize = 8;
/// Minimum pause before a late part, as a share of the time that its tokens take at the pace of the others.
const PAUSE_SHARE: f64 = 0.5;

/// Returns whether an answer of several tokens arrived at one moment or in a few large parts. The times
/// between its tokens then say nothing about how the engine made them. One large part after a pause of the
/// server, the network or the client is not gathered: its tokens were late, which TPOT includes.
pub(crate) fn is_coalesced(request: &Request) -> bool {
    let chunks = &request.chunks;
    let tokens = request.visible_tokens().unwrap_or(0);
    if chunks.is_empty() || (tokens as usize).max(chunks.len()) <= 1 {
        return false;
    }
    let moments = chunks.moments();
    let largest = match moments.bytes {
        0 => 0.0,
        all => moments.largest as f64 / all as f64,
    };
    let max_tokens = MAX_SIMULTANEOUS_TOKENS.max(MAX_SIMULTANEOUS_SHARE * f64::from(tokens));
    if moments.count == 1 {
        return true;
    }
    if f64::from(tokens) * largest <= max_tokens {
        return false;
    }
    let second = moments.second_largest as f64 / moments.bytes as f64;
    f64::from(tokens) * second > max_tokens || !is_after_pause(&moments)
}

/// Returns whether the largest part of an answer came after a pause that explains its size.
fn is_after_pause(moments: &Moments) -> bool {
    let is_streamed = moments.count > MIN_OTHER_ARRIVALS && moments.before_largest_ns > 0;
    let pace = moments.largest_at_pace_ns().filter(|_| is_streamed);
    pace.is_some_and(|pace_ns| moments.before_largest_ns as f64 >= PAUSE_SHARE * pace_ns)
}

/// Share of answers that may arrive at one moment before metrics of the times between tokens have no value.
const MAX_COALESCED_SHARE: f64 = 0.01;

/// Returns whether too many answers arrived at one moment.
pub(crate) fn are_coalesced(requests: &[Request]) -> bool {
    let completed = || requests.iter().filter(|request| request.is_completed());
    let gathered = completed().filter(|request| is_coalesced(request)).count();
    gathered as f64 > MAX_COALESCED_SHARE * completed().count() as f64
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

/// Computes the statistics that bench_serving prints. Gaps are divided by the tokens of their texts if
/// bench_serving does so.
///
/// If its bugs are fixed, an answer without output has no TTFT and no TPOT, and an empty sample no
/// statistics.
pub(super) fn add_bench_serving_latencies(
    metrics: &mut MetricSet,
    answers: &[SuccessfulRequest<'_>],
    profile: Profile,
    gaps: ItlUnit,
    faults: Compat,
) {
    let is_read = |answer: &&SuccessfulRequest| faults == Compat::AsPublished || answer.ttft > 0.0;
    let ttft: Vec<f64> = answers.iter().filter(is_read).map(|answer| answer.ttft).collect();
    let tpot: Vec<f64> = answers
        .iter()
        .filter(is_read)
        .filter_map(SuccessfulRequest::tpot)
        .collect();
    let itl = match gaps {
        ItlUnit::PerEvent => Some(Statistics::from_repeatable(|| {
            answers.iter().flat_map(|answer| answer.itl.collect())
        })),
        ItlUnit::PerToken => {
            let is_whole = answers
                .iter()
                .all(|answer| divided_gaps(answer, faults).is_some());
            let each = || {
                let each = answers.iter().filter_map(|answer| divided_gaps(answer, faults));
                each.flatten()
            };
            is_whole.then(|| Statistics::from_repeatable(each))
        }
    };
    let e2e: Vec<f64> = answers.iter().map(|answer| answer.latency).collect();
    let wanted = match profile {
        Profile::Classic => &CLASSIC_STATISTICS[..],
        Profile::Current => &CURRENT_STATISTICS[..],
    };
    // Source: docs/bench-serving.md 7.3: an empty sample prints as 0.0, but E2E then has no value.
    let zero = Statistics {
        mean: 0.0,
        median: 0.0,
        std: 0.0,
        percentiles: [0.0; 5],
        max: 0.0,
    };
    let mut put = |kind: LatencyKind, statistics: Option<Statistics>, wanted: &[Statistic]| {
        // Source: docs/bench-serving.md 7.3: computed in seconds, multiplied at the end.
        let statistics = statistics.map(|statistics| statistics.scaled(1000.0));
        for &statistic in wanted {
            let value = statistics.map(|statistics| statistic_value(&statistics, statistic));
            metrics.insert(Metric::Time(statistic, kind), value);
        }
    };
    let zero = (faults == Compat::AsPublished).then_some(zero);
    put(LatencyKind::Ttft, Statistics::from_values(&ttft).or(zero), wanted);
    put(LatencyKind::Tpot, Statistics::from_values(&tpot).or(zero), wanted);
    put(LatencyKind::E2e, Statistics::from_values(&e2e), wanted);
    let gaps = itl.and_then(|itl| itl.or(zero));
    put(LatencyKind::Itl, gaps, wanted);
    if profile == Profile::Current {
        put(LatencyKind::Itl, gaps, &[Statistic::Max]);
    }
}

/// bench_serving's definition of ITL under `current`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItlUnit {
    /// One value per gap.
    PerEvent,
    /// Each gap divided by the tokens of the text at its end, with one value per token.
    PerToken,
}

/// Returns the gaps of an answer in seconds, each divided among the tokens of its text. `None` if tokens were
/// not counted, and if a text has no token: there bench_serving divides by zero. If its bugs are fixed, the
/// next gap includes the time of such a text.
///
/// Source: docs/bench-serving.md 7.2, retokenized ITL.
fn divided_gaps(answer: &SuccessfulRequest<'_>, faults: Compat) -> Option<Vec<f64>> {
    let itl = answer.itl.collect();
    let tokens = match &answer.itl_tokens {
        Some(tokens) => tokens.collect(),
        None if itl.is_empty() => Vec::new(),
        None => return None,
    };
    let mut gaps = Vec::new();
    let mut carried = 0.0;
    for (gap, tokens) in itl.iter().zip(tokens) {
        match (tokens, faults) {
            (0, Compat::AsPublished) => return None,
            (0, Compat::Fixed) => carried += gap,
            (tokens, _) => {
                let share = (carried + gap) / f64::from(tokens);
                gaps.extend((0..tokens).map(|_| share));
                carried = 0.0;
            }
        }
    }
    Some(gaps)
}

/// An answer of more tokens has no gaps: the server's count cannot be, and a value for each token would take all memory.
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

/// Returns whether the tokens of each event are known ([`chunk_tokens`]).
pub(super) fn has_chunk_tokens(request: &Request) -> bool {
    let chunks = &request.chunks;
    let is_told = chunks.are_counted() && request.hidden_tokens() == 0;
    let is_shared = |tokens: u32| tokens as usize == chunks.len() || chunks.moments().bytes > 0;
    is_told || request.visible_tokens().is_some_and(is_shared)
}

/// Returns the tokens of each event. If the server does not report them in every event, the tokens of the
/// answer are distributed by bytes of text, which keeps their sum and order. `None` if tokens were not
/// counted.
pub(super) fn chunk_tokens(request: &Request) -> Option<Vec<u32>> {
    let chunks = &request.chunks;
    if chunks.are_counted() && request.hidden_tokens() == 0 {
        let mut known = 0;
        let added = chunks.iter().map(|chunk| {
            let tokens = chunk.tokens.unwrap_or(known);
            let added = tokens.saturating_sub(known);
            known = known.max(tokens);
            added
        });
        return Some(added.collect());
    }
    // Reasoning tokens that no event contains are left out.
    let tokens = request.visible_tokens()?;
    if tokens as usize == chunks.len() {
        return Some(vec![1; chunks.len()]);
    }
    let all = chunks.moments().bytes;
    if all == 0 {
        return None;
    }
    let (mut bytes, mut assigned) = (0u64, 0u64);
    let shares = chunks.iter().map(|chunk| {
        bytes += u64::from(chunk.bytes);
        let due = (u64::from(tokens) * bytes + all / 2) / all;
        let share = due - assigned;
        assigned = due;
        u32::try_from(share).unwrap_or(u32::MAX)
    });
    Some(shares.collect())
}

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
    (input, output)
}

fn statistic_value(statistics: &Statistics, statistic: Statistic) -> f64 {
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
