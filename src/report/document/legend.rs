//! What several tables of a report would say in the same words is said once.

use crate::report::Table;

/// How notes begin that explain marks and columns, whatever rows a table has.
const GENERAL: [&str; 8] = [
    "definitions: ",
    "[simulated]: ",
    "[imported]: ",
    "[best]: ",
    "[a, b]: ",
    "n measurements: ",
    "n=1: ",
    "~: ",
];

/// Takes the general notes out of the tables, each once, in the order of appearance.
pub(super) fn gathered<'t>(tables: impl Iterator<Item = &'t mut Table>) -> Vec<String> {
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
