//! Two stored runs as the sides of an upgrade.

use super::answers::wrong_answers;
use super::{Upgrade, find_changes};
use crate::analysis::compare::pairwise::Comparison;
use crate::analysis::graded::sides::{GradedRun, SidePair, compare_sides};
use crate::base::ids::CellKey;
use crate::results::record::upgrade::UpgradeRecord;

/// Two stored runs, the baseline first.
pub(crate) struct StoredUpgrade<'a> {
    pub(crate) runs: [GradedRun<'a>; 2],
    /// Pairs of cells of both.
    pub(crate) pairs: &'a [(CellKey, CellKey)],
}

impl StoredUpgrade<'_> {
    /// Returns the upgrade between two runs with these metrics. Resources of separate runs are not compared.
    pub(crate) fn judge(&self, record: &UpgradeRecord, speed: Comparison) -> Upgrade {
        let [baseline, candidate] = self.runs;
        let pairs = self.pairs.iter();
        let answers: Vec<SidePair<'_>> = pairs
            .filter_map(|(from, to)| Some(SidePair::new(candidate.cell(to)?, from, Ok(baseline))))
            .collect();
        let mut launches = self.runs.iter().flat_map(|run| &run.plan.launches);
        Upgrade {
            sides: record.values.clone(),
            changes: find_changes(&speed, record, &[], &[]),
            resources: Vec::new(),
            answers: compare_sides(&answers),
            wrong_answers: wrong_answers(&answers),
            is_simulated: launches.any(|launch| launch.engine.simulated),
            is_sequential: true,
            speed,
        }
    }
}
