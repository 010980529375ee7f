//! Compares the graded answers of two sides: every cell of the candidate with that of its baseline, whatever references the
//! matrix of either has.

use super::paired::PairedItems;
use super::reference::{
    AnswerComparison, adjust, all_graded_answers, graded_answers, pair, reference_answers,
};
use crate::base::ids::{CellKey, RunId};
use crate::plan::{self, Cell, Plan};
use crate::results::record::cell::MeasurementSummary;

/// A run with the cells of a side.
#[derive(Clone, Copy)]
pub(crate) struct GradedRun<'a> {
    /// Its name, if it is not the run of the candidate.
    pub(crate) stored: Option<&'a RunId>,
    pub(crate) plan: &'a Plan,
    pub(crate) summaries: &'a [MeasurementSummary],
}

/// A cell of a side.
#[derive(Clone, Copy)]
pub(crate) struct GradedCell<'a> {
    run: GradedRun<'a>,
    cell: &'a Cell,
}

/// A cell of the candidate with that of its baseline.
pub(crate) struct SidePair<'a> {
    pub(crate) candidate: GradedCell<'a>,
    pub(crate) baseline_key: CellKey,
    /// The cell of the baseline, or why its answers are unknown.
    pub(crate) baseline: Result<GradedCell<'a>, String>,
}

impl<'a> GradedRun<'a> {
    pub(crate) fn cell(self, key: &CellKey) -> Option<GradedCell<'a>> {
        let cell = self.plan.cells.iter().find(|cell| cell.key == *key)?;
        Some(GradedCell { run: self, cell })
    }
}

impl<'a> GradedCell<'a> {
    pub(crate) const fn key(&self) -> &'a CellKey {
        &self.cell.key
    }

    pub(crate) fn measurements(&self) -> Vec<&'a MeasurementSummary> {
        let summaries = self.run.summaries.iter();
        summaries
            .filter(|summary| summary.cell == self.cell.key)
            .collect()
    }

    /// Names of the tasks that are graded.
    fn tasks(&self) -> impl Iterator<Item = &'a String> {
        let quality = self.cell.scenario.quality.iter();
        quality.flat_map(|quality| &quality.tasks).map(|task| &task.name)
    }
}

impl<'a> SidePair<'a> {
    /// Pairs a cell of the candidate with this one of the baseline's run.
    pub(crate) fn new(
        candidate: GradedCell<'a>,
        baseline_key: &CellKey,
        run: Result<GradedRun<'a>, String>,
    ) -> Self {
        let missing = || "the run of the baseline does not have this cell".to_owned();
        Self {
            candidate,
            baseline_key: baseline_key.clone(),
            baseline: run.and_then(|run| run.cell(baseline_key).ok_or_else(missing)),
        }
    }

    /// The tasks that one of the sides grades.
    fn tasks(&self) -> Vec<&'a String> {
        let mut tasks: Vec<&String> = self.candidate.tasks().collect();
        let of_baseline = self.baseline.iter().flat_map(GradedCell::tasks);
        tasks.extend(of_baseline);
        let mut known = Vec::new();
        for task in tasks {
            if !known.contains(&task) {
                known.push(task);
            }
        }
        known
    }

    fn pair_items(&self, task: &String) -> Result<PairedItems, String> {
        let baseline = self.baseline.as_ref().map_err(String::clone)?;
        let sides = [("baseline", baseline), ("candidate", &self.candidate)];
        for (side, cell) in sides {
            if !cell.tasks().any(|own| own == task) {
                return Err(format!(
                    "the answers of only one side were graded, those of the {side} were not"
                ));
            }
        }
        let [theirs, ours] = sides.map(|(_, cell)| cell.measurements());
        for (side, measurements) in [("baseline", &theirs), ("candidate", &ours)] {
            if graded_answers(measurements).is_empty() {
                return Err(format!("the {side} has no graded measurement"));
            }
        }
        if let Some(difference) = plan::item_difference(self.candidate.cell, baseline.cell, task) {
            return Err(format!("the baseline was graded in another way: {difference}"));
        }
        pair(&all_graded_answers(&ours)?, &reference_answers(&theirs)?, task)
    }
}

/// Compares every task that a side of these pairs grades, and corrects for all of them together.
pub(crate) fn compare_sides(pairs: &[SidePair<'_>]) -> Vec<AnswerComparison> {
    let (mut found, mut runs) = (Vec::new(), Vec::new());
    for pair in pairs {
        for task in pair.tasks() {
            let key = pair.candidate.key().clone();
            found.push((
                key,
                pair.baseline_key.clone(),
                task.clone(),
                pair.pair_items(task),
            ));
            let run = pair.baseline.as_ref().ok();
            runs.push(run.and_then(|cell| cell.run.stored).cloned());
        }
    }
    let compared = adjust(found, None).into_iter().zip(runs);
    compared
        .map(|(comparison, run)| AnswerComparison { run, ..comparison })
        .collect()
}

#[cfg(test)]
mod tests;
