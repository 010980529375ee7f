//! Checks that events have one token each and arrive one by one.

use super::counters::reliable_counters;
use super::evidence::Evidence;
use super::reason::{new_reason, percent};
use super::responses::input::reported_tokens;
use super::untimed;
use crate::analysis::metrics::Metric;
use crate::results::record::chunks::Chunks;
use crate::results::record::chunks::moments::SIMULTANEOUS_NS;
use crate::results::record::request::Request;
use crate::results::record::telemetry::EngineWindow;
use crate::results::record::validity::{Reason, ReasonCode};

/// Mean number of events that may arrive together. Engine and client do not always wake up for each token.
const MAX_EVENTS_PER_ARRIVAL: f64 = 2.0;

/// Events whose gap is within this share of the mean gap count as one moment.
const SIMULTANEOUS_GAP_SHARE: f64 = 0.05;

/// Share of the moments of an answer that may hold several events. With more of them, the answer comes in
/// flushes and the median gap is that of the flushes. A stall of engine or host gathers many events at few
/// moments.
const MAX_FLUSH_SHARE: f64 = 1.0 / 3.0;

/// Fewest moments of an answer, without the first and the last, for which this share is computed.
const MIN_ARRIVALS: usize = 8;

/// Fewest answers for which flushes are judged.
const MIN_RESPONSES: usize = 8;

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let (scenario, dialect) = (&evidence.cell.scenario, &evidence.launch.api.dialect);
    if let Some(reason) = untimed::unstreamed_reason(evidence.requests, scenario, dialect) {
        reasons.push(reason);
        return;
    }
    if let Some(reason) =
        untimed::unknown_token_times_reason(evidence.requests, reliable_counters(evidence), scenario)
    {
        reasons.push(reason);
        return;
    }
    // Our own count of the text does not give the tokens of an event.
    let is_reported = |request: &Request| reported_tokens(request).is_some();
    let are_reported = evidence.completed_requests().all(is_reported);
    let bound = evidence.bounds.tokens_per_chunk;
    let per_event = evidence
        .metric_value(Metric::TokensPerChunk)
        .filter(|tokens| are_reported && *tokens > bound);
    let (came, measured, bound) = match per_event {
        Some(tokens) => (
            tokens,
            format!("{tokens:.2} tokens per event"),
            format!("{bound}"),
        ),
        None => match events_per_arrival(evidence) {
            Some(finding) => finding,
            None => return,
        },
    };
    if are_drafted(evidence, came) {
        return;
    }
    reasons.push(new_reason(ReasonCode::ChunkedTokens, measured, Some(bound)));
}

/// The reason that events arrive together, for a server without a recipe. Its tokens per event are not judged,
/// because it may use speculative decoding without saying so.
pub(super) fn flush_reason(evidence: &Evidence<'_>) -> Option<Reason> {
    let (events, measured, bound) = events_per_arrival(evidence)?;
    let is_drafted = are_drafted(evidence, events);
    (!is_drafted).then(|| new_reason(ReasonCode::ChunkedTokens, measured, Some(bound)))
}

/// Whether speculative decoding explains that many tokens at a time. If there are more, something collected them.
fn are_drafted(evidence: &Evidence<'_>, tokens: f64) -> bool {
    drafted_tokens_per_step(evidence)
        .is_some_and(|accepted| tokens <= accepted * evidence.bounds.tokens_per_chunk)
}

/// Returns the mean number of events that arrive together, with a text and the bound. `None` if it is usual
/// and most answers do not come in flushes, or if the client read late.
fn events_per_arrival(evidence: &Evidence<'_>) -> Option<(f64, String, String)> {
    let (mut answers, mut events, mut arrivals, mut waited_ms) = (0, 0, 0, 0.0);
    for request in evidence
        .completed_requests()
        .filter(|request| !request.chunks.is_empty())
    {
        let moments = request.chunks.moments();
        answers += 1;
        events += request.chunks.len();
        arrivals += moments.count;
        waited_ms += moments.waited_ns as f64 / 1e6;
    }
    let waits = arrivals.checked_sub(answers).filter(|waits| *waits > 0)?;
    let late = evidence.summary.client.and_then(|client| client.late);
    let is_late = late.is_some_and(|late| late.p90_ms > waited_ms / waits as f64 / 2.0);
    if is_late {
        return None;
    }
    let events = events as f64 / arrivals as f64;
    if events > MAX_EVENTS_PER_ARRIVAL {
        let measured =
            format!("{events:.1} events arrive at the same time on average, as if a proxy collected them");
        return Some((events, measured, format!("{MAX_EVENTS_PER_ARRIVAL}")));
    }
    let completed = evidence.completed_requests();
    let (flushed, judged) = flushed_responses(completed.map(|request| &request.chunks))?;
    Some((
        events,
        format!(
            "{flushed} of {judged} answers arrive as groups of events, as if a proxy collected them: on average {events:.2} events at the same time"
        ),
        format!(
            "at most half of the answers may receive several events at once at more than {} of their arrival times",
            percent(MAX_FLUSH_SHARE)
        ),
    ))
}

/// Returns the number of answers in flushes and the number of judged answers. `None` unless most of these are
/// in flushes.
pub(super) fn flushed_responses<'c>(answers: impl Iterator<Item = &'c Chunks>) -> Option<(usize, usize)> {
    let shares: Vec<f64> = answers.filter_map(shared_arrival_share).collect();
    let flushed = shares.iter().filter(|share| **share > MAX_FLUSH_SHARE).count();
    (shares.len() >= MIN_RESPONSES && 2 * flushed > shares.len()).then_some((flushed, shares.len()))
}

/// Returns the share of the moments of an answer that hold several events. The first and the last moment are
/// left out, because any server may send two events there.
fn shared_arrival_share(chunks: &Chunks) -> Option<f64> {
    let (first, last) = (chunks.first()?, chunks.last()?);
    let gaps = chunks.len().checked_sub(1).filter(|gaps| *gaps > MIN_ARRIVALS)?;
    let mean = last.at_ns.saturating_sub(first.at_ns) as f64 / gaps as f64;
    let nearly = SIMULTANEOUS_NS.max((SIMULTANEOUS_GAP_SHARE * mean) as u64);
    let mut moments = vec![1usize];
    for (before, next) in chunks.pairs() {
        match next.at_ns.saturating_sub(before.at_ns) > nearly {
            true => moments.push(1),
            false => *moments.last_mut()? += 1,
        }
    }
    let inner = moments.get(1..moments.len() - 1)?;
    let several = inner.iter().filter(|events| **events > 1).count();
    (inner.len() >= MIN_ARRIVALS).then(|| several as f64 / inner.len() as f64)
}

/// Returns the number of tokens that the engine accepted at a time, by its counters. Infinite if it reports
/// only that it accepted some.
pub(super) fn tokens_per_step(engine: &EngineWindow) -> Option<f64> {
    let grown = |name: &str| engine.grown.get(name).copied();
    let accepted = grown("spec_accepted_tokens");
    let drafts = grown("spec_drafts").filter(|drafts| *drafts > 0.0);
    let by_counters = accepted
        .zip(drafts)
        .map(|(accepted, drafts)| 1.0 + accepted / drafts);
    let length = engine.gauges.get("accepted_length").map(|length| length.max);
    let unknown = accepted.filter(|tokens| *tokens > 0.0).map(|_| f64::INFINITY);
    by_counters.or(length.filter(|length| *length > 1.0)).or(unknown)
}

/// Returns the number of tokens that the engine generates at a time with speculative decoding, by its
/// counters. Infinite if only its configuration or its arguments show that it is used.
fn drafted_tokens_per_step(evidence: &Evidence<'_>) -> Option<f64> {
    let summary = evidence.summary;
    let engine = summary
        .telemetry
        .as_ref()
        .and_then(|telemetry| telemetry.engine.as_ref());
    if let Some(counted) = engine.and_then(tokens_per_step) {
        return Some(counted);
    }
    let is_set = |name: &str| {
        let value = summary.engine.info.as_ref().and_then(|info| info.get(name));
        value.is_some_and(|value| !value.is_null())
    };
    let launch = evidence.launch;
    let words = launch.command_args(launch.default_port());
    let is_asked = |word: &str| {
        ["speculative", "model-draft", "draft-model"]
            .iter()
            .any(|part| word.contains(part))
    };
    let is_told = is_set("speculative_algorithm")
        || is_set("speculative_config")
        || words.iter().any(|word| is_asked(word.as_str()));
    is_told.then_some(f64::INFINITY)
}
