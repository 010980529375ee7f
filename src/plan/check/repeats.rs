//! Checks the `repeats` of a matrix.

use super::diagnostics::with_place;
use crate::config::repeats::Repeats;
use crate::config::yaml::{Diagnostic, Spanned};

/// The errors of `repeats`.
pub(super) fn check_repeats(repeats: &Spanned<Repeats>, diagnostics: &mut Vec<Diagnostic>) {
    if let (Some(order), Some(interleave)) = (&repeats.order, &repeats.interleave) {
        diagnostics.push(
            with_place(
                Diagnostic::new("`repeats` sets the order of starts twice"),
                interleave.place.as_ref(),
                format!("`order: {}` sets it already", order.value.name()),
            )
            .with_help("remove `interleave`"),
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
                    "`repeats` plans {starts} starts, but `max_starts` is {}",
                    max_starts.value
                )),
                max_starts.place.as_ref(),
                format!(
                    "`target_ci` computes the number of further starts from the first {starts} starts (at least five)"
                ),
            )
            .with_help(format!("raise `max_starts` to at least {starts}, or lower `starts` if it is above five")),
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
                "the budget is zero, so no engine can be started",
            )
            .with_help("set `budget` to a GPU time, such as `90m`, or remove it"),
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
                Diagnostic::new(format!("`repeats: {name}` has no effect without `target_ci`")),
                repeats.place.as_ref(),
                "without `target_ci`, no starts are added",
            )
            .with_help(format!(
                "set how narrow the confidence interval must become, such as `target_ci: 2%`, or remove `{name}`"
            )),
        );
    }
}
