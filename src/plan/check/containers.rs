//! Checks the containers of a plan against the container runtime that starts them in a job.

use crate::config::matrix::{Matrix, engine_name};
use crate::config::yaml::{Diagnostic, SourceSpan};
use crate::plan::{Plan, Unsupported};

/// Errors about settings of containers that the container runtime of a job cannot apply.
pub(crate) fn check_containers(matrix: &Matrix, plan: &Plan) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for launch in &plan.launches {
        let Some(command) = launch.place.settings().container_command() else {
            continue;
        };
        for Unsupported { key, help } in command.unsupported() {
            let message = format!(
                "the container runtime `{}` of the cluster cannot apply `{key}` of engine `{}`",
                command.runtime().name(),
                launch.engine.name
            );
            let mut diagnostic = Diagnostic::new(message).with_help(help);
            if let Some((place, label)) = place_of_setting(matrix, &launch.engine.name, key) {
                diagnostic = diagnostic.with_place(place, label);
            }
            if !diagnostics.contains(&diagnostic) {
                diagnostics.push(diagnostic);
            }
        }
    }
    diagnostics
}

/// The entry of the engine whose container has that setting, and a label that says what sets it.
fn place_of_setting<'a>(matrix: &'a Matrix, engine: &str, key: &str) -> Option<(&'a SourceSpan, String)> {
    let mut engines = matrix.engines.iter();
    let named = engines.find(|named| engine_name(named).value == engine)?;
    let entry = &named.value;
    let change = entry.container.as_ref().filter(|change| change.value.sets(key));
    let label = match change.is_some() || (key == "image" && entry.image.is_some()) {
        true => format!("sets `{key}`"),
        false => format!("its recipe sets `{key}`"),
    };
    let place = change.map_or_else(
        || engine_name(named).place.as_ref(),
        |change| change.place.as_ref(),
    );
    place.map(|place| (place, label))
}
