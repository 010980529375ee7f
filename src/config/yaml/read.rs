//! Reads a file to a typed value.

use serde::de::DeserializeOwned;

use super::context::YamlContext;
use super::diagnostic::Diagnostic;
use super::parse::{self, Document};
use super::reader::NodeDeserializer;
use super::source::{RenamedKey, Source};

/// Reads a file and as many errors as possible; `None` only if nothing usable remains.
///
/// Serde stops at the first wrong value. So the value is left out and the file read again, until nothing new comes.
pub(crate) fn read<T: DeserializeOwned>(source: &Source) -> (Option<T>, Vec<Diagnostic>) {
    let reading = read_with_renames(source);
    (reading.value, reading.diagnostics)
}

/// Result of reading a file.
pub(crate) struct ReadResult<T> {
    /// The value; `None` only if nothing usable remains.
    pub(crate) value: Option<T>,
    /// All errors that were found.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Keys with an earlier name.
    pub(crate) renamed: Vec<RenamedKey>,
}

/// Reads a file like [`read`], and also returns keys with an earlier name.
pub(crate) fn read_with_renames<T: DeserializeOwned>(source: &Source) -> ReadResult<T> {
    let Document {
        root,
        mut diagnostics,
    } = match parse::parse(source) {
        Ok(document) => document,
        Err(diagnostic) => {
            return ReadResult {
                value: None,
                diagnostics: vec![*diagnostic],
                renamed: Vec::new(),
            };
        }
    };
    let context = YamlContext::new(&source.name);
    let value = loop {
        match T::deserialize(NodeDeserializer::new(&context, &root)) {
            Ok(value) => break Some(value),
            Err(fault) => {
                if !context.recover_from(&root, fault) {
                    break None;
                }
            }
        }
    };
    let renamed = context.renamed();
    diagnostics.extend(context.into_diagnostics());
    ReadResult {
        value,
        diagnostics,
        renamed,
    }
}
