//! Did the engine answer what it was asked, and as it says?

use serde_json::Value;

use super::{Evidence, found, percent};
use crate::judge::metrics::Metric;
use crate::results::record::telemetry::Source;
use crate::results::record::validity::{Code, Reason};

/// Below this many output tokens a difference in counts is an accident.
const FEW_TOKENS: f64 = 100.0;

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    errors(evidence, reasons);
    short(evidence, reasons);
    counts(evidence, reasons);
    chunks(evidence, reasons);
    served(evidence, reasons);
}

fn errors(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let all = evidence.requests.len();
    let failed = all - evidence.completed().count();
    let bound = evidence.cell.scenario.limits.error_share;
    if failed as f64 > bound * all as f64 {
        let share = failed as f64 / all as f64;
        reasons.push(found(
            Code::Errors,
            format!("{failed} of {all} requests failed ({})", percent(share)),
            Some(percent(bound)),
        ));
    }
}

/// Answers that end early make throughput look better and load the engine less.
fn short(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    if evidence.cell.scenario.stop_at_eos {
        return;
    }
    // Only what the engine itself says counts: text may split into fewer tokens than made it.
    let reported: Vec<(u32, u32)> = evidence
        .completed()
        .filter_map(|request| {
            let in_events = || request.chunks.iter().rev().find_map(|chunk| chunk.tokens);
            let told = request
                .usage
                .and_then(|usage| usage.completion)
                .or_else(in_events)?;
            Some((told, request.asked_tokens))
        })
        .collect();
    let short = reported.iter().filter(|(told, asked)| told < asked).count();
    if short as f64 > evidence.bounds.short_outputs * reported.len() as f64 {
        let (told, asked) = reported.iter().fold((0u64, 0u64), |(told, asked), (a, b)| {
            (told + u64::from(*a), asked + u64::from(*b))
        });
        reasons.push(found(
            Code::OutputShort,
            format!(
                "{short} of {} answers; {told} of {asked} tokens came",
                reported.len()
            ),
            Some(format!(
                "{} of the answers",
                percent(evidence.bounds.short_outputs)
            )),
        ));
    }
}

/// Whether the engine's own metrics were read on both sides of the window. Those of a search are of all its points together.
fn was_heard(evidence: &Evidence<'_>) -> bool {
    if evidence.summary.search.is_some() {
        return false;
    }
    let sources = evidence
        .summary
        .telemetry
        .iter()
        .flat_map(|telemetry| &telemetry.sources);
    sources
        .filter(|facts| facts.source == Source::Engine)
        .all(|facts| facts.is_bracketed && facts.trouble.is_none())
}

/// What answers report, what the engine's counters say, what our tokenizer counts.
fn counts(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let reported: f64 = evidence
        .requests
        .iter()
        .filter_map(|request| request.usage?.completion)
        .map(f64::from)
        .sum();
    if reported < FEW_TOKENS {
        return;
    }
    let counter = evidence
        .summary
        .telemetry
        .as_ref()
        .and_then(|telemetry| telemetry.engine.as_ref())
        .filter(|engine| engine.reset.is_empty() && was_heard(evidence))
        .and_then(|engine| engine.grown.get("generation_tokens"));
    // Of a failed request the engine knows more than its answers tell.
    let all_ended = evidence.requests.iter().all(|request| request.is_completed());
    if let Some(counter) = counter.filter(|_| all_ended) {
        let apart = (counter - reported).abs() / reported;
        if apart > evidence.bounds.tokens {
            reasons.push(found(
                Code::TokensDisagree,
                format!(
                    "{reported} output tokens in answers, {counter} by the engine's counter ({})",
                    percent(apart)
                ),
                Some(percent(evidence.bounds.tokens)),
            ));
            return;
        }
    }
    let both: Vec<(f64, f64)> = evidence
        .completed()
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
    if told.min(own) <= 0.0 || told < FEW_TOKENS {
        return;
    }
    let factor = (told / own).max(own / told);
    if factor > evidence.bounds.own_tokens {
        reasons.push(found(
            Code::TokensDisagree,
            format!("{told} output tokens by the engine, {own} by our tokenizer (factor {factor:.2})"),
            Some(format!("factor {}", evidence.bounds.own_tokens)),
        ));
    }
}

fn chunks(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let bound = evidence.bounds.tokens_per_chunk;
    if let Some(tokens) = evidence
        .figure(Metric::TokensPerChunk)
        .filter(|tokens| *tokens > bound)
    {
        reasons.push(found(
            Code::ChunkedTokens,
            format!("{tokens:.2} tokens per event"),
            Some(format!("{bound}")),
        ));
    }
}

/// What the engine says it serves, when the measurement was over.
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
        && let (Some(a), Some(b)) = (family(&told), family(asked))
        && a != b
    {
        reasons.push(found(Code::WrongPrecision, told, Some(asked.clone())));
    }
}

/// The precision that a live configuration tells: its quantization, else the type it computes in.
fn precision_of(info: &Value) -> Option<String> {
    let text = |name: &str| {
        info.get(name)?
            .as_str()
            .filter(|text| !text.is_empty() && *text != "auto")
    };
    text("quantization").or_else(|| text("dtype")).map(str::to_owned)
}

/// The kind of number that a name of a precision stands for; `None` for names that we do not know.
fn family(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let has = |part: &str| name.contains(part);
    if has("fp8") || has("float8") || has("e4m3") {
        Some("fp8")
    } else if has("fp4") || has("float4") {
        Some("fp4")
    } else if has("awq") || has("gptq") || has("int4") || has("w4a16") {
        Some("int4")
    } else if has("int8") || has("w8a8") {
        Some("int8")
    } else if has("bf16") || has("bfloat16") || has("fp16") || has("float16") || name == "half" {
        Some("16-bit")
    } else if has("fp32") || has("float32") {
        Some("32-bit")
    } else {
        None
    }
}
