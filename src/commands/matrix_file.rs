//! Reads the matrix file of a command line.

use std::path::Path;

use crate::base::text::one_line;
use crate::commands::error::CommandError;
use crate::commands::output::{Colors, eprint};
use crate::config::select::Selector;
use crate::config::yaml::{self, Diagnostic, Source};
use crate::plan::Plan;
use crate::plan::selection;
use crate::runner::load_matrix::{self, LoadedMatrix};

/// Reads a matrix and its recipes. The error shows all errors at their places.
pub(crate) fn load(path: &Path, colors: Colors) -> Result<LoadedMatrix, CommandError> {
    load_matrix::load(path)
        .map_err(|errors| diagnostics_error(&errors.diagnostics, &errors.sources, colors.stderr))
}

/// Keeps the cells that match the selector, and prints notes about it. Fails if no cell matches.
pub(crate) fn select(plan: &mut Plan, only: &Selector) -> Result<(), CommandError> {
    let notes =
        selection::select(plan, only).map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    for note in notes {
        eprint(&format!("note: {note}\n"));
    }
    Ok(())
}

pub(crate) fn print_notes(loaded: &LoadedMatrix) {
    for note in &loaded.notes {
        eprint(&format!("{}\n", one_line(note)));
    }
}

/// Formats all errors in the order of their places, followed by their number.
pub(crate) fn diagnostics_error(diagnostics: &[Diagnostic], sources: &[Source], color: bool) -> CommandError {
    let mut diagnostics = diagnostics.to_vec();
    diagnostics.sort_by_key(|diagnostic| {
        let place = diagnostic.place.as_ref();
        let file = place.and_then(|place| sources.iter().position(|source| *source.name == *place.file));
        (
            file.unwrap_or(usize::MAX),
            place.map_or(0, |place| place.range.start),
        )
    });
    let diagnostics = &diagnostics;
    let count = match diagnostics.len() {
        1 => "1 error; nothing was started".to_owned(),
        n => format!("{n} errors; nothing was started"),
    };
    CommandError::usage(format!(
        "{}\n{count}\n",
        yaml::render(diagnostics, sources, color).trim_end()
    ))
}
