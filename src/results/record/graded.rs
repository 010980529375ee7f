//! Graded answers of a measurement: the scores of its tasks, and what became of each item.

use serde::{Deserialize, Serialize};

use crate::base::ids::ContentHash;

/// The scores of the tasks that were graded under the load of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GradedAnswers {
    pub(crate) tasks: Vec<TaskScore>,
    /// Answers to greedy probes, if they were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) probes: Option<ProbeAnswers>,
    /// Largest number of requests of the load and of items in flight at once; absent if it is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Option<u32>,
    /// Duration of the load with the items, in seconds.
    pub(crate) load_s: f64,
    /// Duration of the items that were sent again alone, in seconds.
    pub(crate) alone_s: f64,
}

/// Answers to greedy probes in their order; absent ones failed or have no text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProbeAnswers {
    /// Digest of the prompts and of the largest length of answers.
    pub(crate) probes_hash: ContentHash,
    pub(crate) under_load: Vec<Option<String>>,
    /// Of lone requests, after the load.
    pub(crate) alone: Vec<Option<String>>,
}

/// The score of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskScore {
    pub(crate) task: String,
    /// Smallest share of correct answers, if one is demanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) min_correct: Option<f64>,
    pub(crate) items: u32,
    pub(crate) correct: u32,
    /// Requests that failed; they count as wrong answers.
    pub(crate) failed: u32,
    /// Items that were wrong under load and were sent again alone.
    pub(crate) wrong_again: u32,
    /// Those of them that were correct alone.
    pub(crate) correct_alone: u32,
    /// Items that were correct under load and were sent again alone.
    pub(crate) controls: u32,
    /// Those of them that were correct alone, too.
    pub(crate) controls_correct: u32,
    /// For each item in order whether its answer under load is correct: `1` or `0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) outcomes: String,
    /// Digest of the items: prompts, expected answers and grader. Outcomes with the same digest are of the same items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) items_hash: Option<ContentHash>,
}

/// What became of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GradedItem {
    pub(crate) task: String,
    /// Number of the item in its task, from 0.
    pub(crate) item: u32,
    /// Whether the answer under load is correct.
    pub(crate) is_correct: bool,
    /// Why it is not, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    /// The beginning of the answer under load, if it is not correct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<String>,
    /// Whether the answer alone is correct; absent if the item was not sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) is_correct_alone: Option<bool>,
}

impl TaskScore {
    /// Adds the counts of another start. The outcomes stay those of the first.
    pub(crate) fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.correct += other.correct;
        self.failed += other.failed;
        self.wrong_again += other.wrong_again;
        self.correct_alone += other.correct_alone;
        self.controls += other.controls;
        self.controls_correct += other.controls_correct;
    }

    /// Whether the outcomes are those that were counted. Older versions recorded none.
    pub(crate) fn is_consistent(&self) -> bool {
        let correct = self.outcomes.bytes().filter(|outcome| *outcome == b'1').count();
        let is_counted = self.outcomes.len() == self.items as usize && correct == self.correct as usize;
        self.outcomes.is_empty() || is_counted
    }

    /// Share of correct answers.
    pub(crate) fn share(&self) -> f64 {
        f64::from(self.correct) / f64::from(self.items.max(1))
    }
}

impl GradedAnswers {
    /// Adds up the items of each task in `tasks`, which have no counts yet.
    pub(crate) fn count(mut tasks: Vec<TaskScore>, items: &[GradedItem], failed: &[bool]) -> Vec<TaskScore> {
        for score in &mut tasks {
            let of_task = items
                .iter()
                .zip(failed)
                .filter(|(item, _)| item.task == score.task);
            for (item, is_failed) in of_task {
                score.items += 1;
                score.outcomes.push(if item.is_correct { '1' } else { '0' });
                score.correct += u32::from(item.is_correct);
                score.failed += u32::from(*is_failed);
                let alone = item.is_correct_alone;
                match item.is_correct {
                    true => {
                        score.controls += u32::from(alone.is_some());
                        score.controls_correct += u32::from(alone == Some(true));
                    }
                    false => {
                        score.wrong_again += u32::from(alone.is_some());
                        score.correct_alone += u32::from(alone == Some(true));
                    }
                }
            }
        }
        tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_added_up_by_task() {
        let item = |task: &str, is_correct, is_correct_alone| GradedItem {
            task: task.to_owned(),
            item: 0,
            is_correct,
            problem: None,
            answer: None,
            is_correct_alone,
        };
        let items = [
            item("a", true, None),
            item("a", true, Some(true)),
            item("a", true, Some(false)),
            item("a", false, Some(true)),
            item("b", false, Some(false)),
        ];
        let tasks = ["a", "b"].map(|task| TaskScore {
            task: task.to_owned(),
            ..TaskScore::default()
        });
        let failed = [false, false, false, false, true];
        let scores = GradedAnswers::count(tasks.into(), &items, &failed);
        let numbers = |score: &TaskScore| {
            [
                score.items,
                score.correct,
                score.failed,
                score.wrong_again,
                score.correct_alone,
                score.controls,
                score.controls_correct,
            ]
        };
        assert_eq!(numbers(&scores[0]), [4, 3, 0, 1, 1, 2, 1]);
        assert_eq!(numbers(&scores[1]), [1, 0, 1, 1, 0, 0, 0]);
        assert_eq!(scores[0].share(), 0.75);
        assert_eq!(scores[0].outcomes, "1110");
    }
}
