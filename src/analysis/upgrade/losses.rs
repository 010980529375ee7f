//! What got worse in an upgrade.

use super::{Upgrade, change};
use crate::analysis::compare::bisection;
use crate::analysis::compare::decision::Answer;
use crate::analysis::compare::loss::{Loss, LossOf};
use crate::analysis::compare::pairwise::row::Row;
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::graded::reference::{AnswerComparison, ComparedAnswers};

impl Upgrade {
    /// What got worse, each with its size in words: answers, reliability, speed by its size, resources.
    pub(crate) fn losses(&self) -> Vec<(Loss, String)> {
        let mut losses = self.losses_of_answers();
        let failures = self.speed.failures.iter().filter(|failure| failure.is_regression);
        losses.extend(failures.map(|failure| {
            let loss = Loss {
                cell: failure.cell.clone(),
                of: LossOf::Reliability,
            };
            (loss, format!("less reliable: {}", failure.text))
        }));
        let mut slower: Vec<&Row> = self
            .speed
            .rows
            .iter()
            .filter(|row| row.verdict() == Some(Verdict::Worse))
            .collect();
        slower.sort_by(|one, other| size(&other.answer).total_cmp(&size(&one.answer)));
        losses.extend(slower.into_iter().map(|row| {
            let change = row
                .change_from_zero()
                .map_or_else(|| change(&row.answer), str::to_owned);
            let loss = Loss {
                cell: row.cell.clone(),
                of: LossOf::Metric(row.metric),
            };
            (loss, format!("{} got worse: {change}", row.metric.label()))
        }));
        let needed = self
            .resources
            .iter()
            .filter(|row| row.answer.verdict() == Some(Verdict::Worse));
        losses.extend(needed.map(|row| {
            let loss = Loss {
                cell: row.cell.clone(),
                of: LossOf::Resource(row.resource),
            };
            let text = format!("{} got worse: {}", row.resource.label(), change(&row.answer));
            (loss, text)
        }));
        losses
    }

    fn losses_of_answers(&self) -> Vec<(Loss, String)> {
        let compared = self
            .answers
            .iter()
            .filter_map(|answers| Some((answers, answers.result.as_ref().ok()?)));
        let worse = compared.filter(|(_, compared)| compared.is_worse());
        let worse = worse.map(|(answers, compared)| {
            let loss = Loss {
                cell: answers.cell.clone(),
                of: LossOf::Answers(answers.task.clone()),
            };
            (loss, answers_in_words(&answers.task, compared))
        });
        let wrong = self.wrong_answers.iter().map(|(cell, why)| {
            let loss = Loss {
                cell: cell.clone(),
                of: LossOf::WrongAnswers,
            };
            (loss, format!("answers are wrong: {why}"))
        });
        worse.chain(wrong).collect()
    }

    /// Returns whether the candidate has a loss, which the candidate of `ends` has. `None` if the data do not decide.
    pub(crate) fn has_loss(&self, loss: &Loss, ends: &Self) -> Option<bool> {
        match &loss.of {
            LossOf::Metric(_) | LossOf::Reliability => bisection::is_found_in(loss, &self.speed),
            LossOf::WrongAnswers => Some(!self.wrong_answers.is_empty()),
            LossOf::Resource(resource) => {
                let row = self.resources.iter().find(|row| row.resource == *resource)?;
                bisection::is_worse(row.answer.verdict())
            }
            LossOf::Answers(task) => {
                let of_task = |answers: &&AnswerComparison| answers.task == *task;
                let own = self.answers.iter().find(of_task)?.result.as_ref().ok()?;
                let of_ends = ends
                    .answers
                    .iter()
                    .find(|answers| answers.task == *task && answers.cell == loss.cell)?;
                let size = of_ends.result.as_ref().ok()?.paired.difference();
                let excludes_it = own.paired.interval()[0] > size;
                match own.is_worse() {
                    true => Some(true),
                    false => excludes_it.then_some(false),
                }
            }
        }
    }
}

/// The size of a change, as a difference of logarithms.
fn size(answer: &Answer) -> f64 {
    answer.estimate.map_or(0.0, |estimate| estimate.log_change.abs())
}

/// Says that answers to a task got worse, with the difference of the shares of correct answers and its interval, in points.
pub(crate) fn answers_in_words(task: &str, compared: &ComparedAnswers) -> String {
    let [low, high] = compared.paired.interval().map(|bound| 100.0 * bound);
    format!(
        "answers of {task} got worse: {:+.1} points, 95 % interval {low:+.1} to {high:+.1}, n = {}",
        100.0 * compared.paired.difference(),
        compared.paired.items
    )
}
