//! The table of graded answers.

use super::columns;
use super::report_cell::ReportCell;
use crate::analysis::graded;
use crate::report::table::{Row, Table, Value};
use crate::results::record::cell::MeasurementStatus;
use crate::results::record::graded::TaskScore;

/// Draws a row for each task of each cell, over the starts of the cell; `None` if no answers were graded.
pub(crate) fn answer_table(cells: &[ReportCell<'_>]) -> Option<Table> {
    let has_runs = cells.iter().any(|cell| cell.run != cells[0].run);
    let mut columns = vec![columns::text_column("engine", 0)];
    columns.extend(has_runs.then(|| columns::text_column("run", 0)));
    columns.extend([
        columns::text_column("model", 0),
        columns::text_column("scenario", 0),
        columns::text_column("task", 0),
        columns::number_column("correct", 0),
        columns::number_column("items", 0),
        columns::number_column("starts", 2),
        columns::number_column("95 % interval", 2),
        columns::text_column("wrong under load, right alone", 1),
        columns::text_column("right under load, wrong alone", 1),
    ]);
    let mut rows = Vec::new();
    for cell in cells {
        for (score, starts) in scores(cell) {
            let mut row = vec![Value::Text(cell.engine())];
            row.extend(has_runs.then(|| Value::text(cell.run)));
            row.extend([
                Value::text(&cell.launch.model),
                Value::Text(cell.scenario()),
                Value::text(&score.task),
                Value::Text(format!("{:.1} %", 100.0 * score.share())),
                Value::Count(u64::from(score.items / starts)),
                Value::Count(u64::from(starts)),
                Value::Text(interval(&score, starts)),
                Value::Text(format!("{} of {}", score.correct_alone, score.wrong_again)),
                Value::Text(format!(
                    "{} of {}",
                    score.controls - score.controls_correct,
                    score.controls
                )),
            ]);
            rows.push(Row {
                cells: row,
                marks: cell.marks(),
            });
        }
    }
    let notes = vec![
        "answers were graded on the measured engine, after the measurement and under its load; failed requests count as wrong"
            .to_owned(),
        "items that were wrong under load were sent again alone, and of those that were right some, the controls".to_owned(),
    ];
    (!rows.is_empty()).then(|| Table {
        title: "Graded answers".to_owned(),
        columns,
        rows,
        notes,
    })
}

/// The scores of the tasks of a cell, added up over its completed measurements, and their number.
fn scores(cell: &ReportCell<'_>) -> Vec<(TaskScore, u32)> {
    let mut all: Vec<(TaskScore, u32)> = Vec::new();
    let done = cell
        .summaries
        .iter()
        .filter(|summary| summary.status == MeasurementStatus::Done);
    for score in done
        .filter_map(|summary| summary.graded.as_ref())
        .flat_map(|graded| &graded.tasks)
    {
        match all.iter_mut().find(|(known, _)| known.task == score.task) {
            Some((known, starts)) => {
                known.add(score);
                *starts += 1;
            }
            None => all.push((score.clone(), 1)),
        }
    }
    all
}

/// The interval of the share of correct answers, in percent. Every start has the same items, so that more starts tell no
/// more about other items.
fn interval(score: &TaskScore, starts: u32) -> String {
    let [low, high] = graded::wilson_interval(score.share(), score.items / starts);
    format!("{:.1} to {:.1} %", 100.0 * low, 100.0 * high)
}
