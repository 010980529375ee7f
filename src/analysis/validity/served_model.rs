//! Checks that the engine serves the requested model in the planned precision.

use std::collections::BTreeMap;

use serde_json::Value;

use super::evidence::Evidence;
use super::reason::new_reason;
use crate::results::record::request::{Request, is_same_model};
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    judge_served_model(evidence, reasons);
    let launch = evidence.launch;
    let ours = [&launch.served_model_name, &launch.model, &launch.checkpoint].map(String::as_str);
    reasons.extend(model_name_reason(
        evidence.requests,
        &ours,
        &evidence.summary.engine.models,
    ));
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
            Some("answers must name the requested model or adapter".to_owned()),
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
