//! Errors of reading one value, on the way from serde to a [`Mistake`] with a place.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use super::{Mistake, suggest};

/// The reader's error. Serde creates it without a place; the first node on its way out adds one.
#[derive(Debug)]
pub(super) struct Fault(pub Box<State>);

#[derive(Debug)]
pub(super) enum State {
    /// Not yet at a node.
    Loose(What),
    Placed(Placed),
    /// The rest of the file cannot be read.
    Fatal(Mistake),
}

#[derive(Debug)]
pub(super) struct Placed {
    pub mistake: Mistake,
    /// Identifies equal reports, so that an aliased value is reported once.
    pub sameness: String,
    /// Path of the entry or element to leave out in the next pass; empty for the root.
    pub owner: Vec<usize>,
    /// The key of that entry.
    pub stands_for: Option<String>,
    /// Whether the error only follows from an entry that was left out.
    pub is_consequent: bool,
}

#[derive(Debug)]
pub(super) enum What {
    /// The value has the wrong type; `instead` is the correct text, if known.
    Wanted {
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

impl Fault {
    pub(super) fn loose(what: What) -> Self {
        Self(Box::new(State::Loose(what)))
    }

    pub(super) fn wanted(expected: impl Into<String>) -> Self {
        Self::loose(What::Wanted {
            expected: expected.into(),
            help: None,
            instead: None,
        })
    }

    pub(super) fn fatal(mistake: Mistake) -> Self {
        Self(Box::new(State::Fatal(mistake)))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            State::Placed(Placed { mistake, .. }) | State::Fatal(mistake) => f.write_str(&mistake.message),
            State::Loose(What::Custom(message)) => f.write_str(message),
            State::Loose(What::Wanted { expected, .. }) => write!(f, "expected {expected}"),
            State::Loose(What::Missing(key)) => write!(f, "missing key `{key}`"),
            State::Loose(What::Unknown { word, .. }) => write!(f, "unknown value `{word}`"),
        }
    }
}

impl std::error::Error for Fault {}

impl Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::loose(What::Custom(message.to_string()))
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::wanted(suggest::plain(&expected.to_string()))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::wanted(suggest::bounded(&expected.to_string()))
    }

    fn invalid_length(len: usize, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("{len} values are given where {expected} is wanted"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::loose(What::Unknown {
            word: variant.to_owned(),
            known: expected,
        })
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::unknown_variant(field, expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::loose(What::Missing(field.to_owned()))
    }
}
