//! Decides how many fresh starts each suspected loss of a nightly run gets within the limits.

use std::collections::BTreeMap;

use super::nightly_gate::screen_result::ScreenResult;
use crate::base::date;
use crate::base::ids::{CellKey, LaunchId};
use crate::plan::Plan;
use crate::results::record::cell::{MeasurementSummary, Phase, PhaseTime};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Launch of the cell. Its cells share the start.
    pub(crate) launch: LaunchId,
    /// Seconds until the engine is ready, of both sides if both are started.
    pub(crate) launch_s: f64,
    /// Seconds for the measurements of the cell on one start, of both sides if both are started.
    pub(crate) cell_s: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetLimits<'a> {
    pub(crate) max_starts: u32,
    /// Seconds for all starts together. `None` means no limit.
    pub(crate) max_seconds: Option<f64>,
    /// Cost of a start of each cell, if known.
    pub(crate) costs: &'a BTreeMap<CellKey, Cost>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allotment {
    /// Number of starts that would decide.
    pub(crate) wanted: u32,
    /// Number of starts that it gets.
    pub(crate) starts: u32,
    /// Whether the time limit allows no more.
    pub(crate) is_limited_by_time: bool,
}

impl Allotment {
    /// Says why there are fewer starts than wanted. `None` if there are not.
    pub(crate) const fn shortfall_reason(self) -> Option<&'static str> {
        match (self.starts < self.wanted, self.is_limited_by_time) {
            (false, _) => None,
            (true, true) => Some("`--budget` does not allow more fresh starts"),
            (true, false) => Some("`--confirm` does not allow more fresh starts"),
        }
    }
}

/// Computes the cost of a fresh start of each cell: the start of its launch and all its measurements on one
/// start. The cost is doubled for the cells in `both`, because their baseline is started too.
pub(crate) fn costs<T>(
    plan: &Plan,
    summaries: &[MeasurementSummary],
    both: &BTreeMap<CellKey, T>,
) -> BTreeMap<CellKey, Cost> {
    let mut starts: BTreeMap<&CellKey, BTreeMap<u32, (f64, f64)>> = BTreeMap::new();
    for summary in summaries {
        let Some(seconds) = date::seconds_between(&summary.began, &summary.ended) else {
            continue;
        };
        let launch = |phase: &&PhaseTime| phase.phase == Phase::Launch.name();
        let launched = summary
            .phases
            .iter()
            .find(launch)
            .map_or(0.0, |phase| phase.seconds);
        let start = starts.entry(&summary.cell).or_default();
        let (launch_s, cell_s) = start.entry(summary.start).or_default();
        *launch_s = launched.max(*launch_s);
        *cell_s += seconds;
    }
    let cost = |(cell, starts): (&CellKey, BTreeMap<u32, (f64, f64)>)| {
        let planned = plan.cells.iter().find(|planned| planned.key == *cell)?;
        let count = starts.len() as f64;
        let sides = if both.contains_key(cell) { 2.0 } else { 1.0 };
        let mean = |part: fn(&(f64, f64)) -> f64| sides * starts.values().map(part).sum::<f64>() / count;
        let cost = Cost {
            launch: planned.launch.clone(),
            launch_s: mean(|(launch, _)| *launch),
            cell_s: mean(|(_, cell)| *cell),
        };
        Some((cell.clone(), cost))
    };
    starts.into_iter().filter_map(cost).collect()
}

impl ScreenResult {
    /// Decides how many fresh starts each cell gets: the highest number that one of its metrics needs, within
    /// `limits`. The largest losses come first, so that a short time decides some of them.
    pub(crate) fn allot_fresh_starts(&self, limits: &BudgetLimits<'_>) -> BTreeMap<CellKey, Allotment> {
        let mut cells: Vec<(&CellKey, u32, f64)> = Vec::new();
        for suspect in &self.suspects {
            match cells.iter_mut().find(|(cell, ..)| *cell == &suspect.cell) {
                Some((_, starts, loss)) => {
                    (*starts, *loss) = ((*starts).max(suspect.starts), loss.max(suspect.loss));
                }
                None => cells.push((&suspect.cell, suspect.starts, suspect.loss)),
            }
        }
        cells.sort_by(|(a, _, one), (b, _, two)| two.total_cmp(one).then(a.cmp(b)));
        let mut remaining_s = limits.max_seconds.unwrap_or(f64::INFINITY);
        let mut started: BTreeMap<&LaunchId, u32> = BTreeMap::new();
        let mut allotments = BTreeMap::new();
        for (cell, wanted, _) in cells {
            let max_starts = wanted.min(limits.max_starts);
            let Some(cost) = limits.costs.get(cell) else {
                allotments.insert(
                    cell.clone(),
                    Allotment {
                        wanted,
                        starts: max_starts,
                        is_limited_by_time: false,
                    },
                );
                continue;
            };
            let already = started.entry(&cost.launch).or_default();
            let seconds = |starts: u32| {
                f64::from(starts) * cost.cell_s + f64::from(starts.saturating_sub(*already)) * cost.launch_s
            };
            let starts = (0..=max_starts)
                .rev()
                .find(|starts| seconds(*starts) <= remaining_s)
                .unwrap_or(0);
            remaining_s -= seconds(starts);
            *already = (*already).max(starts);
            let is_time = starts < max_starts;
            allotments.insert(
                cell.clone(),
                Allotment {
                    wanted,
                    starts,
                    is_limited_by_time: is_time,
                },
            );
        }
        allotments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::compare::nightly_gate::screen_result::SuspectedLoss;

    fn screen_result(suspects: &[(&str, u32, f64)]) -> ScreenResult {
        let suspects = suspects
            .iter()
            .map(|(cell, starts, loss)| SuspectedLoss::for_tests(cell, *starts, *loss));
        ScreenResult {
            suspects: suspects.collect(),
            ..ScreenResult::default()
        }
    }

    fn allotments(
        screen_result: &ScreenResult,
        max_starts: u32,
        seconds: Option<f64>,
    ) -> Vec<(u32, Option<&'static str>)> {
        let cost = |cell: &str, launch: &str| {
            let cost = Cost {
                launch: LaunchId::new(launch),
                launch_s: 60.0,
                cell_s: 10.0,
            };
            (CellKey::new(cell), cost)
        };
        let costs = BTreeMap::from([cost("a", "one"), cost("b", "one"), cost("c", "two")]);
        let limits = BudgetLimits {
            max_starts,
            max_seconds: seconds,
            costs: &costs,
        };
        let granted = screen_result.allot_fresh_starts(&limits);
        granted
            .into_values()
            .map(|granted| (granted.starts, granted.shortfall_reason()))
            .collect()
    }

    #[test]
    fn without_a_budget_each_gets_what_decides_and_no_more_than_is_allowed() {
        let screen_result = screen_result(&[("a", 5, 0.1), ("b", 3, 0.1), ("a", 4, 0.2)]);
        assert_eq!(allotments(&screen_result, 16, None), [(5, None), (3, None)]);
        let short = Some("`--confirm` does not allow more fresh starts");
        assert_eq!(allotments(&screen_result, 4, None), [(4, short), (3, None)]);
    }

    #[test]
    fn a_budget_goes_to_the_largest_loss_first_and_counts_a_shared_launch_once() {
        let short = Some("`--budget` does not allow more fresh starts");
        // Starting the engine costs time: three starts of `c` take 210 s, and as many of `b` take the same.
        // `a` shares these starts and needs 10 s each.
        let screen_result = screen_result(&[("a", 3, 0.1), ("b", 3, 0.2), ("c", 3, 0.3)]);
        assert_eq!(
            allotments(&screen_result, 16, Some(450.0)),
            [(3, None), (3, None), (3, None)]
        );
        assert_eq!(
            allotments(&screen_result, 16, Some(430.0)),
            [(1, short), (3, None), (3, None)]
        );
        assert_eq!(
            allotments(&screen_result, 16, Some(300.0)),
            [(1, short), (1, short), (3, None)]
        );
        assert_eq!(
            allotments(&screen_result, 16, Some(1.0)),
            [(0, short), (0, short), (0, short)]
        );
    }
}
