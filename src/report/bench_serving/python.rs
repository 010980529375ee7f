//! Numbers and JSON in Python's format, so that readers of the Python tool's output get the same bytes.

use serde_json::Value;

/// Formats a float like Python's `repr`: the shortest digits that parse to the same value, always with `.0`
/// or an exponent.
///
/// Source: docs/bench-serving.md 9 and 14.4.
pub(crate) fn repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let (digits, exponent) = digits_and_exponent(&format!("{value:e}"));
    if (-4..16).contains(&exponent) {
        let text = format!("{value}");
        return if text.contains('.') { text } else { text + ".0" };
    }
    scientific(&digits, exponent)
}

/// Formats a number like Python's `%g`: six significant digits without trailing zeros.
///
/// Source: docs/bench-serving.md 8.1 row 21 and 14.4.
pub(in crate::report) fn format_g(value: f64) -> String {
    if !value.is_finite() {
        return repr(value);
    }
    let (digits, exponent) = digits_and_exponent(&format!("{value:.5e}"));
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        return without_trailing_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    scientific(without_trailing_zeros(&digits), exponent)
}

/// Formats JSON with Python's separators, floats as `repr`, and non-ASCII characters escaped.
///
/// Source: docs/bench-serving.md 9. The result is strict JSON, since a [`Value`] cannot hold `Infinity` or
/// `NaN`.
pub(in crate::report) fn json(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value);
    text
}

/// Formats a value like Python's `repr`.
pub(crate) fn literal(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => repr(float),
            None => number.to_string(),
        },
        Value::String(text) => {
            let quote = if text.contains('\'') && !text.contains('"') {
                '"'
            } else {
                '\''
            };
            let mut out = String::from(quote);
            for character in text.chars() {
                match character {
                    '\\' => out.push_str("\\\\"),
                    '\n' => out.push_str("\\n"),
                    '\r' => out.push_str("\\r"),
                    '\t' => out.push_str("\\t"),
                    same if same == quote => out.extend(['\\', same]),
                    other => out.push(other),
                }
            }
            out.push(quote);
            out
        }
        Value::Array(values) => format!("[{}]", joined(values.iter().map(literal).collect())),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                format!("{}: {}", literal(&Value::String(key.clone())), literal(value))
            };
            format!("{{{}}}", joined(fields.iter().map(field).collect()))
        }
    }
}

fn write(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => out.push_str(&repr(float)),
            None => out.push_str(&number.to_string()),
        },
        Value::String(text) => write_string(out, text),
        Value::Array(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write(out, value);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (at, (key, value)) in fields.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write_string(out, key);
                out.push_str(": ");
                write(out, value);
            }
            out.push('}');
        }
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
}

fn digits_and_exponent(text: &str) -> (String, i32) {
    let (digits, exponent) = text.split_once('e').expect("`{:e}` writes an exponent");
    let exponent = exponent.parse().expect("`{:e}` writes a whole exponent");
    (digits.to_owned(), exponent)
}

fn scientific(digits: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        for (value, expected) in [
            (f64::INFINITY, "inf"),
            (4.0, "4.0"),
            (20.25, "20.25"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (1e-5, "1e-05"),
            (1e-4, "0.0001"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (0.888_888_888_888_888_8, "0.8888888888888888"),
            (-0.0, "-0.0"),
        ] {
            assert_eq!(repr(value), expected);
        }
        for (value, expected) in [
            (50.0, "50"),
            (0.5, "0.5"),
            (1_234_567.0, "1.23457e+06"),
            (1e-5, "1e-05"),
            (0.0, "0"),
            (999_999.5, "1e+06"),
        ] {
            assert_eq!(format_g(value), expected);
        }
    }

    #[test]
    fn fixed_decimals_round_the_exact_value_to_even() {
        for (value, expected) in [
            (0.125, "0.12      "),
            (0.375, "0.38      "),
            (2.675, "2.67      "),
            (-0.001, "-0.00     "),
        ] {
            assert_eq!(format!("{value:<10.2}"), expected);
        }
        assert_eq!(format!("{:.1} {:.1}", 0.25, 0.35), "0.2 0.3");
    }

    #[test]
    fn json_has_pythons_separators_and_escapes() {
        let value = json!({"a": [1, 2.0, null, true], "é\"\n": "\u{1f600}\u{7f}"});
        assert_eq!(
            json(&value),
            r#"{"a": [1, 2.0, null, true], "\u00e9\"\n": "\ud83d\ude00\u007f"}"#
        );
    }

    #[test]
    fn a_literal_is_what_python_would_print() {
        let value = json!({"activities": ["CPU", "GPU"], "num_steps": 5, "by": false, "none": null, "q": "it's", "b": "a\\b", "f": 1.0});
        assert_eq!(
            literal(&value),
            r#"{'activities': ['CPU', 'GPU'], 'num_steps': 5, 'by': False, 'none': None, 'q': "it's", 'b': 'a\\b', 'f': 1.0}"#
        );
    }

    proptest! {
        #[test]
        fn a_float_reads_back_as_it_was(value in prop::num::f64::NORMAL | prop::num::f64::ZERO) {
            prop_assert_eq!(repr(value).parse::<f64>().unwrap(), value);
        }

        #[test]
        fn any_string_stays_json(text in any::<String>()) {
            let written = json(&Value::String(text.clone()));
            prop_assert!(written.is_ascii());
            prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
        }
    }
}
