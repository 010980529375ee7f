//! The scores of graded answers, and their table.

use serde::Serialize;

use super::columns;
use super::report_cell::ReportCell;
use crate::analysis::graded;
use crate::analysis::graded::reference::{AnswerComparison, ComparedAnswers};
use crate::base::ids::CellKey;
use crate::plan::arms::is_baseline_key;
use crate::report::table::{Column, Row, Table, Value};
use crate::results::record::graded::TaskScore;

/// The score of a graded task over the completed measurements of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AnswerScore {
    /// Name of the task.
    pub(crate) task: String,
    /// Number of items in a measurement.
    pub(crate) items: u32,
    /// Number of measurements.
    pub(crate) measurements: u32,
    /// Share of correct answers under load.
    pub(crate) correct_share: f64,
    /// 95 % interval of that share over items. Every measurement has the same items.
    pub(crate) interval: [f64; 2],
    /// Requests that failed; they count as wrong answers.
    pub(crate) failed: u32,
    /// Items that were wrong under load and were sent again alone.
    pub(crate) wrong_again: u32,
    /// Those of them that were correct alone.
    pub(crate) correct_alone: u32,
    /// Items that were correct under load and were sent again alone.
    pub(crate) controls: u32,
    /// Those of them that were wrong alone.
    pub(crate) controls_wrong: u32,
    /// Comparison with the reference of the matrix; absent if there is none, and for the reference itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) versus_reference: Option<AnswersVersusReference>,
}

/// Answers compared with those of the reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AnswersVersusReference {
    /// Key of the cell with whose answers they are compared.
    pub(crate) reference: String,
    /// Name of the stored run of that cell; absent if it is a cell of the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
    pub(crate) result: AnswerResult,
}

/// The result of comparing answers item by item.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AnswerResult {
    /// Why they cannot be compared.
    NotCompared(String),
    Compared(AnswerDifference),
}

/// The difference of answers to the same items.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AnswerDifference {
    /// Items that were graded on both sides.
    pub(crate) items: u32,
    /// Measurements of each side whose items were paired.
    pub(crate) measurements: u32,
    /// Items that are answered worse than by the reference.
    pub(crate) lost: u32,
    /// Items that are answered better.
    pub(crate) gained: u32,
    /// Difference of the shares of correct answers; below zero if the reference's is larger.
    pub(crate) difference: f64,
    /// 95 % interval of the difference.
    pub(crate) interval: [f64; 2],
    /// Probability of so large a loss if both answer alike, corrected over all comparisons of the run.
    pub(crate) p_adjusted: f64,
    /// Whether the answers are worse, which makes the cell invalid.
    pub(crate) is_worse: bool,
    /// The smallest loss of the share that would have been found in 80 % of runs; absent if a loss was found, and if there are too few items for that.
    pub(crate) smallest_loss: Option<f64>,
}

impl From<&ComparedAnswers> for AnswerDifference {
    fn from(compared: &ComparedAnswers) -> Self {
        let paired = &compared.paired;
        Self {
            items: paired.items,
            measurements: paired.measurements,
            lost: paired.lost(),
            gained: paired.gained(),
            difference: paired.difference(),
            interval: paired.interval(),
            p_adjusted: compared.p_adjusted,
            is_worse: compared.is_worse(),
            smallest_loss: compared.smallest_loss,
        }
    }
}

impl From<&AnswerComparison> for AnswersVersusReference {
    fn from(comparison: &AnswerComparison) -> Self {
        Self {
            reference: comparison.reference.to_string(),
            run: comparison.run.as_ref().map(ToString::to_string),
            result: match &comparison.result {
                Ok(compared) => AnswerResult::Compared(compared.into()),
                Err(why) => AnswerResult::NotCompared(why.clone()),
            },
        }
    }
}

/// The scores of a cell, one for each task.
pub(crate) fn answer_scores(cell: &ReportCell<'_>) -> Vec<AnswerScore> {
    let mut sums: Vec<(TaskScore, u32)> = Vec::new();
    let graded = cell.completed().filter_map(|summary| summary.graded.as_ref());
    for score in graded.flat_map(|graded| &graded.tasks) {
        match sums.iter_mut().find(|(known, _)| known.task == score.task) {
            Some((known, measurements)) => {
                known.add(score);
                *measurements += 1;
            }
            None => sums.push((score.clone(), 1)),
        }
    }
    let score = |(sum, measurements): (TaskScore, u32)| {
        let items = sum.items / measurements;
        let mut comparisons = cell.answer_comparisons.iter();
        let comparison =
            comparisons.find(|compared| compared.cell == cell.cell.key && compared.task == sum.task);
        AnswerScore {
            items,
            measurements,
            correct_share: sum.share(),
            interval: graded::wilson_interval(sum.share(), items),
            failed: sum.failed,
            wrong_again: sum.wrong_again,
            correct_alone: sum.correct_alone,
            controls: sum.controls,
            controls_wrong: sum.controls - sum.controls_correct,
            versus_reference: comparison.map(AnswersVersusReference::from),
            task: sum.task,
        }
    };
    sums.into_iter().map(score).collect()
}

/// Draws a row for each task of each cell, over the measurements of the cell; `None` if no answers were graded.
pub(crate) fn answer_table(cells: &[ReportCell<'_>]) -> Option<Table> {
    let scores: Vec<(&ReportCell<'_>, AnswerScore)> = cells
        .iter()
        .flat_map(|cell| answer_scores(cell).into_iter().map(move |score| (cell, score)))
        .collect();
    if scores.is_empty() {
        return None;
    }
    let has_runs = cells.iter().any(|cell| cell.run != cells[0].run);
    let has_reference = scores.iter().any(|(_, score)| score.versus_reference.is_some());
    let mut columns = vec![columns::text_column("engine", 0)];
    columns.extend(has_runs.then(|| columns::text_column("run", 0)));
    columns.extend([
        columns::text_column("model", 0),
        columns::text_column("scenario", 0),
        columns::text_column("task", 0),
        columns::number_column("correct", 0),
        columns::number_column("items", 0),
        columns::number_column("measurements", 2),
        columns::number_column("95 % interval", 2),
    ]);
    if has_reference {
        columns.extend(reference_columns());
    }
    columns.extend([
        columns::text_column("wrong under load, right alone", 1),
        columns::text_column("right under load, wrong alone", 1),
    ]);
    let row = |(cell, score): &(&ReportCell<'_>, AnswerScore)| {
        let mut row = vec![Value::Text(cell.engine())];
        row.extend(has_runs.then(|| Value::text(cell.run)));
        row.extend([
            Value::text(&cell.launch.model),
            Value::Text(cell.scenario()),
            Value::text(&score.task),
            Value::Text(match score.failed {
                0 => format!("{:.1} %", 100.0 * score.correct_share),
                failed => format!("{:.1} % ({failed} failed)", 100.0 * score.correct_share),
            }),
            Value::Count(u64::from(score.items)),
            Value::Count(u64::from(score.measurements)),
            Value::Text(format!(
                "{:.1} to {:.1} %",
                100.0 * score.interval[0],
                100.0 * score.interval[1]
            )),
        ]);
        if has_reference {
            row.extend(reference_values(score.versus_reference.as_ref()));
        }
        row.extend([
            Value::Text(format!("{} of {}", score.correct_alone, score.wrong_again)),
            Value::Text(format!("{} of {}", score.controls_wrong, score.controls)),
        ]);
        Row {
            cells: row,
            marks: cell.marks(),
        }
    };
    Some(Table {
        title: "Graded answers".to_owned(),
        columns,
        rows: scores.iter().map(row).collect(),
        notes: notes(&scores, has_reference),
    })
}

fn reference_columns() -> [Column; 4] {
    [
        columns::text_column("points against the reference", 0),
        columns::text_column("lost / gained", 0),
        columns::number_column("p", 1),
        columns::text_column("detectable loss", 0),
    ]
}

fn reference_values(versus: Option<&AnswersVersusReference>) -> [Value; 4] {
    match versus.map(|versus| &versus.result) {
        None => [const { Value::Missing }; 4],
        Some(AnswerResult::NotCompared(_)) => [
            Value::text("not comparable"),
            Value::Missing,
            Value::Missing,
            Value::Missing,
        ],
        Some(AnswerResult::Compared(found)) => {
            let [low, high] = found.interval.map(|bound| 100.0 * bound);
            [
                Value::Text(format!(
                    "{:+.1} ({low:+.1} to {high:+.1})",
                    100.0 * found.difference
                )),
                Value::Text(format!("{} / {} of {}", found.lost, found.gained, found.items)),
                Value::Text(match found.p_adjusted {
                    p if p < 0.01 => "< 0.01".to_owned(),
                    p => format!("{p:.2}"),
                }),
                found.smallest_loss.map_or(Value::Missing, |loss| {
                    Value::Text(format!("{:.1} points", 100.0 * loss))
                }),
            ]
        }
    }
}

fn notes(scores: &[(&ReportCell<'_>, AnswerScore)], has_reference: bool) -> Vec<String> {
    let mut notes = vec![
        "answers were graded on the measured engine, after the measurement and under its load; failed requests count as wrong"
            .to_owned(),
        "items with a wrong answer under load were sent again alone; some items with a right answer were also sent again, as controls".to_owned(),
    ];
    if !has_reference {
        return notes;
    }
    notes.push(
        "points against the reference: the difference between the shares of correct answers, with its 95 % interval; lost: items answered worse than by the reference; gained: items answered better; p: the probability of such a loss by chance, corrected for the number of comparisons in the run; detectable loss: the loss that 80 % of runs would have found"
            .to_owned(),
    );
    let mut references: Vec<String> = Vec::new();
    for (cell, score) in scores {
        let Some(versus) = &score.versus_reference else {
            continue;
        };
        let note = match &versus.result {
            AnswerResult::NotCompared(why) => {
                format!("{}, {}: not comparable: {why}", cell.engine(), score.task)
            }
            AnswerResult::Compared(_) => match &versus.run {
                Some(run) => format!("reference: {} of the stored run {run}", versus.reference),
                None if is_baseline_key(&CellKey::new(versus.reference.clone())) => {
                    "reference: the baseline, which was started alternately with the candidate".to_owned()
                }
                None => format!("reference: {}", versus.reference),
            },
        };
        if !references.contains(&note) {
            references.push(note);
        }
    }
    notes.extend(references);
    notes
}
