//! Checks the `repeats` of a matrix.

use super::at;
use crate::config::repeats::Repeats;
use crate::config::yaml::{Mistake, Spanned};

/// The errors of `repeats`.
pub(super) fn all(repeats: &Spanned<Repeats>, mistakes: &mut Vec<Mistake>) {
    if let (Some(order), Some(interleave)) = (&repeats.order, &repeats.interleave) {
        mistakes.push(
            at(
                Mistake::new("`repeats` says twice in which order engines are started"),
                interleave.place.as_ref(),
                format!("`order: {}` says it", order.value.name()),
            )
            .help("take `interleave` out"),
        );
    }
    if repeats.until.is_none() {
        without_until(repeats, mistakes);
        return;
    }
    let starts = repeats.planned_starts();
    if let Some(most) = repeats.most.as_ref().filter(|most| most.value < starts) {
        mistakes.push(
            at(
                Mistake::new(format!(
                    "`repeats` plans {starts} starts, of which {} are the most",
                    most.value
                )),
                most.place.as_ref(),
                format!(
                    "below {starts} starts, the first of which tell how many `target_ci` takes, five at least"
                ),
            )
            .help(format!("raise `max_starts` above {starts}, or lower `starts`")),
        );
    }
    if let Some(budget) = repeats
        .budget
        .as_ref()
        .filter(|budget| budget.value.duration().is_zero())
    {
        mistakes.push(
            at(
                Mistake::new(format!("`repeats: budget` is {}", budget.value)),
                budget.place.as_ref(),
                "nothing can be begun within it",
            )
            .help("give it as GPU time, such as `90m`, or take it out"),
        );
    }
}

/// Errors about bounds without `target_ci`. Their place is the whole of `repeats`, so that a misspelled
/// `target_ci` causes only one error.
fn without_until(repeats: &Spanned<Repeats>, mistakes: &mut Vec<Mistake>) {
    let bounds = [
        ("max_starts", repeats.most.is_some()),
        ("budget", repeats.budget.is_some()),
    ];
    for (name, _) in bounds.into_iter().filter(|(_, is_there)| *is_there) {
        mistakes.push(
            at(
                Mistake::new(format!("`repeats: {name}` bounds nothing without `target_ci`")),
                repeats.place.as_ref(),
                "no cell is started again",
            )
            .help("say how well figures should be known, such as `target_ci: 2%`, or take it out"),
        );
    }
}
