//! Errors at places of files, as an error of a command.

use crate::commands::error::CommandError;
use crate::config::yaml::{self, Diagnostic, Source};

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
