//! Checks `tune:` of a matrix and of a recipe.

use super::diagnostics::{unknown_name, with_place};
use crate::config::matrix::{Matrix, engine_name};
use crate::config::tune::{DefaultSettings, TuneSpace, knobs};
use crate::config::yaml::{Diagnostic, Spanned};

pub(super) fn check_tune(matrix: &Matrix, diagnostics: &mut Vec<Diagnostic>) {
    let Some(entry) = &matrix.tune else { return };
    let engines = matrix.engines.iter();
    let engines: Vec<&str> = engines.map(|named| engine_name(named).value.as_str()).collect();
    let scenarios = matrix.scenarios.iter();
    let scenarios: Vec<&str> = scenarios.map(|named| named.name.value.as_str()).collect();
    for (kind, name, known) in [
        ("engine", &entry.engine, engines),
        ("scenario", &entry.scenario, scenarios),
    ] {
        if let Some(name) = name.as_ref().filter(|name| !known.contains(&name.as_str())) {
            diagnostics.push(unknown_name(kind, name, &known, "not in this matrix"));
        }
    }
    if let Some(price) = &entry.gpu_hour_price
        && !(price.value.is_finite() && price.value > 0.0)
    {
        diagnostics.push(with_place(
            Diagnostic::new("`gpu_hour_price` must be above 0")
                .with_help("write the price of a GPU for an hour, such as `gpu_hour_price: 2.5`"),
            price.place.as_ref(),
            "not a price",
        ));
    }
    if let Some(space) = &entry.space {
        check_space(space, diagnostics);
    }
}

/// Reports what is wrong with a space whatever the engine's arguments are.
pub(super) fn check_space(space: &Spanned<TuneSpace>, diagnostics: &mut Vec<Diagnostic>) {
    if space.value.len() == 0 {
        diagnostics.push(with_place(
            Diagnostic::new("`space` has no setting")
                .with_help("list settings with their values, such as `--max-num-seqs: [64, 128, 256]`"),
            space.place.as_ref(),
            "empty",
        ));
    }
    if let Err(diagnostic) = knobs(&space.value, &DefaultSettings::default()) {
        diagnostics.push(*diagnostic);
    }
}
