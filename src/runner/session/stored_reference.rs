//! The stored run with whose answers those of a run are compared: found and copied before anything starts.

use std::collections::BTreeMap;
use std::path::Path;

use crate::analysis::graded::reference::reference_answers;
use crate::base::ids::{CellKey, RunId};
use crate::plan::{Plan, StoredReference};
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::stored_answers::{StoredAnswers, StoredCellAnswers};
use crate::results::store::nightly::find_run;
use crate::results::store::{self, Run};
use crate::runner::session::error::ReferenceError;
use crate::runner::session::observer::{Notice, Observer};

/// Pairs the graded cells of a plan with those of the stored run that it refers to, and returns the answers to copy;
/// `None` if it refers to none. A resumed run keeps the answers that it copied when it began.
///
/// # Errors
/// There is no such run, a graded cell has no counterpart, or its answers cannot be compared.
pub(super) fn resolve(
    plan: &mut Plan,
    results: &Path,
    resumed: Option<&RunId>,
    observer: &dyn Observer,
) -> Result<Option<StoredAnswers>, ReferenceError> {
    let Some(reference) = plan.stored_reference.clone() else {
        return Ok(None);
    };
    let copied = resumed.and_then(|run| copied_answers(plan, &reference, &results.join(run.as_str())));
    let Some((earlier, copied)) = copied else {
        let run = find_run(results, &reference.run)?;
        plan.answer_references = pair(plan, &reference, &run)?;
        return answers(plan, &run).map(Some);
    };
    plan.answer_references = earlier.answer_references;
    if has_changed(plan, &reference, results, &copied) {
        observer.notice(Notice::Warning(format!(
            "the answers of the stored run `{}` have changed since this run began. This run is still compared with the answers that it copied at its start\n  = help: start a new run to compare with the changed answers",
            copied.run
        )));
    }
    Ok(Some(copied))
}

/// The answers that a resumed run has copied and its plan, if they are still those that the plan needs.
fn copied_answers(plan: &Plan, reference: &StoredReference, folder: &Path) -> Option<(Plan, StoredAnswers)> {
    let earlier = store::read_plan(folder).ok()?;
    if earlier.stored_reference.as_ref() != Some(reference) {
        return None;
    }
    let quality = |plan: &Plan| -> Vec<_> {
        let graded = plan.cells.iter().filter(|cell| cell.scenario.quality.is_some());
        graded
            .map(|cell| {
                (
                    cell.key.clone(),
                    cell.scenario.quality.clone(),
                    cell.scenario.seed,
                )
            })
            .collect()
    };
    let known = quality(&earlier);
    let is_known = quality(plan).iter().all(|cell| known.contains(cell));
    let copied = store::read_stored_answers(folder).ok().filter(|_| is_known)?;
    Some((earlier, copied))
}

/// Whether the stored run still exists and its answers are others than those that were copied.
fn has_changed(plan: &Plan, reference: &StoredReference, results: &Path, copied: &StoredAnswers) -> bool {
    let run = find_run(results, &reference.run).ok();
    let Some(run) = run.filter(|run| run.info.run == copied.run) else {
        return false;
    };
    !answers(plan, &run).is_ok_and(|present| present == *copied)
}

fn pair(
    plan: &Plan,
    reference: &StoredReference,
    run: &Run,
) -> Result<BTreeMap<CellKey, CellKey>, ReferenceError> {
    reference
        .pair(plan, &run.plan)
        .map_err(|source| ReferenceError::Pair {
            run: run.info.run.clone(),
            source,
        })
}

/// The answers of all cells of a run to which those of the plan refer.
fn answers(plan: &Plan, run: &Run) -> Result<StoredAnswers, ReferenceError> {
    let by_cell = MeasurementSummary::by_cell(&run.summaries);
    let mut cells: Vec<StoredCellAnswers> = Vec::new();
    for key in plan.answer_references.values() {
        if cells.iter().any(|cell| cell.cell == *key) {
            continue;
        }
        let measurements = by_cell.get(key).map_or(&[][..], Vec::as_slice);
        let graded = reference_answers(measurements).map_err(|why| ReferenceError::Answers {
            run: run.info.run.clone(),
            cell: key.clone(),
            why,
        })?;
        cells.push(StoredCellAnswers {
            cell: key.clone(),
            measurements: graded.into_iter().cloned().collect(),
        });
    }
    Ok(StoredAnswers {
        run: run.info.run.clone(),
        cells,
    })
}
