//! Compares one answer with what its request demands.

use std::borrow::Cow;

use serde_json::Value;

use super::super::chunk_texts;
use super::constraint::{Constraint, TextRule, ToolChoice, ToolRule};
use super::schema::{Mismatch, Schema};
use crate::results::record::request::{
    AnswerCheck, IncorrectClass, Request, UncheckedClass, is_limit_finish,
};
use crate::results::record::tool_call::ToolCall;

/// Whether an answer fulfils a demand, or what else is to be recorded.
type Checked = Result<(), AnswerCheck>;

pub(super) fn incorrect(class: IncorrectClass, message: impl Into<String>) -> AnswerCheck {
    AnswerCheck::Incorrect {
        class,
        message: message.into(),
    }
}

fn unchecked(class: UncheckedClass, message: &str) -> AnswerCheck {
    AnswerCheck::Unchecked {
        class,
        message: message.to_owned(),
    }
}

fn cut_off() -> AnswerCheck {
    unchecked(
        UncheckedClass::Cut,
        "the limit of output tokens cut the answer; an incomplete answer is not checked",
    )
}

/// Checks a completed answer; `None` if its request demands nothing of it.
pub(super) fn check_answer(request: &Request, constraint: &Constraint) -> Option<AnswerCheck> {
    let calls = request.tool_calls.as_slice();
    let must_call = |rule: &&ToolRule| matches!(rule.choice, ToolChoice::Required | ToolChoice::Named(_));
    let tools = constraint
        .tools
        .as_ref()
        .filter(|rule| !calls.is_empty() || must_call(rule));
    if tools.is_none() && constraint.text.is_none() && constraint.expected.is_none() {
        return None;
    }
    let answer = Answer::of(request);
    let checked = match (tools, &constraint.text) {
        (Some(rule), _) => answer.check_calls(rule),
        (None, Some(rule)) => answer.check_text(rule),
        (None, None) => Ok(()),
    };
    let checked = checked.and_then(|()| {
        let expected = constraint.expected.as_ref();
        expected.map_or(Ok(()), |expected| answer.check_expected(expected))
    });
    Some(checked.err().unwrap_or(AnswerCheck::Correct))
}

/// An answer with how it ended.
pub(super) struct Answer<'a> {
    request: &'a Request,
    calls: &'a [ToolCall],
    /// Whether it ended at the limit of output tokens.
    is_cut: bool,
    /// Whether reasoning may stand in the text.
    has_inline_reasoning: bool,
}

impl<'a> Answer<'a> {
    pub(super) fn of(request: &'a Request) -> Self {
        Self {
            is_cut: request.finish.as_deref().is_some_and(is_limit_finish),
            calls: request.tool_calls.as_slice(),
            has_inline_reasoning: false,
            request,
        }
    }

    /// Takes what the text has before its last `</think>` as reasoning: servers without a parser for it send it as text.
    pub(super) const fn with_inline_reasoning(mut self) -> Self {
        self.has_inline_reasoning = true;
        self
    }

    fn check_text(&self, rule: &TextRule) -> Checked {
        let text = self.text()?;
        match rule {
            TextRule::Json(schema) => {
                let value = self.json(&text, IncorrectClass::NotJson, "the answer")?;
                validate(schema, &value, IncorrectClass::Schema, "the answer")
            }
            TextRule::Text(schema) => {
                let value = Value::String(text.into_owned());
                let checked = validate(schema, &value, IncorrectClass::Schema, "the answer");
                // A longer text might fulfil it.
                checked.map_err(|wrong| if self.is_cut { cut_off() } else { wrong })
            }
        }
    }

    fn check_calls(&self, rule: &ToolRule) -> Checked {
        match (self.calls, &rule.choice) {
            ([], _) if self.is_cut => return Err(cut_off()),
            ([], _) => {
                let why = "the answer calls no tool, although one is required";
                return Err(incorrect(IncorrectClass::NoToolCall, why));
            }
            (_, ToolChoice::Forbidden) => {
                let why = "the answer calls a tool, although `tool_choice` is `none`";
                return Err(incorrect(IncorrectClass::SurplusToolCall, why));
            }
            _ => {}
        }
        if self.calls.len() > 1 && !rule.may_be_several {
            let why = "the answer has several tool calls, although `parallel_tool_calls` is false";
            return Err(incorrect(IncorrectClass::SurplusToolCall, why));
        }
        self.calls.iter().try_for_each(|call| self.check_call(call, rule))
    }

    fn check_call(&self, call: &ToolCall, rule: &ToolRule) -> Checked {
        let unknown = |why: &str| Err(incorrect(IncorrectClass::UnknownTool, why));
        if let ToolChoice::Named(only) = &rule.choice
            && call.name != *only
        {
            return unknown(&format!(
                "the request requires a call of the tool `{only}`, but the answer calls another tool"
            ));
        }
        let Some(parameters) = rule.tools.get(&call.name) else {
            return unknown("the answer calls a tool that its request does not offer or allow");
        };
        // A tool without parameters may be called without arguments.
        let arguments = match trimmed_json(&call.arguments) {
            "" if !self.is_cut => "{}",
            arguments => arguments,
        };
        let what = format!("the arguments of `{}`", call.name);
        let arguments = self.json(arguments, IncorrectClass::Arguments, &what)?;
        if !arguments.is_object() {
            let why = format!("the arguments of `{}` are not a JSON object", call.name);
            return Err(incorrect(IncorrectClass::Arguments, why));
        }
        let parameters = parameters.as_ref();
        parameters.map_or(Ok(()), |schema| {
            validate(schema, &arguments, IncorrectClass::Arguments, &what)
        })
    }

    pub(super) fn check_expected(&self, expected: &Value) -> Checked {
        let unexpected = || {
            Err(incorrect(
                IncorrectClass::Unexpected,
                "the answer is not the expected one",
            ))
        };
        if let Some(calls) = expected.get("tool_calls").and_then(Value::as_array) {
            let is_same = calls.len() == self.calls.len()
                && calls
                    .iter()
                    .zip(self.calls)
                    .all(|(expected, call)| is_call(call, expected));
            return if is_same { Ok(()) } else { unexpected() };
        }
        if !self.calls.is_empty() {
            return unexpected();
        }
        let text = self.text()?;
        match expected {
            Value::String(expected) => {
                let (expected, text) = (expected.trim(), text.trim());
                match expected == text {
                    true => Ok(()),
                    false if self.is_cut && expected.starts_with(text) => Err(cut_off()),
                    false => unexpected(),
                }
            }
            expected => match is_same_json(
                expected,
                &self.json(&text, IncorrectClass::NotJson, "the answer")?,
            ) {
                true => Ok(()),
                false => unexpected(),
            },
        }
    }

    /// Returns the text of the answer without its reasoning: that of the events at its end, if they have another one.
    pub(super) fn text(&self) -> Result<Cow<'_, str>, AnswerCheck> {
        let text = self.text_of_answer()?;
        Ok(match self.has_inline_reasoning {
            true => Cow::Owned(after_reasoning(&text).to_owned()),
            false => text,
        })
    }

    fn text_of_answer(&self) -> Result<Cow<'_, str>, AnswerCheck> {
        let lost = || unchecked(UncheckedClass::TextLost, "the text of the answer was not kept");
        let ending = self.request.final_answer.as_deref();
        if ending.is_some_and(|ending| ending.is_refusal) {
            return Err(incorrect(
                IncorrectClass::Unexpected,
                "the model refuses to answer",
            ));
        }
        let ended = ending.and_then(|ending| ending.text.as_ref());
        let stored = ended.or(self.request.text.as_ref()).ok_or_else(lost)?;
        let text = stored.read();
        if text.len() != stored.len() {
            return Err(lost());
        }
        if ended.is_some() {
            return Ok(text);
        }
        let Some(pieces) = chunk_texts(self.request, &text).filter(|_| self.request.chunks.has_reasoning())
        else {
            return Ok(text);
        };
        let chunks = self.request.chunks.iter().zip(pieces);
        let answer = chunks.filter(|(chunk, _)| !chunk.kind.is_reasoning());
        Ok(Cow::Owned(answer.map(|(_, piece)| piece).collect()))
    }

    /// Parses one JSON value and nothing else. `what` names it in a message.
    fn json(&self, text: &str, class: IncorrectClass, what: &str) -> Result<Value, AnswerCheck> {
        let text = trimmed_json(text);
        serde_json::from_str(text).map_err(|error| {
            if error.is_eof() && self.is_cut {
                return cut_off();
            }
            if text.is_empty() {
                let class = match class {
                    IncorrectClass::NotJson => IncorrectClass::Empty,
                    class => class,
                };
                return incorrect(class, format!("{what} has no text"));
            }
            // The parser bounds its recursion and its numbers, where JSON has no bounds.
            let said = error.to_string();
            if said.starts_with("recursion limit exceeded") {
                return unchecked(
                    UncheckedClass::TooComplex,
                    "the JSON of the answer has more than 127 levels",
                );
            }
            if said.starts_with("number out of range") {
                return unchecked(
                    UncheckedClass::TooComplex,
                    "the JSON of the answer has a number beyond 1.8e308",
                );
            }
            incorrect(class, format!("{what}: not JSON: {error}"))
        })
    }
}

/// Returns what follows inline reasoning; nothing if that was cut off.
fn after_reasoning(text: &str) -> &str {
    match text.rsplit_once("</think>") {
        Some((_, answer)) => answer,
        None if text.trim_start().starts_with("<think>") => "",
        None => text,
    }
}

/// Returns a text without the white space that JSON allows around a value.
fn trimmed_json(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r'])
}

fn validate(schema: &Schema, value: &Value, class: IncorrectClass, what: &str) -> Checked {
    schema.validate(value).map_err(|mismatch| match mismatch {
        Mismatch::TooComplex(why) => unchecked(UncheckedClass::TooComplex, why),
        Mismatch::Wrong(why) => incorrect(class, format!("{what}: {why}")),
    })
}

fn is_call(call: &ToolCall, expected: &Value) -> bool {
    let expected = expected.get("function").unwrap_or(expected);
    let arguments = expected
        .get("arguments")
        .cloned()
        .unwrap_or_else(|| Value::Object(Default::default()));
    // OpenAI's API writes them as a text.
    let arguments = match &arguments {
        Value::String(text) => serde_json::from_str(text).unwrap_or(arguments),
        _ => arguments,
    };
    let own = match trimmed_json(&call.arguments) {
        "" => "{}",
        own => own,
    };
    expected.get("name").and_then(Value::as_str) == Some(&call.name)
        && serde_json::from_str(own).is_ok_and(|own: Value| is_same_json(&own, &arguments))
}

/// Whether two JSON values are equal; numbers by their value, so that 1 equals 1.0.
fn is_same_json(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same_json(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in_other = |(key, value): (&String, &Value)| {
                other.get(key).is_some_and(|other| is_same_json(value, other))
            };
            one.len() == other.len() && one.iter().all(is_in_other)
        }
        (one, other) => one == other,
    }
}
