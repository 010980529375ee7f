//! Finds answers that were gathered or held back on the way, so that the times between their tokens are not
//! those of the engine.

use serde_json::Value;

use super::reason::{new_reason, percent};
use crate::analysis::metrics;
use crate::config::scenario::Scenario;
use crate::plan::ProtocolSpec;
use crate::results::record::request::Request;
use crate::results::record::telemetry::EngineWindow;
use crate::results::record::validity::{MetricFamily, Reason, ReasonCode};

/// Fewest answers that are judged. Fewer may look held back by chance.
const MIN_RESPONSES: usize = 8;

/// Judges whether anything is known of the times between tokens. `engine` holds the engine's own metrics of
/// the window, if they were read.
pub(super) fn unknown_token_times_reason(
    requests: &[Request],
    engine: Option<&EngineWindow>,
    scenario: &Scenario,
) -> Option<Reason> {
    let completed: Vec<&Request> = requests.iter().filter(|request| request.is_completed()).collect();
    let (measured, bound) = several_choices_finding(scenario)
        .or_else(|| coalesced_finding(&completed))
        .or_else(|| held_back_starts(&completed))
        .or_else(|| held_back_responses(&completed))
        .or_else(|| {
            engine.and_then(|engine| faster_than_engine(&completed, engine, scenario.search.is_some()))
        })?;
    let mut reason = new_reason(ReasonCode::ChunkedTokens, measured, Some(bound));
    reason.only.push(MetricFamily::Tpot);
    let has_target = scenario.slo.as_ref().is_some_and(|slo| slo.max_tpot().is_some());
    reason.only.extend(has_target.then_some(MetricFamily::Goodput));
    Some(reason)
}

/// Judges answers that were asked for whole: nothing is known of the times of their tokens.
pub(super) fn unstreamed_reason(
    requests: &[Request],
    scenario: &Scenario,
    dialect: &ProtocolSpec,
) -> Option<Reason> {
    if dialect.is_streamed(&scenario.body) || !requests.iter().any(Request::is_completed) {
        return None;
    }
    let measured =
        "the client requested complete answers instead of streams, so the times of their tokens are unknown";
    let bound = Some("answers that stream".to_owned());
    let mut reason = new_reason(ReasonCode::ChunkedTokens, measured.to_owned(), bound);
    let slo = scenario.slo.as_ref();
    let has_target = slo.is_some_and(|slo| slo.ttft.is_some() || slo.max_tpot().is_some());
    reason.only = vec![MetricFamily::Ttft, MetricFamily::Itl, MetricFamily::Tpot];
    reason.only.extend(has_target.then_some(MetricFamily::Goodput));
    Some(reason)
}

/// The measured value and the bound, as text.
type MeasuredAndBound = (String, String);

fn half_bound() -> String {
    "half of the answers".to_owned()
}

/// Reports requests with several choices. Their tokens come in one stream, so the gaps are shorter than any
/// choice has.
fn several_choices_finding(scenario: &Scenario) -> Option<MeasuredAndBound> {
    let choices = choice_count(scenario)?;
    let measured = format!("each request asks for {choices} choices, whose tokens come in one stream");
    Some((measured, "one choice".to_owned()))
}

/// Returns the number of choices per request, if it is more than one.
pub(super) fn choice_count(scenario: &Scenario) -> Option<u64> {
    let choices = scenario.body.get("n").and_then(Value::as_u64);
    choices.filter(|choices| *choices > 1)
}

/// Reports that most answers of several tokens arrived at one moment or in a few large parts.
fn coalesced_finding(completed: &[&Request]) -> Option<MeasuredAndBound> {
    let gathered = completed
        .iter()
        .filter(|request| metrics::is_coalesced(request))
        .count();
    let is_long = |request: &&&Request| request.visible_tokens().unwrap_or(0) > 1 || request.chunks.len() > 1;
    let long = completed.iter().filter(is_long).count();
    (gathered > 0 && 2 * gathered > long).then(|| {
        let measured = format!(
            "{gathered} of {long} answers arrived at once or in a few large parts, so the times between their tokens are unknown"
        );
        (measured, half_bound())
    })
}

/// Reports that the beginnings of most answers were held back and then passed on event by event. Their TPOT
/// is too low.
fn held_back_starts(completed: &[&Request]) -> Option<MeasuredAndBound> {
    let held_back = completed
        .iter()
        .filter(|request| metrics::is_held_back(request))
        .count();
    let total = completed.len();
    (total >= MIN_RESPONSES && 2 * held_back > total).then(|| {
        let measured = format!(
            "{held_back} of {total} answers begin much faster than they end, as if their beginnings were held back and then passed on"
        );
        (measured, half_bound())
    })
}

/// Highest share of its time that an answer takes after its first event if it was held back to its end and
/// then passed on event by event.
const MAX_LATE_SHARE: f64 = 0.25;
/// Fewest such answers for which lengths and waits are compared.
const MIN_LENGTHS: usize = 20;
/// Lowest correlation between the number of output tokens and the wait for the first event.
const MIN_CORRELATION: f64 = 0.9;
/// Minimum factor between the delay that one more token adds before the first event and the time per token
/// after it.
const HELD_BACK_DELAY_FACTOR: f64 = 3.0;

struct DelayedResponse {
    sent_ms: f64,
    ttft_ms: f64,
    span_ms: f64,
    prompt: f64,
    tokens: f64,
}

impl DelayedResponse {
    fn from_request(request: &Request) -> Option<Self> {
        let (first, last, sent) = (request.chunks.first()?, request.chunks.last()?, request.sent_ns?);
        let millis = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
        let late = Self {
            sent_ms: millis(0, sent),
            ttft_ms: millis(sent, first.at_ns),
            span_ms: millis(first.at_ns, last.at_ns),
            prompt: f64::from(request.prompt_sent()),
            tokens: request
                .visible_tokens()
                .map_or(request.chunks.len() as f64, f64::from),
        };
        let is_late = late.tokens > 1.0 && late.span_ms <= MAX_LATE_SHARE * (late.ttft_ms + late.span_ms);
        is_late.then_some(late)
    }
}

/// Reports that most answers were held back until they were nearly complete: their events come after a wait
/// that grows with the number of output tokens. In an engine that streams, the first event does not depend on
/// the length of the answer. The effects of prompt length, sending time and sending order (a long prompt, a
/// queue) are removed from both before they are compared.
fn held_back_responses(completed: &[&Request]) -> Option<MeasuredAndBound> {
    let mut late: Vec<DelayedResponse> = completed
        .iter()
        .filter_map(|request| DelayedResponse::from_request(request))
        .collect();
    if late.len() < MIN_LENGTHS || 2 * late.len() <= completed.len() {
        return None;
    }
    late.sort_by(|one, next| one.sent_ms.total_cmp(&next.sent_ms));
    let column = |value: fn(&DelayedResponse) -> f64| late.iter().map(value).collect::<Vec<f64>>();
    let places = |power: i32| {
        let total = late.len() as f64;
        (0..late.len())
            .map(|place| (place as f64 / total).powi(power))
            .collect::<Vec<f64>>()
    };
    let other = [
        column(|_| 1.0),
        column(|late| late.prompt),
        column(|late| late.prompt * late.prompt),
        column(|late| late.sent_ms),
        places(1),
        places(2),
        places(3),
    ];
    let [tokens, waits] = residuals(&other, [column(|late| late.tokens), column(|late| late.ttft_ms)])?;
    let (varied, both, waited) = (
        dot_product(&tokens, &tokens),
        dot_product(&tokens, &waits),
        dot_product(&waits, &waits),
    );
    let ms_per_token = both / varied;
    let mut paces = column(|late| late.span_ms / (late.tokens - 1.0));
    let middle = paces.len() / 2;
    let pace_ms = *paces.select_nth_unstable_by(middle, f64::total_cmp).1;
    let is_held = both >= MIN_CORRELATION * (varied * waited).sqrt()
        && ms_per_token >= HELD_BACK_DELAY_FACTOR * pace_ms;
    is_held.then(|| {
        let measured = format!(
            "the events of {} of {} answers arrived only in the last {} of the response time; the wait before the first event grows by {ms_per_token:.1} ms with each output token, as if \
             answers were held back until complete",
            late.len(),
            completed.len(),
            percent(MAX_LATE_SHARE)
        );
        (measured, half_bound())
    })
}

fn dot_product(first_column: &[f64], second_column: &[f64]) -> f64 {
    first_column
        .iter()
        .zip(second_column)
        .map(|(first_column, second_column)| first_column * second_column)
        .sum()
}

/// Share of a column that must be left after the other columns are removed. With less, it depends on them.
const MIN_COLUMN_SHARE: f64 = 1e-6;
/// Share of the variance of lengths that must be left for a result.
const MIN_VARIANCE_SHARE: f64 = 0.2;

/// Removes all linear combinations of the other columns, the first of which is constant, from two columns (by
/// Gram and Schmidt). `None` if too little of the first or nothing of the second is left.
fn residuals(others: &[Vec<f64>], [lengths, waits]: [Vec<f64>; 2]) -> Option<[Vec<f64>; 2]> {
    let without = |mut column: Vec<f64>, basis: &[Vec<f64>]| {
        let before = dot_product(&column, &column);
        for unit in basis {
            let share = dot_product(&column, unit);
            column
                .iter_mut()
                .zip(unit)
                .for_each(|(value, unit)| *value -= share * unit);
        }
        let remaining_norm = dot_product(&column, &column);
        (remaining_norm > MIN_COLUMN_SHARE * before).then_some((column, remaining_norm))
    };
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for other in others {
        if let Some((mut column, remaining_norm)) = without(other.clone(), &basis) {
            column
                .iter_mut()
                .for_each(|value| *value /= remaining_norm.sqrt());
            basis.push(column);
        }
    }
    let constant = basis.get(..1)?;
    let (_, variance) = without(lengths.clone(), constant)?;
    let (lengths, varied) = without(lengths, &basis)?;
    let (waits, _) = without(waits, &basis)?;
    (varied >= MIN_VARIANCE_SHARE * variance).then_some([lengths, waits])
}

/// Minimum factor between the engine's time between tokens and ours, and minimum difference over an answer,
/// in ms.
const ENGINE_TIME_FACTOR: f64 = 2.0;
const ENGINE_EXCESS_MS: f64 = 10.0;
/// The same factor in a search, whose engine metrics include all its points. Engines are slower beyond their
/// capacity.
const ENGINE_TIME_FACTOR_IN_SEARCH: f64 = 10.0;

/// Reports that events follow each other far faster than the engine generates tokens, by its own metrics. An
/// event has at least one token, so the events of an engine that streams are never faster than its tokens.
/// The comparison uses means, which also hold if there were other clients or failures. Some engines average
/// over tokens, others over answers, so the slower of our two means is used.
fn faster_than_engine(
    completed: &[&Request],
    engine: &EngineWindow,
    is_search: bool,
) -> Option<MeasuredAndBound> {
    let own_ms = engine.means.get("itl_s")? * 1e3;
    let (mut spans_ms, mut gaps, mut means_ms, mut several) = (0.0, 0.0, 0.0, 0);
    for request in completed {
        let span = request.chunks.first().zip(request.chunks.last());
        let span_ms = span.map_or(0.0, |(first, last)| {
            last.at_ns.saturating_sub(first.at_ns) as f64 / 1e6
        });
        let between = request.chunks.len().saturating_sub(1) as f64;
        if between > 0.0 {
            spans_ms += span_ms;
            gaps += between;
            means_ms += span_ms / between;
            several += 1;
        }
    }
    let total = completed.len();
    if total < MIN_RESPONSES || several == 0 {
        return None;
    }
    let gap_ms = f64::max(spans_ms / gaps, means_ms / f64::from(several));
    let factor = if is_search {
        ENGINE_TIME_FACTOR_IN_SEARCH
    } else {
        ENGINE_TIME_FACTOR
    };
    let longer_ms = (own_ms - gap_ms) * gaps / total as f64;
    (own_ms >= factor * gap_ms && longer_ms >= ENGINE_EXCESS_MS).then(|| {
        let measured = format!(
            "by the engine's metrics, tokens are {own_ms:.2} ms apart, but received events are only {gap_ms:.2} ms apart: answers were held back on the way"
        );
        (measured, format!("factor {factor}"))
    })
}
