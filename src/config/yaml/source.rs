//! YAML files, and places in them.

use std::ops::Range;
use std::sync::Arc;

/// A YAML file: its displayed name and its text.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The name shown in messages, usually the path as the user gave it.
    pub(crate) name: String,
    /// The whole text, as read.
    pub(crate) text: Arc<str>,
}

impl Source {
    /// A source from its name and text.
    pub(crate) fn new(name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
        }
    }
}

/// A key with the name of an earlier version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RenamedKey {
    pub(crate) place: SourceSpan,
    pub(crate) old_name: String,
    pub(crate) new_name: &'static str,
}

/// A byte range in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceSpan {
    /// Name of the [`Source`].
    pub(crate) file: Arc<str>,
    /// Byte range in its text.
    pub(crate) range: Range<usize>,
}
