//! Two stored runs as the sides of an upgrade.

use super::Upgrade;
use super::answers::wrong_answers;
use super::changes::{Changes, find_changes, label_changes};
use crate::analysis::compare::pairwise::{Comparison, matched_keys};
use crate::analysis::graded::sides::{GradedRun, SidePair, compare_sides};
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::RunStats;
use crate::results::record::upgrade::UpgradeRecord;

/// Two stored runs, the baseline first.
pub(crate) struct StoredUpgrade<'a> {
    pub(crate) runs: [GradedRun<'a>; 2],
    /// Their cells that are compared.
    pub(crate) sides: &'a [RunStats; 2],
}

impl StoredUpgrade<'_> {
    /// Returns the upgrade between two runs with these metrics. Resources of separate runs are not compared.
    pub(crate) fn judge(&self, record: &UpgradeRecord, speed: Comparison) -> Upgrade {
        let [baseline, candidate] = self.runs;
        let answers: Vec<SidePair<'_>> = self
            .pairs()
            .iter()
            .filter_map(|(from, to)| Some(SidePair::new(candidate.cell(to)?, from, Ok(baseline))))
            .collect();
        let mut launches = self.runs.iter().flat_map(|run| &run.plan.launches);
        Upgrade {
            sides: record.values.clone(),
            changes: self.changes(record, &speed),
            resources: Vec::new(),
            answers: compare_sides(&answers),
            wrong_answers: wrong_answers(&answers),
            is_simulated: launches.any(|launch| launch.engine.simulated),
            is_sequential: true,
            is_nightly: false,
            speed,
        }
    }

    fn pairs(&self) -> Vec<(CellKey, CellKey)> {
        matched_keys(&self.sides[0], &self.sides[1])
    }

    fn changes(&self, record: &UpgradeRecord, speed: &Comparison) -> Changes {
        let mut changes = find_changes(speed, record, &[], &[], label_changes(&self.pairs()));
        let sides = self.sides.iter().zip(["baseline", "candidate"]);
        let unknown = sides.filter(|(side, _)| side.machine.is_empty());
        changes.unknown.extend(unknown.map(|(_, name)| {
            format!("machine and driver of the {name}: its run did not record them, or the file with these facts is missing")
        }));
        changes
    }
}
