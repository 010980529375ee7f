//! Checks a matrix before anything starts, and reports every error with its place.

mod attached;
mod axes;
mod containers;
mod diagnostics;
mod engines;
mod grid;
mod members;
mod protocol_support;
mod recipe;
mod repeats;
mod scenario;
mod templates;
mod tune;

use std::collections::BTreeMap;

pub(crate) use containers::check_containers;
pub(crate) use diagnostics::too_many;
pub(crate) use grid::{
    check_inclusion_names, check_point, no_cells_error, redundant_inclusion, unused_exclusion,
    unused_override,
};
pub(crate) use protocol_support::check_support;

use crate::config::engine::Recipes;
use crate::config::matrix::{Matrix, engine_name};
use crate::config::yaml::{Diagnostic, Spanned};
use diagnostics::{unknown_name, with_place};

/// The errors of a matrix as a whole.
pub(crate) fn check_matrix(matrix: &Matrix, recipes: &Recipes) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    check_names(matrix, &mut diagnostics);
    engines::check_engines(matrix, recipes, &mut diagnostics);
    axes::check_models(matrix, &mut diagnostics);
    scenario::check_scenarios(matrix, &mut diagnostics);
    axes::check_axes(matrix, &mut diagnostics);
    axes::check_selectors(matrix, &mut diagnostics);
    templates::check_templates(matrix, &mut diagnostics);
    repeats::check_repeats(&matrix.repeats, &mut diagnostics);
    tune::check_tune(matrix, &mut diagnostics);
    if let Some(reference) = &matrix.reference {
        let known: Vec<&str> = matrix
            .engines
            .iter()
            .map(|named| engine_name(named).value.as_str())
            .collect();
        if !known.contains(&reference.as_str()) {
            diagnostics.push(unknown_name(
                "engine",
                reference,
                &known,
                "this matrix has no engine with this name",
            ));
        }
    }
    if let Some(bounds) = &matrix.validity {
        for (field, wanted) in bounds.find_errors() {
            diagnostics.push(with_place(
                Diagnostic::new(format!("`validity: {field}` must be {wanted}")),
                bounds.place.as_ref(),
                "in here",
            ));
        }
    }
    diagnostics
}

fn check_names(matrix: &Matrix, diagnostics: &mut Vec<Diagnostic>) {
    if matrix.name.trim().is_empty() || matrix.name.contains('/') {
        diagnostics.push(
            with_place(
                Diagnostic::new("the name of the matrix is not a valid name for the folder of its runs"),
                matrix.name.place.as_ref(),
                "a folder name must not be empty or contain `/`",
            )
            .with_help("use letters, digits, `-`, `_` and `.`"),
        );
    }
    let lists = [
        (
            "engines",
            matrix.engines.is_empty(),
            matrix.engines.place.as_ref(),
            "name an engine, such as `[sglang]`",
        ),
        (
            "models",
            matrix.models.is_empty(),
            matrix.models.place.as_ref(),
            "name a model, such as `[Qwen/Qwen3-8B]`",
        ),
        (
            "scenarios",
            matrix.scenarios.is_empty(),
            matrix.scenarios.place.as_ref(),
            "name a scenario, such as `[sharegpt]`",
        ),
    ];
    for (list, is_empty, place, help) in lists {
        if is_empty {
            diagnostics.push(
                with_place(
                    Diagnostic::new(format!("`{list}` is empty")),
                    place,
                    "nothing to measure",
                )
                .with_help(help),
            );
        }
    }
    check_duplicates(
        "engine",
        matrix.engines.iter().map(engine_name),
        "give one of the two engines another name with `as:`",
        diagnostics,
    );
    check_duplicates(
        "model",
        matrix.models.iter().map(|named| &named.name),
        "merge the two entries of the model into one, and list different values, such as `tp: [1, 2]`",
        diagnostics,
    );
    check_duplicates(
        "scenario",
        matrix.scenarios.iter().map(|named| &named.name),
        "give one of the two scenarios another name",
        diagnostics,
    );
}

fn check_duplicates<'a>(
    kind: &str,
    names: impl Iterator<Item = &'a Spanned<String>>,
    help: &str,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let mut first_uses: BTreeMap<&str, &Spanned<String>> = BTreeMap::new();
    for name in names {
        match first_uses.get(name.as_str()) {
            None => {
                first_uses.insert(name.as_str(), name);
            }
            Some(first) => {
                let diagnostic = with_place(
                    Diagnostic::new(format!("the {kind} `{name}` is listed twice")),
                    name.place.as_ref(),
                    "again",
                );
                let diagnostic = match first.place.as_ref() {
                    Some(place) => diagnostic.with_secondary(place, "first here"),
                    None => diagnostic,
                };
                diagnostics.push(diagnostic.with_help(help));
            }
        }
    }
}
