//! Texts with placeholders and secrets.
//!
//! `{port}` and similar placeholders are known only when an engine starts; `${NAME}` names a secret in the
//! environment of `matrix`. A [`Text`] keeps both as written, so that printed and stored texts contain the
//! name and never the value.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::Value;

use crate::config::forms;

/// A piece of a [`Text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Plain characters.
    Plain(&'a str),
    /// `{name}`: a placeholder, filled from the plan or at the start.
    Hole(&'a str),
    /// `${NAME}`: a secret, the value of an environment variable.
    Secret(&'a str),
}

/// A scalar exactly as it is spelled, which may hold `{hole}`s and `${SECRET}`s: `1.10`, `no` and `017` reach the engine's command line
/// unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// Creates a text from its written form.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The written form, including placeholders and names of secrets.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pieces in order. A brace that begins no placeholder is a plain character, so that arguments may
    /// contain JSON.
    pub fn pieces(&self) -> Vec<Piece<'_>> {
        let text = self.0.as_str();
        let (mut pieces, mut plain, mut at) = (Vec::new(), 0, 0);
        while let Some(found) = text[at..].find('{') {
            let open = at + found;
            let Some(close) = text[open..].find('}').map(|length| open + length) else {
                break;
            };
            let name = &text[open + 1..close];
            let secret = open > plain && text.as_bytes()[open - 1] == b'$' && is_variable(name);
            let start = if secret { open - 1 } else { open };
            if secret || is_hole(name) {
                if start > plain {
                    pieces.push(Piece::Plain(&text[plain..start]));
                }
                pieces.push(if secret {
                    Piece::Secret(name)
                } else {
                    Piece::Hole(name)
                });
                plain = close + 1;
                at = plain;
            } else {
                at = open + 1;
            }
        }
        if plain < text.len() {
            pieces.push(Piece::Plain(&text[plain..]));
        }
        pieces
    }

    /// Names of the secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.pieces().into_iter().filter_map(|piece| match piece {
            Piece::Secret(name) => Some(name),
            _ => None,
        })
    }

    /// The holes it has.
    pub(crate) fn holes(&self) -> impl Iterator<Item = &str> {
        self.pieces().into_iter().filter_map(|piece| match piece {
            Piece::Hole(name) => Some(name),
            _ => None,
        })
    }

    /// Fills the placeholders that `value` knows. Other placeholders and all secrets stay.
    pub fn fill(&self, value: &dyn Fn(&str) -> Option<String>) -> Text {
        let mut filled = String::with_capacity(self.0.len());
        for piece in self.pieces() {
            match piece {
                Piece::Plain(text) => filled.push_str(text),
                Piece::Hole(name) => match value(name) {
                    Some(text) => filled.push_str(&text),
                    None => filled.push_str(&format!("{{{name}}}")),
                },
                Piece::Secret(name) => filled.push_str(&format!("${{{name}}}")),
            }
        }
        Text(filled)
    }

    /// Fills all placeholders and secrets. The result is only for the engine, never for a file or the
    /// terminal.
    ///
    /// # Errors
    /// The first hole or secret without a value.
    pub(crate) fn reveal(
        &self,
        hole: &dyn Fn(&str) -> Option<String>,
        secret: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, Unfilled> {
        let mut revealed = String::with_capacity(self.0.len());
        for piece in self.pieces() {
            match piece {
                Piece::Plain(text) => revealed.push_str(text),
                Piece::Hole(name) => {
                    revealed.push_str(&hole(name).ok_or_else(|| Unfilled::Hole(name.to_owned()))?);
                }
                Piece::Secret(name) => {
                    revealed.push_str(&secret(name).ok_or_else(|| Unfilled::Secret(name.to_owned()))?);
                }
            }
        }
        Ok(revealed)
    }
}

/// Why a text could not be filled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfilled {
    /// A placeholder without a value.
    #[error("nothing fills `{{{0}}}`")]
    Hole(String),
    /// A secret that the environment lacks.
    #[error(
        "the environment variable `{0}` is not set; export it before the run (its value is never written down)"
    )]
    Secret(String),
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(forms::TEXT, Spelled)
    }
}

struct Spelled;

impl<'de> Visitor<'de> for Spelled {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, `true` or `false`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text::new(text))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Text(text)),
            value @ (Value::Bool(_) | Value::Number(_)) => Ok(Text(value.to_string())),
            _ => Err(D::Error::custom("expected a text, a number, `true` or `false`")),
        }
    }
}

impl JsonSchema for Text {
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

fn is_hole(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn is_variable(name: &str) -> bool {
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
        let text = Text::new(r#"--x={model} {"a": {"b": 1}} ${HF_TOKEN}!"#);
        assert_eq!(
            text.pieces(),
            [
                Piece::Plain("--x="),
                Piece::Hole("model"),
                Piece::Plain(r#" {"a": {"b": 1}} "#),
                Piece::Secret("HF_TOKEN"),
                Piece::Plain("!"),
            ]
        );
    }

    #[test]
    fn filling_keeps_what_it_does_not_know() {
        let text = Text::new("{model}:{port}:${KEY}");
        let filled = text.fill(&|name| (name == "model").then(|| "m".to_owned()));
        assert_eq!(filled.as_str(), "m:{port}:${KEY}");
        let all = filled.reveal(&|_| Some("1".into()), &|_| Some("s".into()));
        assert_eq!(all.as_deref(), Ok("m:1:s"));
        assert_eq!(
            filled.reveal(&|_| Some("1".into()), &|_| None),
            Err(Unfilled::Secret("KEY".into()))
        );
    }
}
