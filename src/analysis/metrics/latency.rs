//! Samples of times and their statistics.

use super::bench_serving::Answer;
use super::dimensions::{Sample, Statistic};
use super::metric::Metric;
use super::stats::Statistics;
use super::{Count, Faults, Sheet};
use crate::config::workload::Profile;
use crate::results::record::chunks::Moments;
use crate::results::record::request::Request;

const COMPAT_CLASSIC: [Statistic; 4] = [Statistic::Mean, Statistic::Median, Statistic::Std, Statistic::P99];
const COMPAT_CURRENT: [Statistic; 6] = [
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
    pub(super) fn of(request: &Request) -> Self {
        request
            .sent_ns
            .map_or_else(Self::default, |sent| Self::since(request, sent))
    }

    /// Computes E2E alone, without reading all events.
    pub(super) fn e2e_of(request: &Request) -> Option<f64> {
        Some(millis(request.sent_ns?, request.chunks.last()?.at_ns))
    }

    /// Computes the same times from when the request was due.
    pub(super) fn since_due(request: &Request) -> Self {
        Self::since(request, request.due_ns)
    }

    fn since(request: &Request, sent: u64) -> Self {
        let (Some(first), Some(last)) = (request.chunks.first(), request.chunks.last()) else {
            return Self::default();
        };
        let ttft = millis(sent, first.at_ns);
        let e2e = millis(sent, last.at_ns);
        let moments = request.chunks.moments();
        let tpot = tokens_after(request, moments.first)
            .filter(|_| !is_gathered(request))
            .filter(|tokens| *tokens > 0)
            .map(|tokens| millis(moments.first_end_ns, last.at_ns) / f64::from(tokens));
        Self {
            ttft: Some(ttft),
            e2e: Some(e2e),
            tpot,
        }
    }
}

/// Minimum factor between the mean pace of a beginning that was held back and the pace of the end.
/// [`HELD_GAP`] is the minimum factor for each single gap.
const HELD_PACE: f64 = 6.0;
const HELD_GAP: f64 = 3.0;
/// Minimum wait before a beginning that was held back, as a share of the time that its events take at the
/// pace of the end.
const HELD_SILENCE: f64 = 0.7;

/// Returns whether the beginning of an answer seems to have been held back, for example by a proxy, and then
/// passed on event by event. Such a beginning has at least eight gaps that are much shorter than those at the
/// end of the answer, after a wait in which the events could have been made at the pace of the end. That pace
/// is the median gap of the last quarter, so that a pause of the server does not change it. A single answer
/// proves nothing: an engine is also slower at the end while it reads other prompts. An answer that was held
/// back in several parts looks like an engine that pauses.
pub(crate) fn is_held_back(request: &Request) -> bool {
    const FEW: usize = AT_ONCE_TOKENS as usize;
    let chunks = &request.chunks;
    let ends = request.sent_ns.zip(chunks.first()).zip(chunks.last());
    let Some(((sent, first), last)) = ends else {
        return false;
    };
    let Some(gaps) = chunks.len().checked_sub(1).filter(|gaps| *gaps > FEW) else {
        return false;
    };
    let mean_ns = last.at_ns.saturating_sub(first.at_ns) as f64 / gaps as f64;
    let begun = chunks.iter().nth(FEW).map_or(u64::MAX, |chunk| chunk.at_ns);
    // Most answers begin about as fast as they continue, so their events need not be read one by one.
    if 2.0 * begun.saturating_sub(first.at_ns) as f64 > mean_ns * FEW as f64 {
        return false;
    }
    let pairs = chunks.pairs();
    let waits: Vec<u64> = pairs
        .map(|(one, next)| next.at_ns.saturating_sub(one.at_ns))
        .collect();
    let mut end = waits[gaps - gaps.div_ceil(4)..].to_vec();
    let middle = end.len() / 2;
    let pace_ns = *end.select_nth_unstable(middle).1 as f64;
    let held = waits
        .iter()
        .take_while(|wait| **wait as f64 * HELD_GAP <= pace_ns)
        .count();
    let within_ns = waits[..held].iter().sum::<u64>() as f64;
    let silence_ns = first.at_ns.saturating_sub(sent) as f64;
    held >= FEW
        && within_ns * HELD_PACE <= pace_ns * held as f64
        && silence_ns >= HELD_SILENCE * (held + 1) as f64 * pace_ns
}

/// If tokens and events differ by less than this factor, each event counts as one token.
const SEVERAL: f64 = 1.25;

/// Returns the tokens in the events after the first `events`. `None` if tokens were not counted, or if there
/// are no later events.
fn tokens_after(request: &Request, events: usize) -> Option<u32> {
    let tokens = request.visible_tokens()?;
    if events >= request.chunks.len() {
        return None;
    }
    let per_event = f64::from(tokens) / request.chunks.len() as f64;
    let is_each = per_event < SEVERAL && per_event * SEVERAL > 1.0;
    let is_known = !is_each || request.chunks.are_counted();
    let known = is_known.then(|| chunk_tokens(request)).flatten();
    let first: u32 = match known {
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
const AT_ONCE_TOKENS: f64 = 8.0;
/// Largest share of an answer that may come at one moment, if that is more tokens.
const AT_ONCE_SHARE: f64 = 0.2;

/// Other moments that an answer must have at least before its large part counts as late and not as gathered.
const OTHER_MOMENTS: usize = 8;
/// Minimum pause before a late part, as a share of the time that its tokens take at the pace of the others.
const PAUSE_SHARE: f64 = 0.5;

/// Returns whether an answer of several tokens arrived at one moment or in a few large parts. The times
/// between its tokens then say nothing about how the engine made them. One large part after a pause of the
/// server, the network or the client is not gathered: its tokens were late, which TPOT includes.
pub(crate) fn is_gathered(request: &Request) -> bool {
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
    let most = AT_ONCE_TOKENS.max(AT_ONCE_SHARE * f64::from(tokens));
    if moments.count == 1 {
        return true;
    }
    if f64::from(tokens) * largest <= most {
        return false;
    }
    let second = moments.second_largest as f64 / moments.bytes as f64;
    f64::from(tokens) * second > most || !is_after_pause(&moments)
}

/// Returns whether the largest part of an answer came after a pause that explains its size.
fn is_after_pause(moments: &Moments) -> bool {
    let is_streamed = moments.count > OTHER_MOMENTS && moments.before_largest_ns > 0;
    let pace = moments.largest_at_pace_ns().filter(|_| is_streamed);
    pace.is_some_and(|pace_ns| moments.before_largest_ns as f64 >= PAUSE_SHARE * pace_ns)
}

/// Share of answers that may arrive at one moment before metrics of the times between tokens have no value.
const STRAY: f64 = 0.01;

/// Returns whether too many answers arrived at one moment.
pub(crate) fn are_gathered(requests: &[Request]) -> bool {
    let completed = || requests.iter().filter(|request| request.is_completed());
    let gathered = completed().filter(|request| is_gathered(request)).count();
    gathered as f64 > STRAY * completed().count() as f64
}

/// Computes the statistics of every sample under the definitions of `matrix`.
pub(super) fn matrix(sheet: &mut Sheet, requests: &[Request]) {
    for sample in Sample::ALL {
        let statistics = Statistics::of_each(|| values(requests, sample));
        for statistic in Statistic::ALL {
            let value = statistics.map(|statistics| pick(&statistics, statistic));
            sheet.put(Metric::Time(statistic, sample), value);
        }
    }
}

/// Returns the values of a sample in milliseconds. Failed requests have no latency.
pub(super) fn values(requests: &[Request], sample: Sample) -> Box<dyn Iterator<Item = f64> + '_> {
    let completed = requests.iter().filter(|request| request.is_completed());
    match sample {
        // Every request that was sent has a lag, also if it failed.
        Sample::Lag => {
            let lag = |request: &Request| request.sent_ns.map(|sent| millis(request.due_ns, sent));
            Box::new(requests.iter().filter_map(lag))
        }
        Sample::ChunkGap => Box::new(completed.flat_map(|request| {
            let pairs = request.chunks.pairs();
            pairs.map(|(one, next)| millis(one.at_ns, next.at_ns))
        })),
        Sample::Itl => Box::new(completed.flat_map(token_gaps)),
        sample => Box::new(completed.filter_map(move |request| time(request, sample))),
    }
}

/// Returns the value of a sample that has at most one value per completed request.
fn time(request: &Request, sample: Sample) -> Option<f64> {
    let first = || request.chunks.first().map(|chunk| chunk.at_ns);
    let last = || request.chunks.last().map(|chunk| chunk.at_ns);
    let answer = || {
        let mut chunks = request.chunks.iter();
        chunks
            .find(|chunk| !chunk.kind.is_reasoning())
            .map(|chunk| chunk.at_ns)
    };
    let between = |from: Option<u64>, to: Option<u64>| Some(millis(from?, to?));
    let due = Some(request.due_ns);
    match sample {
        // As in [`Times`], but without reading all events.
        Sample::Ttft => between(request.sent_ns, first()),
        Sample::E2e => Times::e2e_of(request),
        Sample::Tpot => Times::of(request).tpot,
        Sample::TtftAnswer => between(request.sent_ns, answer()),
        Sample::TtftConnected => between(request.connected_ns, first()),
        Sample::TtftDue => between(due, first()),
        Sample::E2eDue => between(due, last()),
        Sample::E2eLine => between(request.sent_ns, request.last_line_ns),
        Sample::E2eLineDue => between(due, request.last_line_ns),
        Sample::Lag | Sample::ChunkGap | Sample::Itl => None,
    }
}

/// Computes the statistics that bench_serving prints. Gaps are divided by the tokens of their texts if
/// bench_serving does so.
///
/// If its bugs are fixed, an answer without output has no TTFT and no TPOT, and an empty sample no
/// statistics.
pub(super) fn compat(
    sheet: &mut Sheet,
    answers: &[Answer<'_>],
    profile: Profile,
    gaps: Gaps,
    faults: Faults,
) {
    let is_read = |answer: &&Answer| faults == Faults::Copied || answer.ttft > 0.0;
    let ttft: Vec<f64> = answers.iter().filter(is_read).map(|answer| answer.ttft).collect();
    let tpot: Vec<f64> = answers.iter().filter(is_read).filter_map(Answer::tpot).collect();
    let itl = match gaps {
        Gaps::PerEvent => Some(Statistics::of_each(|| {
            answers.iter().flat_map(|answer| answer.itl.read())
        })),
        Gaps::PerToken => {
            let is_whole = answers.iter().all(|answer| divided(answer, faults).is_some());
            let each = || {
                let each = answers.iter().filter_map(|answer| divided(answer, faults));
                each.flatten()
            };
            is_whole.then(|| Statistics::of_each(each))
        }
    };
    let e2e: Vec<f64> = answers.iter().map(|answer| answer.latency).collect();
    let wanted = match profile {
        Profile::Classic => &COMPAT_CLASSIC[..],
        Profile::Current => &COMPAT_CURRENT[..],
    };
    // Source: docs/bench-serving.md 7.3: an empty sample prints as 0.0, but E2E then has no value.
    let zero = Statistics {
        mean: 0.0,
        median: 0.0,
        std: 0.0,
        percentiles: [0.0; 5],
        max: 0.0,
    };
    let mut put = |sample: Sample, statistics: Option<Statistics>, wanted: &[Statistic]| {
        // Source: docs/bench-serving.md 7.3: computed in seconds, multiplied at the end.
        let statistics = statistics.map(|statistics| statistics.times(1000.0));
        for &statistic in wanted {
            let value = statistics.map(|statistics| pick(&statistics, statistic));
            sheet.put(Metric::Time(statistic, sample), value);
        }
    };
    let zero = (faults == Faults::Copied).then_some(zero);
    put(Sample::Ttft, Statistics::of(&ttft).or(zero), wanted);
    put(Sample::Tpot, Statistics::of(&tpot).or(zero), wanted);
    put(Sample::E2e, Statistics::of(&e2e), wanted);
    let gaps = itl.and_then(|itl| itl.or(zero));
    put(Sample::Itl, gaps, wanted);
    if profile == Profile::Current {
        put(Sample::Itl, gaps, &[Statistic::Max]);
    }
}

/// bench_serving's definition of ITL under `current`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gaps {
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
fn divided(answer: &Answer<'_>, faults: Faults) -> Option<Vec<f64>> {
    let itl = answer.itl.read();
    let tokens = match &answer.itl_tokens {
        Some(tokens) => tokens.read(),
        None if itl.is_empty() => Vec::new(),
        None => return None,
    };
    let mut gaps = Vec::new();
    let mut carried = 0.0;
    for (gap, tokens) in itl.iter().zip(tokens) {
        match (tokens, faults) {
            (0, Faults::Copied) => return None,
            (0, Faults::Mended) => carried += gap,
            (tokens, _) => {
                let share = (carried + gap) / f64::from(tokens);
                gaps.extend((0..tokens).map(|_| share));
                carried = 0.0;
            }
        }
    }
    Some(gaps)
}

/// Returns the gaps per token in milliseconds: the gap before an event is divided evenly among its tokens. An
/// event without a new token is skipped, so the next gap includes its time.
///
/// Source: docs/bench-serving.md 2.2 (the native rule), applied to every protocol for T1.
pub(super) fn token_gaps(request: &Request) -> Vec<f64> {
    let mut gaps = Vec::new();
    let Some(tokens) = chunk_tokens(request) else {
        return gaps;
    };
    let Some(first) = request.chunks.first().filter(|_| !is_gathered(request)) else {
        return gaps;
    };
    let mut before = first.at_ns;
    for (chunk, &count) in request.chunks.iter().zip(&tokens).skip(1) {
        if count == 0 {
            continue;
        }
        let share = millis(before, chunk.at_ns) / f64::from(count);
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
    let (mut bytes, mut given) = (0u64, 0u64);
    let shares = chunks.iter().map(|chunk| {
        bytes += u64::from(chunk.bytes);
        let due = (u64::from(tokens) * bytes + all / 2) / all;
        let share = due - given;
        given = due;
        u32::try_from(share).unwrap_or(u32::MAX)
    });
    Some(shares.collect())
}

/// Computes the output tokens per event, over all completed requests whose tokens are known.
///
/// Source: docs/bench-serving.md T1 and 13.3.
pub(super) fn tokens_per_chunk(sheet: &mut Sheet, requests: &[Request]) {
    let (mut tokens, mut chunks) = (0u64, 0u64);
    for request in requests.iter().filter(|request| request.is_completed()) {
        if let Some(output) = request.visible_tokens().filter(|_| !request.chunks.is_empty()) {
            tokens += u64::from(output);
            chunks += request.chunks.len() as u64;
        }
    }
    let ratio = (chunks > 0).then(|| tokens as f64 / chunks as f64);
    sheet.put(Metric::TokensPerChunk, ratio);
}

/// Computes token totals of completed requests. A total is `None` if one request lacks the count.
pub(super) fn tokens(sheet: &mut Sheet, requests: &[Request]) -> (Option<u64>, Option<u64>) {
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
        (Count::Input, input),
        (Count::InputVision, total(&|request| Some(request.vision_tokens))),
        (Count::InputReported, total(&|request| usage(request).prompt)),
        (Count::InputCached, total(&Request::cached_tokens)),
        (Count::Output, output),
        (Count::OutputReported, total(&|request| usage(request).completion)),
        (Count::OutputCounted, total(&|request| request.counted_tokens)),
        (Count::OutputAsked, total(&|request| Some(request.limit()))),
        (Count::OutputReasoning, reasoning),
    ] {
        sheet.put(Metric::Tokens(count), value.map(|tokens| tokens as f64));
    }
    (input, output)
}

fn pick(statistics: &Statistics, statistic: Statistic) -> f64 {
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
fn millis(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns as f64 - from_ns as f64) / 1e6
}
