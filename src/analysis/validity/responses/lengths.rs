//! Checks that answers have the requested length.

use std::collections::BTreeMap;

use super::input::{MAX_OUTLIER_SHARE, Responses, reported_tokens};
use crate::analysis::validity::reason::{new_reason, percent};
use crate::analysis::validity::untimed::choice_count;
use crate::results::record::request::{Request, is_known_finish, is_limit_finish};
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

/// Without usage, an answer ended early if our count is below this share of the requested tokens. Tokenizing
/// a text again gives a few percent more or fewer tokens.
const COUNTED_SHORT: f64 = 0.9;

/// The same if the server says that the answer ended at the requested length.
const COUNTED_SHORT_THOUGH_FULL: f64 = 0.5;

/// Without usage, an answer is too long if both our counts exceed the requested tokens by this factor.
const COUNTED_LONG: f64 = 1.25;

/// An answer that ended at a limit below this share of the requested tokens ended at the server's own limit.
const MAX_OWN_LIMIT_SHARE: f64 = 0.95;

/// If at least this share of answers is empty, it is reported.
const MAX_EMPTY_SHARE: f64 = 0.05;

/// Highest number of unknown finish reasons in a message.
const MAX_NAMED_ENDS: usize = 3;

/// Highest number of characters of each.
const MAX_END_CHARS: usize = 32;

/// Length of an answer relative to the requested length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Short,
    AsRequested,
    Long,
}

/// Returns the length of an answer by the server's own count, or else by the events and by our count of the
/// text.
fn response_length(request: &Request) -> Option<(u32, Length)> {
    let requested = request.max_output_tokens();
    if let Some(reported) = reported_tokens(request) {
        // One additional token may be the end of text.
        let is_long =
            f64::from(reported) > f64::from(requested) + (MAX_OUTLIER_SHARE * f64::from(requested)).max(1.0);
        let length = match reported < requested {
            true => Length::Short,
            false if is_long => Length::Long,
            false => Length::AsRequested,
        };
        return Some((reported, length));
    }
    let own = request.counted_tokens?;
    let events = u32::try_from(request.chunks.len()).unwrap_or(u32::MAX);
    let min_share = match request.finish.as_deref().is_some_and(is_limit_finish) {
        true => COUNTED_SHORT_THOUGH_FULL,
        false => COUNTED_SHORT,
    };
    let requested = f64::from(requested);
    let length = match () {
        () if f64::from(own.max(events)) < min_share * requested => Length::Short,
        () if f64::from(own.min(events)) > COUNTED_LONG * requested => Length::Long,
        () => Length::AsRequested,
    };
    Some((own, length))
}

/// Reports answers of the wrong length. Short answers improve latencies and reduce the load, long ones
/// improve throughput.
pub(crate) fn judge_lengths(responses: &Responses<'_>, reasons: &mut Vec<Reason>) {
    let answers: Vec<(u32, u32, Length)> = responses
        .completed_requests()
        .filter_map(|request| {
            let (tokens, length) = response_length(request)?;
            Some((tokens, request.max_output_tokens(), length))
        })
        .collect();
    let (received, requested) = answers
        .iter()
        .fold((0u64, 0u64), |(received, requested), (a, b, _)| {
            (received + u64::from(*a), requested + u64::from(*b))
        });
    let mut judge = |code: ReasonCode, what: Length, word: &str| {
        let count = answers.iter().filter(|(.., length)| *length == what).count();
        if count as f64 > responses.bounds.short_outputs * answers.len() as f64 {
            reasons.push(new_reason(
                code,
                format!(
                    "{count} of {} answers are {word} than requested; in total {received} tokens arrived, and {requested} were requested",
                    answers.len()
                ),
                Some(format!(
                    "{} of the answers",
                    percent(responses.bounds.short_outputs)
                )),
            ));
        }
    };
    // A recording decides how long its text is, and a server may apply the limit to each of its pieces.
    let is_fixed = responses.protocol.facts().fixes_length;
    let may_end = responses.scenario.stop_at_eos || !is_fixed;
    if !may_end {
        judge(ReasonCode::OutputShort, Length::Short, "shorter");
    }
    if is_fixed {
        judge(ReasonCode::OutputLong, Length::Long, "longer");
    }
    if responses.scenario.stop_at_eos && is_fixed {
        reasons.extend(own_limit_reason(responses));
    }
    reasons.extend(unknown_ends_reason(responses));
    let done = responses.completed_requests().count();
    let empty = responses
        .completed_requests()
        .filter(|request| request.chunks.is_empty() && request.visible_tokens().unwrap_or(0) <= 1)
        .count();
    if may_end && empty as f64 > MAX_EMPTY_SHARE * done as f64 {
        let measured = format!("{empty} of {done} answers are empty");
        let mut reason = new_reason(ReasonCode::OutputShort, measured, Some(percent(MAX_EMPTY_SHARE)));
        reason.weight = Verdict::Suspect;
        reasons.push(reason);
    }
    let total = responses.completed_requests().count();
    let uncounted = responses
        .completed_requests()
        .filter(|request| reported_tokens(request).is_none())
        .count();
    if uncounted as f64 > MAX_OUTLIER_SHARE * total as f64 {
        reasons.push(new_reason(
            ReasonCode::TokensUncounted,
            format!("{uncounted} of {total} answers have no token count"),
            Some("a token count in each".to_owned()),
        ));
    }
}

/// Reports that the server ends answers at a limit below the requested one, in scenarios in which the model
/// may end answers. The work is then less than requested. With several choices per answer, only one of them
/// may have reached the limit.
fn own_limit_reason(responses: &Responses<'_>) -> Option<Reason> {
    if choice_count(responses.scenario).is_some() {
        return None;
    }
    let is_limited = |request: &&Request| {
        let ended = request.finish.as_deref().is_some_and(is_limit_finish);
        let is_less = |(tokens, length): (u32, Length)| {
            // One missing token may be the end of text.
            let is_clear = f64::from(tokens) < MAX_OWN_LIMIT_SHARE * f64::from(request.max_output_tokens());
            length == Length::Short && is_clear && tokens + 1 < request.max_output_tokens()
        };
        ended && response_length(request).is_some_and(is_less)
    };
    let limited: Vec<&Request> = responses.completed_requests().filter(is_limited).collect();
    let total = responses.completed_requests().count();
    if limited.len() as f64 <= responses.bounds.short_outputs * total as f64 {
        return None;
    }
    let (received, requested) = limited
        .iter()
        .fold((0u64, 0u64), |(received, requested), request| {
            let tokens = response_length(request).map_or(0, |(tokens, _)| tokens);
            (
                received + u64::from(tokens),
                requested + u64::from(request.max_output_tokens()),
            )
        });
    Some(new_reason(
        ReasonCode::OutputShort,
        format!(
            "{} of {total} answers end at a limit of the server; they have {received} of {requested} requested tokens",
            limited.len()
        ),
        Some(format!(
            "{} of the answers",
            percent(responses.bounds.short_outputs)
        )),
    ))
}

/// Reports answers that end early for unknown reasons, because they may be cut. A server may have its own
/// word for the end of text, so it is a note unless other answers end early for known reasons.
fn unknown_ends_reason(responses: &Responses<'_>) -> Option<Reason> {
    let is_early =
        |request: &Request| response_length(request).is_none_or(|(_, length)| length == Length::Short);
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for request in responses.completed_requests().filter(|request| is_early(request)) {
        if let Some(finish) = request.finish.as_deref() {
            *words.entry(finish).or_default() += 1;
        }
    }
    let (known, unknown): (Vec<_>, Vec<_>) = words.into_iter().partition(|(word, _)| is_known_finish(word));
    let count: usize = unknown.iter().map(|(_, count)| count).sum();
    let total = responses.completed_requests().count();
    if count as f64 <= MAX_OUTLIER_SHARE * total as f64 {
        return None;
    }
    let named = unknown.iter().take(MAX_NAMED_ENDS).map(|(word, count)| {
        format!(
            "`{}` {count}",
            word.chars().take(MAX_END_CHARS).collect::<String>()
        )
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let mut reason = new_reason(
        ReasonCode::OutputShort,
        format!(
            "{count} of {total} answers ({}) end early, and their finish reason is unknown: {named}",
            percent(count as f64 / total as f64)
        ),
        Some(percent(MAX_OUTLIER_SHARE)),
    );
    reason.weight = match known.is_empty() {
        true => Verdict::Valid,
        false => Verdict::Suspect,
    };
    Some(reason)
}
