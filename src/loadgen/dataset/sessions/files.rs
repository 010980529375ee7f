//! Reads the files of a trace, whatever their format.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::DatasetError;
use super::super::jsonl::parse_value;
use super::recorded::{Place, RecordedSession};
use super::{dag, mooncake, otel, weka};
use crate::base::regular_file;
use crate::config::dataset::agentic_sessions::{Replay, TraceFormat};

/// A mark at the beginning of text files that some editors write.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The sessions of a file, or of all `.json` and `.jsonl` files of a folder in the order of their names; at most `most`.
pub(super) fn read(path: &Path, replay: &Replay, most: usize) -> Result<Vec<RecordedSession>, DatasetError> {
    let mut sessions = Vec::new();
    for path in files(path)? {
        if sessions.len() >= most {
            break;
        }
        let values = read_values(&path)?;
        let Some((first, _)) = values.first() else {
            continue;
        };
        let format = match replay.format {
            Some(format) => format,
            None => recognize(first).ok_or_else(|| unknown_format(&path))?,
        };
        let missing = most - sessions.len();
        sessions.extend(match format {
            TraceFormat::Weka => weka_sessions(&values, sessions.len() as u64, missing)?,
            TraceFormat::Mooncake => mooncake_sessions(&values, replay.trace_block(), missing)?,
            TraceFormat::Dag => dag::sessions(&values, missing)?,
            TraceFormat::Otel => otel::sessions(&values, sessions.len() as u64, missing)?,
        });
    }
    match sessions.is_empty() {
        true => Err(Place::new(path, None)
            .malformed("no session was found; write the path of a file or folder with recorded sessions")),
        false => Ok(sessions),
    }
}

fn weka_sessions(
    values: &[(Value, Place)],
    before: u64,
    most: usize,
) -> Result<Vec<RecordedSession>, DatasetError> {
    let numbered = (before..).zip(values);
    numbered
        .take(most)
        .map(|(number, (value, place))| weka::session(value, number, place))
        .collect()
}

fn mooncake_sessions(
    values: &[(Value, Place)],
    block: u32,
    most: usize,
) -> Result<Vec<RecordedSession>, DatasetError> {
    let mut lines = mooncake::Lines::new(block);
    for (value, place) in values {
        lines.read(value, place, most)?;
    }
    Ok(lines.finish())
}

/// Returns the format of a file whose first value this is.
fn recognize(first: &Value) -> Option<TraceFormat> {
    let has = |keys: &[&str]| keys.iter().any(|key| first.get(key).is_some());
    if has(&["resourceSpans", "spans", "spanId", "span_id", "context"]) {
        Some(TraceFormat::Otel)
    } else if has(&["requests"]) {
        Some(TraceFormat::Weka)
    } else if has(&["turns", "orchestrator"]) {
        Some(TraceFormat::Dag)
    } else if has(&["hash_ids", "input_length"]) {
        Some(TraceFormat::Mooncake)
    } else {
        None
    }
}

fn unknown_format(path: &Path) -> DatasetError {
    let names = TraceFormat::ALL
        .map(|format| format!("`{}`", format.name()))
        .join(", ");
    Place::new(path, None).malformed(format!(
        "the format of the file was not recognized from its first value. Set one of the formats {names}; the next error then \
         shows what is missing. Write `agentic_sessions: {{ format: … }}`, or `--session-format` for `matrix bench`"
    ))
}

fn unreadable(path: &Path, error: std::io::Error) -> DatasetError {
    DatasetError::Unreadable {
        path: path.to_owned(),
        error,
    }
}

/// What is wrong with a text that is no JSON, and what to do.
fn json_fault(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.strip_prefix("number out of range") {
        Some(place) => format!("a number{place} is too large for a 64-bit float; correct it"),
        None => format!(
            "the text is not valid JSON: {message}; a trace has one JSON value, a list of values, or one value in each line"
        ),
    }
}

/// The files of traces in a folder, in the order of their names; any other path stands for itself.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).and_then(|entries| {
        let paths = entries.map(|entry| Ok(entry?.path()));
        paths.collect::<Result<Vec<_>, std::io::Error>>()
    });
    let mut files = entries.map_err(|error| unreadable(path, error))?;
    let is_trace = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        // Pipes and devices are kept, so that reading names them.
        !path.is_dir() && matches!(ending, Some("json" | "jsonl"))
    };
    files.retain(is_trace);
    files.sort();
    match files.is_empty() {
        true => {
            Err(Place::new(path, None).malformed("the folder has no files ending in `.json` or `.jsonl`"))
        }
        false => Ok(files),
    }
}

/// The values of a file with their lines: one for each line, or one for the file, or those of its list.
fn read_values(path: &Path) -> Result<Vec<(Value, Place)>, DatasetError> {
    let read = regular_file::check(path).and_then(|()| fs::read_to_string(path));
    let text = read.map_err(|error| unreadable(path, error))?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    let mut lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty());
    let Some((_, first)) = lines.next() else {
        return Ok(Vec::new());
    };
    let is_by_line =
        parse_value(first).is_ok() && (lines.next().is_some() || !first.trim_start().starts_with('['));
    if !is_by_line {
        let place = Place::new(path, None);
        let value = parse_value(text).map_err(|error| place.malformed(json_fault(&error)))?;
        return Ok(match value {
            Value::Array(list) => list.into_iter().map(|value| (value, place.clone())).collect(),
            value => vec![(value, place)],
        });
    }
    let lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            let place = Place::new(path, Some(number));
            match parse_value(line.trim()) {
                Ok(value) => Ok((value, place)),
                Err(error) => Err(place.malformed(json_fault(&error))),
            }
        })
        .collect()
}
