//! Checks a matrix before anything starts, and reports every error with its place.

mod axes;
mod grid;
mod protocol_support;
mod recipe;
mod repeats;
mod scenario;
mod templates;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use grid::{
    check_inclusion_names, check_point, no_cells_error, redundant_inclusion, unused_exclusion,
    unused_override,
};
pub(crate) use protocol_support::check_support;

use crate::config::engine::{ApiRecipe, Executor, Recipe, Recipes};
use crate::config::forms::{Named, OneOrMany};
use crate::config::matrix::{EngineEntry, Matrix, engine_name};
use crate::config::metrics;
use crate::config::template::{Template, TemplatePart};
use crate::config::yaml::{Diagnostic, SourceSpan, Spanned, backtick_list, nearest_name};
use crate::plan::executor::{self, Facts};

/// The errors of a matrix as a whole.
pub(crate) fn check_matrix(matrix: &Matrix, recipes: &Recipes) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    check_names(matrix, &mut diagnostics);
    check_engines(matrix, recipes, &mut diagnostics);
    axes::check_models(matrix, &mut diagnostics);
    scenario::check_scenarios(matrix, &mut diagnostics);
    axes::check_axes(matrix, &mut diagnostics);
    axes::check_selectors(matrix, &mut diagnostics);
    templates::check_templates(matrix, &mut diagnostics);
    repeats::check_repeats(&matrix.repeats, &mut diagnostics);
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
                "an engine of this matrix",
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

/// The error for a matrix with too many cells or measurements.
pub(crate) fn too_many(things: &str, limit: u64) -> Diagnostic {
    Diagnostic::new(format!("the matrix has more than {limit} {things}"))
        .with_help("remove values from its axes, lower `repeats`, or split it into several matrices")
}

fn with_place(diagnostic: Diagnostic, place: Option<&SourceSpan>, label: impl Into<String>) -> Diagnostic {
    match place {
        Some(place) => diagnostic.with_place(place, label),
        None => diagnostic,
    }
}

/// The error for an unknown name, with the nearest known name.
fn unknown_name(kind: &str, name: &Spanned<String>, known: &[&str], label: &str) -> Diagnostic {
    let diagnostic = with_place(
        Diagnostic::new(format!("unknown {kind} `{name}`")),
        name.place.as_ref(),
        format!("not {label}"),
    );
    match (nearest_name(name, known.iter().copied()), name.place.as_ref()) {
        (Some(near), Some(place)) => diagnostic
            .with_help(format!("did you mean `{near}`?"))
            .with_replacement(place, near),
        (Some(near), None) => diagnostic.with_help(format!("did you mean `{near}`?")),
        (None, _) => diagnostic.with_help(format!("known: {}", backtick_list(known.iter().copied()))),
    }
}

fn check_names(matrix: &Matrix, diagnostics: &mut Vec<Diagnostic>) {
    if matrix.name.trim().is_empty() || matrix.name.contains('/') {
        diagnostics.push(
            with_place(
                Diagnostic::new("the name of the matrix is also the folder name of its runs"),
                matrix.name.place.as_ref(),
                "not usable as a folder name: empty, or contains `/`",
            )
            .with_help("use letters, digits, `-`, `_` and `.`"),
        );
    }
    let lists = [
        (
            "engines",
            matrix.engines.is_empty(),
            matrix.engines.place.as_ref(),
            "name one, such as `[sglang]`",
        ),
        (
            "models",
            matrix.models.is_empty(),
            matrix.models.place.as_ref(),
            "name one, such as `[Qwen/Qwen3-8B]`",
        ),
        (
            "scenarios",
            matrix.scenarios.is_empty(),
            matrix.scenarios.place.as_ref(),
            "name one, such as `[sharegpt]`",
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
        "give one of them another name with `as:`",
        diagnostics,
    );
    check_duplicates(
        "model",
        matrix.models.iter().map(|named| &named.name),
        "merge them into one entry, with the values that differ as an axis",
        diagnostics,
    );
    check_duplicates(
        "scenario",
        matrix.scenarios.iter().map(|named| &named.name),
        "give one of them another name",
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

fn check_engines(matrix: &Matrix, recipes: &Recipes, diagnostics: &mut Vec<Diagnostic>) {
    let mut names = BTreeSet::new();
    let known: Vec<&str> = recipes.keys().map(String::as_str).collect();
    for named in matrix.engines.iter() {
        let Some(recipe) = recipes.get(&named.name.value) else {
            let diagnostic = unknown_name("engine", &named.name, &known, "a recipe in `engines/`");
            diagnostics.push(diagnostic.with_note("an engine is a recipe: a file `engines/<name>.yaml` next to the folder of the matrix, or a shipped recipe"));
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
                    &format!("a variant of the recipe `{}`", recipe.name),
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
    for contact in api_recipes(recipe) {
        let (unique, restart) = (&contact.unique_prefixes, &contact.restart_for_cells);
        let ways = [
            ("reset", contact.reset.is_some(), None),
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
            "keep one: `reset` if the engine has an endpoint for it, else `unique_prefixes`; `restart_for_cells` if the engine \
             finds cached prompts in spite of a unique prefix",
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
        .filter_map(|contact| contact.metrics.as_ref())
        .flat_map(|metrics| metrics.names.iter());
    let wrong = names.filter(|(name, _)| metrics::metric_kind(metrics::current_name(&name.value)).is_none());
    let label = format!("a metric that `matrix` reads from the engine `{}`", recipe.name);
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
    // Whether one of the executors, or the default one, has a property.
    let any = |executors: Option<&Spanned<OneOrMany<Executor>>>, has: fn(&Facts) -> bool| {
        let default = recipe.executors.get(..1).unwrap_or_default();
        let mut executors = executors.map_or(default, |executors| &executors.0).iter();
        executors.any(|executor| has(executor::facts(*executor)))
    };
    let executors = entry.executor.as_ref().or(matrix.axes.executor.as_ref());
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
    if attaches && entry.url.is_none() {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "`{}` attaches to a server, but has no address",
                    engine_name(named)
                )),
                named.name.place.as_ref(),
                "no `url`",
            )
            .with_help("add its address, such as `url: http://127.0.0.1:8000`"),
        );
    }
    let names_scheme =
        |url: &&Spanned<Template>| url.as_str().contains("://") || url.parts().iter().any(is_placeholder);
    if let Some(url) = entry.url.as_ref().filter(|url| !names_scheme(url)) {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "the url `{url}` of `{}` has no scheme",
                    engine_name(named)
                )),
                named.name.place.as_ref(),
                "its `url`",
            )
            .with_help(format!("did you mean `http://{url}`?")),
        );
    }
}

/// Whether a piece of a text is a placeholder or a secret.
fn is_placeholder(piece: &TemplatePart<'_>) -> bool {
    !matches!(piece, TemplatePart::Literal(_))
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
            .with_help("remove it; the number of leased GPUs is `tp` × `pp` × `dp` of the model"),
        );
    }
}
