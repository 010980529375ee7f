//! Collects the notes that several tables share, so that a report prints each once.

use crate::report::table::Table;

/// Beginnings of the notes that explain marks and columns and are the same for every table.
const GENERAL: [&str; 9] = [
    "definitions: ",
    "[simulated]: ",
    "[imported",
    "no costs for imported rows",
    "[best]: ",
    "[a, b]: ",
    "n in the status: ",
    "n=1: ",
    "~: ",
];

/// Removes the general notes from the tables and returns each once, in the order of appearance.
pub(super) fn take_general_notes<'t>(tables: impl Iterator<Item = &'t mut Table>) -> Vec<String> {
    let mut legend: Vec<String> = Vec::new();
    for table in tables {
        table.notes.retain(|note| {
            let is_general = GENERAL.iter().any(|start| note.starts_with(start));
            if is_general && !legend.contains(note) {
                legend.push(note.clone());
            }
            !is_general
        });
    }
    legend
}
