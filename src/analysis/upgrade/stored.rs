//! Two stored runs as the sides of an upgrade.

use super::{Upgrade, find_changes, wrong_answers};
use crate::analysis::compare::pairwise::Comparison;
use crate::base::ids::CellKey;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::upgrade::UpgradeRecord;

/// The second of two stored runs.
pub(crate) struct StoredUpgrade<'a> {
    pub(crate) summaries: &'a [MeasurementSummary],
    /// Whether an engine of one of both is simulated.
    pub(crate) is_simulated: bool,
}

impl StoredUpgrade<'_> {
    /// Returns the upgrade between two runs with these metrics. Resources and answers of separate runs are not compared.
    pub(crate) fn judge(&self, record: &UpgradeRecord, speed: Comparison) -> Upgrade {
        let candidates: Vec<(Option<&CellKey>, &CellKey)> =
            speed.rows.iter().map(|row| (None, &row.cell)).collect();
        let mut wrong = wrong_answers(self.summaries, &candidates);
        // A cell has a row for each metric.
        wrong.dedup();
        Upgrade {
            sides: record.values.clone(),
            changes: find_changes(&speed, record, &[], &[]),
            resources: Vec::new(),
            answers: Vec::new(),
            wrong_answers: wrong,
            is_simulated: self.is_simulated,
            is_sequential: true,
            speed,
        }
    }
}
