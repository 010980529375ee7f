//! What was read from one file.

use super::declared::DeclaredFacts;
use super::result_block::{ResultBlock, Warning};

/// The content of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImportedFile {
    /// File name without folders.
    pub(super) file: String,
    pub(super) results: Vec<ResultBlock>,
    pub(super) declared: DeclaredFacts,
    /// Warnings about the file as a whole.
    pub(super) warnings: Vec<Warning>,
}

impl ImportedFile {
    /// Sets the declared facts; those of the file have precedence.
    pub(crate) fn with_declared(self, declared: DeclaredFacts) -> Self {
        Self { declared, ..self }
    }
}
