//! Accepts JSON as Python does: repairs events that are not strict JSON but that `json.loads` accepts, and
//! parses them again.
//!
//! Python accepts `NaN`, `Infinity`, lone surrogates and repeated keys (the last one wins). An invalid token
//! count loses its value, but does not fail the answer.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::decoded::BorrowedStr;

/// Reads a token count. A fraction is truncated; anything else that is not a count becomes `None`.
pub(super) fn token_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let count = any_count(deserializer)?;
    Ok(count
        .filter(|count| *count <= f64::from(u32::MAX))
        .map(|count| count as u32))
}

/// Reads a count of prompt tokens as [`token_count`] does. A count beyond `u32` becomes its maximum, so that it is
/// judged against what was sent.
pub(super) fn prompt_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    // A conversion from a float saturates.
    Ok(any_count(deserializer)?.map(|count| count as u32))
}

/// Reads seconds, as a number or its text; anything else becomes `None`.
pub(super) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let number = match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    Ok(number.filter(|seconds| seconds.is_finite() && *seconds >= 0.0))
}

/// Reads a text; anything else becomes `None`.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BorrowedStr<'de>>, D::Error> {
    let text = match Value::deserialize(deserializer)? {
        Value::String(text) => Some(BorrowedStr(Cow::Owned(text))),
        _ => None,
    };
    Ok(text)
}

fn any_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let number = match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_f64(),
        _ => None,
    };
    Ok(number.filter(|count| *count >= 0.0))
}

/// Returns the text as strict JSON; `None` if Python would reject it too.
pub(super) fn repair(text: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(&to_strict(text)).ok()?;
    // A usage report that is not an object has no information.
    if let Value::Object(event) = &mut value {
        for key in ["usage", "meta_info"] {
            if event.get(key).is_some_and(|report| !report.is_object()) {
                event.shift_remove(key);
            }
        }
    }
    Some(value.to_string())
}

/// Replaces the words and escapes that only Python accepts.
fn to_strict(text: &str) -> String {
    let (mut strict, mut rest) = (String::with_capacity(text.len()), text);
    let mut is_quoted = false;
    while let Some(first) = rest.chars().next() {
        let taken = match (is_quoted, first) {
            (_, '"') => {
                is_quoted = !is_quoted;
                strict.push('"');
                1
            }
            (true, '\\') => {
                let (escape, length) = leading_escape(rest);
                strict.push_str(escape);
                length
            }
            (false, '-' | 'N' | 'I') => {
                let words = ["-Infinity", "Infinity", "NaN"];
                match words.into_iter().find(|word| rest.starts_with(word)) {
                    Some(word) => {
                        strict.push_str("null");
                        word.len()
                    }
                    None => {
                        strict.push(first);
                        1
                    }
                }
            }
            _ => {
                strict.push(first);
                first.len_utf8()
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    strict
}

/// Returns the escape at the start of a text and the length it had there. A lone surrogate becomes the
/// replacement character.
fn leading_escape(text: &str) -> (&str, usize) {
    const UNKNOWN: &str = "\\ufffd";
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    match (unit(0), unit(6)) {
        (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (&text[..12], 12),
        (Some(0xD800..=0xDFFF), _) => (UNKNOWN, 6),
        (Some(_), _) => (&text[..6], 6),
        (None, _) => {
            let length = 1 + text[1..].chars().next().map_or(0, char::len_utf8);
            (&text[..length], length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_count_of_prompt_tokens_stays_when_it_is_too_large() {
        for (text, count, prompt) in [
            ("7", Some(7), Some(7)),
            ("7.9", Some(7), Some(7)),
            ("4294967295", Some(u32::MAX), Some(u32::MAX)),
            ("4294967296", None, Some(u32::MAX)),
            ("1000000000000", None, Some(u32::MAX)),
            ("1e300", None, Some(u32::MAX)),
            ("-1", None, None),
            ("null", None, None),
            ("\"7\"", None, None),
        ] {
            let read = token_count(&mut serde_json::Deserializer::from_str(text)).unwrap();
            assert_eq!(read, count, "{text}");
            let read = prompt_count(&mut serde_json::Deserializer::from_str(text)).unwrap();
            assert_eq!(read, prompt, "{text}");
        }
    }

    #[test]
    fn what_python_reads_is_repaired_and_nothing_else() {
        for (text, expected) in [
            (
                r#"{"a":NaN,"b":-Infinity,"c":Infinity,"d":-1}"#,
                r#"{"a":null,"b":null,"c":null,"d":-1}"#,
            ),
            (r#"{"a":"NaN \" Infinity"}"#, r#"{"a":"NaN \" Infinity"}"#),
            (r#"{"a":"x\ud83dy"}"#, "{\"a\":\"x\u{fffd}y\"}"),
            (r#"{"a":"\ude00\ud83d\ude00"}"#, "{\"a\":\"\u{fffd}😀\"}"),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#),
            (r#"{"usage":[1],"meta_info":{"x":1}}"#, r#"{"meta_info":{"x":1}}"#),
        ] {
            assert_eq!(repair(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["{", "{\"a\":nan}", "{\"a\":\"\\", "{\"a\":\"\\u12\"}", "{\"é\\é"] {
            assert_eq!(repair(text), None, "{text}");
        }
    }
}
