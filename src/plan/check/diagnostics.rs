//! Diagnostics that several checks share.

use crate::config::yaml::{Diagnostic, SourceSpan, Spanned, backtick_list, nearest_name};

/// The error for a matrix with too many cells or measurements.
pub(crate) fn too_many(things: &str, limit: u64) -> Diagnostic {
    Diagnostic::new(format!("the matrix has more than {limit} {things}"))
        .with_help("remove values from the axes of the matrix, lower `repeats`, or split the matrix")
}

pub(super) fn with_place(
    diagnostic: Diagnostic,
    place: Option<&SourceSpan>,
    label: impl Into<String>,
) -> Diagnostic {
    match place {
        Some(place) => diagnostic.with_place(place, label),
        None => diagnostic,
    }
}

/// The error for an unknown name, with the nearest known name.
pub(super) fn unknown_name(kind: &str, name: &Spanned<String>, known: &[&str], label: &str) -> Diagnostic {
    let diagnostic = with_place(
        Diagnostic::new(format!("unknown {kind} `{name}`")),
        name.place.as_ref(),
        label,
    );
    match (nearest_name(name, known.iter().copied()), name.place.as_ref()) {
        (Some(near), Some(place)) => diagnostic
            .with_help(format!("did you mean `{near}`?"))
            .with_replacement(place, near),
        (Some(near), None) => diagnostic.with_help(format!("did you mean `{near}`?")),
        (None, _) => diagnostic.with_help(format!("known: {}", backtick_list(known.iter().copied()))),
    }
}
