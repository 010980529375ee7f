//! Finds answers whose events did not arrive as they were made: several at one moment, or late.

use crate::results::record::chunks::moments::Moments;
use crate::results::record::request::Request;

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
