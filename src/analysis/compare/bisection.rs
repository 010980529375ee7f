//! Searches for the first bad version among several.

use super::decision::{MIN_STARTS_NOISE_KNOWN, MIN_STARTS_NOISE_UNKNOWN};
use super::loss::{Loss, LossOf};
use super::pairwise::Comparison;
use super::pairwise::row::Row;
use super::verdict::Verdict;
use super::{gates, percentile, stored};
use crate::analysis::metrics::Metric;
use crate::config::select::{self, AxisValues};
use crate::plan::{Cell, Plan};
use crate::results::record::cell_stats::Noise;

pub(crate) const VERSION_AXIS: &str = "version";

/// State of the search: indices of the last known good and the first known bad version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bisection {
    pub(crate) good: usize,
    pub(crate) bad: usize,
}

impl Bisection {
    /// Starts a search between the first and the last of `versions` versions.
    pub(crate) const fn between_ends(versions: usize) -> Self {
        Self {
            good: 0,
            bad: versions.saturating_sub(1),
        }
    }

    /// Returns the version to compare with the first one next. `None` if the search is over.
    pub(crate) const fn next(self) -> Option<usize> {
        match self.bad - self.good {
            0 | 1 => None,
            distance => Some(self.good + distance / 2),
        }
    }

    /// Returns the state after the version from [`next`](Self::next) was compared.
    pub(crate) const fn after(self, version: usize, is_bad: bool) -> Self {
        match is_bad {
            true => Self { bad: version, ..self },
            false => Self {
                good: version,
                ..self
            },
        }
    }
}

fn gates_of(cell: &Cell, gates: &[Metric]) -> Vec<Metric> {
    match gates {
        [] => gates::gates(&cell.scenario),
        chosen => chosen.to_vec(),
    }
}

/// Returns the first cell with the reason why its percentiles cannot be judged, if no metric of any cell can
/// be judged.
pub(crate) fn too_few_requests<'a>(plan: &'a Plan, gates: &[Metric]) -> Option<(&'a Cell, String)> {
    let mut first = None;
    for cell in &plan.cells {
        let prompts = cell.scenario.workload.prompts;
        for gate in gates_of(cell, gates) {
            let why = percentile::too_few_requests(gate, prompts)?;
            first.get_or_insert((cell, why));
        }
    }
    first
}

/// Returns the fewest starts per version that can decide. `noise` is that of this machine, if it is known.
pub(crate) fn min_starts(plan: &Plan, gates: &[Metric], noise: Option<&Noise>) -> usize {
    let is_known = |noise: &Noise, cell: &Cell| {
        let known = |gate: &Metric| stored::known_noise(noise, &cell.key, &gate.name());
        let is_enough = |gate: &Metric| known(gate).is_some_and(|noise| noise.is_sufficient());
        gates_of(cell, gates).iter().all(is_enough)
    };
    match noise {
        Some(noise) if plan.cells.iter().all(|cell| is_known(noise, cell)) => MIN_STARTS_NOISE_KNOWN,
        _ => MIN_STARTS_NOISE_UNKNOWN,
    }
}

/// Returns the largest loss in a metric, or else the first loss of reliability. `None` if there is no loss.
pub(crate) fn worst_loss(comparison: &Comparison) -> Option<Loss> {
    let is_loss = |row: &&Row| row.verdict() == Some(Verdict::Worse);
    let losses = comparison.rows.iter().filter(is_loss);
    let worst = losses.max_by(|one, two| absolute_change(one).total_cmp(&absolute_change(two)));
    let of_metric = worst.map(|row| Loss {
        cell: row.cell.clone(),
        of: LossOf::Metric(row.metric),
    });
    of_metric.or_else(|| {
        let failure = comparison.failures.iter().find(|failure| failure.is_regression)?;
        Some(Loss {
            cell: failure.cell.clone(),
            of: LossOf::Reliability,
        })
    })
}

/// Returns whether the candidate of a comparison has this loss as well. `None` if the data do not decide, or if it is none of a
/// metric or of reliability.
pub(crate) fn is_found_in(loss: &Loss, comparison: &Comparison) -> Option<bool> {
    match &loss.of {
        LossOf::Reliability => match comparison.is_less_reliable() {
            true => Some(true),
            false => comparison.failures.is_empty().then_some(false),
        },
        LossOf::Metric(metric) => {
            let row = comparison.rows.iter().find(|row| row.metric == *metric)?;
            is_worse(row.verdict())
        }
        LossOf::Answers(_) | LossOf::WrongAnswers | LossOf::Resource(_) => None,
    }
}

/// Returns whether a verdict is a loss. `None` if it does not decide.
pub(crate) const fn is_worse(verdict: Option<Verdict>) -> Option<bool> {
    match verdict {
        Some(Verdict::Worse) => Some(true),
        Some(Verdict::Same | Verdict::Better) => Some(false),
        Some(Verdict::Unclear) | None => None,
    }
}

/// Returns the size of a change, as a difference of logarithms.
fn absolute_change(row: &Row) -> f64 {
    row.answer
        .estimate
        .map_or(0.0, |estimate| estimate.log_change.abs())
}

/// Keeps the cells of two versions. If the loss is known, keeps only the cells that have it.
pub(crate) fn keep_versions(plan: &mut Plan, versions: [&str; 2], loss: Option<&Loss>) {
    plan.retain_cells(|cell| {
        let mut own = cell.axes.get(VERSION_AXIS).into_iter();
        let is_version = own.any(|own| versions.contains(&own.as_str()));
        let axes = other_axes(cell.key.as_str());
        // A loss of a launch has no axes of a load.
        let has_loss = |loss: &Loss| {
            let own = other_axes(loss.cell.as_str());
            own.iter().all(|(axis, value)| axes.get(axis) == Some(value))
        };
        is_version && loss.is_none_or(has_loss)
    });
}

fn other_axes(key: &str) -> AxisValues {
    let mut axes = select::parse_key(key);
    axes.remove(VERSION_AXIS);
    axes
}

/// Returns the versions of a plan, in its order.
pub(crate) fn versions(plan: &Plan) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for version in plan.cells.iter().filter_map(|cell| cell.axes.get(VERSION_AXIS)) {
        if !versions.contains(version) {
            versions.push(version.clone());
        }
    }
    versions
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_search_ends_at_the_first_bad_version_with_every_step_between_what_is_known() {
        for versions in 2..40 {
            for first_bad in 1..versions {
                let mut search = Bisection::between_ends(versions);
                let mut compared = BTreeSet::new();
                while let Some(version) = search.next() {
                    assert!(search.good < version && version < search.bad);
                    assert!(compared.insert(version), "compared twice");
                    search = search.after(version, version >= first_bad);
                }
                assert_eq!((search.good, search.bad), (first_bad - 1, first_bad));
                assert!(compared.len() <= versions.ilog2() as usize + 1);
            }
        }
    }
}
