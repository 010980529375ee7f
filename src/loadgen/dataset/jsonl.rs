//! Reads and writes JSON as Python does: JSON lines files, and JSON texts whose tokens are counted.
//!
//! A lone surrogate reads as U+FFFD. Unlike Python, it rejects `NaN` and `Infinity`.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

use super::DatasetError;
use crate::config::dataset::DatasetName;

/// The lines of a file, with numbers from 1.
pub(super) struct Lines {
    text: String,
}

impl Lines {
    pub(super) fn read(path: &Path) -> Result<Self, DatasetError> {
        let text = fs::read_to_string(path).map_err(|error| DatasetError::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        Ok(Self { text })
    }

    /// Returns the lines that are not blank.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = (1..).zip(self.text.lines());
        numbered
            .map(|(number, line)| (number, line.trim()))
            .filter(|(_, line)| !line.is_empty())
    }

    /// Returns the lines that are JSON and skips the others.
    pub(super) fn values(&self) -> impl Iterator<Item = (usize, Value)> {
        self.iter()
            .filter_map(|(number, line)| Some((number, parse_value(line).ok()?)))
    }
}

/// Reads the `timestamp` of a row, in milliseconds on the clock of its file.
pub(super) fn row_timestamp(timestamp: Option<&Value>) -> Result<Duration, &'static str> {
    timestamp
        .and_then(Value::as_f64)
        .and_then(|at_ms| Duration::try_from_secs_f64(at_ms / 1000.0).ok())
        .ok_or("the row has no `timestamp` in milliseconds")
}

/// Parses JSON in which lone surrogates are allowed.
pub(super) fn parse_value(json: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(json).or_else(|error| match without_lone_surrogates(json) {
        Some(valid) => serde_json::from_str(&valid),
        None => Err(error),
    })
}

/// Replaces every escaped lone surrogate by U+FFFD; `None` if there is none.
fn without_lone_surrogates(json: &str) -> Option<String> {
    let unit = |at: usize| -> Option<u16> {
        let escape = json.get(at..at + 6)?;
        u16::from_str_radix(escape.strip_prefix("\\u")?, 16).ok()
    };
    let (mut valid, mut done, mut at) = (String::new(), 0, 0);
    while let Some(offset) = json[at..].find('\\') {
        let here = at + offset;
        at = match unit(here) {
            Some(0xD800..=0xDBFF) if matches!(unit(here + 6), Some(0xDC00..=0xDFFF)) => here + 12,
            Some(0xD800..=0xDFFF) => {
                valid.push_str(&json[done..here]);
                valid.push_str("\\ufffd");
                done = here + 6;
                done
            }
            // The character after a backslash begins no escape, even if it is a backslash.
            _ => here + 1 + json[here + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    (done > 0).then(|| valid + &json[done..])
}

/// Returns the error for a line of the wrong form.
pub(super) fn malformed_line(dataset: DatasetName, path: &Path, number: usize, reason: &str) -> DatasetError {
    DatasetError::Malformed {
        dataset,
        path: path.to_owned(),
        reason: format!("line {number}: {reason}"),
    }
}

/// Formats a value as Python's `json.dumps`.
pub(super) fn python_json(value: &Value) -> String {
    let mut bytes = Vec::new();
    value
        .serialize(&mut Serializer::with_formatter(&mut bytes, PythonFormatter))
        .expect("a JSON value has string keys, and memory takes all that is written");
    String::from_utf8(bytes).expect("only ASCII is written")
}

/// A space after commas and colons; only ASCII.
struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        for character in fragment.chars() {
            if character.is_ascii() {
                writer.write_all(&[character as u8])?;
            } else {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lone_surrogates_are_mended_and_pairs_kept() {
        let text = r#"{"a": "\ud83dx\\ud83d\ud83d\ude00\udc00", "b": "\\\ud800"}"#;
        assert_eq!(
            parse_value(text).unwrap(),
            json!({"a": "\u{fffd}x\\ud83d😀\u{fffd}", "b": "\\\u{fffd}"})
        );
        assert!(parse_value(r#"{"a": "\ud83d""#).is_err());
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let value = json!([{"type": "function", "é": ["\n", 1, 0.5, null, {}]}, "😀\u{7f}"]);
        assert_eq!(
            python_json(&value),
            "[{\"type\": \"function\", \"\\u00e9\": [\"\\n\", 1, 0.5, null, {}]}, \"\\ud83d\\ude00\u{7f}\"]"
        );
    }

    #[test]
    fn blank_lines_and_lines_that_are_no_json_are_passed_over() {
        let lines = Lines {
            text: "{\"a\": 1}\n\n  \nno\r\n[2]\n".to_owned(),
        };
        assert_eq!(
            lines.values().collect::<Vec<_>>(),
            [(1, json!({"a": 1})), (5, json!([2]))]
        );
    }
}
