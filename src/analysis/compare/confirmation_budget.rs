//! Decides how many fresh starts each suspected loss of a nightly run gets within the limits.

use std::collections::BTreeMap;

use super::nightly_gate::Look;
use crate::base::date;
use crate::base::ids::{CellKey, LaunchId};
use crate::plan::Plan;
use crate::results::record::cell::{Phase, PhaseTime, Summary};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Launch of the cell. Its cells share the start.
    pub launch: LaunchId,
    /// Seconds until the engine is ready, of both sides if both are started.
    pub launch_s: f64,
    /// Seconds for the measurements of the cell on one start, of both sides if both are started.
    pub cell_s: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'a> {
    pub most: u32,
    /// Seconds for all starts together. `None` means no limit.
    pub seconds: Option<f64>,
    /// Cost of a start of each cell, if known.
    pub costs: &'a BTreeMap<CellKey, Cost>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// Number of starts that would decide.
    pub wanted: u32,
    /// Number of starts that it gets.
    pub starts: u32,
    /// Whether the time limit allows no more.
    pub is_time: bool,
}

impl Granted {
    /// Says why there are fewer starts than wanted. `None` if there are not.
    pub(crate) const fn short(self) -> Option<&'static str> {
        match (self.starts < self.wanted, self.is_time) {
            (false, _) => None,
            (true, true) => Some("`--budget` has no room for more"),
            (true, false) => Some("`--confirm` allows no more"),
        }
    }
}

/// Computes the cost of a fresh start of each cell: the start of its launch and all its measurements on one
/// start. The cost is doubled for the cells in `both`, because their baseline is started too.
pub(crate) fn costs<T>(
    plan: &Plan,
    summaries: &[Summary],
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

impl Look {
    /// Decides how many fresh starts each cell gets: the highest number that one of its metrics needs, within
    /// `limits`. The largest losses come first, so that a short time decides some of them.
    pub(crate) fn fresh_starts(&self, limits: &Limits<'_>) -> BTreeMap<CellKey, Granted> {
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
        let mut left = limits.seconds.unwrap_or(f64::INFINITY);
        let mut started: BTreeMap<&LaunchId, u32> = BTreeMap::new();
        let mut granted = BTreeMap::new();
        for (cell, wanted, _) in cells {
            let most = wanted.min(limits.most);
            let Some(cost) = limits.costs.get(cell) else {
                granted.insert(
                    cell.clone(),
                    Granted {
                        wanted,
                        starts: most,
                        is_time: false,
                    },
                );
                continue;
            };
            let already = started.entry(&cost.launch).or_default();
            let seconds = |starts: u32| {
                f64::from(starts) * cost.cell_s + f64::from(starts.saturating_sub(*already)) * cost.launch_s
            };
            let starts = (0..=most)
                .rev()
                .find(|starts| seconds(*starts) <= left)
                .unwrap_or(0);
            left -= seconds(starts);
            *already = (*already).max(starts);
            let is_time = starts < most;
            granted.insert(
                cell.clone(),
                Granted {
                    wanted,
                    starts,
                    is_time,
                },
            );
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::super::nightly_gate::Suspected;
    use super::*;

    fn looked(suspects: &[(&str, u32, f64)]) -> Look {
        let suspects = suspects
            .iter()
            .map(|(cell, starts, loss)| Suspected::of(cell, *starts, *loss));
        Look {
            suspects: suspects.collect(),
            ..Look::default()
        }
    }

    fn granted(look: &Look, most: u32, seconds: Option<f64>) -> Vec<(u32, Option<&'static str>)> {
        let cost = |cell: &str, launch: &str| {
            let cost = Cost {
                launch: LaunchId::new(launch),
                launch_s: 60.0,
                cell_s: 10.0,
            };
            (CellKey::new(cell), cost)
        };
        let costs = BTreeMap::from([cost("a", "one"), cost("b", "one"), cost("c", "two")]);
        let limits = Limits {
            most,
            seconds,
            costs: &costs,
        };
        let granted = look.fresh_starts(&limits);
        granted
            .into_values()
            .map(|granted| (granted.starts, granted.short()))
            .collect()
    }

    #[test]
    fn without_a_budget_each_gets_what_decides_and_no_more_than_is_allowed() {
        let look = looked(&[("a", 5, 0.1), ("b", 3, 0.1), ("a", 4, 0.2)]);
        assert_eq!(granted(&look, 16, None), [(5, None), (3, None)]);
        let short = Some("`--confirm` allows no more");
        assert_eq!(granted(&look, 4, None), [(4, short), (3, None)]);
    }

    #[test]
    fn a_budget_goes_to_the_largest_loss_first_and_counts_a_shared_launch_once() {
        let short = Some("`--budget` has no room for more");
        // Starting the engine costs time: three starts of `c` take 210 s, and as many of `b` take the same.
        // `a` shares these starts and needs 10 s each.
        let look = looked(&[("a", 3, 0.1), ("b", 3, 0.2), ("c", 3, 0.3)]);
        assert_eq!(granted(&look, 16, Some(450.0)), [(3, None), (3, None), (3, None)]);
        assert_eq!(
            granted(&look, 16, Some(430.0)),
            [(1, short), (3, None), (3, None)]
        );
        assert_eq!(
            granted(&look, 16, Some(300.0)),
            [(1, short), (1, short), (3, None)]
        );
        assert_eq!(
            granted(&look, 16, Some(1.0)),
            [(0, short), (0, short), (0, short)]
        );
    }
}
