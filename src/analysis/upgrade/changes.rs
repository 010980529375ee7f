//! What changed between the two sides of an upgrade, besides figures and answers.

use std::collections::BTreeMap;

use super::configuration::{Configuration, common_settings, flatten};
use crate::analysis::compare::difference::{Difference, DifferenceKind};
use crate::analysis::compare::environment_diff::UNKNOWN;
use crate::analysis::compare::pairwise::Comparison;
use crate::base::ids::CellKey;
use crate::config::select;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::upgrade::{Known, UpgradeRecord};

/// What a change is about, in the order in which changes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChangeKind {
    /// Machine or load, which forbids or limits a verdict.
    Condition,
    /// Version, image, arguments and other facts of the engine.
    Engine,
    /// A flag that only the baseline has.
    RemovedFlag,
    /// The default of a flag, by the help.
    Default,
    /// A setting that the engine reports or logs.
    Setting,
    Package,
    /// A flag that only the candidate has.
    AddedFlag,
}

impl ChangeKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Condition => "condition",
            Self::Engine => "engine",
            Self::RemovedFlag => "removed flag",
            Self::Default => "default",
            Self::Setting => "setting",
            Self::Package => "package",
            Self::AddedFlag => "added flag",
        }
    }
}

/// The axis whose values name builds.
const VERSION_AXIS: &str = "version";

/// Something that differs between the sides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    pub(crate) what: String,
    /// `None` if the baseline lacks it.
    pub(crate) before: Option<String>,
    /// `None` if the candidate lacks it.
    pub(crate) after: Option<String>,
}

/// All changes, and what could not be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) changes: Vec<Change>,
    /// What is unknown, as sentences.
    pub(crate) unknown: Vec<String>,
}

/// The version by which the matrix names the build of a cell.
pub(super) fn version_label(cell: &CellKey) -> Option<String> {
    select::parse_key(cell.as_str()).remove(VERSION_AXIS)
}

/// Returns the changes of the names that the matrices of both sides have for the builds of these pairs of cells.
pub(super) fn label_changes(pairs: &[(CellKey, CellKey)]) -> Vec<Change> {
    let labels = pairs
        .iter()
        .map(|(baseline, candidate)| [baseline, candidate].map(version_label));
    let mut changes: Vec<Change> = labels
        .filter(|[before, after]| before != after)
        .map(|[before, after]| new_change(ChangeKind::Engine, "version in the matrix", before, after))
        .collect();
    changes.sort();
    changes.dedup();
    changes
}

/// Finds the changes, after that of the setting that was upgraded and those in `labels`. `summaries` has the measurements of the pairs of
/// cells in `pairs`.
pub(crate) fn find_changes(
    comparison: &Comparison,
    record: &UpgradeRecord,
    summaries: &[MeasurementSummary],
    pairs: &[(CellKey, CellKey)],
    labels: Vec<Change>,
) -> Changes {
    let mut found = Changes::default();
    let [before, after] = &record.builds;
    for (difference, _) in &comparison.differences {
        // A side that did not run has no facts that could differ.
        match [&difference.before, &difference.after].contains(&&UNKNOWN.to_owned()) {
            true => found.unknown.push(format!(
                "{}: {} → {}",
                difference.what, difference.before, difference.after
            )),
            false => found.changes.push(change_of(difference)),
        }
    }
    compare_known(&mut found, "flags", &before.flags, &after.flags, flag_changes);
    compare_known(
        &mut found,
        "packages",
        &before.packages,
        &after.packages,
        package_changes,
    );
    let logged = differing(&before.configuration, &after.configuration);
    found
        .changes
        .extend(logged.map(|(name, [before, after])| new_change(ChangeKind::Setting, name, before, after)));
    let [before, after] = [0, 1].map(|side| reported_settings(summaries, pairs, side));
    let reported = differing(&before, &after);
    found
        .changes
        .extend(reported.map(|(name, [before, after])| new_change(ChangeKind::Setting, name, before, after)));
    found.changes.sort();
    found.changes.dedup();
    let [before, after] = record.given.clone().map(Some);
    let upgraded = new_change(ChangeKind::Engine, &record.setting, before, after);
    // The version that the server reports has a row of its own.
    found
        .changes
        .splice(0..0, std::iter::once(upgraded).chain(labels));
    found
}

fn change_of(difference: &Difference) -> Change {
    let kind = match difference.kind {
        DifferenceKind::Engine => ChangeKind::Engine,
        DifferenceKind::Environment
        | DifferenceKind::Host
        | DifferenceKind::Load
        | DifferenceKind::LoadLimits
        | DifferenceKind::Tool => ChangeKind::Condition,
    };
    new_change(
        kind,
        &difference.what,
        Some(difference.before.clone()),
        Some(difference.after.clone()),
    )
}

fn new_change(kind: ChangeKind, what: &str, before: Option<String>, after: Option<String>) -> Change {
    Change {
        kind,
        what: what.to_owned(),
        before,
        after,
    }
}

/// Adds the changes of something that may be unknown on a side.
fn compare_known<T>(
    found: &mut Changes,
    what: &str,
    before: &Known<T>,
    after: &Known<T>,
    changes: impl Fn(&T, &T) -> Vec<Change>,
) {
    match (before, after) {
        (Known::Known(before), Known::Known(after)) => found.changes.extend(changes(before, after)),
        (Known::Unknown(why), _) => found
            .unknown
            .push(format!("{what} of the baseline are unknown: {why}")),
        (_, Known::Unknown(why)) => found
            .unknown
            .push(format!("{what} of the candidate are unknown: {why}")),
    }
}

type Flags = BTreeMap<String, Option<String>>;

fn flag_changes(before: &Flags, after: &Flags) -> Vec<Change> {
    let only = |kind, one: &Flags, other: &Flags| -> Vec<Change> {
        let missing = one.keys().filter(|flag| !other.contains_key(*flag));
        missing.map(|flag| new_change(kind, flag, None, None)).collect()
    };
    let mut changes = only(ChangeKind::RemovedFlag, before, after);
    changes.extend(only(ChangeKind::AddedFlag, after, before));
    let both = before
        .iter()
        .filter_map(|(flag, default)| Some((flag, default, after.get(flag)?)));
    let differing = both.filter(|(_, before, after)| before != after);
    changes.extend(
        differing.map(|(flag, before, after)| {
            new_change(ChangeKind::Default, flag, before.clone(), after.clone())
        }),
    );
    changes
}

fn package_changes(before: &Configuration, after: &Configuration) -> Vec<Change> {
    differing(before, after)
        .map(|(name, [before, after])| new_change(ChangeKind::Package, name, before, after))
        .collect()
}

/// Names whose values differ, with the values.
fn differing<'a>(
    before: &'a Configuration,
    after: &'a Configuration,
) -> impl Iterator<Item = (&'a str, [Option<String>; 2])> {
    let names: std::collections::BTreeSet<&String> = match before.is_empty() || after.is_empty() {
        // A side that reports nothing does not lack everything.
        true => Default::default(),
        false => before.keys().chain(after.keys()).collect(),
    };
    let values = names
        .into_iter()
        .map(|name| (name.as_str(), [before.get(name), after.get(name)]));
    values
        .filter(|(_, [before, after])| before != after)
        .map(|(name, values)| (name, values.map(|value| value.cloned())))
}

/// The settings that the servers of a side report, the same in every measurement.
fn reported_settings(
    summaries: &[MeasurementSummary],
    pairs: &[(CellKey, CellKey)],
    side: usize,
) -> Configuration {
    let is_of_side = |summary: &&MeasurementSummary| {
        let mut pairs = pairs.iter();
        pairs.any(|(baseline, candidate)| [baseline, candidate][side] == &summary.cell)
    };
    let reported = summaries.iter().filter(is_of_side);
    common_settings(reported.filter_map(|summary| Some(flatten(summary.engine.info.as_ref()?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_in_the_matrix_is_a_change_of_the_engine() {
        let pair = |from: &str, to: &str| [from, to].map(|key| CellKey::new(key.to_owned())).into();
        let changes = label_changes(&[
            pair("engine=a,version=v1,model=m", "engine=a,version=v2,model=m"),
            pair("engine=a,version=v1,model=n", "engine=a,version=v2,model=n"),
            pair("engine=b,version=v1,model=m", "engine=b,version=v1,model=m"),
        ]);
        let values = ["v1", "v2"].map(|version| Some(version.to_owned()));
        let [before, after] = values;
        let expected = new_change(ChangeKind::Engine, "version in the matrix", before, after);
        assert_eq!(changes, [expected]);
    }
}
