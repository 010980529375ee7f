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
mod shorthand;
mod source;
mod spanned;
mod suggest;
mod syntax;
#[cfg(test)]
mod tests;

pub(crate) use diagnostic::Diagnostic;
pub(crate) use read::read;
pub(crate) use read::{ReadResult, add_missing_keys, read_with_renames};
pub(crate) use render::render;
pub(crate) use source::RenamedKey;
pub(crate) use source::{Source, SourceSpan};
pub(crate) use spanned::Spanned;
pub(crate) use suggest::backtick_list;
pub(crate) use suggest::nearest_name;
