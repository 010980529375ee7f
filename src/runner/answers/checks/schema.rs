//! JSON schemas, compiled.

use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::recursion::{References, depth};

/// Steps of a regular expression that looks around or back; others need no limit.
const MAX_BACKTRACKS: usize = 100_000;

/// Steps of a schema that refers to itself: their growth with each level, to the power of the levels of the answer.
const MAX_RECURSIVE_STEPS: usize = 100_000;

/// Largest number of references that a check may follow.
const MAX_REFERENCES: usize = 100_000;

/// Largest number of characters of an error that is kept.
const MAX_MESSAGE_CHARS: usize = 300;

/// A compiled JSON schema.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    validator: Arc<Validator>,
    steps_per_level: usize,
}

/// Why a value does not fulfil a schema.
#[derive(Debug, PartialEq)]
pub(super) enum Mismatch {
    /// What is wrong and where, without the value itself.
    Wrong(String),
    /// It needs too many steps, so that it is not known.
    TooComplex(&'static str),
}

impl Schema {
    /// Compiles a schema, without reading any file or address that it names.
    ///
    /// # Errors
    /// It is no schema, or it refers to a document elsewhere.
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        let references = References::new(schema);
        if references.count_followed() > MAX_REFERENCES {
            return Err(format!(
                "the JSON schema is too complex: its references lead to more than {MAX_REFERENCES} parts"
            ));
        }
        // Most patterns need no backtracking, and then their time grows with the text only.
        let linear = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex())
            .build(schema);
        let built = linear.or_else(|_| {
            jsonschema::options()
                .offline()
                .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS))
                .build(schema)
        });
        built
            .map(|validator| Self {
                validator: Arc::new(validator),
                steps_per_level: references.steps_per_level(),
            })
            .map_err(|error| format!("the JSON schema is invalid: {}", shortened(&error.to_string())))
    }

    pub(super) fn validate(&self, value: &Value) -> Result<(), Mismatch> {
        let steps = self.steps_per_level.checked_pow(depth(value));
        if steps.is_none_or(|steps| steps > MAX_RECURSIVE_STEPS) {
            return Err(Mismatch::TooComplex(
                "the schema refers to itself in several places, and the answer is nested too deeply for a complete check",
            ));
        }
        self.validator.validate(value).map_err(|error| {
            if exceeds_limit(&error) {
                return Mismatch::TooComplex("a regular expression of the schema needs too many steps");
            }
            let place = error.instance_path().to_string();
            let at = match place.is_empty() {
                true => String::new(),
                false => format!(" at `{place}`"),
            };
            Mismatch::Wrong(shortened(&format!("{}{at}", error.masked())))
        })
    }
}

fn exceeds_limit(error: &ValidationError<'_>) -> bool {
    match error.kind() {
        ValidationErrorKind::BacktrackLimitExceeded { .. } => true,
        ValidationErrorKind::AnyOf { context }
        | ValidationErrorKind::OneOfNotValid { context }
        | ValidationErrorKind::OneOfMultipleValid { context } => context.iter().flatten().any(exceeds_limit),
        _ => false,
    }
}

fn shortened(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}…", &message[..end]),
    }
}
