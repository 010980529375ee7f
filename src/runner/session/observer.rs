//! Reports and questions of a session before its first event.

use crate::base::ids::{CellKey, RunId};
use crate::runner::preflight::UnmetRequirement;

/// Receives the reports of a session while it opens.
pub(crate) trait Observer: Sync {
    fn notice(&self, notice: Notice);

    /// Whether finished measurements that no longer match the matrix may be moved aside and repeated.
    fn accepts_replacement(&self, outdated: &OutdatedMeasurements) -> bool;
}

/// A report that does not stop a run.
#[derive(Debug)]
pub(crate) enum Notice {
    Note(String),
    Warning(String),
    /// A line about the matrix, with its level.
    Matrix(String),
    /// An input that may be missing.
    Input(UnmetRequirement),
    /// The current step of the preflight.
    Progress(String),
}

/// Finished measurements of a resumed run that no longer match the matrix.
#[derive(Debug)]
pub(crate) struct OutdatedMeasurements {
    pub(crate) run: RunId,
    pub(crate) measurements: usize,
    /// Their cells, in the order of the plan.
    pub(crate) cells: Vec<CellKey>,
}
