//! Cells by names as short as tells them apart: their keys name every axis, and most axes say the same everywhere.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::CellKey;

/// Axes that everybody looks for, and whose values speak for themselves.
const PLAIN: [&str; 3] = ["engine", "model", "scenario"];

/// Short names for cells that are shown together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    names: BTreeMap<CellKey, String>,
    /// What is left out of every name, as a note.
    pub left_out: Option<String>,
}

impl Labels {
    /// Short names for these cells: without axes that have one value everywhere or follow from the engine. Where that would not tell
    /// them apart, their keys.
    pub fn of<'a>(keys: impl IntoIterator<Item = &'a CellKey>) -> Self {
        let keys: BTreeSet<&CellKey> = keys.into_iter().collect();
        let parsed: Option<Vec<Vec<(&str, &str)>>> = keys
            .iter()
            .map(|key| key.as_str().split(',').map(|part| part.split_once('=')).collect())
            .collect();
        Self::short(&keys, parsed.as_deref().unwrap_or_default()).unwrap_or_else(|| Self {
            names: keys.iter().map(|key| ((*key).clone(), key.to_string())).collect(),
            left_out: None,
        })
    }

    fn short(keys: &BTreeSet<&CellKey>, parsed: &[Vec<(&str, &str)>]) -> Option<Self> {
        let first = parsed.first()?;
        let value = |key: &[(&str, &str)], axis: &str| {
            let mut parts = key.iter();
            parts
                .find(|(name, _)| *name == axis)
                .map(|(_, value)| (*value).to_owned())
        };
        let is_constant = |axis: &str| parsed.iter().all(|key| value(key, axis) == value(first, axis));
        let follows = |axis: &str| {
            let pairs: BTreeSet<_> = parsed
                .iter()
                .map(|key| (value(key, "engine"), value(key, axis)))
                .collect();
            let engines: BTreeSet<_> = pairs.iter().map(|(engine, _)| engine).collect();
            pairs.len() == engines.len()
        };
        let axes = first.iter().map(|(axis, _)| *axis);
        let (mut constant, mut following) = (Vec::new(), Vec::new());
        for axis in axes.filter(|axis| !PLAIN.contains(axis)) {
            if is_constant(axis) {
                constant.push(format!("{axis}={}", value(first, axis)?));
            } else if follows(axis) && axis != "version" {
                following.push(axis);
            }
        }
        let is_out = |axis: &str| following.contains(&axis) || (!PLAIN.contains(&axis) && is_constant(axis));
        let name = |key: &Vec<(&str, &str)>| {
            let kept = key.iter().filter(|(axis, _)| !is_out(axis));
            let words: Vec<String> = kept
                .map(|(axis, value)| match PLAIN.contains(axis) {
                    true => (*value).to_owned(),
                    false => format!("{axis}={value}"),
                })
                .collect();
            words.join(" ")
        };
        let names: Vec<String> = parsed.iter().map(name).collect();
        let apart: BTreeSet<&String> = names.iter().collect();
        if apart.len() < names.len() {
            return None;
        }
        let mut notes = Vec::new();
        if !constant.is_empty() {
            notes.push(format!("of every cell: {}", constant.join(", ")));
        }
        if !following.is_empty() {
            notes.push(format!("told by the engine: {}", following.join(", ")));
        }
        Some(Self {
            names: keys.iter().map(|key| (*key).clone()).zip(names).collect(),
            left_out: (!notes.is_empty()).then(|| notes.join("; ")),
        })
    }

    /// The name of a cell.
    pub fn name<'a>(&'a self, key: &'a CellKey) -> &'a str {
        self.names.get(key).map_or(key.as_str(), String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(keys: &[&str]) -> (Vec<String>, Option<String>) {
        let keys: Vec<CellKey> = keys.iter().map(|key| CellKey::new(*key)).collect();
        let labels = Labels::of(&keys);
        let names = keys.iter().map(|key| labels.name(key).to_owned()).collect();
        (names, labels.left_out)
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
            "of every cell: executor=process; told by the engine: variant"
        );
    }

    #[test]
    fn names_that_would_meet_and_keys_of_another_form_stay_whole() {
        let alike = ["engine=a,model=b", "engine=a,model=b "];
        assert_eq!(labels(&alike).0, ["a b", "a b "]);
        let meet = ["engine=a b,model=c", "engine=a,model=b c"];
        assert_eq!(labels(&meet), (meet.map(str::to_owned).to_vec(), None));
        let other = ["all of it"];
        assert_eq!(labels(&other), (other.map(str::to_owned).to_vec(), None));
        assert_eq!(labels(&["engine=a,model=m,tp=1"]).0, ["a m"]);
        assert_eq!(labels(&[]).0, Vec::<String>::new());
    }
}
