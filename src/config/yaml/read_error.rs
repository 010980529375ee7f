//! Errors of reading one value, on the way from serde to a [`Diagnostic`] with a place.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use super::diagnostic::Diagnostic;
use super::suggest;

/// The reader's error. Serde creates it without a place; the first node on its way out adds one.
#[derive(Debug)]
pub(super) struct ReadError(pub Box<ErrorState>);

#[derive(Debug)]
pub(super) enum ErrorState {
    /// Not yet at a node.
    Unplaced(ReadErrorKind),
    Placed(PlacedError),
    /// The rest of the file cannot be read.
    Fatal(Diagnostic),
}

#[derive(Debug)]
pub(super) struct PlacedError {
    pub(crate) diagnostic: Diagnostic,
    /// Identifies equal reports, so that an aliased value is reported once.
    pub(crate) dedup_key: String,
    /// Path of the entry or element to leave out in the next pass; empty for the root.
    pub(crate) omitted_path: Vec<usize>,
    /// The key of that entry.
    pub(crate) omitted_key: Option<String>,
    /// Whether the error only follows from an entry that was left out.
    pub(crate) is_consequence: bool,
}

#[derive(Debug)]
pub(super) enum ReadErrorKind {
    /// The value has the wrong type; `instead` is the correct text, if known.
    Expected {
        expected: String,
        help: Option<String>,
        instead: Option<String>,
    },
    /// An error of the value's own type.
    Custom(String),
    /// A required key is missing.
    Missing(String),
    /// A word that is not among the known ones.
    Unknown {
        word: String,
        known: &'static [&'static str],
    },
}

impl ReadError {
    pub(super) fn unplaced(what: ReadErrorKind) -> Self {
        Self(Box::new(ErrorState::Unplaced(what)))
    }

    pub(super) fn expected(expected: impl Into<String>) -> Self {
        Self::unplaced(ReadErrorKind::Expected {
            expected: expected.into(),
            help: None,
            instead: None,
        })
    }

    pub(super) fn fatal(diagnostic: Diagnostic) -> Self {
        Self(Box::new(ErrorState::Fatal(diagnostic)))
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            ErrorState::Placed(PlacedError { diagnostic, .. }) | ErrorState::Fatal(diagnostic) => {
                f.write_str(&diagnostic.message)
            }
            ErrorState::Unplaced(ReadErrorKind::Custom(message)) => f.write_str(message),
            ErrorState::Unplaced(ReadErrorKind::Expected { expected, .. }) => {
                write!(f, "expected {expected}")
            }
            ErrorState::Unplaced(ReadErrorKind::Missing(key)) => write!(f, "missing key `{key}`"),
            ErrorState::Unplaced(ReadErrorKind::Unknown { word, .. }) => write!(f, "unknown value `{word}`"),
        }
    }
}

impl std::error::Error for ReadError {}

impl Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::unplaced(ReadErrorKind::Custom(message.to_string()))
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expected(suggest::describe_expected(&expected.to_string()))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expected(suggest::describe_bounds(&expected.to_string()))
    }

    fn invalid_length(len: usize, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("found {len} values, expected {expected}"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::unplaced(ReadErrorKind::Unknown {
            word: variant.to_owned(),
            known: expected,
        })
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::unknown_variant(field, expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::unplaced(ReadErrorKind::Missing(field.to_owned()))
    }
}
