//! `--print-requests`: a line for the beginning and one for the end of every request.
//!
//! The Python tool writes them while it measures. Here they are written when the last request has ended, from the records and in
//! the order of their moments, so that nothing is written while times are taken.

use serde_json::{Map, Value, json};

use crate::analysis::metrics;
use crate::base::ids::ContentHash;
use crate::report::bench_serving::bench_line::BenchRecords;
use crate::report::bench_serving::python::literal;
use crate::results::record::request::Request;

/// The lines of requests, whose moments count from `zero_s`, in seconds since 1970. `asked` gives the fields of `RequestFuncInput`.
///
/// Source: docs/bench-serving.md 2.4.
pub(crate) fn lines(
    details: &BenchRecords<'_>,
    zero_s: f64,
    asked: impl Fn(&Request) -> Option<Value>,
) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for request in details.requests {
        // One that never began says nothing.
        let (Some(sent), Some(asked)) = (request.sent_ns, asked(request)) else {
            continue;
        };
        let id = id(zero_s, request.index);
        let at = |moment_ns: u64| zero_s + seconds(moment_ns);
        lines.push((
            sent,
            format!(
                "rid={id} time={} message=\"request start\" request_func_input=\"{}\"\n",
                at(sent),
                object("RequestFuncInput", &asked)
            ),
        ));
        lines.push((
            request.end_ns,
            format!(
                "rid={id} time={} time_delta={} message=\"request end\" output=\"{}\"\n",
                at(request.end_ns),
                seconds(request.end_ns.saturating_sub(sent)),
                object("RequestFuncOutput", &answered(details, request, sent))
            ),
        ));
    }
    lines.sort_by_key(|(at, _)| *at);
    lines.into_iter().map(|(_, line)| line).collect()
}

/// What came. Left out is what no record holds: the texts of chunks, and what single requests say of speculative decoding.
fn answered(details: &BenchRecords<'_>, request: &Request, sent_ns: u64) -> Value {
    let held = metrics::bench_serving_view(request, details.protocol, details.profile, details.as_published);
    let latency_ns = request.last_line_ns.filter(|_| request.is_completed());
    let usage = request.usage.unwrap_or_default();
    let failure = request.failure.as_ref();
    json!({
        "generated_text": "...",
        "success": request.is_completed(),
        "latency": latency_ns.map_or(0.0, |end| seconds(end.saturating_sub(sent_ns))),
        "ttft": held.ttft_s,
        "tpot": null,
        "itl": held.itl_s,
        "prompt_len": usage.prompt.unwrap_or(request.prompt_tokens),
        "error": match failure {
            Some(failure) => failure.message.clone(),
            None if request.cancelled => "the client cancelled the request as planned".to_owned(),
            None => String::new(),
        },
        "output_len": held.tokens,
        "start_time": seconds(sent_ns),
        "cached_tokens": usage.cached.unwrap_or(0),
        "cached_tokens_details": request.cached,
    })
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// An object as the `repr` of Python's data classes writes it.
fn object(class: &str, fields: &Value) -> String {
    let none = Map::new();
    let fields = fields.as_object().unwrap_or(&none).iter();
    let fields: Vec<String> = fields
        .map(|(key, value)| format!("{key}={}", literal(value)))
        .collect();
    format!("{class}({})", fields.join(", "))
}

/// A name in the form of a UUID that ties the two lines of a request together. It is drawn from nothing, so that no draw of the
/// load depends on whether lines are printed.
fn id(zero_s: f64, index: u32) -> String {
    let hex = ["a", "b"].map(|half| ContentHash::from_value(&(half, zero_s.to_bits(), index)).to_string());
    let hex = hex.concat();
    format!(
        "{}-{}-4{}-8{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..32]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_what_python_prints_and_a_name_has_the_form_of_a_uuid() {
        let fields = json!({"prompt": "...", "lora_name": null, "itl": [0.5, 1.0], "error": "it's"});
        assert_eq!(
            object("Request", &fields),
            r#"Request(prompt='...', lora_name=None, itl=[0.5, 1.0], error="it's")"#
        );
        let id = id(1.5, 3);
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
        assert_ne!(id, super::id(1.5, 4));
    }
}
