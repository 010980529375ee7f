//! Finds the measurements of a plan that are on disk.

use std::collections::BTreeMap;
use std::path::Path;

use super::Store;
use crate::plan::{Measurement, Plan};
use crate::results::record::cell::{MeasurementStatus, MeasurementSummary};
use crate::results::store::backup::move_to_backup;
use crate::results::store::error::{Result, StoreError};
use crate::results::store::{files, layout};

impl Store {
    /// Reads the finished measurements of the plan with the planned content hash, with any ending. A broken
    /// summary is no error: its measurement is not finished.
    pub(crate) fn finished(&self, plan: &Plan) -> Result<BTreeMap<Measurement, MeasurementSummary>> {
        let mut finished = BTreeMap::new();
        self.for_each_on_disk(plan, |measurement, _, mut summary, is_same| {
            if is_same {
                // A name on disk may have been redacted.
                summary.cell = measurement.cell.clone();
                finished.insert(measurement.clone(), summary);
            }
            Ok(())
        })?;
        Ok(finished)
    }

    /// The completed measurements of the plan with another content hash. [`Store::begin_run`] moves them
    /// aside.
    pub(crate) fn outdated(&self, plan: &Plan) -> Result<Vec<Measurement>> {
        let mut outdated = Vec::new();
        self.for_each_on_disk(plan, |measurement, _, summary, is_same| {
            if !is_same && summary.status == MeasurementStatus::Done {
                outdated.push(measurement.clone());
            }
            Ok(())
        })?;
        Ok(outdated)
    }

    pub(super) fn back_up_changed(&self, plan: &Plan) -> Result<Vec<Measurement>> {
        let mut changed = Vec::new();
        self.for_each_on_disk(plan, |measurement, folder, _, is_same| {
            if !is_same {
                move_to_backup(folder)?;
                changed.push(measurement.clone());
            }
            Ok(())
        })?;
        Ok(changed)
    }

    /// Visits the measurements of the plan that have a readable summary, and says whether the content hash is
    /// the planned one.
    fn for_each_on_disk(
        &self,
        plan: &Plan,
        mut visit: impl FnMut(&Measurement, &Path, MeasurementSummary, bool) -> Result<()>,
    ) -> Result<()> {
        for measurement in plan.starts.iter().flat_map(|start| &start.cells) {
            let folder = self.cell_dir(measurement);
            let summary: MeasurementSummary = match files::read_json(&folder.join(layout::SUMMARY), "") {
                Ok(summary) => summary,
                Err(StoreError::Missing { .. } | StoreError::Malformed { .. }) => continue,
                Err(error) => return Err(error),
            };
            let planned = self
                .redactor
                .redact(plan.cell(&measurement.cell).content.as_str());
            let same = self.redactor.redact(summary.content.as_str()) == planned;
            visit(measurement, &folder, summary, same)?;
        }
        Ok(())
    }
}
