//! YAML files, and places in them.

use std::ops::Range;
use std::sync::Arc;

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
