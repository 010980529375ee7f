//! Compares the graded answers of the cells of a run with those of their references, and judges all of them at once.

use std::collections::BTreeMap;

use super::paired::{ALPHA, PairedItems};
use crate::analysis::compare::multiple_testing::holm_adjusted;
use crate::analysis::validity::new_reason;
use crate::base::ids::{CellKey, ContentHash, RunId};
use crate::base::text::pluralize;
use crate::plan::Plan;
use crate::plan::arms::is_baseline_key;
use crate::results::record::cell::{MeasurementStatus, MeasurementSummary};
use crate::results::record::graded::{GradedAnswers, TaskScore};
use crate::results::record::stored_answers::StoredAnswers;
use crate::results::record::validity::{Reason, ReasonCode, Validity, Verdict};

/// Reasons that a comparison gives. They are replaced when the run is judged again.
const CODES: [ReasonCode; 3] = [
    ReasonCode::AnswersWorseThanReference,
    ReasonCode::AnswersNotCompared,
    ReasonCode::AnswersCompared,
];

/// Reasons because of which the answers of a reference are no measure of others.
const UNUSABLE: [ReasonCode; 4] = [
    ReasonCode::AnswersWrongUnderLoad,
    ReasonCode::AnswersBelowMinimum,
    ReasonCode::AnswersWorseThanReference,
    ReasonCode::AnswersDegenerate,
];

/// The answers of a cell to the items of a task, compared with those of its reference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnswerComparison {
    pub(crate) cell: CellKey,
    /// The stored run of the reference; absent if it is a cell of the same run.
    pub(crate) run: Option<RunId>,
    pub(crate) reference: CellKey,
    pub(crate) task: String,
    /// Why the answers cannot be compared, if they cannot.
    pub(crate) result: Result<ComparedAnswers, String>,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ComparedAnswers {
    pub(crate) paired: PairedItems,
    /// Probability of so large a loss if both sides answer alike, corrected over all comparisons of the run (Holm).
    pub(crate) p_adjusted: f64,
    /// The smallest loss of the share of correct answers that would have been found in 80 % of runs; absent if a loss was
    /// found, and if there are too few items for that.
    pub(crate) smallest_loss: Option<f64>,
}

impl ComparedAnswers {
    pub(crate) fn is_worse(&self) -> bool {
        self.p_adjusted <= ALPHA
    }
}

impl AnswerComparison {
    /// The reference in words.
    pub(crate) fn reference_name(&self) -> String {
        match &self.run {
            Some(run) => format!("`{}` of the stored run `{run}`", self.reference),
            None if is_baseline_key(&self.reference) => "the baseline".to_owned(),
            None => format!("`{}`", self.reference),
        }
    }
}

/// Compares every task of every graded cell that has a reference. `stored` are the answers of the stored run that the
/// plan refers to. A reference that the plan should contain and does not, as in the confirmation of a nightly run,
/// compares nothing.
pub(crate) fn compare_answers(
    plan: &Plan,
    summaries: &[MeasurementSummary],
    stored: Option<&StoredAnswers>,
) -> Vec<AnswerComparison> {
    if plan.answer_references.is_empty() {
        return Vec::new();
    }
    let by_cell = MeasurementSummary::by_cell(summaries);
    let mut found = Vec::new();
    for cell in &plan.cells {
        let Some(reference) = plan.answer_references.get(&cell.key) else {
            continue;
        };
        let measurements = by_cell.get(&cell.key).map_or(&[][..], Vec::as_slice);
        let ours = all_graded_answers(measurements);
        let graded = graded_answers(measurements);
        let Some(first) = graded.first() else {
            continue;
        };
        let Some(theirs) = reference_side(plan, &by_cell, stored, reference) else {
            continue;
        };
        for TaskScore { task, .. } in &first.tasks {
            let theirs = theirs.as_ref().map_err(String::clone);
            let paired = theirs.and_then(|theirs| pair(ours.as_ref().map_err(String::clone)?, theirs, task));
            found.push((cell.key.clone(), reference.clone(), task.clone(), paired));
        }
    }
    let run = plan.stored_reference.as_ref().and(stored);
    adjust(found, run.map(|stored| &stored.run))
}

/// The answers of the finished measurements of a cell, by start and repeat.
pub(super) fn graded_answers<'a>(measurements: &[&'a MeasurementSummary]) -> Vec<&'a GradedAnswers> {
    let mut done: Vec<&MeasurementSummary> = measurements
        .iter()
        .copied()
        .filter(|summary| summary.status == MeasurementStatus::Done)
        .collect();
    done.sort_by_key(|summary| (summary.start, summary.repeat));
    done.iter()
        .filter_map(|summary| summary.graded.as_ref())
        .collect()
}

/// The answers of the finished measurements of a cell, as [`graded_answers`].
///
/// # Errors
/// Some of them were not graded, so that the others may not stand for all.
pub(super) fn all_graded_answers<'a>(
    measurements: &[&'a MeasurementSummary],
) -> Result<Vec<&'a GradedAnswers>, String> {
    let graded = graded_answers(measurements);
    let is_done = |summary: &&&MeasurementSummary| summary.status == MeasurementStatus::Done;
    let done = measurements.iter().filter(is_done).count();
    match graded.len() == done {
        true => Ok(graded),
        false => Err(format!(
            "the answers of {} of {done} measurements were not graded",
            done - graded.len()
        )),
    }
}

/// The answers of the measurements of a cell with which those of others can be compared.
///
/// # Errors
/// Why they cannot be.
pub(crate) fn reference_answers<'a>(
    measurements: &[&'a MeasurementSummary],
) -> Result<Vec<&'a GradedAnswers>, String> {
    let graded = graded_answers(measurements);
    if graded.is_empty() {
        return Err("the reference has no graded measurement".to_owned());
    }
    let reasons = measurements.iter().flat_map(|summary| &summary.validity);
    let mut reasons = reasons.flat_map(|validity| &validity.reasons);
    let is_unusable = |reason: &&Reason| reason.weight == Verdict::Invalid && UNUSABLE.contains(&reason.code);
    match reasons.find(is_unusable) {
        Some(reason) => Err(format!(
            "the answers of the reference are invalid ({})",
            reason.code.name()
        )),
        None => all_graded_answers(measurements).map_err(|why| format!("of the reference, {why}")),
    }
}

/// The answers of the reference, or why they cannot be compared; `None` if the plan should contain it and does not.
pub(super) fn reference_side<'a>(
    plan: &Plan,
    by_cell: &BTreeMap<&CellKey, Vec<&'a MeasurementSummary>>,
    stored: Option<&'a StoredAnswers>,
    reference: &CellKey,
) -> Option<Result<Vec<&'a GradedAnswers>, String>> {
    if plan.stored_reference.is_some() {
        let cell = stored.and_then(|stored| stored.cell(reference));
        let missing = "this run copied the answers of the stored run when it began, but the copy is missing";
        return Some(match cell {
            Some(cell) => Ok(cell.measurements.iter().collect()),
            None => Err(missing.to_owned()),
        });
    }
    let is_planned = plan.cells.iter().any(|cell| cell.key == *reference);
    is_planned.then(|| reference_answers(by_cell.get(reference).map_or(&[], Vec::as_slice)))
}

/// A cell, its reference, a task, and the items of both or why they cannot be paired.
pub(super) type Paired = (CellKey, CellKey, String, Result<PairedItems, String>);

/// Corrects the probabilities over all comparisons. `run` is the stored run of the references.
pub(super) fn adjust(found: Vec<Paired>, run: Option<&RunId>) -> Vec<AnswerComparison> {
    let compared = found.iter().filter_map(|(.., paired)| paired.as_ref().ok());
    let p: Vec<f64> = compared.map(PairedItems::p_worse).collect();
    let level = ALPHA / p.len().max(1) as f64;
    let mut adjusted = holm_adjusted(&p, p.len()).into_iter();
    found
        .into_iter()
        .map(|(cell, reference, task, paired)| AnswerComparison {
            cell,
            run: run.cloned(),
            reference,
            task,
            result: paired.and_then(|paired| {
                let p_adjusted = adjusted.next().unwrap_or(1.0);
                let smallest_loss = paired.smallest_loss(level).filter(|_| p_adjusted > ALPHA);
                if p_adjusted > ALPHA && !paired.can_find_a_loss(level) {
                    return Err(format!(
                        "the reference answers {:.1} % of {} correctly: these are too few correct answers to find a loss; use more items",
                        100.0 * paired.reference_share(),
                        pluralize(paired.items as usize, "item", "items"),
                    ));
                }
                Ok(ComparedAnswers {
                    paired,
                    p_adjusted,
                    smallest_loss,
                })
            }),
        })
        .collect()
}

/// Pairs the items of a task over the measurements of both sides. There must be as many of each, because the answers of
/// those left out would pass unseen.
pub(crate) fn pair(
    ours: &[&GradedAnswers],
    theirs: &[&GradedAnswers],
    task: &str,
) -> Result<PairedItems, String> {
    if ours.len() != theirs.len() {
        return Err(format!(
            "the cell has {}, but the reference has {}; give both cells the same number of starts and repeats",
            pluralize(ours.len(), "graded measurement", "graded measurements"),
            theirs.len()
        ));
    }
    let (ours, theirs) = (scores(ours, task), scores(theirs, task));
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        return Err(format!(
            "a measurement of the cell or of the reference has no result of the graded task `{task}`, or has more than one"
        ));
    };
    let mut scores_of_both = ours.iter().chain(&theirs);
    if scores_of_both.any(|score| !score.is_consistent()) {
        return Err("the recorded outcomes of the items contradict the counts".to_owned());
    }
    if let Some(failed) = theirs.iter().find(|score| 2 * score.failed > score.items) {
        return Err(format!(
            "{} of {} requests to the reference engine failed",
            failed.failed, failed.items
        ));
    }
    let hashes: Vec<Option<&ContentHash>> = ours
        .iter()
        .chain(&theirs)
        .map(|score| score.items_hash.as_ref())
        .collect();
    if hashes.contains(&None) {
        return Err("it is unknown whether both sides have the same items, because an older version of `matrix` measured at least one side".to_owned());
    }
    if hashes.iter().any(|hash| *hash != hashes[0]) {
        return Err("the items differ in their prompts, expected answers or graders".to_owned());
    }
    let [ours, theirs] = [ours, theirs]
        .map(|scores| -> Vec<&str> { scores.iter().map(|score| score.outcomes.as_str()).collect() });
    let paired = PairedItems::count(&ours, &theirs);
    match paired.items {
        0 => Err("no item was graded on both sides".to_owned()),
        _ => Ok(paired),
    }
}

/// The score of a task in every measurement; `None` if one lacks it or has it several times.
fn scores<'a>(answers: &[&'a GradedAnswers], task: &str) -> Option<Vec<&'a TaskScore>> {
    answers
        .iter()
        .map(|answers| {
            let mut of_task = answers.tasks.iter().filter(|score| score.task == task);
            let score = of_task.next()?;
            of_task.next().is_none().then_some(score)
        })
        .collect()
}

/// Judges the answers of all measurements of a run against their references, and returns those whose validity changed.
pub(crate) fn judge_against_references(
    plan: &Plan,
    summaries: &[MeasurementSummary],
    stored: Option<&StoredAnswers>,
) -> Vec<MeasurementSummary> {
    let mut reasons: BTreeMap<&CellKey, Vec<Reason>> = BTreeMap::new();
    let comparisons = compare_answers(plan, summaries, stored);
    for comparison in &comparisons {
        let family = comparisons.iter().filter(|other| other.result.is_ok()).count();
        reasons
            .entry(&comparison.cell)
            .or_default()
            .push(reason(comparison, family));
    }
    let judged = summaries.iter().filter_map(|summary| {
        let validity = summary.validity.as_ref()?;
        let kept = validity
            .reasons
            .iter()
            .filter(|reason| !CODES.contains(&reason.code));
        let is_graded = summary.graded.is_some();
        let added = reasons.get(&summary.cell).filter(|_| is_graded);
        let all = kept.chain(added.into_iter().flatten()).cloned().collect();
        let judged = Validity::from_reasons(all);
        (judged != *validity).then(|| MeasurementSummary {
            validity: Some(judged),
            ..summary.clone()
        })
    });
    judged.collect()
}

fn reason(comparison: &AnswerComparison, family: usize) -> Reason {
    let (task, reference) = (&comparison.task, comparison.reference_name());
    let compared = match &comparison.result {
        Err(why) => {
            return new_reason(
                ReasonCode::AnswersNotCompared,
                format!("{task} against {reference}: {why}"),
                None,
            );
        }
        Ok(compared) => compared,
    };
    let paired = &compared.paired;
    let [low, high] = paired.interval().map(|bound| 100.0 * bound);
    let figures = format!(
        "{task}, compared with {reference}: the score changed by {:+.1} points (95 % interval {low:+.1} to {high:+.1}), with {} items lost and {} gained of {}",
        100.0 * paired.difference(),
        paired.lost(),
        paired.gained(),
        paired.items,
    );
    let bound = format!("p ≤ {ALPHA} over {family} comparisons");
    match compared.is_worse() {
        true => new_reason(
            ReasonCode::AnswersWorseThanReference,
            format!("{figures}, p = {:.1e}", compared.p_adjusted),
            Some(bound),
        ),
        false => new_reason(
            ReasonCode::AnswersCompared,
            match compared.smallest_loss {
                Some(loss) => format!(
                    "{figures}; a loss of {:.1} points would be found in 80 % of runs",
                    100.0 * loss
                ),
                None => format!(
                    "{figures}; there are too few answers: even a loss of all of them would be found with a probability below 80 %"
                ),
            },
            Some(bound),
        ),
    }
}

#[cfg(test)]
pub(super) mod tests;
