//! The result of a run.

use std::path::PathBuf;

use crate::base::ids::RunId;
use crate::results::record::cell::{MeasurementStatus, MeasurementSummary};

#[derive(Debug)]
pub(crate) struct RunOutcome {
    pub(crate) run: RunId,
    pub(crate) folder: PathBuf,
    /// Counts of the selected cells' measurements, including earlier invocations.
    pub(crate) measurements: MeasurementCounts,
    /// Engines that could not be stopped.
    pub(crate) unstopped: usize,
    pub(crate) is_interrupted: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeasurementCounts {
    pub(crate) done: usize,
    pub(crate) invalid: usize,
    /// Those of `invalid` that are not measured again, because the engine answered wrongly.
    pub(crate) wrong: usize,
    pub(crate) failed: usize,
    pub(crate) interrupted: usize,
    pub(crate) missing: usize,
}

impl MeasurementCounts {
    /// Counts the summaries of a plan with `planned` measurements.
    pub(super) fn of<'a>(summaries: impl Iterator<Item = &'a MeasurementSummary>, planned: usize) -> Self {
        let mut count = Self {
            missing: planned,
            ..Self::default()
        };
        for summary in summaries {
            count.missing = count.missing.saturating_sub(1);
            match &summary.status {
                MeasurementStatus::Failed { .. } => count.failed += 1,
                MeasurementStatus::Done if summary.is_invalid() => {
                    count.invalid += 1;
                    count.wrong += usize::from(!summary.is_repeatable());
                }
                MeasurementStatus::Done => count.done += 1,
                MeasurementStatus::Interrupted => count.interrupted += 1,
                MeasurementStatus::Skipped { .. } => {}
            }
        }
        count
    }
}
