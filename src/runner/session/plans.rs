//! The plan of a run, which grows by extra starts.

use std::collections::BTreeSet;

use crate::analysis::compare::extra_starts::StartCounts;
use crate::base::ids::CellKey;
use crate::plan::{Plan, Start};

/// The plan of a run, and the part of it that is measured.
#[derive(Debug)]
pub(super) struct RunPlans {
    /// The whole plan, as it is saved.
    pub(super) whole: Plan,
    /// The selected cells, with the GPUs of the run.
    pub(super) selected: Plan,
}

/// Starts that run next, with their plan.
pub(super) struct Batch {
    pub(super) plan: Plan,
    pub(super) starts: Vec<Start>,
}

impl Batch {
    pub(super) fn measurement_count(&self) -> usize {
        count_measurements(&self.starts)
    }
}

impl RunPlans {
    /// Adds starts of selected cells to both plans, and returns the added starts.
    pub(super) fn add_starts(&mut self, mut starts: StartCounts) -> Vec<Start> {
        let selected: BTreeSet<&CellKey> = self.selected.cells.iter().map(|cell| &cell.key).collect();
        starts.retain(|key, _| selected.contains(key));
        let added = self.whole.add_starts(&starts);
        self.selected.starts.extend(added.iter().cloned());
        added
    }
}

pub(super) fn count_measurements(starts: &[Start]) -> usize {
    starts.iter().map(|start| start.cells.len()).sum()
}
