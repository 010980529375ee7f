//! Whether an engine may be upgraded: what changed, and whether speed, reliability, answers or resources got worse.

mod answers;
mod changes;
pub(crate) mod configuration;
mod losses;
mod nightly;
mod stored;

pub(crate) use changes::{Change, ChangeKind, Changes, find_changes};
pub(crate) use losses::answers_in_words;
pub(crate) use nightly::{NightlyAnswers, NightlyUpgrade};
pub(crate) use stored::StoredUpgrade;

use crate::analysis::compare::arm_comparison::{ArmsError, compare_arms};
use crate::analysis::compare::arms;
use crate::analysis::compare::decision::{Answer, CONFIDENCE};
use crate::analysis::compare::difference::Difference;
use crate::analysis::compare::loss::Loss;
use crate::analysis::compare::pairwise::{CompareOptions, Comparison, forbidden_reason};
use crate::analysis::compare::resources::{ResourceQuestions, ResourceRow};
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::graded::reference::{AnswerComparison, ComparedAnswers};
use crate::analysis::graded::sides::{GradedRun, SidePair, compare_sides};
use crate::base::ids::CellKey;
use crate::base::text::pluralize;
use crate::plan::Plan;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::cell_stats::{Noise, RunStats};
use crate::results::record::upgrade::UpgradeRecord;
use answers::wrong_answers;

/// The setting of an upgrade whose sides are a tuned configuration and the default one, which may differ in everything.
pub(crate) const TUNED: &str = "configuration";

/// A finished run of both sides.
pub(crate) struct UpgradeRun<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) summaries: &'a [MeasurementSummary],
    pub(crate) side: &'a RunStats,
    pub(crate) record: &'a UpgradeRecord,
    pub(crate) noise: Option<&'a Noise>,
    /// Smallest change that matters, as a share.
    pub(crate) bound: f64,
}

impl UpgradeRun<'_> {
    /// Compares both sides.
    ///
    /// # Errors
    /// No cells of the sides form pairs.
    pub(crate) fn judge(&self) -> Result<Upgrade, ArmsError> {
        let UpgradeRecord { axis, values, .. } = self.record;
        let names = [values[0].as_str(), values[1].as_str()];
        let side = self.comparable_side();
        let pairs = arms::arm_pairs(&side.cells, axis, names).unwrap_or_default();
        let pairs: Vec<(CellKey, CellKey)> = pairs
            .into_iter()
            .map(|(baseline, candidate)| (baseline.clone(), candidate.clone()))
            .collect();
        let questions = ResourceQuestions::new(self.plan, self.summaries, &pairs);
        let options = CompareOptions {
            bound: self.bound,
            noise: self.noise,
            allow_environment: false,
            further_questions: questions.len(),
        };
        let speed = compare_arms(self.plan, self.summaries, &side, axis, names, &options)?;
        let family = speed.rows.len() + questions.len();
        let differences: Vec<&Difference> = speed
            .differences
            .iter()
            .map(|(difference, _)| difference)
            .collect();
        let forbidden = forbidden_reason(&differences, false);
        let run = GradedRun {
            stored: None,
            plan: self.plan,
            summaries: self.summaries,
        };
        let answers: Vec<SidePair<'_>> = pairs
            .iter()
            .filter_map(|(baseline, candidate)| Some(SidePair::new(run.cell(candidate)?, baseline, Ok(run))))
            .collect();
        Ok(Upgrade {
            sides: values.clone(),
            changes: find_changes(&speed, self.record, self.summaries, &pairs, Vec::new()),
            resources: questions.judge(self.bound, family, forbidden.as_deref()),
            answers: compare_sides(&answers),
            wrong_answers: wrong_answers(&answers),
            is_simulated: self.plan.launches.iter().any(|launch| launch.engine.simulated),
            is_sequential: false,
            is_nightly: false,
            speed,
        })
    }

    /// The side, of which a precision that is upgraded is a fact of the engine and not of the load. So is the number of GPUs of a
    /// configuration that was tuned.
    fn comparable_side(&self) -> RunStats {
        let mut side = self.side.clone();
        if self.record.setting == TUNED {
            for cell in side.cells.values_mut() {
                cell.devices = 0;
            }
        }
        if self.record.axis == "precision" || self.record.setting == TUNED {
            for cell in side.cells.values_mut() {
                for fact in ["precision", "checkpoint"] {
                    let value = cell.asked.remove(fact);
                    cell.engine.extend(value.map(|value| (fact.to_owned(), value)));
                }
            }
        }
        side
    }
}

/// Both sides of an upgrade, compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Upgrade {
    /// Names of the baseline and the candidate.
    pub(crate) sides: [String; 2],
    pub(crate) changes: Changes,
    /// Gating metrics and reliability.
    pub(crate) speed: Comparison,
    pub(crate) resources: Vec<ResourceRow>,
    /// Graded answers of the candidate compared with those of the baseline; empty if no side was graded.
    pub(crate) answers: Vec<AnswerComparison>,
    /// Why answers of the candidate are wrong by themselves, by cell.
    pub(crate) wrong_answers: Vec<(CellKey, String)>,
    /// Whether the engine is simulated.
    pub(crate) is_simulated: bool,
    /// Whether one side was measured after the other, in a run of its own.
    pub(crate) is_sequential: bool,
    /// Whether the metrics have the verdicts of a nightly run, which has rules of its own.
    pub(crate) is_nightly: bool,
}

/// Whether the engine may be upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayUpgrade {
    Yes,
    No,
    /// Something that has to be known is not.
    Undecided,
}

impl MayUpgrade {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Undecided => "undecided",
        }
    }
}

/// The answer to the question whether to upgrade, with its reasons, the most serious first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conclusion {
    pub(crate) answer: MayUpgrade,
    pub(crate) reasons: Vec<String>,
}

impl Upgrade {
    /// Number of figures that were judged together: those for which the verdicts of the page are corrected. The metrics of a nightly run
    /// are none of them.
    pub(crate) fn figures_judged_together(&self) -> usize {
        let metrics = self.speed.rows.iter().filter(|_| !self.is_nightly);
        let families = metrics.map(|row| row.answer.family);
        let of_resources = self.resources.iter().map(|row| row.answer.family);
        families.chain(of_resources).max().unwrap_or(0)
    }

    pub(crate) fn conclusion(&self, name: &dyn Fn(&CellKey) -> String) -> Conclusion {
        let losses = self.losses();
        if !losses.is_empty() {
            let in_words = |(loss, text): &(Loss, String)| format!("{text} ({})", name(&loss.cell));
            return Conclusion {
                answer: MayUpgrade::No,
                reasons: losses.iter().map(in_words).collect(),
            };
        }
        let open = self.open_questions(name);
        match open.is_empty() {
            false => Conclusion {
                answer: MayUpgrade::Undecided,
                reasons: open,
            },
            true => Conclusion {
                answer: MayUpgrade::Yes,
                reasons: self.findings(),
            },
        }
    }

    /// What has to be known for the answer yes, and is not: figures that were not judged or are unclear, cells that the
    /// candidate lacks, answers that could not be compared.
    fn open_questions(&self, name: &dyn Fn(&CellKey) -> String) -> Vec<String> {
        let mut open = Vec::new();
        let chance = self
            .speed
            .failures
            .iter()
            .filter(|failure| !failure.is_regression);
        open.extend(chance.map(|failure| {
            format!(
                "reliability is unclear: {} ({})",
                failure.text,
                name(&failure.cell)
            )
        }));
        let histories = self.speed.start_histories.iter();
        open.extend(histories.filter_map(|history| {
            let crashes = history.crashes.as_ref()?;
            Some(format!(
                "starts of both sides crash: {crashes} ({})",
                name(&history.cell)
            ))
        }));
        let not_judged = self.speed.rows.iter().filter(|row| row.verdict().is_none());
        open.extend(not_judged.map(|row| {
            let why = row.reason();
            format!(
                "{} was not judged: {why} ({})",
                row.metric.label(),
                name(&row.cell)
            )
        }));
        let lost = self.speed.lost_cells();
        open.extend(lost.map(|lost| format!("{} has no measurement of the candidate", name(&lost.cell))));
        let unclear = self
            .speed
            .rows
            .iter()
            .filter(|row| row.verdict() == Some(Verdict::Unclear));
        open.extend(unclear.map(|row| {
            format!(
                "{} is unclear: {} ({})",
                row.metric.label(),
                change(&row.answer),
                name(&row.cell)
            )
        }));
        open.extend(self.answers.iter().filter_map(|answers| {
            let why = answers.result.as_ref().err()?;
            Some(format!(
                "answers of {} were not compared: {why} ({})",
                answers.task,
                name(&answers.cell)
            ))
        }));
        open
    }

    /// What a positive answer rests on.
    fn findings(&self) -> Vec<String> {
        let answers: Vec<&Answer> = self.speed.rows.iter().map(|row| &row.answer).collect();
        let count = |verdict| {
            answers
                .iter()
                .filter(|answer| answer.verdict() == Some(verdict))
                .count()
        };
        let mut findings = vec![format!(
            "nothing got worse in {}: {} same, {} better",
            pluralize(answers.len(), "figure", "figures"),
            count(Verdict::Same),
            count(Verdict::Better)
        )];
        findings.push(self.answers_in_words());
        let histories = self.speed.start_histories.iter();
        findings.extend(histories.filter_map(|history| history.baseline_crashes.clone()));
        let unclear = self
            .resources
            .iter()
            .filter(|row| !matches!(row.answer.verdict(), Some(Verdict::Same | Verdict::Better)));
        let mut unclear: Vec<&str> = unclear.map(|row| row.resource.label()).collect();
        unclear.dedup();
        if !unclear.is_empty() {
            findings.push(format!("not known well enough: {}", unclear.join(", ")));
        }
        findings
    }

    /// What is known of the answers.
    fn answers_in_words(&self) -> String {
        let compared: Vec<&ComparedAnswers> = self
            .answers
            .iter()
            .filter_map(|answers| answers.result.as_ref().ok())
            .collect();
        let losses: Option<Vec<f64>> = compared.iter().map(|compared| compared.smallest_loss).collect();
        let largest = losses.map(|losses| losses.into_iter().fold(0.0, f64::max));
        match (compared.is_empty(), largest) {
            (true, _) => "answers were not graded".to_owned(),
            (false, Some(largest)) => format!(
                "the answers did not get worse in {}; a loss of {:.1} percentage points would probably have been found",
                pluralize(compared.len(), "comparison", "comparisons"),
                100.0 * largest
            ),
            (false, None) => format!(
                "the answers did not get worse in {}, but there were sometimes too few items to find any loss",
                pluralize(compared.len(), "comparison", "comparisons")
            ),
        }
    }
}

/// A change with its interval, in percent.
fn change(answer: &Answer) -> String {
    let Some(estimate) = answer.estimate else {
        return "of unknown size".to_owned();
    };
    let percent = |share: f64| format!("{:+.1} %", 100.0 * share);
    match estimate.interval(CONFIDENCE) {
        Some(interval) => format!(
            "{}, 95 % interval {} to {}",
            percent(estimate.change()),
            percent(interval.low),
            percent(interval.high)
        ),
        None => percent(estimate.change()),
    }
}
