//! Values as Python writes them: `str` and `json.dumps`.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value as Jinja};
use serde_json::Value;

/// Writes a value as Python's `str` does: `True`, `None`, `['a']`.
pub(super) fn write_as_python(out: &mut Output, _: &mut State, value: &Jinja) -> Result<(), Error> {
    let written = match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::String => out.write_str(value.as_str().unwrap_or_default()),
        ValueKind::None | ValueKind::Bool | ValueKind::Number | ValueKind::Seq | ValueKind::Map => {
            let mut text = String::new();
            JsonStyle::PYTHON.write(&serde_json::to_value(value).map_err(json_error)?, 0, &mut text);
            out.write_str(&text)
        }
        _ => write!(out, "{value}"),
    };
    written.map_err(Error::from)
}

fn json_error(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::BadSerialization, error.to_string())
}

/// transformers' `tojson`: Python's `json.dumps` without escapes for HTML.
pub(super) fn tojson(value: &Jinja, options: Kwargs) -> Result<String, Error> {
    let value = serde_json::to_value(value).map_err(json_error)?;
    let indent: Option<usize> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let (between, after_key) = match separators.as_deref() {
        None if indent.is_some() => (",", ": "),
        None => (", ", ": "),
        Some([between, after_key]) => (between.as_str(), after_key.as_str()),
        Some(_) => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "`separators` are two strings",
            ));
        }
    };
    let style = JsonStyle {
        constants: ["null", "true", "false"],
        item_separator: between,
        key_separator: after_key,
        indent,
        quote: if ascii.unwrap_or(false) {
            quote_ascii
        } else {
            quote_json
        },
        is_sorted: sorted.unwrap_or(false),
    };
    let mut text = String::new();
    style.write(&value, 0, &mut text);
    Ok(text)
}

/// The format of nested values.
struct JsonStyle<'a> {
    /// The words for null, true and false.
    constants: [&'static str; 3],
    item_separator: &'a str,
    key_separator: &'a str,
    /// Spaces per level; `None` writes one line.
    indent: Option<usize>,
    quote: fn(&str, &mut String),
    is_sorted: bool,
}

impl JsonStyle<'static> {
    const PYTHON: Self = Self {
        constants: ["None", "True", "False"],
        item_separator: ", ",
        key_separator: ": ",
        indent: None,
        quote: quote_python,
        is_sorted: false,
    };
}

impl JsonStyle<'_> {
    fn write(&self, value: &Value, depth: usize, out: &mut String) {
        match value {
            Value::Null => out.push_str(self.constants[0]),
            Value::Bool(is) => out.push_str(self.constants[if *is { 1 } else { 2 }]),
            Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(float) => out.push_str(&python_float(float)),
                None => drop(write!(out, "{number}")),
            },
            Value::String(text) => (self.quote)(text, out),
            Value::Array(items) => self.list(('[', ']'), items.iter(), depth, out, |item, out| {
                self.write(item, depth + 1, out);
            }),
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                if self.is_sorted {
                    fields.sort_by_key(|(key, _)| *key);
                }
                self.list(('{', '}'), fields.into_iter(), depth, out, |(key, item), out| {
                    (self.quote)(key, out);
                    out.push_str(self.key_separator);
                    self.write(item, depth + 1, out);
                });
            }
        }
    }

    fn list<T>(
        &self,
        (open, close): (char, char),
        items: impl ExactSizeIterator<Item = T>,
        depth: usize,
        out: &mut String,
        write: impl Fn(T, &mut String),
    ) {
        let is_empty = items.len() == 0;
        let line = |depth: usize, out: &mut String| {
            if let Some(indent) = self.indent.filter(|_| !is_empty) {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent * depth));
            }
        };
        out.push(open);
        for (at, item) in items.enumerate() {
            if at > 0 {
                out.push_str(self.item_separator);
            }
            line(depth + 1, out);
            write(item, out);
        }
        line(depth, out);
        out.push(close);
    }
}

/// Formats a float as Python does: `1e+16` and `1e-05` where Rust writes `1e16` and `1e-5`.
fn python_float(float: f64) -> String {
    let text = format!("{float:?}");
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, digits) = exponent
        .strip_prefix('-')
        .map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

fn quote_json(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if u32::from(control) < 0x20 => drop(write!(out, "\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
}

fn quote_ascii(text: &str, out: &mut String) {
    let mut quoted = String::new();
    quote_json(text, &mut quoted);
    for char in quoted.chars() {
        // Python treats DEL as ASCII.
        if char.is_ascii() {
            out.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
}

fn quote_python(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control.is_ascii_control() => drop(write!(out, "\\x{:02x}", u32::from(control))),
            other if other == quote => {
                out.push('\\');
                out.push(other);
            }
            other => out.push(other),
        }
    }
    out.push(quote);
}
