//! The values of each axis for one engine, model and scenario.
//!
//! The engine's entry takes precedence, then the model's or the scenario's, then `axes`, then the recipe.

use crate::base::units::RequestRate;
use crate::config::engine::Executor;
use crate::config::forms::{ByEngine, OneOrMany, OrderedMap};
use crate::config::yaml::Spanned;
use crate::plan::grid::{self, Axis, AxisValue, GridPoint, UnevenZip, points};
use crate::plan::resolve::ResolveContext;

type List<T> = Option<Spanned<OneOrMany<T>>>;
type Sizes = Option<Spanned<ByEngine<OneOrMany<u32>>>>;

/// Every grid point with a cell.
pub(crate) fn grid_points(site: &ResolveContext<'_>) -> Result<Vec<GridPoint>, UnevenZip> {
    points(&collect_axes(site), &zip_groups(site))
}

/// Number of points that [`grid_points`] returns.
pub(crate) fn count_points(site: &ResolveContext<'_>) -> u64 {
    grid::count_points(&collect_axes(site), &zip_groups(site))
}

fn zip_groups<'a>(site: &ResolveContext<'a>) -> Vec<Vec<&'a str>> {
    let names = |group: &'a Vec<Spanned<String>>| group.iter().map(|name| name.value.as_str()).collect();
    site.matrix.zip.iter().map(names).collect()
}

fn collect_axes(site: &ResolveContext<'_>) -> Vec<Axis> {
    let (entry, model, axes) = (site.entry, site.model_entry, &site.matrix.axes);
    let model_precision = model
        .precision
        .as_ref()
        .and_then(|by_engine| by_engine.get(site.engine));
    let precision = as_list(&entry.precision)
        .or(model_precision)
        .or(as_list(&axes.precision));
    let version = as_list(&entry.version).or(as_list(&axes.version));
    let default_executor = site
        .recipe
        .executors
        .first()
        .copied()
        .unwrap_or(Executor::Process);
    let executors = axis_values(as_list(&entry.executor).or(as_list(&axes.executor)), |executor| {
        AxisValue::Executor(*executor)
    });
    let rates = axis_values(
        as_list(&site.scenario_entry.rate).or(as_list(&axes.rate)),
        |rate| AxisValue::Rate(*rate),
    );
    let users = as_list(&site.scenario_entry.concurrency).or(as_list(&axes.concurrency));
    let users = axis_values(users, |users| AxisValue::Concurrency(Some(*users)));
    let sizes = |model_sizes: &Sizes, axis: &List<u32>| {
        let model_sizes = model_sizes
            .as_ref()
            .and_then(|by_engine| by_engine.get(site.engine));
        axis_values(model_sizes.or(as_list(axis)), |size| AxisValue::Size(*size))
            .unwrap_or_else(|| vec![AxisValue::Size(1)])
    };
    let all = [
        ("version", text_values(version, site.recipe.version.as_ref())),
        (
            "executor",
            executors.unwrap_or_else(|| vec![AxisValue::Executor(default_executor)]),
        ),
        (
            "precision",
            text_values(precision, site.recipe.precision.as_ref()),
        ),
        ("tp", sizes(&model.tp, &axes.tp)),
        ("pp", sizes(&model.pp, &axes.pp)),
        ("dp", sizes(&model.dp, &axes.dp)),
        ("ep", sizes(&model.ep, &axes.ep)),
        ("args", set_names(&axes.args)),
        ("env", set_names(&axes.env)),
        (
            "rate",
            rates.unwrap_or_else(|| vec![AxisValue::Rate(RequestRate::INFINITE)]),
        ),
        (
            "concurrency",
            users.unwrap_or_else(|| vec![AxisValue::Concurrency(None)]),
        ),
    ];
    all.into_iter()
        .map(|(name, values)| Axis { name, values })
        .collect()
}

fn as_list<T>(values: &List<T>) -> Option<&OneOrMany<T>> {
    values.as_ref().map(|list| &list.value)
}

fn axis_values<T>(list: Option<&OneOrMany<T>>, value: impl Fn(&T) -> AxisValue) -> Option<Vec<AxisValue>> {
    list.map(|list| list.iter().map(value).collect())
}

fn text_values(list: Option<&OneOrMany<String>>, otherwise: Option<&String>) -> Vec<AxisValue> {
    axis_values(list, |text| AxisValue::Text(Some(text.clone())))
        .unwrap_or_else(|| vec![AxisValue::Text(otherwise.cloned())])
}

/// Names of the sets of an axis; one value without a name if there are none.
fn set_names<T>(sets: &OrderedMap<T>) -> Vec<AxisValue> {
    let named: Vec<AxisValue> = sets
        .names()
        .map(|name| AxisValue::Text(Some(name.to_owned())))
        .collect();
    if named.is_empty() {
        vec![AxisValue::Text(None)]
    } else {
        named
    }
}
