//! Which host measured what, in a run that continues on another one.

use super::{Store, write_text};
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::machine::Machine;
use crate::results::store::error::{Result, StoreError};
use crate::results::store::files::read_json;
use crate::results::store::layout;
use crate::results::store::run_folder::cell_folders;

impl Store {
    /// Gives every measurement that has no machine of its own that of the run, if it will be replaced by a different one. A crash
    /// before it is replaced loses nothing, because this is then repeated.
    pub(super) fn keep_host(&self, next: &Machine) -> Result<()> {
        let path = self.folder().join(layout::MACHINE);
        let Some(machine) = if_readable(read_json::<Machine>(&path, ""))? else {
            return Ok(());
        };
        if machine.is_same_environment(next) {
            return Ok(());
        }
        // Measurements outside of the plan as well: a later plan may have them again.
        for folder in cell_folders(self.folder())? {
            let path = folder.join(layout::SUMMARY);
            match if_readable(read_json::<MeasurementSummary>(&path, ""))? {
                Some(mut summary) if summary.machine.is_none() && summary.imported.is_none() => {
                    summary.machine = Some(Box::new(machine.clone()));
                    write_text(&path, &self.to_pretty_json(&summary))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What was read; `None` if it is missing or damaged.
fn if_readable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(StoreError::Missing { .. } | StoreError::Malformed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
