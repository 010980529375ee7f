//! What a session reports before its first event, and the question that it asks.

use crate::base::ids::{CellKey, RunId};
use crate::runner::preflight::Finding;

/// Receives reports of a session that is being opened.
pub(crate) trait Observer: Sync {
    fn notice(&self, notice: Notice);

    /// Whether finished measurements that no longer fit the matrix may be set aside and repeated.
    fn accepts_replacement(&self, outdated: &Outdated) -> bool;
}

/// A report that does not stop a run.
#[derive(Debug)]
pub(crate) enum Notice {
    Note(String),
    Warning(String),
    /// A line about the matrix, with its level.
    Matrix(String),
    /// An input that may be missing.
    Input(Finding),
    /// What the preflight does at present.
    Progress(String),
}

/// Finished measurements of a resumed run that no longer fit the matrix.
#[derive(Debug)]
pub(crate) struct Outdated {
    pub(crate) run: RunId,
    pub(crate) measurements: usize,
    /// Their cells in the order of the plan.
    pub(crate) cells: Vec<CellKey>,
}
