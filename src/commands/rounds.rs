//! Starts beyond those that a matrix plans: which cells are started again after a round, by the certainty that the matrix asks for or by
//! what a command decides.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;

use crate::analysis::compare::from_run;
use crate::analysis::compare::precision::{self, Candidate, Certainty, Cost, Outlook};
use crate::base::clock;
use crate::base::ids::{CellKey, LaunchId};
use crate::plan::{Measurement, Plan, Start};
use crate::results::record::cell::{Ending, Summary};
use crate::results::record::event::Event;
use crate::results::store::{self, Run, Store};

/// How many more starts each cell gets.
pub(super) type Wanted = BTreeMap<CellKey, u32>;

/// What is measured beyond the starts that are planned.
pub(super) enum Further<'a> {
    /// What the matrix asks for by `repeats: { target_ci: … }`, if it does.
    AsAsked,
    /// What this says of what was measured so far; nothing when it wants nothing. What the matrix asks for is not looked at.
    While(&'a dyn Fn(&Run) -> Wanted),
    /// Nothing.
    Nothing,
}

impl Further<'_> {
    /// The plan with what was begun beyond it in the run that goes on, if one does.
    pub(super) fn prepare(&self, plan: &mut Plan, earlier: Option<&Plan>) {
        if matches!(self, Self::While(_) | Self::Nothing) {
            plan.until = None;
        }
        let goes_on = plan.until.is_some() || matches!(self, Self::While(_));
        if let Some(earlier) = earlier.filter(|_| goes_on) {
            plan.take_up(earlier);
        }
    }

    /// Whether more than is planned may be wanted.
    fn is_open(&self, plan: &Plan) -> bool {
        match self {
            Self::AsAsked => plan.until.is_some(),
            Self::While(_) => true,
            Self::Nothing => false,
        }
    }

    fn wanted(&self, run: &Run) -> Wanted {
        match self {
            Self::AsAsked => wanting(certainties(run)),
            Self::While(decides) => decides(run),
            Self::Nothing => Wanted::new(),
        }
    }
}

fn wanting(certainties: BTreeMap<CellKey, Certainty>) -> Wanted {
    let wants = |(key, certainty): (CellKey, Certainty)| match certainty.outlook {
        Outlook::Wants(more) => Some((key, more)),
        _ => None,
    };
    certainties.into_iter().filter_map(wants).collect()
}

/// What is still to be done of some starts: interrupted cells, those that failed by the host's fault, and, where `failed` asks for them,
/// other failed ones and invalid ones.
pub(super) fn remaining(
    starts: &[Start],
    finished: &BTreeMap<Measurement, Summary>,
    failed: bool,
) -> Vec<Start> {
    let is_open = |measurement: &Measurement| match finished.get(measurement).map(|summary| &summary.ending) {
        None | Some(Ending::Interrupted | Ending::Skipped { .. }) => true,
        // A failure of the host says nothing about the engine.
        Some(Ending::Failed { class, .. }) => failed || class.is_retried(),
        Some(Ending::Done) => failed && finished[measurement].is_invalid(),
    };
    let open = |start: &Start| Start {
        cells: start
            .cells
            .iter()
            .filter(|measurement| is_open(measurement))
            .cloned()
            .collect(),
        ..start.clone()
    };
    starts
        .iter()
        .map(open)
        .filter(|start| !start.cells.is_empty())
        .collect()
}

/// A plan, and what is to be done of it.
pub(super) struct Round {
    /// The plan.
    pub(super) plan: Plan,
    /// What is to be done.
    pub(super) todo: Vec<Start>,
}

/// The plan that a run begins or goes on with.
pub(super) struct Plans {
    /// All of it, as it lies on disk.
    pub(super) whole: Plan,
    /// What is measured of it.
    pub(super) chosen: Plan,
}

impl Plans {
    /// Plans another round, if anything is wanted of the cells that are measured; both plans then hold it.
    ///
    /// # Errors
    /// The run cannot be read.
    pub(super) fn grow(
        &mut self,
        further: &Further<'_>,
        store: &Store,
    ) -> anyhow::Result<Option<Vec<Start>>> {
        if !further.is_open(&self.whole) {
            return Ok(None);
        }
        let run = Run::read(store.folder()).context("what was measured cannot be read")?;
        let mut wanted = further.wanted(&run);
        let chosen: BTreeSet<&CellKey> = self.chosen.cells.iter().map(|cell| &cell.key).collect();
        wanted.retain(|key, _| chosen.contains(key));
        let more = self.whole.start_again(&wanted);
        if more.is_empty() {
            return Ok(None);
        }
        self.chosen.starts.extend(more.iter().cloned());
        Ok(Some(more))
    }
}

/// The plan of a run that is to go on; `None` where there is none, which the run then writes anew.
pub(super) fn earlier(folder: &Path) -> Option<Plan> {
    store::plan(folder).ok()
}

/// How well each cell of a run is known, by what its matrix asks for; nothing where it asks for nothing.
pub(crate) fn certainties(run: &Run) -> BTreeMap<CellKey, Certainty> {
    let Some(until) = &run.plan.until else {
        return BTreeMap::new();
    };
    let side = from_run::of_run(&run.about, &run.plan, &run.machine, &run.summaries, &[]);
    let planned = |key: &CellKey| {
        let measures = |start: &&Start| start.cells.iter().any(|measurement| measurement.cell == *key);
        run.plan.starts.iter().filter(measures).count()
    };
    let candidates = run.plan.cells.iter().filter_map(|cell| {
        let candidate = Candidate {
            cell: side.cells.get(&cell.key)?,
            launch: &cell.launch,
            planned: u32::try_from(planned(&cell.key)).unwrap_or(u32::MAX),
        };
        Some((cell.key.clone(), candidate))
    });
    precision::certainties(until, &candidates.collect(), &costs(&run.plan, &run.journal))
}

/// One time that an engine was started, from its command to the last that the journal knows of it.
struct Stretch<'a> {
    launch: &'a LaunchId,
    start: u32,
    began: &'a str,
    last: &'a str,
}

/// What each launch took so far, by the journal. An engine that was started anew within a start, or again after an interruption, took both.
fn costs(plan: &Plan, journal: &[(String, Event)]) -> BTreeMap<LaunchId, Cost> {
    let cells = plan.cells.iter();
    let launch_of: BTreeMap<&CellKey, &LaunchId> = cells.map(|cell| (&cell.key, &cell.launch)).collect();
    let mut stretches: Vec<Stretch<'_>> = Vec::new();
    for (at, event) in journal {
        let told = match event {
            Event::LaunchBegan { launch, start, .. } => {
                stretches.push(Stretch {
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
        let of = stretches
            .iter_mut()
            .rev()
            .find(|stretch| told == Some((stretch.launch, stretch.start)));
        if let Some(of) = of {
            of.last = at;
        }
    }
    let mut costs: BTreeMap<LaunchId, Cost> = BTreeMap::new();
    let mut counted = BTreeSet::new();
    for stretch in stretches {
        let Some(launch) = plan.launches.iter().find(|launch| launch.id == *stretch.launch) else {
            continue;
        };
        let cost = costs.entry(launch.id.clone()).or_default();
        cost.starts += u32::from(counted.insert((stretch.launch, stretch.start)));
        let seconds = clock::seconds_between(stretch.began, stretch.last).unwrap_or(0.0);
        cost.device_s += seconds.max(0.0) * f64::from(launch.devices.max(1));
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
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
            // A moment between two starts is nobody's.
            at(9, swept.clone()),
            at(10, began(2)),
            // Killed while it measured; what comes after the interruption is another try of the same start.
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
        let cost = |plan: &Plan| costs(plan, &journal).remove(&launch).expect("it was started");
        plan.launches[0].devices = 0;
        let alone = cost(&plan);
        assert_eq!(alone.starts, 2);
        assert!((alone.device_s - 20.0).abs() < 1e-9, "{alone:?}");
        plan.launches[0].devices = 8;
        assert!((cost(&plan).device_s - 160.0).abs() < 1e-9);
    }
}
