//! The reader of all YAML files: text to typed values that remember their places.
//!
//! It reports as many errors as possible at once: what is wrong, where, and how to fix it. The requested type
//! decides how a value is read, not its spelling: `no`, `1.10` and `017` are texts where a text is expected.
//! It accesses no files and does not know the meaning of keys; it only knows the names that other tools use
//! for ours (`suggest`).

mod context;
mod diagnostic;
mod entries;
mod enum_access;
mod node;
mod parse;
mod read;
mod read_error;
mod reader;
mod render;
mod scalar;
mod spanned;
mod suggest;
mod syntax;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

pub(crate) use diagnostic::Diagnostic;
pub use read::read;
pub(crate) use read::{ReadResult, read_with_renames};
pub use render::render;
pub(crate) use spanned::Spanned;
pub(crate) use suggest::backtick_list;
pub(crate) use suggest::nearest_name;

/// A YAML file: its displayed name and its text.
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

/// A key with the name of an earlier version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RenamedKey {
    pub place: SourceSpan,
    /// The written name.
    pub old_name: String,
    pub new_name: &'static str,
}

/// A byte range in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpan {
    /// Name of the [`Source`].
    pub file: Arc<str>,
    /// Byte range in its text.
    pub range: Range<usize>,
}
