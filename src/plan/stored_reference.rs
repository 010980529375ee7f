//! Which cells of a stored run the answers of a plan are compared with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::answer_references::{common_values, differing_axis, names};
use super::{Cell, Plan};
use crate::base::ids::CellKey;
use crate::config::matrix::Matrix;
use crate::config::quality::{Task, TaskSource};
use crate::config::select::Selector;

/// A stored run, and the cells of it with whose answers those of a plan are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredReference {
    /// Name or folder of the run, as the matrix has it.
    pub(crate) run: String,
    /// Selects one graded cell of it for each model and load.
    pub(crate) cells: Selector,
}

/// Why the cells of a plan cannot be paired with those of a stored run.
#[derive(Debug, Error)]
pub(crate) enum StoredPairError {
    #[error(
        "the stored run has no graded cell\n  = help: measure the stored run again with the `quality` of this matrix"
    )]
    NotGraded,
    #[error(
        "`{cells}` selects none of the graded cells of the stored run: {graded}\n  = help: select one graded cell for each load"
    )]
    NothingSelected { cells: Selector, graded: String },
    #[error(
        "several cells of the stored run with the same model and load are selected: {cells}\n  = help: select one of these cells{}",
        .example.as_ref().map_or_else(String::new, |example| format!(", such as `reference: {{ run: …, {example} }}`"))
    )]
    Several { cells: String, example: Option<String> },
    #[error(
        "the stored run has no graded cell with the model and load of `{cell}`; its graded cells are: {graded}\n  = help: measure the stored run again with this load, or set `quality: false` in this scenario"
    )]
    NoCell { cell: CellKey, graded: String },
    #[error(
        "the scenario of `{cell}` has other prompts in the stored run, although it has the same name there: another data set, number of prompts, length or warm-up\n  = help: measure the stored run again with this scenario, or give the changed scenario another name"
    )]
    OtherLoad { cell: CellKey },
    #[error(
        "the stored run answered other items of the task `{task}` than `{cell}`: {difference}\n  = help: use the same `quality` and `seed` as the stored run, or measure the stored run again"
    )]
    OtherItems {
        cell: CellKey,
        task: String,
        difference: String,
    },
}

impl StoredReference {
    pub(super) fn of_matrix(matrix: &Matrix) -> Option<Self> {
        let reference = matrix.quality.as_ref()?.value.reference.as_ref()?;
        Some(Self {
            run: reference.run.as_ref()?.value.clone(),
            cells: reference.cells.clone(),
        })
    }

    /// The cell of the stored run for each graded cell of a plan, by their keys.
    ///
    /// # Errors
    /// A graded cell has no counterpart or several, or their items are known to differ.
    pub(crate) fn pair(
        &self,
        plan: &Plan,
        stored: &Plan,
    ) -> Result<BTreeMap<CellKey, CellKey>, StoredPairError> {
        let graded: Vec<&Cell> = graded(stored).collect();
        if graded.is_empty() {
            return Err(StoredPairError::NotGraded);
        }
        let mut selected: BTreeMap<Vec<Option<&String>>, Vec<&Cell>> = BTreeMap::new();
        for cell in graded.iter().filter(|cell| self.cells.matches(&cell.axes)) {
            selected.entry(common_values(&cell.axes)).or_default().push(cell);
        }
        if selected.is_empty() {
            return Err(StoredPairError::NothingSelected {
                cells: self.cells.clone(),
                graded: names(&graded),
            });
        }
        let mut pairs = BTreeMap::new();
        for cell in self::graded(plan) {
            let found = match selected.get(&common_values(&cell.axes)).map(Vec::as_slice) {
                Some([found]) => found,
                Some(several) => {
                    let example = differing_axis(several).map(|(axis, value)| format!("{axis}: {value}"));
                    return Err(StoredPairError::Several {
                        cells: names(several),
                        example,
                    });
                }
                None => {
                    return Err(StoredPairError::NoCell {
                        cell: cell.key.clone(),
                        graded: names(&graded),
                    });
                }
            };
            if cell.scenario.workload != found.scenario.workload {
                return Err(StoredPairError::OtherLoad {
                    cell: cell.key.clone(),
                });
            }
            if let Some((task, difference)) = other_items(cell, found) {
                return Err(StoredPairError::OtherItems {
                    cell: cell.key.clone(),
                    task,
                    difference,
                });
            }
            pairs.insert(cell.key.clone(), found.key.clone());
        }
        Ok(pairs)
    }
}

fn graded(plan: &Plan) -> impl Iterator<Item = &Cell> {
    plan.cells.iter().filter(|cell| cell.scenario.quality.is_some())
}

/// The first task of a cell whose items differ from those of the other cell, as far as the plans say, and how. The
/// content of files is unknown here.
fn other_items(cell: &Cell, stored: &Cell) -> Option<(String, String)> {
    let tasks = |cell: &Cell| -> Vec<Task> {
        let quality = cell.scenario.quality.iter();
        quality.flat_map(|quality| quality.tasks.clone()).collect()
    };
    let theirs = tasks(stored);
    let seeds = [cell, stored].map(|cell| cell.scenario.seed);
    tasks(cell).into_iter().find_map(|task| {
        let other = theirs.iter().find(|other| other.name == task.name);
        let difference = match other {
            None => "it was not graded".to_owned(),
            Some(other) => task_difference(&task, other, seeds)?,
        };
        Some((task.name, difference))
    })
}

/// How the items of a task of a cell differ from those of the other cell, or the load beside which they are sent, as far as
/// the plans say.
pub(crate) fn item_difference(cell: &Cell, stored: &Cell, task: &str) -> Option<String> {
    if cell.scenario.workload != stored.scenario.workload {
        return Some("the items of the two sides were sent under loads with different prompts".to_owned());
    }
    let own = |cell: &Cell| -> Option<Task> {
        let tasks = &cell.scenario.quality.as_ref()?.tasks;
        tasks.iter().find(|own| own.name == task).cloned()
    };
    task_difference(
        &own(cell)?,
        &own(stored)?,
        [cell, stored].map(|cell| cell.scenario.seed),
    )
}

fn task_difference(task: &Task, stored: &Task, seeds: [u64; 2]) -> Option<String> {
    if task.items != stored.items {
        return Some(format!(
            "the task has {} instead of {} items",
            stored.items, task.items
        ));
    }
    if task.max_tokens != stored.max_tokens {
        return Some(format!(
            "answers have at most {} instead of {} tokens",
            stored.max_tokens, task.max_tokens
        ));
    }
    match (&task.source, &stored.source) {
        (TaskSource::Generated { .. }, TaskSource::Generated { .. }) if seeds[0] != seeds[1] => {
            Some(format!(
                "the items were generated with the seed {} instead of {}",
                seeds[1], seeds[0]
            ))
        }
        (TaskSource::Generated { input_len, .. }, TaskSource::Generated { input_len: other, .. }) => {
            (input_len != other).then(|| format!("prompts have {other} instead of {input_len} tokens"))
        }
        (
            TaskSource::File { grader, pattern, .. },
            TaskSource::File {
                grader: other,
                pattern: other_pattern,
                ..
            },
        ) => ((grader, pattern) != (other, other_pattern)).then(|| "items have another grader".to_owned()),
        _ => {
            Some("the items were generated for one side, and read from a file for the other side".to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
