//! Texts with placeholders and secrets.
//!
//! `{port}` and similar placeholders are known only when an engine starts; `${NAME}` names a secret in the
//! environment of `matrix`. A [`Template`] keeps both as written, so that printed and stored texts contain the
//! name and never the value.

use std::fmt;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::Value;

use crate::config::forms::type_names;

/// A piece of a [`Template`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplatePart<'a> {
    Literal(&'a str),
    /// `{name}`: a placeholder, filled from the plan or at the start.
    Placeholder(&'a str),
    /// `${NAME}`: a secret, the value of an environment variable.
    Secret(&'a str),
}

/// A scalar exactly as written, which may contain placeholders such as `{port}` and secrets such as
/// `${HF_TOKEN}`. `1.10`, `no` and `017` reach the engine's command line unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub(crate) struct Template(String);

impl Template {
    /// Creates a text from its written form.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The written form, including placeholders and names of secrets.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the text is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pieces in order. A brace that begins no placeholder is a plain character, so that arguments may
    /// contain JSON.
    pub(crate) fn parts(&self) -> Vec<TemplatePart<'_>> {
        let text = self.0.as_str();
        let (mut pieces, mut literal_start, mut position) = (Vec::new(), 0, 0);
        while let Some(open_brace) = text[position..].find('{') {
            let open = position + open_brace;
            let Some(close) = text[open..].find('}').map(|length| open + length) else {
                break;
            };
            let name = &text[open + 1..close];
            let secret = open > literal_start && text.as_bytes()[open - 1] == b'$' && is_variable_name(name);
            let start = if secret { open - 1 } else { open };
            if secret || is_placeholder_name(name) {
                if start > literal_start {
                    pieces.push(TemplatePart::Literal(&text[literal_start..start]));
                }
                pieces.push(if secret {
                    TemplatePart::Secret(name)
                } else {
                    TemplatePart::Placeholder(name)
                });
                literal_start = close + 1;
                position = literal_start;
            } else {
                position = open + 1;
            }
        }
        if literal_start < text.len() {
            pieces.push(TemplatePart::Literal(&text[literal_start..]));
        }
        pieces
    }

    /// Names of the secrets.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.parts().into_iter().filter_map(|piece| match piece {
            TemplatePart::Secret(name) => Some(name),
            _ => None,
        })
    }

    /// Names of the placeholders.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.parts().into_iter().filter_map(|piece| match piece {
            TemplatePart::Placeholder(name) => Some(name),
            _ => None,
        })
    }

    /// Fills the placeholders that `value` knows. Other placeholders and all secrets stay.
    pub(crate) fn fill_placeholders(&self, value: &dyn Fn(&str) -> Option<String>) -> Template {
        let mut filled = String::with_capacity(self.0.len());
        for piece in self.parts() {
            match piece {
                TemplatePart::Literal(text) => filled.push_str(text),
                TemplatePart::Placeholder(name) => match value(name) {
                    Some(text) => filled.push_str(&text),
                    None => filled.push_str(&format!("{{{name}}}")),
                },
                TemplatePart::Secret(name) => filled.push_str(&format!("${{{name}}}")),
            }
        }
        Template(filled)
    }

    /// Fills all placeholders and secrets. The result is only for the engine, never for a file or the
    /// terminal.
    ///
    /// # Errors
    /// The first placeholder or secret without a value.
    pub(crate) fn expand(
        &self,
        hole: &dyn Fn(&str) -> Option<String>,
        secret: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, ExpandError> {
        let mut revealed = String::with_capacity(self.0.len());
        for piece in self.parts() {
            match piece {
                TemplatePart::Literal(text) => revealed.push_str(text),
                TemplatePart::Placeholder(name) => {
                    revealed.push_str(&hole(name).ok_or_else(|| ExpandError::Placeholder(name.to_owned()))?);
                }
                TemplatePart::Secret(name) => {
                    revealed.push_str(&secret(name).ok_or_else(|| ExpandError::Secret(name.to_owned()))?);
                }
            }
        }
        Ok(revealed)
    }
}

/// Why a text could not be filled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpandError {
    /// A placeholder without a value.
    #[error("the placeholder `{{{0}}}` has no value")]
    Placeholder(String),
    /// A secret that the environment lacks.
    #[error(
        "the environment variable `{0}` is not set; export it before the run (its value is never stored or printed)"
    )]
    Secret(String),
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Template {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(type_names::TEXT, Spelled)
    }
}

struct Spelled;

impl<'de> Visitor<'de> for Spelled {
    type Value = Template;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, `true` or `false`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Template, E> {
        Ok(Template::new(text))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Template, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Template(text)),
            value @ (Value::Bool(_) | Value::Number(_)) => Ok(Template(value.to_string())),
            _ => Err(D::Error::custom("expected a text, a number, `true` or `false`")),
        }
    }
}

#[cfg(test)]
impl JsonSchema for Template {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

fn is_placeholder_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.as_bytes()[0].is_ascii_digit()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_secrets_are_told_from_json() {
        let text = Template::new(r#"--x={model} {"a": {"b": 1}} ${HF_TOKEN}!"#);
        assert_eq!(
            text.parts(),
            [
                TemplatePart::Literal("--x="),
                TemplatePart::Placeholder("model"),
                TemplatePart::Literal(r#" {"a": {"b": 1}} "#),
                TemplatePart::Secret("HF_TOKEN"),
                TemplatePart::Literal("!"),
            ]
        );
    }

    #[test]
    fn filling_keeps_what_it_does_not_know() {
        let text = Template::new("{model}:{port}:${KEY}");
        let filled = text.fill_placeholders(&|name| (name == "model").then(|| "m".to_owned()));
        assert_eq!(filled.as_str(), "m:{port}:${KEY}");
        let all = filled.expand(&|_| Some("1".into()), &|_| Some("s".into()));
        assert_eq!(all.as_deref(), Ok("m:1:s"));
        assert_eq!(
            filled.expand(&|_| Some("1".into()), &|_| None),
            Err(ExpandError::Secret("KEY".into()))
        );
    }
}
