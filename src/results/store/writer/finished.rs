//! Finds the measurements of a plan that are on disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Store;
use crate::plan::{Measurement, Plan};
use crate::results::record::cell::{MeasurementStatus, MeasurementSummary};
use crate::results::store::backup::{Backups, move_to_backup};
use crate::results::store::error::{IoContext, Result, StoreError};
use crate::results::store::{atomic, files, layout};

/// What a changed plan does to the measurements on disk.
#[derive(Debug, Default)]
pub(crate) struct MeasurementChanges {
    /// Completed measurements with another content hash, which have to be made again.
    pub(crate) outdated: Vec<Measurement>,
    /// Number of measurements in whose place an earlier version with the planned content hash counts again.
    pub(crate) moved_back: usize,
}

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

    /// What the plan changes about the measurements on disk. [`Store::begin_run`] carries it out.
    pub(crate) fn changes(&self, plan: &Plan) -> Result<MeasurementChanges> {
        let mut changes = MeasurementChanges::default();
        let backups = self.backups_of_cells();
        self.for_each_on_disk(plan, |measurement, _, summary, is_same| {
            if is_same {
                return Ok(());
            }
            if self.earlier_version(&backups, plan, measurement).is_some() {
                changes.moved_back += 1;
            } else if summary.status == MeasurementStatus::Done {
                changes.outdated.push(measurement.clone());
            }
            Ok(())
        })?;
        Ok(changes)
    }

    /// Moves aside the measurements with another content hash. Where an earlier version has the planned one, as after a change of the matrix that
    /// was taken back, it counts again: what is known to be bad is not measured until it is good.
    pub(super) fn back_up_changed(&self, plan: &Plan) -> Result<Vec<Measurement>> {
        let mut changed = Vec::new();
        self.for_each_on_disk(plan, |measurement, folder, _, is_same| {
            if !is_same {
                move_to_backup(folder)?;
                changed.push(measurement.clone());
            }
            Ok(())
        })?;
        let backups = self.backups_of_cells();
        for measurement in measurements(plan) {
            let folder = self.cell_dir(measurement);
            if folder.join(layout::SUMMARY).exists() {
                continue;
            }
            if let Some(earlier) = self.earlier_version(&backups, plan, measurement) {
                // What was being measured when the run was killed.
                if folder.exists() {
                    move_to_backup(&folder)?;
                }
                fs::rename(&earlier, &folder).io_context("move back", &earlier)?;
                atomic::sync_folder(atomic::parent_folder(&folder)).io_context("sync", &folder)?;
            }
        }
        Ok(changed)
    }

    /// The newest earlier version of a measurement with the planned content hash.
    fn earlier_version(&self, backups: &Backups, plan: &Plan, measurement: &Measurement) -> Option<PathBuf> {
        let folder = self.cell_dir(measurement);
        backups.of(&folder).find(|version| {
            let summary = files::read_json::<MeasurementSummary>(&version.join(layout::SUMMARY), "");
            summary.is_ok_and(|summary| self.is_planned(plan, measurement, &summary))
        })
    }

    fn backups_of_cells(&self) -> Backups {
        Backups::of_folder(&self.folder().join(layout::CELLS))
    }

    /// Whether the content hash is the planned one.
    fn is_planned(&self, plan: &Plan, measurement: &Measurement, summary: &MeasurementSummary) -> bool {
        let planned = plan.cell(&measurement.cell).content.as_str();
        self.redactor.redact(summary.content.as_str()) == self.redactor.redact(planned)
    }

    /// Visits the measurements of the plan that have a readable summary, and says whether the content hash is
    /// the planned one.
    fn for_each_on_disk(
        &self,
        plan: &Plan,
        mut visit: impl FnMut(&Measurement, &Path, MeasurementSummary, bool) -> Result<()>,
    ) -> Result<()> {
        for measurement in measurements(plan) {
            let folder = self.cell_dir(measurement);
            let summary: MeasurementSummary = match files::read_json(&folder.join(layout::SUMMARY), "") {
                Ok(summary) => summary,
                Err(StoreError::Missing { .. } | StoreError::Malformed { .. }) => continue,
                Err(error) => return Err(error),
            };
            let is_same = self.is_planned(plan, measurement, &summary);
            visit(measurement, &folder, summary, is_same)?;
        }
        Ok(())
    }
}

fn measurements(plan: &Plan) -> impl Iterator<Item = &Measurement> {
    plan.starts.iter().flat_map(|start| &start.cells)
}
