//! Checks values of a recipe that no daemon or shell accepts: mounts and names of environment variables.

use std::collections::BTreeMap;

use super::at;
use crate::config::engine::{ContainerRecipe, Recipe};
use crate::config::forms::OrderedMap;
use crate::config::yaml::{Mistake, Place};

/// The errors of a recipe's container and environments.
pub(super) fn all(recipe: &Recipe, mistakes: &mut Vec<Mistake>) {
    let mut found = Vec::new();
    if let Some(container) = &recipe.container {
        mounts(container, &mut found);
        variables(&container.env, &mut found);
    }
    if let Some(process) = &recipe.process {
        variables(&process.env, &mut found);
    }
    for patch in recipe.patches() {
        variables(&patch.env, &mut found);
        if let Some(process) = &patch.process {
            variables(&process.env, &mut found);
        }
    }
    for mistake in found {
        // A YAML anchor may bring the same line into several variants.
        if !mistakes.contains(&mistake) {
            mistakes.push(mistake);
        }
    }
}

/// Errors about mount targets that are relative or given twice.
fn mounts(container: &ContainerRecipe, mistakes: &mut Vec<Mistake>) {
    let mut seen: BTreeMap<&str, Option<&Place>> = BTreeMap::new();
    for mount in &container.mounts {
        let target = &mount.target;
        if !target.starts_with('/') {
            let mistake = Mistake::new(format!("the target `{target}` of a mount is not absolute"));
            mistakes.push(
                at(mistake, target.place.as_ref(), "a path in the container").help("begin it with `/`"),
            );
            continue;
        }
        match seen.insert(target.trim_end_matches('/'), target.place.as_ref()) {
            None => {}
            Some(first) => {
                let mistake = Mistake::new(format!("two mounts have the target `{target}`"));
                let mistake = at(mistake, target.place.as_ref(), "again");
                let mistake = match first {
                    Some(place) => mistake.also(place, "first here"),
                    None => mistake,
                };
                mistakes.push(mistake.help("give each mount a target of its own"));
            }
        }
    }
}

/// Errors about names that a shell or daemon would misread.
pub(super) fn variables<V>(map: &OrderedMap<V>, mistakes: &mut Vec<Mistake>) {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    for (name, _) in map.iter() {
        if name.is_empty() || !name.chars().all(is_allowed) {
            let mistake = Mistake::new(format!(
                "`{}` is no name of an environment variable",
                name.escape_debug()
            ));
            mistakes.push(
                at(mistake, name.place.as_ref(), "not a name").help("use letters, digits, `_`, `.` and `-`"),
            );
        }
    }
}
