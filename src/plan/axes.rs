//! The values of each axis for one engine, model and scenario.
//!
//! The engine's entry takes precedence, then the model's or the scenario's, then `axes`, then the recipe.

use crate::base::units::RequestRate;
use crate::config::engine::Executor;
use crate::config::forms::{ByEngine, OneOrMany, OrderedMap};
use crate::config::yaml::Spanned;
use crate::plan::grid::{self, Axis, Point, Uneven, Value, points};
use crate::plan::resolve::Site;

type List<T> = Option<Spanned<OneOrMany<T>>>;
type Sizes = Option<Spanned<ByEngine<OneOrMany<u32>>>>;

/// Every grid point with a cell.
pub(crate) fn cross(site: &Site<'_>) -> Result<Vec<Point>, Uneven> {
    points(&axes(site), &zip(site))
}

/// Number of points that [`cross`] returns.
pub(crate) fn amount(site: &Site<'_>) -> u64 {
    grid::amount(&axes(site), &zip(site))
}

fn zip<'a>(site: &Site<'a>) -> Vec<Vec<&'a str>> {
    let names = |group: &'a Vec<Spanned<String>>| group.iter().map(|name| name.value.as_str()).collect();
    site.matrix.zip.iter().map(names).collect()
}

fn axes(site: &Site<'_>) -> Vec<Axis> {
    let (entry, model, axes) = (site.entry, site.model_entry, &site.matrix.axes);
    let model_precision = model
        .precision
        .as_ref()
        .and_then(|by_engine| by_engine.get(site.engine));
    let precision = list(&entry.precision)
        .or(model_precision)
        .or(list(&axes.precision));
    let version = list(&entry.version).or(list(&axes.version));
    let usual = site
        .recipe
        .executors
        .first()
        .copied()
        .unwrap_or(Executor::Process);
    let executors = values(list(&entry.executor).or(list(&axes.executor)), |executor| {
        Value::Executor(*executor)
    });
    let rates = values(list(&site.scenario_entry.rate).or(list(&axes.rate)), |rate| {
        Value::Rate(*rate)
    });
    let users = list(&site.scenario_entry.concurrency).or(list(&axes.concurrency));
    let users = values(users, |users| Value::Concurrency(Some(*users)));
    let sizes = |own: &Sizes, axis: &List<u32>| {
        let own = own.as_ref().and_then(|by_engine| by_engine.get(site.engine));
        values(own.or(list(axis)), |size| Value::Size(*size)).unwrap_or_else(|| vec![Value::Size(1)])
    };
    let all = [
        ("version", texts(version, site.recipe.version.as_ref())),
        (
            "executor",
            executors.unwrap_or_else(|| vec![Value::Executor(usual)]),
        ),
        ("precision", texts(precision, site.recipe.precision.as_ref())),
        ("tp", sizes(&model.tp, &axes.tp)),
        ("pp", sizes(&model.pp, &axes.pp)),
        ("dp", sizes(&model.dp, &axes.dp)),
        ("ep", sizes(&model.ep, &axes.ep)),
        ("args", names(&axes.args)),
        ("env", names(&axes.env)),
        (
            "rate",
            rates.unwrap_or_else(|| vec![Value::Rate(RequestRate::INFINITE)]),
        ),
        (
            "concurrency",
            users.unwrap_or_else(|| vec![Value::Concurrency(None)]),
        ),
    ];
    all.into_iter()
        .map(|(name, values)| Axis { name, values })
        .collect()
}

fn list<T>(written: &List<T>) -> Option<&OneOrMany<T>> {
    written.as_ref().map(|list| &list.value)
}

fn values<T>(list: Option<&OneOrMany<T>>, value: impl Fn(&T) -> Value) -> Option<Vec<Value>> {
    list.map(|list| list.iter().map(value).collect())
}

fn texts(list: Option<&OneOrMany<String>>, otherwise: Option<&String>) -> Vec<Value> {
    values(list, |text| Value::Text(Some(text.clone())))
        .unwrap_or_else(|| vec![Value::Text(otherwise.cloned())])
}

/// Names of the sets of an axis; one value without a name if there are none.
fn names<T>(sets: &OrderedMap<T>) -> Vec<Value> {
    let named: Vec<Value> = sets
        .names()
        .map(|name| Value::Text(Some(name.to_owned())))
        .collect();
    if named.is_empty() {
        vec![Value::Text(None)]
    } else {
        named
    }
}
