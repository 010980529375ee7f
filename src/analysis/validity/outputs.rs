//! Checks failures, token counts and model names: does what the engine reports agree with its answers?

use std::collections::BTreeMap;

use serde_json::Value;

use super::counters::{MIN_TOKENS, reliable_counters};
use super::evidence::Evidence;
use super::reason::{new_reason, percent};
use super::responses::input::reported_tokens;
use super::responses::token_counts::{excess_factor, excess_reason};
use super::{counters, untimed};
use crate::analysis::metrics::Metric;
use crate::config::scenario::Scenario;
use crate::config::validity::Bounds;
use crate::results::record::chunks::Chunks;
use crate::results::record::chunks::moments::SIMULTANEOUS_NS;
use crate::results::record::request::{Request, format_failures, is_same_model};
use crate::results::record::search::SearchStopReason;
use crate::results::record::telemetry::EngineWindow;
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

/// The engine's count disagrees if it differs from both the text and the events by more than this factor in
/// the same direction.
const MAX_COUNT_FACTOR: f64 = 1.25;

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
    judge_errors(evidence, reasons);
    judge_counts(evidence, reasons);
    judge_chunks(evidence, reasons);
    judge_served_model(evidence, reasons);
    let launch = evidence.launch;
    let ours = [&launch.served_model_name, &launch.model, &launch.checkpoint].map(String::as_str);
    reasons.extend(model_name_reason(
        evidence.requests,
        &ours,
        &evidence.summary.engine.models,
    ));
}

fn judge_errors(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let total = evidence.requests.len();
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
    bounds: &Bounds,
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
    let in_events = match events {
        0 => String::new(),
        events => format!(", {events} events"),
    };
    let bound = match (is_agreed, padded.filter(|_| factor <= bound)) {
        (true, _) => format!("factor {MAX_COUNT_FACTOR}"),
        (false, Some(factor)) => format!(
            "{:.0} % above text and events in half of the answers",
            (factor - 1.0) * 100.0
        ),
        (false, None) => format!("factor {bound}"),
    };
    Some(new_reason(
        ReasonCode::TokensDisagree,
        format!(
            "{reported_tokens} output tokens by the engine, {counted_tokens} by our tokenizer{in_events} (factor {factor:.2})"
        ),
        Some(bound),
    ))
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
                "{reported} output tokens by the engine, and no text in any of {} answers",
                claimed.len()
            ),
            Some("text in some answers".to_owned()),
        )
    })
}

fn judge_chunks(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let (scenario, dialect) = (&evidence.cell.scenario, &evidence.launch.api.dialect);
    if let Some(reason) = untimed::unstreamed_reason(evidence.requests, scenario, dialect) {
        reasons.push(reason);
        return;
    }
    if let Some(reason) = untimed::untimed_reason(evidence.requests, reliable_counters(evidence), scenario) {
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
    // Speculative decoding accepts tokens together, which is correct. More tokens per event than that were
    // gathered.
    if drafted_tokens_per_step(evidence)
        .is_some_and(|tokens| came <= tokens * evidence.bounds.tokens_per_chunk)
    {
        return;
    }
    reasons.push(new_reason(ReasonCode::ChunkedTokens, measured, Some(bound)));
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
        let measured = format!(
            "{events:.1} events arrive at the same time on average, as from a proxy that collects them"
        );
        return Some((events, measured, format!("{MAX_EVENTS_PER_ARRIVAL}")));
    }
    let completed = evidence.completed_requests();
    let (flushed, judged) = flushed_responses(completed.map(|request| &request.chunks))?;
    Some((
        events,
        format!(
            "{flushed} of {judged} answers arrive in flushes, as from a proxy that collects events: {events:.2} events at the same time on average"
        ),
        format!(
            "several events at {} of the arrival times, in half of the answers",
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

/// Judges the model names in answers. `ours` are names of the requested model, `listed` are the models that
/// the server lists. A name in this list that every answer has is taken for an alias.
pub(super) fn model_name_reason(
    requests: &[Request],
    own_names: &[&str],
    listed: &[String],
) -> Option<Reason> {
    let completed = || requests.iter().filter(|request| request.is_completed());
    let is_other = |name: &&String| !own_names.iter().any(|own_names| is_same_model(own_names, name));
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    let mut strange = 0;
    for request in completed() {
        let mut names = request.models.iter().filter(is_other).peekable();
        strange += usize::from(names.peek().is_some());
        names.for_each(|name| *others.entry(name.as_str()).or_default() += 1);
    }
    let total = completed().count();
    if strange == 0 {
        return adapter_named_as_base(completed(), own_names.first()?);
    }
    let names: Vec<String> = others.keys().map(|name| format!("`{name}`")).collect();
    let mut reason = new_reason(
        ReasonCode::WrongModel,
        format!("{strange} of {total} answers name the model {}", names.join(", ")),
        own_names.first().map(|served| format!("`{served}`")),
    );
    let is_alias = others
        .keys()
        .all(|name| listed.iter().any(|listed| listed == name));
    if strange == total && others.len() == 1 {
        match (listed.is_empty(), is_alias) {
            (false, true) => {
                reason.measured.push_str(", which the server lists");
                reason.weight = Verdict::Valid;
            }
            (true, _) => reason.weight = Verdict::Suspect,
            (false, false) => {}
        }
    }
    Some(reason)
}

/// Reports answers with the name of the served model to requests for an adapter or another model. The server
/// may have used the adapter and named its base model.
fn adapter_named_as_base<'r>(completed: impl Iterator<Item = &'r Request>, served: &str) -> Option<Reason> {
    let is_served = |name: &String| is_same_model(served, name);
    let (based, total) = completed.fold((0, 0), |(based, total), request| {
        (based + u32::from(request.models.iter().any(is_served)), total + 1)
    });
    (based > 0).then(|| {
        let mut reason = new_reason(
            ReasonCode::WrongModel,
            format!("{based} of {total} answers name `{served}`, but their requests named another model or adapter"),
            Some("the requested model or adapter".to_owned()),
        );
        reason.weight = Verdict::Suspect;
        reason
    })
}

/// Judges what the engine reported to serve when the measurement was over.
fn judge_served_model(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let (facts, launch) = (&evidence.summary.engine, evidence.launch);
    if !facts.models.is_empty() && !facts.models.contains(&launch.served_model_name) {
        reasons.push(new_reason(
            ReasonCode::WrongModel,
            facts.models.join(", "),
            Some(launch.served_model_name.clone()),
        ));
    }
    let server_precision = facts.info.as_ref().and_then(live_precision);
    if let (Some(server_precision), Some(planned_precision)) = (server_precision, &launch.precision)
        && let (Some(a), Some(b)) = (
            precision_family(&server_precision),
            precision_family(planned_precision),
        )
        && a != b
    {
        reasons.push(new_reason(
            ReasonCode::WrongPrecision,
            server_precision,
            Some(planned_precision.clone()),
        ));
    }
}

/// Returns the precision in a live configuration: its quantization, or else the type of its computations.
fn live_precision(info: &Value) -> Option<String> {
    let text = |name: &str| {
        info.get(name)?
            .as_str()
            .filter(|text| !text.is_empty() && *text != "auto")
    };
    text("quantization").or_else(|| text("dtype")).map(str::to_owned)
}

/// Returns the kind of numbers of a precision. `None` for unknown names.
pub(crate) fn precision_family(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let has = |part: &str| name.contains(part);
    if has("fp8") || has("float8") || has("e4m3") {
        Some("fp8")
    } else if has("fp4") || has("float4") {
        Some("fp4")
    } else if has("int8") || has("w8a") || has("8bit") {
        Some("int8")
    } else if has("awq") || has("int4") || has("w4a") || has("4bit") {
        // GPTQ alone does not define a width: there are checkpoints of 2, 3, 4 and 8 bits.
        Some("int4")
    } else if has("bf16") || has("bfloat16") || has("fp16") || has("float16") || name == "half" {
        Some("16-bit")
    } else if has("fp32") || has("float32") {
        Some("32-bit")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::precision_family;

    #[test]
    fn a_name_stands_for_a_kind_of_number_only_where_it_tells_one() {
        for (name, kind) in [
            ("gptq", None),
            ("gptq_marlin", None),
            ("compressed-tensors", None),
            ("gptq-int4", Some("int4")),
            ("gptq-8bit", Some("int8")),
            ("awq_marlin", Some("int4")),
            ("w4a16", Some("int4")),
            ("W8A8", Some("int8")),
            ("float8_e4m3fn", Some("fp8")),
            ("bfloat16", Some("16-bit")),
        ] {
            assert_eq!(precision_family(name), kind, "{name}");
        }
    }
}
