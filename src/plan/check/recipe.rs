//! Checks values of a recipe that no daemon or shell accepts: mounts and names of environment variables.

use std::collections::BTreeMap;

use super::diagnostics::with_place;
use super::tune::check_space;
use crate::config::container::cpuset_error;
use crate::config::engine::{ContainerRecipe, Recipe};
use crate::config::forms::OrderedMap;
use crate::config::yaml::{Diagnostic, SourceSpan};

/// The errors of a recipe's container and environments.
pub(super) fn check_recipe(recipe: &Recipe, diagnostics: &mut Vec<Diagnostic>) {
    let mut found = Vec::new();
    if let Some(container) = &recipe.container {
        check_mounts(container, &mut found);
        check_variables(&container.env, &mut found);
        if let Some(cpuset) = &container.cpuset {
            let owner = format!("the recipe `{}`", recipe.name);
            check_cpuset(cpuset, &owner, recipe.name.place.as_ref(), &mut found);
        }
    }
    if let Some(process) = &recipe.process {
        check_variables(&process.env, &mut found);
    }
    for patch in recipe.patches() {
        check_variables(&patch.env, &mut found);
        if let Some(process) = &patch.process {
            check_variables(&process.env, &mut found);
        }
    }
    if let Some(space) = &recipe.tune {
        check_space(space, &mut found);
    }
    for diagnostic in found {
        // A YAML anchor may bring the same line into several variants.
        if !diagnostics.contains(&diagnostic) {
            diagnostics.push(diagnostic);
        }
    }
}

/// Errors about mount targets that are relative or given twice.
fn check_mounts(container: &ContainerRecipe, diagnostics: &mut Vec<Diagnostic>) {
    let mut targets: BTreeMap<&str, Option<&SourceSpan>> = BTreeMap::new();
    for mount in &container.mounts {
        let target = &mount.target;
        if !target.starts_with('/') {
            let diagnostic = Diagnostic::new(format!(
                "the target `{target}` of a mount is not an absolute path"
            ));
            diagnostics.push(
                with_place(diagnostic, target.place.as_ref(), "a path in the container")
                    .with_help("start it with `/`"),
            );
            continue;
        }
        match targets.insert(target.trim_end_matches('/'), target.place.as_ref()) {
            None => {}
            Some(first) => {
                let diagnostic = Diagnostic::new(format!("two mounts have the target `{target}`"));
                let diagnostic = with_place(diagnostic, target.place.as_ref(), "again");
                let diagnostic = match first {
                    Some(place) => diagnostic.with_secondary(place, "first here"),
                    None => diagnostic,
                };
                diagnostics.push(diagnostic.with_help("give each mount its own target"));
            }
        }
    }
}

/// Errors about a list of CPUs that no daemon takes.
pub(super) fn check_cpuset(
    cpuset: &str,
    owner: &str,
    place: Option<&SourceSpan>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    if let Some(why) = cpuset_error(cpuset) {
        let diagnostic = Diagnostic::new(format!(
            "`container: cpuset` of {owner} is `{cpuset}`, which is not a list of CPUs"
        ));
        diagnostics.push(with_place(diagnostic, place, why).with_help("for example `cpuset: 0-7,16`"));
    }
}

/// Errors about names that a shell or daemon would misread.
pub(super) fn check_variables<V>(map: &OrderedMap<V>, diagnostics: &mut Vec<Diagnostic>) {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    for (name, _) in map.iter() {
        if name.is_empty() || !name.chars().all(is_allowed) {
            let diagnostic = Diagnostic::new(format!(
                "`{}` is not a valid name of an environment variable",
                name.escape_debug()
            ));
            diagnostics.push(
                with_place(diagnostic, name.place.as_ref(), "not a valid name")
                    .with_help("use letters, digits, `_`, `.` and `-`"),
            );
        }
    }
}
