//! Assigns the tokens of an answer to its events.

use crate::results::record::request::Request;

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

/// If tokens and events differ by less than this factor, each event counts as one token.
const ONE_TOKEN_FACTOR: f64 = 1.25;

/// Returns the tokens in the events after the first `events`. `None` if tokens were not counted, or if there
/// are no later events.
pub(super) fn tokens_after(request: &Request, events: usize) -> Option<u32> {
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
