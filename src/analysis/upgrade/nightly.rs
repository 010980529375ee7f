//! A nightly run as an upgrade from the build of its baseline.

use std::collections::BTreeSet;

use super::Upgrade;
use super::answers::wrong_answers;
use super::changes::{find_changes, label_changes, version_label};
use crate::analysis::compare::difference::{Difference, DifferenceKind};
use crate::analysis::compare::pairwise::row::Row;
use crate::analysis::compare::pairwise::{forbidden_reason, judged_pairs, matched_keys};
use crate::analysis::compare::resources::{ResourceQuestions, ResourceRow};
use crate::analysis::compare::{baseline_starts, environment_diff};
use crate::analysis::graded::reference::AnswerComparison;
use crate::analysis::graded::sides::{GradedRun, SidePair, compare_sides};
use crate::base::ids::CellKey;
use crate::plan::Plan;
use crate::plan::arms::baseline_key;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::cell_stats::RunStats;
use crate::results::record::upgrade::UpgradeRecord;

/// A nightly run with its baseline, whose metrics are judged already.
pub(crate) struct NightlyUpgrade<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) summaries: &'a [MeasurementSummary],
    pub(crate) baseline: &'a RunStats,
    pub(crate) candidate: &'a RunStats,
    /// The cells of the run, including those of a baseline that was started in it.
    pub(crate) all_cells: &'a RunStats,
    /// Smallest change that matters, as a share.
    pub(crate) bound: f64,
}

/// Answers of a nightly run, compared with those of its baseline.
#[derive(Clone, Debug)]
pub(crate) struct NightlyAnswers {
    pub(crate) comparisons: Vec<AnswerComparison>,
    /// Why answers are wrong by themselves where those of the baseline are not, by cell.
    wrong: Vec<(CellKey, String)>,
}

impl NightlyUpgrade<'_> {
    /// Returns the cells that were measured on another build than their baseline, each with the cell of the baseline.
    pub(crate) fn changed_cells(&self) -> Vec<(CellKey, CellKey)> {
        let is_of_engine = |difference: &Difference| difference.kind == DifferenceKind::Engine;
        let is_changed = |(baseline, candidate): &(CellKey, CellKey)| {
            let is_renamed = version_label(baseline) != version_label(candidate);
            let [baseline, candidate] = [&self.baseline.cells[baseline], &self.candidate.cells[candidate]];
            let is_measured = !baseline.engine.is_empty() && !candidate.engine.is_empty();
            let differences = environment_diff::cell_differences(baseline, candidate);
            is_measured && (is_renamed || differences.iter().any(is_of_engine))
        };
        let mut pairs = self.cells();
        pairs.retain(is_changed);
        pairs
    }

    /// Returns the cells that the baseline has too, each with the cell of the baseline.
    fn cells(&self) -> Vec<(CellKey, CellKey)> {
        matched_keys(self.baseline, self.candidate)
    }

    /// Compares the answers of all cells with those of the baseline, also of cells whose build is the same as far as is known. Answers of
    /// cells whose baseline was not started in this run are compared with those in `baseline_run`, which is the stored run of the baseline or
    /// why it cannot be read.
    pub(crate) fn compare_answers(&self, baseline_run: &Result<GradedRun<'_>, String>) -> NightlyAnswers {
        let pairs = self.answer_pairs(baseline_run);
        NightlyAnswers {
            comparisons: compare_sides(&pairs),
            wrong: wrong_answers(&pairs),
        }
    }

    /// Returns the names of both sides: the versions that the engines report, or else those of the matrix, if each side has one and they
    /// differ.
    pub(crate) fn names(&self, changed: &[(CellKey, CellKey)]) -> [String; 2] {
        let reported = |side: &RunStats, key: &CellKey| side.cells.get(key)?.engine.get("version").cloned();
        let versions = changed
            .iter()
            .map(|(from, to)| [reported(self.baseline, from), reported(self.candidate, to)]);
        let labels = changed
            .iter()
            .map(|(from, to)| [version_label(from), version_label(to)]);
        let names = differing_names(versions).or_else(|| differing_names(labels));
        names.unwrap_or_else(|| ["the baseline".to_owned(), "this nightly run".to_owned()])
    }

    /// Returns the upgrade of these cells, with the metrics and answers as the nightly run judged them. Resources are judged if the
    /// baseline was started in this run.
    pub(crate) fn judge(
        &self,
        record: &UpgradeRecord,
        changed: &[(CellKey, CellKey)],
        rows: Vec<Row>,
        answers: NightlyAnswers,
    ) -> Upgrade {
        let is_changed = |key: &CellKey| changed.iter().any(|(_, candidate)| candidate == key);
        let speed = judged_pairs(self.baseline, self.candidate, &is_changed, rows, self.bound);
        let is_planned = |key: &CellKey| self.plan.cells.iter().any(|cell| cell.key == *key);
        let started: Vec<(CellKey, CellKey)> = changed
            .iter()
            .map(|(_, candidate)| (baseline_key(self.plan.cell(candidate)), candidate.clone()))
            .filter(|(twin, _)| is_planned(twin))
            .collect();
        let NightlyAnswers {
            mut comparisons,
            mut wrong,
        } = answers;
        comparisons.retain(|comparison| is_changed(&comparison.cell));
        wrong.retain(|(cell, _)| is_changed(cell));
        Upgrade {
            sides: record.values.clone(),
            changes: find_changes(&speed, record, self.summaries, &started, label_changes(changed)),
            resources: self.resources(&started),
            answers: comparisons,
            wrong_answers: wrong,
            is_simulated: self.plan.launches.iter().any(|launch| launch.engine.simulated),
            is_sequential: false,
            is_nightly: true,
            speed,
        }
    }

    /// The answers of all cells with those of the baseline that was started in this run, or else of its own run.
    fn answer_pairs<'a>(&'a self, baseline_run: &Result<GradedRun<'a>, String>) -> Vec<SidePair<'a>> {
        let own = GradedRun {
            stored: None,
            plan: self.plan,
            summaries: self.summaries,
        };
        let pair = |(baseline, key): &(CellKey, CellKey)| {
            let candidate = own.cell(key)?;
            let twin = baseline_key(self.plan.cell(key));
            if own.cell(&twin).is_none() {
                return Some(SidePair::new(candidate, baseline, baseline_run.clone()));
            }
            let cells = [self.baseline.cells.get(baseline), self.all_cells.cells.get(&twin)];
            let other_build = match cells {
                [Some(measured), Some(started)] => baseline_starts::other_build_reason(measured, started),
                _ => None,
            };
            Some(SidePair::new(candidate, &twin, other_build.map_or(Ok(own), Err)))
        };
        self.cells().iter().filter_map(pair).collect()
    }

    fn resources(&self, started: &[(CellKey, CellKey)]) -> Vec<ResourceRow> {
        let questions = ResourceQuestions::new(self.plan, self.summaries, started);
        let differences = started.iter().flat_map(|(twin, candidate)| {
            let cells = [twin, candidate].map(|key| self.all_cells.cells.get(key));
            match cells {
                [Some(twin), Some(candidate)] => environment_diff::cell_differences(twin, candidate),
                _ => Vec::new(),
            }
        });
        let differences: Vec<Difference> = differences.collect();
        let differences: Vec<&Difference> = differences.iter().collect();
        let forbidden = forbidden_reason(&differences, false);
        let family = questions.len();
        questions.judge(self.bound, family, forbidden.as_deref())
    }
}

/// The names that all pairs have for their sides, if there is one for each side and they differ.
fn differing_names(names: impl Iterator<Item = [Option<String>; 2]>) -> Option<[String; 2]> {
    let names: BTreeSet<[Option<String>; 2]> = names.collect();
    match Vec::from_iter(names).as_slice() {
        [[Some(from), Some(to)]] if from != to => Some([from.clone(), to.clone()]),
        _ => None,
    }
}
