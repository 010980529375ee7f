//! What is compared of requests, of the printed block and of the result file.

use std::path::Path;

use serde_json::{Map, Value};

use crate::recorder::Heard;

/// Headers that every client sets in its own way.
const CLIENT_HEADERS: [&str; 6] = [
    "host",
    "user-agent",
    "accept",
    "accept-encoding",
    "content-length",
    "connection",
];

/// Lines of the block whose values do not depend on time.
const EXACT: [&str; 5] = [
    "Successful requests:",
    "Failed requests:",
    "Maximum request concurrency:",
    "Total input tokens:",
    "Total generated tokens:",
];

/// Path, headers and body of each request, in order. Requests that are sent together are sorted by their ids.
pub(super) fn facts(heard: Vec<Heard>, is_ordered: bool) -> Vec<String> {
    let fact = |request: &Heard| {
        let name = |header: &String| header.split(':').next().unwrap_or_default().to_owned();
        let mut headers: Vec<&String> = request
            .headers
            .iter()
            .filter(|header| !CLIENT_HEADERS.contains(&name(header).as_str()))
            // vLLM's client names the type of a body that it does not send.
            .filter(|header| !request.body.is_null() || name(header) != "content-type")
            .collect();
        headers.sort();
        // The text has the fields in their order.
        format!("{} {headers:?} {}", request.path, request.body)
    };
    let mut facts: Vec<String> = heard.iter().map(fact).collect();
    if !is_ordered {
        facts.sort();
    }
    facts
}

/// The printed lines from the first one about the load on, with numbers that depend on time as `#`.
pub(super) fn masked_lines(printed: &str) -> Vec<String> {
    let lines = printed
        .lines()
        .skip_while(|line| !line.starts_with("Starting initial"));
    let lines = lines.filter(|line| !line.starts_with("tip:") && !line.starts_with("WARNING:"));
    lines.map(masked).collect()
}

fn masked(line: &str) -> String {
    let is_exact = EXACT.iter().any(|label| line.starts_with(label));
    match line.split_once(": ") {
        Some((label, value)) if !is_exact && value.trim().parse::<f64>().is_ok() => {
            let decimals = value
                .trim()
                .split_once('.')
                .map_or(0, |(_, decimals)| decimals.len());
            format!(
                "{label}: # with {decimals} decimals at {}",
                line.len() - value.trim_start().len()
            )
        }
        _ => line.to_owned(),
    }
}

/// The result files of a folder: their names without the date, and of each result its keys in order, with types, and its values that
/// do not depend on time.
pub(super) fn results(folder: &Path) -> Vec<(String, Vec<String>)> {
    let mut results = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("it is a folder") {
            let path = entry.expect("it can be read").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if !["stdout", "error"].contains(&name.as_str()) {
                let text = std::fs::read_to_string(&path).expect("it is text");
                let lines = text.split('\n').map(result).collect::<Vec<_>>().concat();
                results.push((without_date(&name), lines));
            }
        }
    }
    results.sort();
    results
}

/// Replaces a date such as `20261121-065311`.
fn without_date(name: &str) -> String {
    let is_date = |text: &str| {
        let mut characters = text.chars().enumerate();
        characters.all(|(at, character)| match at {
            8 => character == '-',
            _ => character.is_ascii_digit(),
        })
    };
    let place = (0..name.len().saturating_sub(14)).find(|at| name.get(*at..at + 15).is_some_and(is_date));
    place.map_or_else(
        || name.to_owned(),
        |at| format!("{}DATE{}", &name[..at], &name[at + 15..]),
    )
}

fn result(line: &str) -> Vec<String> {
    let object: Map<String, Value> = serde_json::from_str(line).expect("a line is an object");
    let is_timed = |key: &str| {
        key.ends_with("_ms")
            || key.ends_with("throughput")
            || [
                "date",
                "duration",
                "request_goodput",
                "rtfx",
                "ttfts",
                "itls",
                "latencies",
                "start_times",
                "queue_times",
            ]
            .contains(&key)
            || key.starts_with("max_output")
            || key.starts_with("max_concurrent_")
            || key == "rps_change_events"
    };
    let field = |(key, value): (&String, &Value)| match is_timed(key) {
        true => format!("{key}: {}", shape(value)),
        false => format!("{key}: {value}"),
    };
    object.iter().map(field).collect()
}

/// The types of a value.
fn shape(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if number.is_f64() => "float".to_owned(),
        Value::Number(_) => "int".to_owned(),
        Value::String(_) => "text".to_owned(),
        Value::Array(values) => format!("[{}]", values.iter().map(shape).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{key}: {}", shape(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}
