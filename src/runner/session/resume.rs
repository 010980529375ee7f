//! Finds the run to resume and its remaining measurements.

use std::collections::BTreeMap;
use std::path::Path;

use crate::base::ids::RunId;
use crate::base::text::pluralize;
use crate::plan::arms::noise_name;
use crate::plan::{Measurement, Plan, Start};
use crate::results::record::cell::{MeasurementStatus, MeasurementSummary};
use crate::results::store::{self, Store};
use crate::runner::session::error::{ResumeError, SessionError};
use crate::runner::session::observer::{Notice, Observer, OutdatedMeasurements};
use crate::runner::session::request::RunRequest;

/// The run that a request resumes; `None` for a new run.
pub(super) fn find_resumed(request: &RunRequest<'_>) -> Result<Option<RunId>, SessionError> {
    let Some(resume) = &request.resume else {
        return Ok(None);
    };
    let (results, matrix) = (&request.results, &request.matrix.plan.matrix);
    let run = match resume.as_str() {
        "latest" => latest_own_run(results, matrix)?,
        name => {
            let file_name = Path::new(name).file_name();
            RunId::new(file_name.map_or(name.into(), |name| name.to_string_lossy()))
        }
    };
    let folder = results.join(run.as_str());
    let about = store::read_run_info(&folder).map_err(ResumeError::Store)?;
    let matrix = matrix.clone();
    let error = if !store::is_own_folder(&folder) {
        ResumeError::OtherUser {
            run,
            results: results.clone(),
        }
    } else if about.matrix == noise_name(&matrix) {
        ResumeError::Noise {
            run,
            matrix,
            matrix_file: request.matrix_file.clone(),
        }
    } else if about.matrix != matrix {
        ResumeError::OtherMatrix {
            run,
            theirs: about.matrix,
            matrix,
        }
    } else {
        return Ok(Some(run));
    };
    Err(error.into())
}

/// This user's newest run of a matrix.
fn latest_own_run(results: &Path, matrix: &str) -> Result<RunId, SessionError> {
    let listed = store::list_runs(results).map_err(SessionError::Results)?;
    let mut own_runs = listed
        .into_iter()
        .filter(|listed| store::is_own_folder(&listed.folder));
    let latest = own_runs.find(|listed| listed.info.matrix == matrix);
    store::refuse_damaged_newer_run(results, matrix, latest.as_ref()).map_err(ResumeError::Store)?;
    latest.map(|listed| listed.info.run).ok_or_else(|| {
        let no_run = ResumeError::NoRun {
            matrix: matrix.to_owned(),
            results: results.to_owned(),
        };
        no_run.into()
    })
}

/// Asks before finished measurements are repeated because the matrix changed.
pub(super) fn confirm_replacement(
    store: &Store,
    plan: &Plan,
    observer: &dyn Observer,
) -> Result<(), SessionError> {
    let changes = store.changes(plan).map_err(SessionError::Results)?;
    if changes.moved_back > 0 {
        observer.notice(Notice::Note(format!(
            "a change of the matrix was undone, so {} from before the change can be used again; to measure everything again, start a new run",
            pluralize(changes.moved_back, "measurement", "measurements")
        )));
    }
    let measurements = changes.outdated;
    if measurements.is_empty() {
        return Ok(());
    }
    let mut cells: Vec<_> = measurements
        .iter()
        .map(|measurement| measurement.cell.clone())
        .collect();
    cells.dedup();
    let outdated = OutdatedMeasurements {
        run: store.run().clone(),
        measurements: measurements.len(),
        cells,
    };
    match observer.accepts_replacement(&outdated) {
        true => Ok(()),
        false => Err(SessionError::Outdated(outdated)),
    }
}

/// The unfinished parts of starts: cells that are missing, skipped, interrupted or failed because of the
/// host. With `repeat_failed` also cells that failed otherwise or are invalid, except for those whose answers are wrong.
pub(super) fn remaining(
    starts: &[Start],
    finished: &BTreeMap<Measurement, MeasurementSummary>,
    repeat_failed: bool,
) -> Vec<Start> {
    let is_open = |measurement: &Measurement| match finished.get(measurement).map(|summary| &summary.status) {
        None | Some(MeasurementStatus::Interrupted | MeasurementStatus::Skipped { .. }) => true,
        // A failure caused by the host says nothing about the engine.
        Some(MeasurementStatus::Failed { class, .. }) => repeat_failed || class.is_retryable(),
        Some(MeasurementStatus::Done) => repeat_failed && finished[measurement].is_repeatable(),
    };
    let open = |start: &Start| Start {
        cells: start
            .cells
            .iter()
            .filter(|measurement| is_open(measurement))
            .cloned()
            .collect(),
        ..start.clone()
    };
    starts
        .iter()
        .map(open)
        .filter(|start| !start.cells.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::record::cell::{FailureClass, Phase};
    use crate::results::store::testing::{plan, summary};

    /// Indexes of the two cells of a plan that remain, if the first has this ending and the second is done.
    fn remain_after(ending: MeasurementStatus, repeat_failed: bool) -> Vec<usize> {
        let plan = plan();
        let mut finished = BTreeMap::new();
        for (at, cell) in plan.cells.iter().enumerate() {
            let mut summary = summary(cell);
            summary.status = match at {
                0 => ending.clone(),
                _ => MeasurementStatus::Done,
            };
            finished.insert(summary.measurement(), summary);
        }
        let remaining = remaining(&plan.starts, &finished, repeat_failed);
        let cells = remaining.iter().flat_map(|start| &start.cells);
        let index =
            |measurement: &Measurement| plan.cells.iter().position(|cell| cell.key == measurement.cell);
        cells.filter_map(index).collect()
    }

    #[test]
    fn interrupted_cells_and_faults_of_the_host_remain_and_other_failures_if_asked() {
        let failed = |class| MeasurementStatus::Failed {
            phase: Phase::Measure,
            class,
            reason: "it failed".to_owned(),
            tail: Vec::new(),
        };
        for repeat_failed in [false, true] {
            assert_eq!(remain_after(MeasurementStatus::Interrupted, repeat_failed), [0]);
            assert_eq!(
                remain_after(failed(FailureClass::Infrastructure), repeat_failed),
                [0]
            );
            assert!(remain_after(MeasurementStatus::Done, repeat_failed).is_empty());
        }
        assert!(remain_after(failed(FailureClass::Engine), false).is_empty());
        assert_eq!(remain_after(failed(FailureClass::Engine), true), [0]);
    }

    #[test]
    fn a_plan_of_which_nothing_is_finished_remains_whole() {
        let plan = plan();
        assert_eq!(remaining(&plan.starts, &BTreeMap::new(), false), plan.starts);
    }
}
