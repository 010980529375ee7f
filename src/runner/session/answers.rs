//! Compares the graded answers of a run with those of its references, after the cells were measured.

use std::collections::BTreeSet;

use crate::analysis::graded::reference::judge_against_references;
use crate::plan::Plan;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::validity::ReasonCode;
use crate::results::store::{Run, Store, StoreError};

/// What a comparison changed.
#[derive(Debug, Default)]
pub(super) struct JudgedAnswers {
    /// Measurements that became invalid.
    pub(super) invalidated: usize,
    /// A message for each cell whose answers are worse.
    pub(super) losses: BTreeSet<String>,
}

/// Judges the answers of all measurements in the store, and stores the reasons with those that they concern. A run that
/// is resumed is judged again as a whole.
pub(super) fn judge(store: &Store, plan: &Plan) -> Result<JudgedAnswers, StoreError> {
    let mut judged = JudgedAnswers::default();
    if plan.cells.iter().all(|cell| cell.scenario.quality.is_none()) {
        return Ok(judged);
    }
    let run = Run::read(store.folder())?;
    for summary in judge_against_references(&run.plan, &run.summaries, run.stored_answers.as_ref()) {
        let before = run
            .summaries
            .iter()
            .find(|other| other.measurement() == summary.measurement());
        let was_invalid = before.is_some_and(MeasurementSummary::is_invalid);
        judged.invalidated += usize::from(summary.is_invalid() && !was_invalid);
        let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
        let worse = reasons.filter(|reason| reason.code == ReasonCode::AnswersWorseThanReference);
        judged.losses.extend(worse.map(|reason| {
            format!(
                "{}: the answers are worse than those of the reference: {}",
                summary.cell, reason.measured
            )
        }));
        store.amend_cell(&summary, None)?;
    }
    Ok(judged)
}
