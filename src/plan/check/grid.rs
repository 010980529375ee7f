//! Checks grid points, exclusions and inclusions.

use super::diagnostics::{unknown_name, with_place};
use crate::base::ids::CellKey;
use crate::config::dataset::DatasetName;
use crate::config::engine::Devices;
use crate::config::matrix::{Exclusion, Inclusion, Matrix, Override, engine_name};
use crate::config::search::SearchVariable;
use crate::config::template::Template;
use crate::config::yaml::{Diagnostic, SourceSpan, Spanned};
use crate::plan::executor;
use crate::plan::grid::GridPoint;
use crate::plan::resolve::ResolveContext;

/// The errors of one grid point.
pub(crate) fn check_point(site: &ResolveContext<'_>, point: &GridPoint) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    if !site.recipe.executors.contains(&point.executor) {
        diagnostics.push(Diagnostic::new(format!(
            "the recipe `{}` does not support the executor `{}`",
            site.recipe.name,
            point.executor.name()
        )));
    }
    let describe = || -> String { site.recipe.commands().flatten().map(Template::as_str).collect() };
    let starts_engine = executor::facts(point.executor).starts_engine;
    let model = site.model_entry;
    let places = [&model.tp, &model.pp, &model.dp, &model.ep].map(|size| size.as_ref()?.place.as_ref());
    for ((axis, size), place) in point.parallel.sizes().into_iter().zip(places) {
        if size == 1 {
            continue;
        }
        let known = describe().contains(&format!("{{{axis}}}")) || site.recipe.parallel.get(axis).is_some();
        if size > 1 && !known && starts_engine && site.entry.command.is_none() {
            diagnostics.push(
                with_place(
                    Diagnostic::new(format!("the recipe `{}` has no argument for `{axis}`, but `{axis}` is {size}", site.recipe.name)),
                    place,
                    format!("the engine `{}` cannot be started with this parallel size", site.engine),
                )
                .with_help(format!("give the engine its own size, as in `{axis}: {{ {}: 1, default: {size} }}`, or add `{axis}` to `parallel` of the recipe", site.engine)),
            );
        }
    }
    diagnostics.extend(check_gpus_of_nodes(site, point));
    diagnostics.extend(check_fixed_axes(site, point));
    diagnostics
}

/// The error if the GPUs of an engine cannot be divided over its nodes.
fn check_gpus_of_nodes(site: &ResolveContext<'_>, point: &GridPoint) -> Option<Diagnostic> {
    let nodes = site.entry.nodes.as_ref()?;
    let parallel = point.parallel;
    let gpus = parallel.tp * parallel.pp * parallel.dp;
    let devices = site.entry.devices.unwrap_or(site.recipe.devices);
    let is_even = devices == Devices::None || gpus.is_multiple_of(nodes.value.get());
    (!is_even).then(|| {
        let message = format!(
            "`{}` uses {gpus} GPUs, which cannot be divided over {} nodes",
            site.engine, nodes.value
        );
        with_place(
            Diagnostic::new(message),
            nodes.place.as_ref(),
            "each node must have the same number of GPUs",
        )
        .with_help("choose `tp` × `pp` × `dp` of the model as a multiple of `nodes`")
    })
}

/// Axes that set a value which the scenario itself varies.
fn check_fixed_axes(site: &ResolveContext<'_>, point: &GridPoint) -> Vec<Diagnostic> {
    let entry = site.scenario_entry;
    let by = entry
        .search
        .as_ref()
        .map(|search| (search.by, search.place.as_ref()));
    let paced = entry.ramp.as_ref().map(|ramp| ramp.place.as_ref());
    let paced = paced.or(entry.stages.as_ref().map(|stages| stages.place.as_ref()));
    let no = |axis: &str, value: String, place: Option<&SourceSpan>, says: &str| {
        with_place(
            Diagnostic::new(format!(
                "`{axis}` is {value} in the scenario `{}`, but {says}",
                site.scenario
            )),
            place,
            format!("`{axis}` cannot be combined with this setting"),
        )
        .with_help(format!(
            "remove `{axis}` from this scenario. If `axes` sets it for all scenarios, remove it from `axes`, and set it in each scenario that needs it"
        ))
    };
    let mut diagnostics = Vec::new();
    if !point.rate.is_infinite() {
        let rate = point.rate.to_string();
        if entry.dataset == Some(DatasetName::Mooncake) {
            diagnostics.push(no(
                "rate",
                rate.clone(),
                None,
                "this scenario takes its send times from a trace",
            ));
        }
        if let Some(place) = paced {
            diagnostics.push(no(
                "rate",
                rate.clone(),
                place,
                "this scenario changes its rate over time",
            ));
        }
        if let Some((SearchVariable::Rate, place)) = by {
            diagnostics.push(no("rate", rate, place, "this scenario searches for a rate"));
        }
    }
    if let (Some((SearchVariable::Concurrency, place)), Some(users)) = (by, point.concurrency) {
        diagnostics.push(no(
            "concurrency",
            users.to_string(),
            place,
            "this scenario searches for a concurrency",
        ));
    }
    diagnostics
}

/// The error for an exclusion that matches no cell.
pub(crate) fn unused_exclusion(exclusion: &Spanned<Exclusion>) -> Diagnostic {
    with_place(
        Diagnostic::new("this entry of `exclude` matches no cell"),
        exclusion.when.place.as_ref(),
        "no cell matches",
    )
    .with_help("`matrix plan` shows the cells with their axes; correct the patterns or remove this entry")
}

/// The error for an override that selects no cell.
pub(crate) fn unused_override(over: &Override) -> Diagnostic {
    with_place(
        Diagnostic::new("the override selects no cell"),
        over.when.place.as_ref(),
        "no cell matches",
    )
    .with_help("`matrix plan` shows the cells with their axes; correct the patterns or remove the override")
}

/// The error for an inclusion of a cell that the axes produce already.
pub(crate) fn redundant_inclusion(inclusion: &Spanned<Inclusion>, cell: &CellKey) -> Diagnostic {
    with_place(
        Diagnostic::new("this entry of `include` adds a cell that the axes already contain"),
        inclusion.place.as_ref(),
        cell.to_string(),
    )
    .with_help("remove this entry of `include`, or change one of its values")
}

/// Unknown names in an inclusion.
pub(crate) fn check_inclusion_names(matrix: &Matrix, inclusion: &Inclusion) -> Vec<Diagnostic> {
    let engines: Vec<&str> = matrix
        .engines
        .iter()
        .map(|named| engine_name(named).value.as_str())
        .collect();
    let models: Vec<&str> = matrix
        .models
        .iter()
        .map(|named| named.name.value.as_str())
        .collect();
    let scenarios: Vec<&str> = matrix
        .scenarios
        .iter()
        .map(|named| named.name.value.as_str())
        .collect();
    [
        ("engine", &inclusion.engine, engines),
        ("model", &inclusion.model, models),
        ("scenario", &inclusion.scenario, scenarios),
    ]
    .into_iter()
    .filter(|(_, name, known)| !known.contains(&name.as_str()))
    .map(|(kind, name, known)| {
        let label = format!("this matrix has no {kind} with this name");
        unknown_name(kind, name, &known, &label)
    })
    .collect()
}

/// The error for a matrix whose exclusions leave no cell.
pub(crate) fn no_cells_error(matrix: &Matrix) -> Diagnostic {
    let place = matrix
        .exclude
        .first()
        .and_then(|exclusion| exclusion.place.as_ref());
    with_place(
        Diagnostic::new("the exclusions leave no cell"),
        place,
        "nothing is left to measure",
    )
    .with_help("remove one of the exclusions")
}
