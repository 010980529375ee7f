//! Short names of cells: the axis values that distinguish them, where keys name every axis.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::CellKey;
use crate::config::select::{self, AXES, AxisValues};

/// Axes that every name has, even if their values are equal.
const ALWAYS_SHOWN: [&str; 3] = ["engine", "model", "scenario"];

/// Axes whose values are printed without the name of the axis.
const UNNAMED_AXES: [&str; 6] = ["engine", "version", "variant", "model", "precision", "scenario"];

/// Short names of cells that are shown together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    /// The axis values in the name of each cell; empty if cells are named by their keys.
    shown_axes: BTreeMap<CellKey, AxisValues>,
    /// A note on the axes that no name has.
    pub(crate) left_out: Option<String>,
}

impl Labels {
    /// Chooses names without axes that have one value everywhere or follow from the engine. If such names
    /// would not be unique, cells are named by their keys.
    pub(crate) fn from_keys<'a>(keys: impl IntoIterator<Item = &'a CellKey>) -> Self {
        let values = |key: &'a CellKey| (key.clone(), select::parse_key(key.as_str()));
        let axes_by_cell: BTreeMap<CellKey, AxisValues> = keys.into_iter().map(values).collect();
        let constant = omittable_axes(|axis| axes_by_cell.len() > 1 && is_constant(&axes_by_cell, axis));
        let following = omittable_axes(|axis| {
            !constant.contains(&axis) && axis != "version" && follows_from_engine(&axes_by_cell, axis)
        });
        let mut shown_axes = axes_by_cell.clone();
        for values in shown_axes.values_mut() {
            values
                .retain(|axis, _| !constant.contains(&axis.as_str()) && !following.contains(&axis.as_str()));
        }
        let apart: BTreeSet<&AxisValues> = shown_axes.values().collect();
        if apart.len() < shown_axes.len() || shown_axes.values().any(BTreeMap::is_empty) {
            return Self::default();
        }
        let mut notes = Vec::new();
        let first = axes_by_cell.values().next();
        let shared = constant
            .iter()
            .filter_map(|axis| Some(format!("{axis}={}", first?.get(*axis)?)));
        let shared: Vec<String> = shared.collect();
        if !shared.is_empty() {
            notes.push(format!("every cell: {}", shared.join(",")));
        }
        let following: Vec<&str> = following
            .into_iter()
            .filter(|axis| axes_by_cell.values().any(|values| values.contains_key(*axis)))
            .collect();
        if !following.is_empty() {
            notes.push(format!("determined by the engine: {}", following.join(", ")));
        }
        Self {
            shown_axes,
            left_out: (!notes.is_empty()).then(|| notes.join("; ")),
        }
    }

    /// The axis values in the name of a cell; empty if it is named by its key.
    pub(crate) fn shown_axes(&self, key: &CellKey) -> AxisValues {
        self.shown_axes.get(key).cloned().unwrap_or_default()
    }

    pub(crate) fn name(&self, key: &CellKey) -> String {
        match self.shown_axes.get(key) {
            Some(values) => axis_words(values).join(" "),
            None => key.to_string(),
        }
    }
}

/// Axis values as words, in the order of axes.
pub(crate) fn axis_words(values: &AxisValues) -> Vec<String> {
    let known = AXES.iter().filter_map(|axis| Some((*axis, values.get(*axis)?)));
    known
        .map(|(axis, value)| match UNNAMED_AXES.contains(&axis) {
            true => value.clone(),
            false => format!("{axis}={value}"),
        })
        .collect()
}

/// The axes that may be left out and for which `is_so` holds.
fn omittable_axes(is_so: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let axes = AXES.iter().copied().filter(|axis| !ALWAYS_SHOWN.contains(axis));
    axes.filter(|axis| is_so(axis)).collect()
}

fn is_constant(axes_by_cell: &BTreeMap<CellKey, AxisValues>, axis: &str) -> bool {
    let values: BTreeSet<_> = axes_by_cell.values().map(|values| values.get(axis)).collect();
    values.len() == 1
}

/// Whether the engine determines the value of an axis.
fn follows_from_engine(axes_by_cell: &BTreeMap<CellKey, AxisValues>, axis: &str) -> bool {
    let pairs: BTreeSet<_> = axes_by_cell
        .values()
        .map(|values| (values.get("engine"), values.get(axis)))
        .collect();
    let engines: BTreeSet<_> = pairs.iter().map(|(engine, _)| engine).collect();
    engines.len() > 1 && pairs.len() == engines.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(keys: &[&str]) -> (Vec<String>, Option<String>) {
        let keys: Vec<CellKey> = keys.iter().map(|key| CellKey::new(*key)).collect();
        let labels = Labels::from_keys(&keys);
        (keys.iter().map(|key| labels.name(key)).collect(), labels.left_out)
    }

    #[test]
    fn what_says_the_same_everywhere_or_follows_from_the_engine_is_left_out() {
        let (names, left_out) = labels(&[
            "engine=a,executor=process,variant=x,model=m,tp=1,scenario=s",
            "engine=a,executor=process,variant=x,model=m,tp=2,scenario=s,rate=8",
            "engine=b,executor=process,variant=y,model=m,tp=1,scenario=s",
        ]);
        assert_eq!(names, ["a m tp=1 s", "a m tp=2 s rate=8", "b m tp=1 s"]);
        assert_eq!(
            left_out.unwrap(),
            "every cell: executor=process; determined by the engine: variant"
        );
    }

    #[test]
    fn a_cell_alone_says_everything_and_a_key_of_another_form_stays() {
        assert_eq!(
            labels(&["engine=a,model=m,tp=1"]),
            (vec!["a m tp=1".to_owned()], None)
        );
        assert_eq!(labels(&["engine=a,model=m"]).0, ["a m"]);
        let other = ["all of it"];
        assert_eq!(labels(&other), (other.map(str::to_owned).to_vec(), None));
        assert_eq!(labels(&[]).0, Vec::<String>::new());
    }
}
