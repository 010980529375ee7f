//! Checks failures and token counts: does what the engine reports agree with its answers?

use super::counters::{self, MIN_TOKENS};
use super::evidence::Evidence;
use super::reason::{new_reason, percent};
use super::responses::token_counts::{excess_factor, excess_reason};
use crate::config::scenario::Scenario;
use crate::config::validity::ValidityBounds;
use crate::results::record::request::{Request, format_failures, judged_requests};
use crate::results::record::search::SearchStopReason;
use crate::results::record::validity::{Reason, ReasonCode};

/// The engine's count disagrees if it differs from both the text and the events by more than this factor in
/// the same direction.
const MAX_COUNT_FACTOR: f64 = 1.25;

/// Judges the share of failed requests and the counts of output tokens.
pub(super) fn judge_failures_and_counts(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    judge_errors(evidence, reasons);
    judge_counts(evidence, reasons);
}

fn judge_errors(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let total = judged_requests(evidence.requests);
    let failed = total - evidence.completed_requests().count();
    let bound = evidence.cell.scenario.limits.error_share;
    if failed as f64 > bound * total as f64 {
        let share = failed as f64 / total as f64;
        let failures = evidence
            .requests
            .iter()
            .filter_map(|request| request.failure.as_ref());
        let classes = match format_failures(failures.map(|failure| (failure.class, 1))) {
            none if none.is_empty() => none,
            classes => format!(": {classes}"),
        };
        reasons.push(new_reason(
            ReasonCode::Errors,
            format!(
                "{failed} of {total} requests failed ({}){classes}",
                percent(share)
            ),
            Some(percent(bound)),
        ));
    }
    let search = evidence.summary.search.as_ref();
    if let Some(search) = search.filter(|search| search.ending == SearchStopReason::Unanswered) {
        reasons.push(new_reason(
            ReasonCode::Errors,
            search.describe_unanswered().unwrap_or_default(),
            None,
        ));
    }
}

/// Compares what answers report with the engine's counters and with our tokenizer.
fn judge_counts(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    reasons.extend(counters::cancellation_reason(evidence));
    if let Some(reason) = counters::judge(evidence) {
        let is_of_outputs = reason.code == ReasonCode::TokensDisagree;
        reasons.push(reason);
        if is_of_outputs {
            return;
        }
    }
    reasons.extend(text_count_reason(
        evidence.requests,
        &evidence.cell.scenario,
        evidence.bounds,
    ));
}

/// Compares the tokens that answers report with our count of their text and with their events.
pub(crate) fn text_count_reason(
    requests: &[Request],
    scenario: &Scenario,
    bounds: &ValidityBounds,
) -> Option<Reason> {
    let completed = || requests.iter().filter(|request| request.is_completed());
    let both: Vec<(f64, f64)> = completed()
        .filter_map(|request| {
            Some((
                f64::from(request.usage?.completion?),
                f64::from(request.counted_tokens?),
            ))
        })
        .collect();
    let (reported_tokens, counted_tokens) = both
        .iter()
        .fold((0.0, 0.0), |(reported_tokens, counted_tokens), (a, b)| {
            (reported_tokens + a, counted_tokens + b)
        });
    // An engine that reports no tokens for text that we count is off by any factor.
    if reported_tokens.max(counted_tokens) < MIN_TOKENS || counted_tokens <= 0.0 {
        return textless_reason(requests);
    }
    // An engine profits from counting too much, so that bound is narrower. Tokenizing a text again tends to
    // give more tokens than were generated.
    let margin = bounds.own_tokens - 1.0;
    let (factor, bound) = match reported_tokens > counted_tokens {
        true => (reported_tokens / counted_tokens, 1.0 + margin),
        false => (counted_tokens / reported_tokens, 1.0 + 2.0 * margin),
    };
    let counted = completed().filter(|request| request.counted_tokens.is_some() && request.usage.is_some());
    let events: usize = counted.map(|request| request.chunks.len()).sum();
    // If events and text agree on the direction, a smaller factor is enough.
    let is_agreed = events > 0
        && factor > MAX_COUNT_FACTOR
        && match reported_tokens > counted_tokens {
            true => reported_tokens > MAX_COUNT_FACTOR * events as f64,
            false => events as f64 > MAX_COUNT_FACTOR * reported_tokens,
        };
    let padded = excess_factor(requests, scenario).filter(|_| reported_tokens > counted_tokens && events > 0);
    if factor <= bound && !is_agreed && padded.is_none() {
        return excess_reason(requests, scenario);
    }
    let measured = match events {
        0 => format!(
            "the engine reports {reported_tokens} output tokens, but our tokenizer counts {counted_tokens} (factor {factor:.2})"
        ),
        events => format!(
            "the engine reports {reported_tokens} output tokens, but our tokenizer counts {counted_tokens} and there were {events} events (factor {factor:.2})"
        ),
    };
    let bound = match (is_agreed, padded.filter(|_| factor <= bound)) {
        (true, _) => format!("factor {MAX_COUNT_FACTOR}"),
        (false, Some(factor)) => format!(
            "at least half of the answers must report at most {:.0} % more tokens than their text and events show",
            (factor - 1.0) * 100.0
        ),
        (false, None) => format!("factor {bound}"),
    };
    Some(new_reason(ReasonCode::TokensDisagree, measured, Some(bound)))
}

/// Reports output tokens of answers that all lack text: nothing shows that these tokens were generated.
/// Hidden reasoning and tool calls have no such text and are left out.
fn textless_reason(requests: &[Request]) -> Option<Reason> {
    let completed = || requests.iter().filter(|request| request.is_completed());
    let is_textless = |request: &Request| {
        request.tool_text.is_none()
            && request.counted_tokens.unwrap_or(0) == 0
            && request.chunks.iter().all(|chunk| chunk.bytes == 0)
    };
    let claimed: Vec<u32> = completed()
        .filter_map(Request::visible_tokens)
        .filter(|tokens| *tokens > 0)
        .collect();
    let reported: f64 = claimed.iter().copied().map(f64::from).sum();
    (reported >= MIN_TOKENS && completed().all(is_textless)).then(|| {
        new_reason(
            ReasonCode::TokensDisagree,
            format!(
                "the engine reports {reported} output tokens in {} answers, but these answers have no text",
                claimed.len()
            ),
            Some("text in some answers".to_owned()),
        )
    })
}
