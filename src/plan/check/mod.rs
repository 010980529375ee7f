//! Checks a matrix before anything starts, and reports every error with its place.

mod grid;
mod protocol_support;
mod recipe;
mod repeats;
mod scenario;
mod templates;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use grid::{
    inclusion_names, nothing_left, point, useless_exclusion, useless_inclusion, useless_override,
};
pub(crate) use protocol_support::carry;

use crate::config::engine::{ContactRecipe, Executor, Recipe, Recipes};
use crate::config::forms::Named;
use crate::config::forms::{ByEngine, OneOrMany};
use crate::config::matrix::{EngineEntry, Matrix, engine_name};
use crate::config::metrics;
use crate::config::select::{AXES, Selector};
use crate::config::template::{Piece, Text};
use crate::config::yaml::{Mistake, Place, Spanned, listed, nearest};

/// The errors of a matrix as a whole.
pub(crate) fn matrix(matrix: &Matrix, recipes: &Recipes) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    names(matrix, &mut mistakes);
    engines(matrix, recipes, &mut mistakes);
    models(matrix, &mut mistakes);
    scenario::all(matrix, &mut mistakes);
    axes(matrix, &mut mistakes);
    selectors(matrix, &mut mistakes);
    templates::all(matrix, &mut mistakes);
    repeats::all(&matrix.repeats, &mut mistakes);
    if let Some(reference) = &matrix.reference {
        let known: Vec<&str> = matrix
            .engines
            .iter()
            .map(|named| engine_name(named).value.as_str())
            .collect();
        if !known.contains(&reference.as_str()) {
            mistakes.push(unknown("engine", reference, &known, "an engine of this matrix"));
        }
    }
    if let Some(bounds) = &matrix.validity {
        for (field, wanted) in bounds.objections() {
            mistakes.push(at(
                Mistake::new(format!("`validity: {field}` must be {wanted}")),
                bounds.place.as_ref(),
                "in here",
            ));
        }
    }
    mistakes
}

/// The error for a matrix with too many cells or measurements.
pub(crate) fn too_many(what: &str, most: u64) -> Mistake {
    Mistake::new(format!("the matrix comes to more than {most} {what}"))
        .help("take values out of its axes or lower `repeats`, or write several matrices")
}

fn at(mistake: Mistake, place: Option<&Place>, label: impl Into<String>) -> Mistake {
    match place {
        Some(place) => mistake.at(place, label),
        None => mistake,
    }
}

/// The error for an unknown name, with the nearest known name.
fn unknown(kind: &str, name: &Spanned<String>, known: &[&str], label: &str) -> Mistake {
    let mistake = at(
        Mistake::new(format!("unknown {kind} `{name}`")),
        name.place.as_ref(),
        format!("not {label}"),
    );
    match (nearest(name, known.iter().copied()), name.place.as_ref()) {
        (Some(near), Some(place)) => mistake
            .help(format!("did you mean `{near}`?"))
            .replace(place, near),
        (Some(near), None) => mistake.help(format!("did you mean `{near}`?")),
        (None, _) => mistake.help(format!("known: {}", listed(known.iter().copied()))),
    }
}

fn names(matrix: &Matrix, mistakes: &mut Vec<Mistake>) {
    if matrix.name.trim().is_empty() || matrix.name.contains('/') {
        mistakes.push(
            at(
                Mistake::new("the name of the matrix names its runs"),
                matrix.name.place.as_ref(),
                "not fit for a folder's name",
            )
            .help("use letters, digits, `-`, `_` and `.`"),
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
            mistakes.push(
                at(
                    Mistake::new(format!("`{list}` is empty")),
                    place,
                    "nothing to measure",
                )
                .help(help),
            );
        }
    }
    twice(
        "engine",
        matrix.engines.iter().map(engine_name),
        "give one of them another name with `as:`",
        mistakes,
    );
    twice(
        "model",
        matrix.models.iter().map(|named| &named.name),
        "put what differs into one entry, as an axis",
        mistakes,
    );
    twice(
        "scenario",
        matrix.scenarios.iter().map(|named| &named.name),
        "give one of them another name",
        mistakes,
    );
}

fn twice<'a>(
    kind: &str,
    all: impl Iterator<Item = &'a Spanned<String>>,
    help: &str,
    mistakes: &mut Vec<Mistake>,
) {
    let mut seen: BTreeMap<&str, &Spanned<String>> = BTreeMap::new();
    for name in all {
        match seen.get(name.as_str()) {
            None => {
                seen.insert(name.as_str(), name);
            }
            Some(first) => {
                let mistake = at(
                    Mistake::new(format!("the {kind} `{name}` stands twice")),
                    name.place.as_ref(),
                    "again",
                );
                let mistake = match first.place.as_ref() {
                    Some(place) => mistake.also(place, "first here"),
                    None => mistake,
                };
                mistakes.push(mistake.help(help));
            }
        }
    }
}

fn engines(matrix: &Matrix, recipes: &Recipes, mistakes: &mut Vec<Mistake>) {
    let mut seen = BTreeSet::new();
    let known: Vec<&str> = recipes.keys().map(String::as_str).collect();
    for named in matrix.engines.iter() {
        let Some(recipe) = recipes.get(&named.name.value) else {
            let mistake = unknown("engine", &named.name, &known, "a recipe in `engines/`");
            mistakes.push(mistake.note("an engine is a file `engines/<name>.yaml` beside the folder of the matrix, or one that is shipped"));
            continue;
        };
        if seen.insert(recipe.name.as_str()) {
            metrics(recipe, mistakes);
            caches(recipe, mistakes);
            recipe::all(recipe, mistakes);
        }
        let entry = &named.value;
        if let Some(variant) = &entry.variant {
            let known: Vec<&str> = recipe
                .variants
                .iter()
                .map(|(name, _)| name.value.as_str())
                .collect();
            if !known.contains(&variant.as_str()) {
                mistakes.push(unknown(
                    "variant",
                    variant,
                    &known,
                    &format!("a variant of the recipe `{}`", recipe.name),
                ));
            }
        }
        refuse_empty(&entry.version, mistakes);
        refuse_empty(&entry.executor, mistakes);
        refuse_empty(&entry.precision, mistakes);
        runs(matrix, named, recipe, mistakes);
    }
}

/// Every API description of a recipe, including variants and versions.
fn contacts(recipe: &Recipe) -> impl Iterator<Item = &ContactRecipe> {
    let patched = recipe.patches().filter_map(|patch| patch.contact.as_ref());
    std::iter::once(&recipe.contact).chain(patched)
}

/// Errors about several ways to make caches cold in one API, because it is unclear which one applies.
fn caches(recipe: &Recipe, mistakes: &mut Vec<Mistake>) {
    for contact in contacts(recipe) {
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
        let mistake = Mistake::new(format!(
            "the recipe `{}` knows more than one way to cold caches: `{first}` and `{last}`",
            recipe.name
        ));
        let mistake = at(mistake, place, format!("beside `{first}`")).help(
            "keep one: `reset` where the engine has such an endpoint, else `unique_prefixes`, and `restart_for_cells` where a new \
             beginning of the prompts does not keep it from finding them",
        );
        // A YAML anchor may bring the same line into several variants.
        if !mistakes.contains(&mistake) {
            mistakes.push(mistake);
        }
    }
}

/// Errors about unknown metric names, which would never be read.
fn metrics(recipe: &Recipe, mistakes: &mut Vec<Mistake>) {
    let known: Vec<&str> = metrics::KNOWN.iter().map(|(name, _)| *name).collect();
    let names = contacts(recipe)
        .filter_map(|contact| contact.metrics.as_ref())
        .flat_map(|metrics| metrics.names.iter());
    let wrong = names.filter(|(name, _)| metrics::kind(metrics::todays(&name.value)).is_none());
    let label = format!("one that `matrix` reads from the engine `{}`", recipe.name);
    for (name, _) in wrong {
        let mistake = unknown("metric", name, &known, &label);
        // A YAML anchor may bring the same line into several variants.
        if !mistakes.contains(&mistake) {
            mistakes.push(mistake);
        }
    }
}

/// Errors about how an engine runs: its recipe must offer the executor, and the entry must have the keys that
/// this executor needs and no others.
fn runs(matrix: &Matrix, named: &Named<EngineEntry>, recipe: &Recipe, mistakes: &mut Vec<Mistake>) {
    let entry = &named.value;
    if let Some(executors) = &entry.executor {
        for executor in executors
            .0
            .iter()
            .filter(|executor| !recipe.executors.contains(executor))
        {
            let offered: Vec<&str> = recipe.executors.iter().map(|executor| executor.name()).collect();
            mistakes.push(
                at(
                    Mistake::new(format!(
                        "the recipe `{}` does not run by the executor `{}`",
                        recipe.name,
                        executor.name()
                    )),
                    executors.place.as_ref(),
                    "not offered",
                )
                .help(format!("use {}", listed(offered))),
            );
        }
    }
    let executors = entry.executor.as_ref().or(matrix.axes.executor.as_ref());
    let is_contained = executors.map_or_else(
        || recipe.executors.first() == Some(&Executor::Container),
        |executors| executors.0.contains(&Executor::Container),
    );
    if let Some(change) = entry.container.as_ref().filter(|_| !is_contained) {
        mistakes.push(
            at(
                Mistake::new(format!("`{}` runs in no container", engine_name(named))),
                change.place.as_ref(),
                "changes nothing",
            )
            .help("say `executor: container`, or take `container:` out"),
        );
    }
    let attaches = entry.executor.as_ref().map_or_else(
        || recipe.executors.first() == Some(&Executor::Attach),
        |executors| executors.0.contains(&Executor::Attach),
    );
    if !attaches {
        declared_gpus(named, mistakes);
    }
    if attaches && entry.url.is_none() {
        mistakes.push(
            at(
                Mistake::new(format!(
                    "`{}` attaches to a server and says not where",
                    engine_name(named)
                )),
                named.name.place.as_ref(),
                "no `url`",
            )
            .help("add its address, such as `url: http://127.0.0.1:8000`"),
        );
    }
    let names_scheme =
        |url: &&Spanned<Text>| url.as_str().contains("://") || url.pieces().iter().any(is_filled);
    if let Some(url) = entry.url.as_ref().filter(|url| !names_scheme(url)) {
        mistakes.push(
            at(
                Mistake::new(format!(
                    "the url `{url}` of `{}` has no scheme",
                    engine_name(named)
                )),
                named.name.place.as_ref(),
                "its `url`",
            )
            .help(format!("did you mean `http://{url}`?")),
        );
    }
}

/// Whether a piece of a text is a placeholder or a secret.
fn is_filled(piece: &Piece<'_>) -> bool {
    !matches!(piece, Piece::Plain(_))
}

/// Errors about GPUs that are declared for an engine which is not attached; such an engine leases its GPUs.
fn declared_gpus(named: &Named<EngineEntry>, mistakes: &mut Vec<Mistake>) {
    let gpus = named
        .value
        .gpus
        .as_ref()
        .map(|gpus| ("gpus", gpus.place.as_ref()));
    let gpu = named.value.gpu.as_ref().map(|gpu| ("gpu", gpu.place.as_ref()));
    for (key, place) in gpus.into_iter().chain(gpu) {
        let engine = engine_name(named);
        mistakes.push(
            at(
                Mistake::new(format!(
                    "`{key}` declares the GPUs of an attached server, and `{engine}` is started here"
                )),
                place,
                "declares what is known",
            )
            .help("take it out; how many GPUs it leases is `tp` times `pp` times `dp` of the model"),
        );
    }
}

/// An axis that is written without a value.
fn refuse_empty<T>(axis: &Option<Spanned<OneOrMany<T>>>, mistakes: &mut Vec<Mistake>) {
    if let Some(list) = axis
        && list.0.is_empty()
    {
        mistakes.push(empty_axis(list.place.as_ref()));
    }
}

fn empty_axis(place: Option<&Place>) -> Mistake {
    at(
        Mistake::new("the axis is empty"),
        place,
        "an empty list crosses to nothing",
    )
    .help("give it at least one value, or take the key out")
}

fn sizes(axis: &str, sizes: &Spanned<ByEngine<OneOrMany<u32>>>, mistakes: &mut Vec<Mistake>) {
    for list in sizes.values() {
        size_list(axis, list, sizes.place.as_ref(), mistakes);
    }
}

fn size_list(axis: &str, list: &OneOrMany<u32>, place: Option<&Place>, mistakes: &mut Vec<Mistake>) {
    if list.0.is_empty() {
        mistakes.push(empty_axis(place));
    }
    for size in list.0.iter().filter(|size| **size == 0 || **size > 4096) {
        mistakes.push(
            at(Mistake::new(format!("`{axis}` is {size}")), place, "impossible")
                .help("a parallel size is a number of devices from 1 on"),
        );
    }
}

fn models(matrix: &Matrix, mistakes: &mut Vec<Mistake>) {
    let engines: Vec<&str> = matrix
        .engines
        .iter()
        .map(|named| engine_name(named).value.as_str())
        .collect();
    for named in matrix.models.iter() {
        let entry = &named.value;
        for (axis, value) in [
            ("tp", &entry.tp),
            ("pp", &entry.pp),
            ("dp", &entry.dp),
            ("ep", &entry.ep),
        ] {
            if let Some(value) = value {
                sizes(axis, value, mistakes);
                by_engine(value, &engines, mistakes);
            }
        }
        if let Some(value) = &entry.args {
            by_engine(value, &engines, mistakes);
        }
        if let Some(value) = &entry.precision {
            by_engine(value, &engines, mistakes);
        }
        if let Some(value) = &entry.checkpoint {
            by_engine(value, &engines, mistakes);
        }
    }
}

fn by_engine<T>(value: &ByEngine<T>, engines: &[&str], mistakes: &mut Vec<Mistake>) {
    for (name, _) in value.entries() {
        if name.value != "default" && !engines.contains(&name.as_str()) {
            mistakes.push(unknown("engine", name, engines, "an engine of this matrix"));
        }
    }
}

fn axes(matrix: &Matrix, mistakes: &mut Vec<Mistake>) {
    let axes = &matrix.axes;
    for (axis, list) in [
        ("tp", &axes.tp),
        ("pp", &axes.pp),
        ("dp", &axes.dp),
        ("ep", &axes.ep),
    ] {
        if let Some(list) = list {
            size_list(axis, &list.value, list.place.as_ref(), mistakes);
        }
    }
    refuse_empty(&axes.version, mistakes);
    refuse_empty(&axes.precision, mistakes);
    refuse_empty(&axes.executor, mistakes);
    refuse_empty(&axes.rate, mistakes);
    refuse_empty(&axes.concurrency, mistakes);
    let known: Vec<&str> = AXES
        .into_iter()
        .filter(|axis| !["engine", "model", "scenario", "variant"].contains(axis))
        .collect();
    for group in &matrix.zip {
        for name in group.iter().filter(|name| !known.contains(&name.as_str())) {
            mistakes.push(unknown("axis", name, &known, "an axis that can be zipped"));
        }
        if let [only] = group.as_slice() {
            mistakes.push(
                at(
                    Mistake::new("a group of `zip` needs two axes"),
                    only.place.as_ref(),
                    "alone",
                )
                .help("name the axes that move together, such as `[rate, concurrency]`"),
            );
        }
    }
}

fn selectors(matrix: &Matrix, mistakes: &mut Vec<Mistake>) {
    let all = matrix
        .exclude
        .iter()
        .map(|exclusion| &exclusion.when)
        .chain(matrix.overrides.iter().map(|over| &over.when));
    for selector in all {
        selector_axes(selector, mistakes);
    }
    for exclusion in matrix
        .exclude
        .iter()
        .filter(|exclusion| exclusion.why.trim().is_empty())
    {
        mistakes.push(
            at(
                Mistake::new("an exclusion needs its reason"),
                exclusion.place.as_ref(),
                "`why` is empty",
            )
            .help("say it in a sentence; `plan` and the reports show it"),
        );
    }
}

fn selector_axes(selector: &Spanned<Selector>, mistakes: &mut Vec<Mistake>) {
    if selector.value.0.is_empty() {
        mistakes.push(
            at(
                Mistake::new("`when` is empty"),
                selector.place.as_ref(),
                "this would be every cell",
            )
            .help("name axes, such as `{ engine: vllm }`"),
        );
    }
    for (axis, _) in selector
        .value
        .0
        .iter()
        .filter(|(axis, _)| !AXES.contains(&axis.as_str()))
    {
        mistakes.push(unknown("axis", axis, &AXES, "an axis of a cell"));
    }
}
