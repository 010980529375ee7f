//! Answers of a stored run, copied into the run whose answers are compared with them.

use serde::{Deserialize, Serialize};

use super::graded::GradedAnswers;
use crate::base::ids::{CellKey, RunId};

/// The answers of a stored run as they were when the run began that is compared with them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredAnswers {
    /// The stored run.
    pub(crate) run: RunId,
    /// Its cells with which cells of the run are compared.
    pub(crate) cells: Vec<StoredCellAnswers>,
}

/// The graded answers of a cell of a stored run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredCellAnswers {
    pub(crate) cell: CellKey,
    /// Those of its measurements, by start and repeat.
    pub(crate) measurements: Vec<GradedAnswers>,
}

impl StoredAnswers {
    /// The answers of a cell.
    pub(crate) fn cell(&self, key: &CellKey) -> Option<&StoredCellAnswers> {
        self.cells.iter().find(|cell| cell.cell == *key)
    }
}
