//! Chooses how many more starts each cell of a run needs for the precision that its matrix sets by
//! `target_ci`.

use std::collections::BTreeMap;

use super::from_run;
use super::precision::{self, Candidate, CellPrecision, Cost, NextStep};
use crate::base::date;
use crate::base::ids::{CellKey, LaunchId};
use crate::config::repeats::StopRule;
use crate::plan::{Plan, Start};
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::event::Event;
use crate::results::record::machine::Machine;
use crate::results::record::run::RunInfo;

/// Number of further starts of each cell.
pub(crate) type StartCounts = BTreeMap<CellKey, u32>;

/// Returns the starts that cells still need.
pub(crate) fn starts_needed_by_cell(certainties: BTreeMap<CellKey, CellPrecision>) -> StartCounts {
    let needs = |(key, precision): (CellKey, CellPrecision)| match precision.next_step {
        NextStep::MoreStarts(more) => Some((key, more)),
        _ => None,
    };
    certainties.into_iter().filter_map(needs).collect()
}

/// Computes the precision of each cell of a run if its matrix sets `target_ci`, otherwise returns an empty
/// map. `journal` has the events of the run with their times.
pub(crate) fn run_precision(
    about: &RunInfo,
    plan: &Plan,
    machine: &Machine,
    summaries: &[MeasurementSummary],
    journal: &[(String, Event)],
) -> BTreeMap<CellKey, CellPrecision> {
    let Some(stop_rule) = &plan.until else {
        return BTreeMap::new();
    };
    let side = from_run::run_stats(about, plan, machine, summaries, &[]);
    let planned = |key: &CellKey| {
        let measures = |start: &&Start| start.cells.iter().any(|measurement| measurement.cell == *key);
        plan.starts.iter().filter(measures).count()
    };
    let candidates = plan.cells.iter().filter_map(|cell| {
        let candidate = Candidate {
            cell: side.cells.get(&cell.key)?,
            launch: &cell.launch,
            planned_starts: u32::try_from(planned(&cell.key)).unwrap_or(u32::MAX),
        };
        Some((cell.key.clone(), candidate))
    });
    precision::cell_precisions(stop_rule, &candidates.collect(), &launch_costs(plan, journal))
}

/// Returns how many more rounds, with a start of each launch, a run needs for the precision of its stopping rule, and its budget
/// allows. Rounds keep the launches alternating.
pub(crate) fn rounds_needed(
    about: &RunInfo,
    plan: &Plan,
    machine: &Machine,
    summaries: &[MeasurementSummary],
    journal: &[(String, Event)],
) -> u32 {
    let Some(budget) = plan.until.and_then(|rule| rule.budget) else {
        return 0;
    };
    let mut unlimited = plan.clone();
    unlimited.until = plan.until.map(|rule| StopRule { budget: None, ..rule });
    let precisions = run_precision(about, &unlimited, machine, summaries, journal);
    let wanted = starts_needed_by_cell(precisions).into_values().max().unwrap_or(0);
    let costs = launch_costs(plan, journal);
    let spent: f64 = costs.values().map(|cost| cost.device_s).sum();
    let round: f64 = costs.values().map(|cost| cost.per_start()).sum();
    let left = budget.duration().as_secs_f64() - spent;
    // The conversion saturates; without a start nothing is known of the cost.
    let affordable = if round > 0.0 {
        (left / round).floor() as u32
    } else {
        0
    };
    wanted.min(affordable)
}

/// The time from the start of an engine to its last event in the journal.
struct EngineUptime<'a> {
    launch: &'a LaunchId,
    start: u32,
    began: &'a str,
    last: &'a str,
}

/// Returns the cost of each start of each launch so far, in seconds of one device. Every start of its engine counts, also after a
/// restart or an interruption.
pub(crate) fn start_costs(plan: &Plan, journal: &[(String, Event)]) -> BTreeMap<(LaunchId, u32), f64> {
    let cells = plan.cells.iter();
    let launch_of: BTreeMap<&CellKey, &LaunchId> = cells.map(|cell| (&cell.key, &cell.launch)).collect();
    let mut uptimes: Vec<EngineUptime<'_>> = Vec::new();
    for (at, event) in journal {
        let launch_and_start = match event {
            Event::LaunchBegan { launch, start, .. } => {
                uptimes.push(EngineUptime {
                    launch,
                    start: *start,
                    began: at,
                    last: at,
                });
                None
            }
            Event::EngineStarted { launch, start, .. }
            | Event::EngineReady { launch, start, .. }
            | Event::LaunchFailed { launch, start, .. }
            | Event::EngineStopped { launch, start, .. } => Some((launch, *start)),
            Event::CellBegan { measurement, .. } | Event::CellEnded { measurement, .. } => launch_of
                .get(&measurement.cell)
                .map(|launch| (*launch, measurement.start)),
            _ => None,
        };
        let current = uptimes
            .iter_mut()
            .rev()
            .find(|uptime| launch_and_start == Some((uptime.launch, uptime.start)));
        if let Some(current) = current {
            current.last = at;
        }
    }
    let mut costs: BTreeMap<(LaunchId, u32), f64> = BTreeMap::new();
    for uptime in uptimes {
        let Some(launch) = plan.launches.iter().find(|launch| launch.id == *uptime.launch) else {
            continue;
        };
        let seconds = date::seconds_between(uptime.began, uptime.last).unwrap_or(0.0);
        let cost = costs.entry((launch.id.clone(), uptime.start)).or_default();
        *cost += seconds.max(0.0) * f64::from(launch.devices.max(1));
    }
    costs
}

/// Returns how many starts of engines the journal has, with those that were interrupted or measured again.
pub(crate) fn engine_starts(journal: &[(String, Event)]) -> usize {
    let began = |(_, event): &&(String, Event)| matches!(event, Event::LaunchBegan { .. });
    journal.iter().filter(began).count()
}

/// Returns the cost of each launch so far.
fn launch_costs(plan: &Plan, journal: &[(String, Event)]) -> BTreeMap<LaunchId, Cost> {
    let mut costs: BTreeMap<LaunchId, Cost> = BTreeMap::new();
    for ((launch, _), device_s) in start_costs(plan, journal) {
        let cost = costs.entry(launch).or_default();
        cost.starts += 1;
        cost.device_s += device_s;
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Measurement;
    use crate::results::store::testing;

    #[test]
    fn what_a_launch_took_is_told_by_the_journal_from_command_to_end_on_each_of_its_devices() {
        let mut plan = testing::plan();
        let launch = plan.launches[0].id.clone();
        let began = |start| Event::LaunchBegan {
            launch: launch.clone(),
            start,
            command: "serve".to_owned(),
        };
        let stopped = |start| Event::EngineStopped {
            launch: launch.clone(),
            start,
            how: "by TERM".to_owned(),
            shm_freed_bytes: None,
            seconds: 1.0,
        };
        let measurement = Measurement {
            cell: plan.cells[0].key.clone(),
            start: 2,
            repeat: 1,
        };
        let at = |second: u32, event| (format!("2026-11-22T01:00:{second:02}.500Z"), event);
        let swept = Event::Swept {
            what: "a process".to_owned(),
        };
        let journal = [
            at(0, began(1)),
            at(7, stopped(1)),
            // The time between two starts belongs to no launch.
            at(9, swept.clone()),
            at(10, began(2)),
            // Killed while it measured. After the interruption the same start is tried again.
            at(
                14,
                Event::CellBegan {
                    measurement,
                    requests: 10,
                },
            ),
            at(30, swept),
            at(31, began(2)),
            at(40, stopped(2)),
        ];
        let cost = |plan: &Plan| {
            launch_costs(plan, &journal)
                .remove(&launch)
                .expect("it was started")
        };
        plan.launches[0].devices = 0;
        let alone = cost(&plan);
        assert_eq!(alone.starts, 2);
        assert!((alone.device_s - 20.0).abs() < 1e-9, "{alone:?}");
        plan.launches[0].devices = 8;
        assert!((cost(&plan).device_s - 160.0).abs() < 1e-9);
    }
}
