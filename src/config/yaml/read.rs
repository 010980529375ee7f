//! Reads a file to a typed value.

use serde::de::DeserializeOwned;

use super::context::YamlContext;
use super::diagnostic::Diagnostic;
use super::node::Value;
use super::parse::{self, Document};
use super::reader::NodeDeserializer;
use super::source::{RenamedKey, Source};
use super::suggest::current_names;

/// Reads a file and as many errors as possible; `None` only if nothing usable remains.
///
/// Serde stops at the first wrong value. So the value is left out and the file read again, until nothing new comes.
pub(crate) fn read<T: DeserializeOwned>(source: &Source) -> (Option<T>, Vec<Diagnostic>) {
    let reading = read_with_renames(source);
    (reading.value, reading.diagnostics)
}

/// Adds an error for each of these keys that a file lacks at its top level, besides those that are known: serde stops at the first.
pub(crate) fn add_missing_keys(source: &Source, required: &[String], diagnostics: &mut Vec<Diagnostic>) {
    let Ok(Document { root, .. }) = parse::parse(source) else {
        return;
    };
    let Value::Map(entries) = &root.node.value else {
        return;
    };
    let context = YamlContext::new(&source.name);
    let keys = || entries.iter().filter_map(|(key, _)| key.text());
    for key in required {
        let is_present = keys().flat_map(current_names).any(|name| name == key);
        // A key whose name was misspelt is not missing.
        let is_misspelt = diagnostics
            .iter()
            .any(|known| known.replacement.as_ref().is_some_and(|(_, name)| name == key));
        let message = format!("missing key `{key}`");
        if !is_present && !is_misspelt && diagnostics.iter().all(|known| known.message != message) {
            let place = context.place(&root.node.mark);
            diagnostics.push(Diagnostic::new(message).with_place(&place, format!("needs `{key}`")));
        }
    }
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
