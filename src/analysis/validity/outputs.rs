//! Checks failures, token counts and model names: does what the engine reports agree with its answers?

use std::collections::BTreeMap;

use serde_json::Value;

use super::counters::{FEW_TOKENS, heard};
use super::responses::{most_report_more, reported_tokens, some_report_more};
use super::{Evidence, counters, found, percent, untimed};
use crate::analysis::metrics::Metric;
use crate::config::scenario::Scenario;
use crate::config::validity::Bounds;
use crate::results::record::chunks::{AT_ONCE_NS, Chunks};
use crate::results::record::request::{Request, by_class, is_same_model};
use crate::results::record::search::SearchEnding;
use crate::results::record::telemetry::EngineWindow;
use crate::results::record::validity::{Code, Reason, Verdict};

/// The engine's count disagrees if it differs from both the text and the events by more than this factor in
/// the same direction.
const AGREED: f64 = 1.25;

/// Mean number of events that may arrive together. Engine and client do not always wake up for each token.
const TOGETHER: f64 = 2.0;

/// Events whose gap is within this share of the mean gap count as one moment.
const NEARLY: f64 = 0.05;

/// Share of the moments of an answer that may hold several events. With more of them, the answer comes in
/// flushes and the median gap is that of the flushes. A stall of engine or host gathers many events at few
/// moments.
const FLUSHED: f64 = 1.0 / 3.0;

/// Fewest moments of an answer, without the first and the last, for which this share is computed.
const FEW_MOMENTS: usize = 8;

/// Fewest answers for which flushes are judged.
const FEW_ANSWERS: usize = 8;

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    errors(evidence, reasons);
    counts(evidence, reasons);
    chunks(evidence, reasons);
    served(evidence, reasons);
    let launch = evidence.launch;
    let ours = [&launch.served, &launch.model, &launch.checkpoint].map(String::as_str);
    reasons.extend(named(evidence.requests, &ours, &evidence.summary.engine.models));
}

fn errors(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let all = evidence.requests.len();
    let failed = all - evidence.completed().count();
    let bound = evidence.cell.scenario.limits.error_share;
    if failed as f64 > bound * all as f64 {
        let share = failed as f64 / all as f64;
        let failures = evidence
            .requests
            .iter()
            .filter_map(|request| request.failure.as_ref());
        let classes = match by_class(failures.map(|failure| (failure.class, 1))) {
            none if none.is_empty() => none,
            classes => format!(": {classes}"),
        };
        reasons.push(found(
            Code::Errors,
            format!("{failed} of {all} requests failed ({}){classes}", percent(share)),
            Some(percent(bound)),
        ));
    }
    let search = evidence.summary.search.as_ref();
    if let Some(search) = search.filter(|search| search.ending == SearchEnding::Unanswered) {
        reasons.push(found(Code::Errors, search.unanswered().unwrap_or_default(), None));
    }
}

/// Compares what answers report with the engine's counters and with our tokenizer.
fn counts(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    if let Some(reason) = counters::judge(evidence) {
        let is_of_outputs = reason.code == Code::TokensDisagree;
        reasons.push(reason);
        if is_of_outputs {
            return;
        }
    }
    reasons.extend(of_text(
        evidence.requests,
        &evidence.cell.scenario,
        evidence.bounds,
    ));
}

/// Compares the tokens that answers report with our count of their text and with their events.
pub(crate) fn of_text(requests: &[Request], scenario: &Scenario, bounds: &Bounds) -> Option<Reason> {
    let completed = || requests.iter().filter(|request| request.is_completed());
    let both: Vec<(f64, f64)> = completed()
        .filter_map(|request| {
            Some((
                f64::from(request.usage?.completion?),
                f64::from(request.counted_tokens?),
            ))
        })
        .collect();
    let (told, own) = both
        .iter()
        .fold((0.0, 0.0), |(told, own), (a, b)| (told + a, own + b));
    // An engine that reports no tokens for text that we count is off by any factor.
    if told.max(own) < FEW_TOKENS || own <= 0.0 {
        return textless(requests);
    }
    // An engine profits from counting too much, so that bound is narrower. Tokenizing a text again tends to
    // give more tokens than were generated.
    let margin = bounds.own_tokens - 1.0;
    let (factor, bound) = match told > own {
        true => (told / own, 1.0 + margin),
        false => (own / told, 1.0 + 2.0 * margin),
    };
    let counted = completed().filter(|request| request.counted_tokens.is_some() && request.usage.is_some());
    let events: usize = counted.map(|request| request.chunks.len()).sum();
    // If events and text agree on the direction, a smaller factor is enough.
    let is_agreed = events > 0
        && factor > AGREED
        && match told > own {
            true => told > AGREED * events as f64,
            false => events as f64 > AGREED * told,
        };
    let padded = most_report_more(requests, scenario).filter(|_| told > own && events > 0);
    if factor <= bound && !is_agreed && padded.is_none() {
        return some_report_more(requests, scenario);
    }
    let in_events = match events {
        0 => String::new(),
        events => format!(", {events} events"),
    };
    let bound = match (is_agreed, padded.filter(|_| factor <= bound)) {
        (true, _) => format!("factor {AGREED}"),
        (false, Some(factor)) => format!(
            "{:.0} % above text and events in half of the answers",
            (factor - 1.0) * 100.0
        ),
        (false, None) => format!("factor {bound}"),
    };
    Some(found(
        Code::TokensDisagree,
        format!("{told} output tokens by the engine, {own} by our tokenizer{in_events} (factor {factor:.2})"),
        Some(bound),
    ))
}

/// Reports output tokens of answers that all lack text: nothing shows that these tokens were generated.
/// Hidden reasoning and tool calls have no such text and are left out.
fn textless(requests: &[Request]) -> Option<Reason> {
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
    let told: f64 = claimed.iter().copied().map(f64::from).sum();
    (told >= FEW_TOKENS && completed().all(is_textless)).then(|| {
        found(
            Code::TokensDisagree,
            format!(
                "{told} output tokens by the engine, and no text in any of {} answers",
                claimed.len()
            ),
            Some("text in some".to_owned()),
        )
    })
}

fn chunks(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let scenario = &evidence.cell.scenario;
    if let Some(reason) = untimed::of(evidence.requests, heard(evidence), scenario) {
        reasons.push(reason);
        return;
    }
    // Our own count of the text does not give the tokens of an event.
    let is_reported = |request: &Request| reported_tokens(request).is_some();
    let are_reported = evidence.completed().all(is_reported);
    let bound = evidence.bounds.tokens_per_chunk;
    let per_event = evidence
        .figure(Metric::TokensPerChunk)
        .filter(|tokens| are_reported && *tokens > bound);
    let (came, measured, bound) = match per_event {
        Some(tokens) => (
            tokens,
            format!("{tokens:.2} tokens per event"),
            format!("{bound}"),
        ),
        None => match together(evidence) {
            Some(found) => found,
            None => return,
        },
    };
    // Speculative decoding accepts tokens together, which is correct. More tokens per event than that were
    // gathered.
    if made_together(evidence).is_some_and(|tokens| came <= tokens * evidence.bounds.tokens_per_chunk) {
        return;
    }
    reasons.push(found(Code::ChunkedTokens, measured, Some(bound)));
}

/// Returns the mean number of events that arrive together, with a text and the bound. `None` if it is usual
/// and most answers do not come in flushes, or if the client read late.
fn together(evidence: &Evidence<'_>) -> Option<(f64, String, String)> {
    let (mut answers, mut events, mut arrivals, mut waited_ms) = (0, 0, 0, 0.0);
    for request in evidence.completed().filter(|request| !request.chunks.is_empty()) {
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
    if events > TOGETHER {
        let measured = format!("{events:.1} events arrive together, as from a proxy that gathers them");
        return Some((events, measured, format!("{TOGETHER}")));
    }
    let completed = evidence.completed();
    let (flushed, judged) = flushed(completed.map(|request| &request.chunks))?;
    Some((
        events,
        format!(
            "{flushed} of {judged} answers arrive in flushes, as from a proxy that gathers events: {events:.2} events at a moment on average"
        ),
        format!(
            "several events at {} of the moments, in half of the answers",
            percent(FLUSHED)
        ),
    ))
}

/// Returns the number of answers in flushes and the number of judged answers. `None` unless most of these are
/// in flushes.
pub(super) fn flushed<'c>(answers: impl Iterator<Item = &'c Chunks>) -> Option<(usize, usize)> {
    let shares: Vec<f64> = answers.filter_map(several).collect();
    let flushed = shares.iter().filter(|share| **share > FLUSHED).count();
    (shares.len() >= FEW_ANSWERS && 2 * flushed > shares.len()).then_some((flushed, shares.len()))
}

/// Returns the share of the moments of an answer that hold several events. The first and the last moment are
/// left out, because any server may send two events there.
fn several(chunks: &Chunks) -> Option<f64> {
    let (first, last) = (chunks.first()?, chunks.last()?);
    let gaps = chunks.len().checked_sub(1).filter(|gaps| *gaps > FEW_MOMENTS)?;
    let mean = last.at_ns.saturating_sub(first.at_ns) as f64 / gaps as f64;
    let nearly = AT_ONCE_NS.max((NEARLY * mean) as u64);
    let mut moments = vec![1usize];
    for (before, next) in chunks.pairs() {
        match next.at_ns.saturating_sub(before.at_ns) > nearly {
            true => moments.push(1),
            false => *moments.last_mut()? += 1,
        }
    }
    let inner = moments.get(1..moments.len() - 1)?;
    let several = inner.iter().filter(|events| **events > 1).count();
    (inner.len() >= FEW_MOMENTS).then(|| several as f64 / inner.len() as f64)
}

/// Returns the number of tokens that the engine accepted at a time, by its counters. Infinite if it reports
/// only that it accepted some.
pub(super) fn counted_together(engine: &EngineWindow) -> Option<f64> {
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
fn made_together(evidence: &Evidence<'_>) -> Option<f64> {
    let summary = evidence.summary;
    let engine = summary.telemetry.as_ref().and_then(|told| told.engine.as_ref());
    if let Some(counted) = engine.and_then(counted_together) {
        return Some(counted);
    }
    let is_set = |name: &str| {
        let value = summary.engine.info.as_ref().and_then(|info| info.get(name));
        value.is_some_and(|value| !value.is_null())
    };
    let launch = evidence.launch;
    let words = launch.argv(launch.usual_port());
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
pub(super) fn named(requests: &[Request], ours: &[&str], listed: &[String]) -> Option<Reason> {
    let completed = || requests.iter().filter(|request| request.is_completed());
    let is_other = |name: &&String| !ours.iter().any(|ours| is_same_model(ours, name));
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    let mut strange = 0;
    for request in completed() {
        let mut names = request.models.iter().filter(is_other).peekable();
        strange += usize::from(names.peek().is_some());
        names.for_each(|name| *others.entry(name.as_str()).or_default() += 1);
    }
    let all = completed().count();
    if strange == 0 {
        return named_as_base(completed(), ours.first()?);
    }
    let names: Vec<String> = others.keys().map(|name| format!("`{name}`")).collect();
    let mut reason = found(
        Code::WrongModel,
        format!("{strange} of {all} answers name the model {}", names.join(", ")),
        ours.first().map(|served| format!("`{served}`")),
    );
    let is_alias = others
        .keys()
        .all(|name| listed.iter().any(|listed| listed == name));
    if strange == all && others.len() == 1 {
        match (listed.is_empty(), is_alias) {
            (false, true) => {
                reason
                    .measured
                    .push_str(", which is among those that the server lists");
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
fn named_as_base<'r>(completed: impl Iterator<Item = &'r Request>, served: &str) -> Option<Reason> {
    let is_served = |name: &String| is_same_model(served, name);
    let (based, all) = completed.fold((0, 0), |(based, all), request| {
        (based + u32::from(request.models.iter().any(is_served)), all + 1)
    });
    (based > 0).then(|| {
        let mut reason = found(
            Code::WrongModel,
            format!("{based} of {all} answers name `{served}`, and their requests asked for another model or adapter"),
            Some("the one that was asked for".to_owned()),
        );
        reason.weight = Verdict::Suspect;
        reason
    })
}

/// Judges what the engine reported to serve when the measurement was over.
fn served(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let (facts, launch) = (&evidence.summary.engine, evidence.launch);
    if !facts.models.is_empty() && !facts.models.contains(&launch.served) {
        reasons.push(found(
            Code::WrongModel,
            facts.models.join(", "),
            Some(launch.served.clone()),
        ));
    }
    let told = facts.info.as_ref().and_then(precision_of);
    if let (Some(told), Some(asked)) = (told, &launch.precision)
        && let (Some(a), Some(b)) = (family_of_precision(&told), family_of_precision(asked))
        && a != b
    {
        reasons.push(found(Code::WrongPrecision, told, Some(asked.clone())));
    }
}

/// Returns the precision in a live configuration: its quantization, or else the type of its computations.
fn precision_of(info: &Value) -> Option<String> {
    let text = |name: &str| {
        info.get(name)?
            .as_str()
            .filter(|text| !text.is_empty() && *text != "auto")
    };
    text("quantization").or_else(|| text("dtype")).map(str::to_owned)
}

/// Returns the kind of numbers of a precision. `None` for unknown names.
pub(crate) fn family_of_precision(name: &str) -> Option<&'static str> {
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
    use super::family_of_precision;

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
            assert_eq!(family_of_precision(name), kind, "{name}");
        }
    }
}
