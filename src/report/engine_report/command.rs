//! The command that started an engine.

use crate::plan::command;
use crate::report::tables::ReportCell;

/// The command that started the engine: the recorded one, or the planned one with line breaks if both are
/// equal or none is recorded.
pub(crate) fn command_of(cells: &[&ReportCell<'_>]) -> String {
    let planned = command::command_line(cells[0].launch);
    let recorded = cells
        .iter()
        .flat_map(|cell| &cell.summaries)
        .find_map(|summary| summary.engine.command.clone());
    match recorded {
        Some(recorded) if recorded != planned.to_line() => recorded,
        _ => planned.to_wrapped(),
    }
}
