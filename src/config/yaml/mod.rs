//! The reader behind every YAML file: text to typed values that remember where they were written.
//!
//! It finds every mistake it can in one go and says what is wrong, where, and how to mend it. The type that is
//! asked for decides how a value is read, never its spelling: `no`, `1.10` and `017` are texts where a text is wanted.
//! It refuses to touch files, and to know what any key means; of other tools it knows how they call ours (`suggest`).

mod context;
mod diagnostic;
mod draw;
mod entries;
mod error;
mod node;
mod reader;
mod scalar;
mod spanned;
mod special;
mod suggest;
mod syntax;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

pub(crate) use diagnostic::Mistake;
pub use draw::draw;
pub use reader::read;
pub(crate) use reader::{Reading, read_with_names};
pub(crate) use spanned::Spanned;
pub(crate) use suggest::listed;
pub(crate) use suggest::nearest;

/// One YAML file: the name shown in messages, and its text.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name shown in messages, usually the path as the user gave it.
    pub name: String,
    /// The whole text, as read.
    pub text: Arc<str>,
}

impl Source {
    /// A source from its name and text.
    pub fn new(name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
        }
    }
}

/// A key that is written by the name that it had in earlier versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Renamed {
    /// Where it is written.
    pub place: Place,
    /// The name that is written.
    pub earlier: String,
    pub today: &'static str,
}

/// A byte range in one of the files read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of the [`Source`].
    pub file: Arc<str>,
    /// Bytes of its text.
    pub range: Range<usize>,
}
