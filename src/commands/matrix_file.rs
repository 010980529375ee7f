//! Reads the matrix file of a command line.

use std::path::Path;

use crate::base::text::one_line;
use crate::commands::error::CommandError;
use crate::commands::output::{Colors, complain};
use crate::config::select::Selector;
use crate::config::yaml::{self, Mistake, Source};
use crate::plan::Plan;
use crate::plan::selection;
use crate::runner::load_matrix::{self, LoadedMatrix};

/// Reads a matrix and its recipes. The error shows all errors at their places.
pub(crate) fn load(path: &Path, colors: Colors) -> Result<LoadedMatrix, CommandError> {
    load_matrix::load(path).map_err(|errors| mistakes_error(&errors.mistakes, &errors.sources, colors.stderr))
}

/// Keeps the cells that match the selector, and prints notes about it. Fails if no cell matches.
pub(crate) fn select(plan: &mut Plan, only: &Selector) -> Result<(), CommandError> {
    let notes =
        selection::select(plan, only).map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    for note in notes {
        complain(&format!("note: {note}\n"));
    }
    Ok(())
}

pub(crate) fn print_notes(loaded: &LoadedMatrix) {
    for note in &loaded.notes {
        complain(&format!("{}\n", one_line(note)));
    }
}

/// Formats all errors in the order of their places, followed by their number.
pub(crate) fn mistakes_error(mistakes: &[Mistake], sources: &[Source], color: bool) -> CommandError {
    let mut mistakes = mistakes.to_vec();
    mistakes.sort_by_key(|mistake| {
        let place = mistake.place.as_ref();
        let file = place.and_then(|place| sources.iter().position(|source| *source.name == *place.file));
        (
            file.unwrap_or(usize::MAX),
            place.map_or(0, |place| place.range.start),
        )
    });
    let mistakes = &mistakes;
    let count = match mistakes.len() {
        1 => "1 mistake; nothing was started".to_owned(),
        n => format!("{n} mistakes; nothing was started"),
    };
    CommandError::usage(format!(
        "{}\n{count}\n",
        yaml::draw(mistakes, sources, color).trim_end()
    ))
}
