//! Checks the `repeats` of a matrix.

use super::with_place;
use crate::config::repeats::Repeats;
use crate::config::yaml::{Diagnostic, Spanned};

/// The errors of `repeats`.
pub(super) fn check_repeats(repeats: &Spanned<Repeats>, diagnostics: &mut Vec<Diagnostic>) {
    if let (Some(order), Some(interleave)) = (&repeats.order, &repeats.interleave) {
        diagnostics.push(
            with_place(
                Diagnostic::new("`repeats` says twice in which order engines are started"),
                interleave.place.as_ref(),
                format!("`order: {}` says it", order.value.name()),
            )
            .with_help("take `interleave` out"),
        );
    }
    if repeats.target_ci.is_none() {
        check_unused_bounds(repeats, diagnostics);
        return;
    }
    let starts = repeats.planned_starts();
    if let Some(max_starts) = repeats
        .max_starts
        .as_ref()
        .filter(|max_starts| max_starts.value < starts)
    {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "`repeats` plans {starts} starts, of which {} are the most",
                    max_starts.value
                )),
                max_starts.place.as_ref(),
                format!(
                    "below {starts} starts, the first of which tell how many `target_ci` takes, five at least"
                ),
            )
            .with_help(format!("raise `max_starts` above {starts}, or lower `starts`")),
        );
    }
    if let Some(budget) = repeats
        .budget
        .as_ref()
        .filter(|budget| budget.value.duration().is_zero())
    {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!("`repeats: budget` is {}", budget.value)),
                budget.place.as_ref(),
                "nothing can be begun within it",
            )
            .with_help("give it as GPU time, such as `90m`, or take it out"),
        );
    }
}

/// Errors about bounds without `target_ci`. Their place is the whole of `repeats`, so that a misspelled
/// `target_ci` causes only one error.
fn check_unused_bounds(repeats: &Spanned<Repeats>, diagnostics: &mut Vec<Diagnostic>) {
    let bounds = [
        ("max_starts", repeats.max_starts.is_some()),
        ("budget", repeats.budget.is_some()),
    ];
    for (name, _) in bounds.into_iter().filter(|(_, is_there)| *is_there) {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!("`repeats: {name}` bounds nothing without `target_ci`")),
                repeats.place.as_ref(),
                "no cell is started again",
            )
            .with_help("say how well figures should be known, such as `target_ci: 2%`, or take it out"),
        );
    }
}
