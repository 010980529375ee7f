//! Checks the engines of a matrix against their recipes.

use std::collections::BTreeSet;

use super::diagnostics::{unknown_name, with_place};
use super::{attached, axes, members, recipe};
use crate::config::connections::routing_key_header_error;
use crate::config::engine::{ApiRecipe, Executor, Recipe, Recipes};
use crate::config::forms::{Named, OneOrMany};
use crate::config::matrix::{EngineEntry, Matrix, engine_name};
use crate::config::metrics;
use crate::config::yaml::{Diagnostic, Spanned, backtick_list};
use crate::plan::executor::{self, Facts};

/// Errors about the engines of a matrix and the recipes that it names.
pub(super) fn check_engines(matrix: &Matrix, recipes: &Recipes, diagnostics: &mut Vec<Diagnostic>) {
    let mut names = BTreeSet::new();
    let known: Vec<&str> = recipes.keys().map(String::as_str).collect();
    for named in matrix.engines.iter() {
        let Some(recipe) = recipes.get(&named.name.value) else {
            let mut diagnostic = unknown_name("engine", &named.name, &known, "not a recipe in `engines/`");
            let tagged = named.name.value.split_once(':');
            if let (Some((engine, tag)), Some(place)) = (tagged, &named.name.place)
                && known.contains(&engine)
            {
                diagnostic = diagnostic
                    .with_help("a version follows an `@`; write")
                    .with_replacement(place, format!("{engine}@{tag}"));
            }
            diagnostics.push(diagnostic.with_note("an engine has the name of its recipe: a shipped recipe, or a file `engines/<name>.yaml` next to the folder of the matrix"));
            continue;
        };
        if names.insert(recipe.name.as_str()) {
            check_metrics(recipe, diagnostics);
            check_cache_reset(recipe, diagnostics);
            recipe::check_recipe(recipe, diagnostics);
        }
        let entry = &named.value;
        if let Some(variant) = &entry.variant {
            let known: Vec<&str> = recipe
                .variants
                .iter()
                .map(|(name, _)| name.value.as_str())
                .collect();
            if !known.contains(&variant.as_str()) {
                diagnostics.push(unknown_name(
                    "variant",
                    variant,
                    &known,
                    &format!("the recipe `{}` has no variant with this name", recipe.name),
                ));
            }
        }
        axes::refuse_empty(&entry.version, diagnostics);
        axes::refuse_empty(&entry.executor, diagnostics);
        axes::refuse_empty(&entry.precision, diagnostics);
        check_execution(matrix, named, recipe, diagnostics);
    }
}

/// Every API description of a recipe, including variants and versions.
fn api_recipes(recipe: &Recipe) -> impl Iterator<Item = &ApiRecipe> {
    let patched = recipe.patches().filter_map(|patch| patch.api.as_ref());
    std::iter::once(&recipe.api).chain(patched)
}

/// Errors about several ways to make caches cold in one API, because it is unclear which one applies.
fn check_cache_reset(recipe: &Recipe, diagnostics: &mut Vec<Diagnostic>) {
    for api in api_recipes(recipe) {
        let (unique, restart) = (&api.unique_prefixes, &api.restart_for_cells);
        let ways = [
            ("reset", api.reset.is_some(), None),
            (
                "unique_prefixes",
                unique.as_ref().is_some_and(|unique| unique.value),
                unique.as_ref().and_then(|unique| unique.place.as_ref()),
            ),
            ("restart_for_cells", restart.value, restart.place.as_ref()),
        ];
        let named: Vec<_> = ways.into_iter().filter(|(_, is_named, _)| *is_named).collect();
        let [(first, ..), .., (last, _, place)] = named[..] else {
            continue;
        };
        let diagnostic = Diagnostic::new(format!(
            "the recipe `{}` sets more than one way to start with cold caches: `{first}` and `{last}`",
            recipe.name
        ));
        let diagnostic = with_place(diagnostic, place, format!("conflicts with `{first}`")).with_help(
            "keep only one of these keys: `reset` if the engine has an endpoint that empties its caches, otherwise `unique_prefixes`. \
             Use `restart_for_cells` if the engine finds cached prompts in spite of unique prefixes",
        );
        // A YAML anchor may bring the same line into several variants.
        if !diagnostics.contains(&diagnostic) {
            diagnostics.push(diagnostic);
        }
    }
}

/// Errors about unknown metric names, which would never be read.
fn check_metrics(recipe: &Recipe, diagnostics: &mut Vec<Diagnostic>) {
    let known: Vec<&str> = metrics::METRICS.iter().map(|(name, _)| *name).collect();
    let names = api_recipes(recipe)
        .filter_map(|api| api.metrics.as_ref())
        .flat_map(|metrics| metrics.names.iter());
    let wrong = names.filter(|(name, _)| metrics::metric_kind(metrics::current_name(&name.value)).is_none());
    let label = format!(
        "`matrix` reads no metric with this name from the engine `{}`",
        recipe.name
    );
    for (name, _) in wrong {
        let diagnostic = unknown_name("metric", name, &known, &label);
        // A YAML anchor may bring the same line into several variants.
        if !diagnostics.contains(&diagnostic) {
            diagnostics.push(diagnostic);
        }
    }
}

/// Errors about how an engine runs: its recipe must offer the executor, and the entry must have the keys that
/// this executor needs and no others.
fn check_execution(
    matrix: &Matrix,
    named: &Named<EngineEntry>,
    recipe: &Recipe,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let entry = &named.value;
    check_executors(entry, recipe, diagnostics);
    // Whether one of the executors, or the default one, has a property.
    let any = |executors: Option<&Spanned<OneOrMany<Executor>>>, has: fn(&Facts) -> bool| {
        let default = recipe.executors.get(..1).unwrap_or_default();
        let mut executors = executors.map_or(default, |executors| &executors.0).iter();
        executors.any(|executor| has(executor::facts(*executor)))
    };
    let executors = entry.executor.as_ref().or(matrix.axes.executor.as_ref());
    let default = recipe.executors.get(..1).unwrap_or_default();
    let named_executors = executors.map_or(default, |executors| &executors.0);
    members::check_members(
        named,
        recipe,
        named_executors,
        matrix.containers.as_ref(),
        diagnostics,
    );
    let is_contained = any(executors, |facts| facts.has_container);
    if let Some(change) = entry.container.as_ref().filter(|_| !is_contained) {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!("`{}` does not run in a container", engine_name(named))),
                change.place.as_ref(),
                "has no effect",
            )
            .with_help("set `executor: container`, or remove `container:`"),
        );
    }
    if let Some(change) = &entry.container
        && let Some(cpuset) = &change.value.cpuset
    {
        let owner = format!("`{}`", engine_name(named));
        recipe::check_cpuset(cpuset, &owner, change.place.as_ref(), diagnostics);
    }
    let attaches = any(entry.executor.as_ref(), |facts| !facts.starts_engine);
    if !attaches {
        check_declared_gpus(named, diagnostics);
    }
    attached::check_attached(named, attaches, diagnostics);
    check_routing_key_header(named, diagnostics);
}

/// Errors about the header of routing keys.
fn check_routing_key_header(named: &Named<EngineEntry>, diagnostics: &mut Vec<Diagnostic>) {
    let entry = &named.value;
    let Some(header) = &entry.routing_key_header else {
        return;
    };
    let is_fixed = |name: &str| name.eq_ignore_ascii_case(&header.value);
    let why = match routing_key_header_error(&header.value) {
        None if entry.headers.iter().any(|(name, _)| is_fixed(&name.value)) => {
            Some("`headers` already sets this header to the same value in all requests")
        }
        why => why,
    };
    if let Some(why) = why {
        let message = format!("invalid `routing_key_header` of `{}`", engine_name(named));
        diagnostics.push(
            with_place(
                Diagnostic::new(message),
                header.place.as_ref().or(named.name.place.as_ref()),
                why,
            )
            .with_help("name the header that the router reads to choose a worker, such as `X-Session-ID`"),
        );
    }
}

/// Errors about executors that the recipe does not support.
fn check_executors(entry: &EngineEntry, recipe: &Recipe, diagnostics: &mut Vec<Diagnostic>) {
    if let Some(executors) = &entry.executor {
        for executor in executors
            .0
            .iter()
            .filter(|executor| !recipe.executors.contains(executor))
        {
            let offered: Vec<&str> = recipe.executors.iter().map(|executor| executor.name()).collect();
            diagnostics.push(
                with_place(
                    Diagnostic::new(format!(
                        "the recipe `{}` does not support the executor `{}`",
                        recipe.name,
                        executor.name()
                    )),
                    executors.place.as_ref(),
                    "not supported",
                )
                .with_help(format!("use {}", backtick_list(offered))),
            );
        }
    }
}

/// Errors about GPUs that are declared for an engine which is not attached; such an engine leases its GPUs.
fn check_declared_gpus(named: &Named<EngineEntry>, diagnostics: &mut Vec<Diagnostic>) {
    let gpus = named
        .value
        .gpus
        .as_ref()
        .map(|gpus| ("gpus", gpus.place.as_ref()));
    let gpu = named.value.gpu.as_ref().map(|gpu| ("gpu", gpu.place.as_ref()));
    for (key, place) in gpus.into_iter().chain(gpu) {
        let engine = engine_name(named);
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "`{key}` describes the GPUs of an attached server, but `matrix` starts `{engine}` itself"
                )),
                place,
                "not needed here",
            )
            .with_help(format!(
                "remove `{key}`; `matrix` computes the number of GPUs as `tp` × `pp` × `dp` of the model"
            )),
        );
    }
}
