//! Checks that responses match the requests: prompts have the length that was sent, answers the requested
//! length, and texts are not one token over and over.

mod degenerate;
pub(crate) mod input;
mod lengths;
mod prompts;
mod recordings;
mod start;
pub(crate) mod summary;
pub(crate) mod token_counts;

use crate::results::record::validity::Reason;
use input::Responses;

/// Judges the answers of a server by themselves.
pub(crate) fn response_reasons(responses: &Responses<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    prompts::judge_prompts(responses, &mut reasons);
    reasons.extend(recordings::recordings_reason(responses));
    if responses.protocol.facts().generates_text {
        lengths::judge_lengths(responses, &mut reasons);
        reasons.extend(degenerate::degenerate_reason(responses));
        token_counts::judge_events(responses, &mut reasons);
        reasons.extend(start::early_start_reason(responses));
    }
    reasons
}
