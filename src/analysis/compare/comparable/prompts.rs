//! Compares prompts, lengths, and what determines the answers.

use super::found_differences::FoundDifferences;
use crate::analysis::compare::cell_facts::{
    add_digests, differing_facts, load_in_words, prompt_facts, question_facts,
};
use crate::analysis::compare::compared_cell::ComparedCell;
use crate::analysis::compare::response_length::{length_difference, mean_response_tokens};
use crate::analysis::compare::settings;
use crate::analysis::metrics::{Metric, TokenCount};
use crate::config::scenario::LoadLimits;
use crate::results::record::provenance::{Tool, UnknownFact};

/// Compares prompts, lengths, and what determines the answers.
pub(crate) fn compare_prompts(
    differences: &mut FoundDifferences,
    cell: &ComparedCell<'_>,
    reference: &ComparedCell<'_>,
) {
    let is_imported = cell.imported().is_some() || reference.imported().is_some();
    match (cell.prompts_hash(), reference.prompts_hash()) {
        (Some(first_value), Some(second_value)) if first_value == second_value => {}
        (Some(first_value), Some(second_value)) => {
            let loads = [cell, reference].map(|side| load_in_words(&side.cell.scenario));
            let [first_value, second_value] = add_digests(loads, [first_value, second_value]);
            differences
                .incomparable
                .push(format!("prompts {first_value} against {second_value}"));
        }
        _ if is_imported => {
            compare_prompt_sums(differences, cell, reference);
            compare_clients(differences, cell, reference);
        }
        _ => differences.incomparable.push(
            "the prompts are unknown: not recorded, or not the same in all measurements of a side".to_owned(),
        ),
    }
    // A difference but no obstacle: only the first few tokens of the prompts differ. Lengths are the same and
    // both sides are cold, which is the purpose of the prefix. An engine does the same work for both.
    if cell.has_unique_prefixes() != reference.has_unique_prefixes() {
        let word = |side: &ComparedCell<'_>| match side.has_unique_prefixes() {
            true => "prompts with unique prefixes",
            false => "prompts as drawn",
        };
        differences
            .noted
            .push(format!("{} against {}", word(cell), word(reference)));
    }
    let (first_value, second_value) = (question_facts(cell), question_facts(reference));
    differences.incomparable.extend(
        differing_facts(&first_value, &second_value)
            .map(|(what, first_value, second_value)| format!("{what} {first_value} against {second_value}")),
    );
    let lengths = [cell, reference].map(|side| mean_response_tokens(&side.cell.scenario, side.summaries));
    if let Some(difference) = length_difference(lengths[0], lengths[1]) {
        differences.noted.push(format!(
            "{difference}, so only metrics that do not depend on the length of answers are judged"
        ));
    }
    if cell.is_unknown(UnknownFact::Rate) || reference.is_unknown(UnknownFact::Rate) {
        differences
            .noted
            .push("for at least one side, the rate of its requests was not recorded".to_owned());
    }
}

/// Compares prompts without a digest by their number, their sums and how they were drawn.
fn compare_prompt_sums(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    let before = differences.incomparable.len();
    match (first.prompts(), second.prompts()) {
        (Some(first_value), Some(second_value)) if first_value != second_value => {
            differences
                .incomparable
                .push(format!("{first_value} prompts against {second_value}"));
        }
        (Some(_), Some(_)) => {}
        _ => differences
            .incomparable
            .push("the number of prompts is unknown for at least one side".to_owned()),
    }
    let (first_value, second_value) = (&first.cell.scenario.workload, &second.cell.scenario.workload);
    let [first_workload, second_workload] = [first, second].map(|side| {
        let imported = side.imported()?;
        Some((imported.tool, imported.workload.as_deref()?))
    });
    if first.is_unknown(UnknownFact::Dataset) || second.is_unknown(UnknownFact::Dataset) {
        differences
            .incomparable
            .push("the data set is unknown for at least one side".to_owned());
    } else if first_workload != second_workload {
        let word = |workload: Option<(Tool, &str)>| match workload {
            Some((tool, name)) => format!("{name} of {}", tool.name()),
            None => "none of another tool".to_owned(),
        };
        differences.incomparable.push(format!(
            "workload {} against {}",
            word(first_workload),
            word(second_workload)
        ));
    } else if first_value.dataset.name() != second_value.dataset.name() {
        let (first_value, second_value) = (&first_value.dataset, &second_value.dataset);
        differences.incomparable.push(format!(
            "data set {} against {}",
            first_value.bench_serving_name(),
            second_value.bench_serving_name()
        ));
    }
    let lengths = |side: &ComparedCell<'_>| {
        let facts = side.cell.scenario.workload.facts();
        (facts.drawn, facts.output_len)
    };
    let is_told = !first.is_unknown(UnknownFact::Lengths) && !second.is_unknown(UnknownFact::Lengths);
    if !is_told {
        differences
            .incomparable
            .push("the requested lengths are unknown for at least one side".to_owned());
    } else if lengths(first) != lengths(second) {
        differences
            .incomparable
            .push("the requested lengths differ".to_owned());
    }
    if differences.incomparable.len() == before && first.is_complete() && second.is_complete() {
        compare_token_sums(differences, first, second);
    }
    if differences.incomparable.len() > before {
        return;
    }
    let seed =
        |side: &ComparedCell<'_>| (!side.is_unknown(UnknownFact::Seed)).then_some(side.cell.scenario.seed);
    match (seed(first), seed(second)) {
        (Some(first_value), Some(second_value)) if first_value != second_value => {
            differences
                .incomparable
                .push(format!("seed {first_value} against {second_value}"));
        }
        (Some(_), Some(_)) => differences.noted.push(
            "the texts of the prompts were not compared (only their number, token sums and seed)".to_owned(),
        ),
        _ => differences
            .noted
            .push("the texts of the prompts were not compared (only their number and token sums)".to_owned()),
    }
}

/// Compares the settings of the clients besides the prompts, if one side is imported.
fn compare_clients(differences: &mut FoundDifferences, first: &ComparedCell<'_>, second: &ComparedCell<'_>) {
    let (first_value, second_value) = (prompt_facts(first), prompt_facts(second));
    differences.incomparable.extend(
        differing_facts(&first_value, &second_value)
            .map(|(what, first_value, second_value)| format!("{what} {first_value} against {second_value}")),
    );
    let warmup = |side: &ComparedCell<'_>| side.cell.scenario.limits.warmup;
    // A file need not have the number of warm-up requests. The import then uses the default.
    let is_filler =
        |side: &ComparedCell<'_>| side.imported().is_some() && warmup(side) == LoadLimits::default().warmup;
    let are_told = first.imported().is_some() && second.imported().is_some()
        || ![first, second].into_iter().any(is_filler);
    if are_told && warmup(first) != warmup(second) {
        differences.incomparable.push(format!(
            "warm-up requests {} against {}",
            warmup(first),
            warmup(second)
        ));
    }
    let settings = |side: &ComparedCell<'_>| {
        let mut facts = side
            .imported()
            .map(|imported| imported.client.clone())
            .unwrap_or_default();
        let launch = side.launch;
        if side.imported().is_some() && launch.served_model_name != launch.checkpoint {
            facts.insert("served model name".to_owned(), launch.served_model_name.clone());
        }
        facts
    };
    let (first_value, second_value) = (settings(first), settings(second));
    let setting_differences = settings::setting_pairs(&first_value, &second_value).into_iter();
    differences.noted.extend(
        setting_differences
            .map(|(what, first_value, second_value)| format!("{what} {first_value} against {second_value}")),
    );
}

/// Compares the tokens of all prompts, and the requested output tokens.
fn compare_token_sums(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    let requested = Metric::Tokens(TokenCount::OutputRequested);
    let input = |side: &ComparedCell<'_>| side.figure(Metric::Tokens(TokenCount::Input));
    let output = |side: &ComparedCell<'_>| {
        let output = || side.figure(Metric::Tokens(TokenCount::Output));
        side.figure(requested).or_else(output)
    };
    for (what, first_value, second_value) in [
        ("prompt tokens", input(first), input(second)),
        ("output tokens", output(first), output(second)),
    ] {
        match (first_value, second_value) {
            (Some(first_value), Some(second_value)) if first_value == second_value => {}
            (Some(first_value), Some(second_value)) => differences
                .incomparable
                .push(format!("{first_value} {what} against {second_value}")),
            _ => differences
                .incomparable
                .push(format!("{what} are unknown for at least one side")),
        }
    }
}
