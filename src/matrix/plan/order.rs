//! In which order launches are started and cells measured.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::base::ids::{CellKey, LaunchId};
use crate::matrix::plan::{Cell, Launch, Measurement, Plan, Start};
use crate::matrix::spec::matrix::Repeats;

/// The starts of a plan: the cells of one launch are neighbours. Several starts of one launch follow one another, or, interleaved,
/// launches take turns and every second round goes backwards (A B B A), so that drift of the machine hits all alike.
pub(crate) fn starts(launches: &[Launch], cells: &[Cell], repeats: Repeats) -> Vec<Start> {
    let interleaves = repeats.interleave.unwrap_or_else(|| has_arms(launches));
    let launches: Vec<&LaunchId> = launches.iter().map(|launch| &launch.id).collect();
    let start = |launch: &LaunchId, start: u32| Start {
        launch: launch.clone(),
        start,
        cells: (1..=repeats.per_start.get())
            .flat_map(|repeat| {
                cells
                    .iter()
                    .filter(|cell| cell.launch == *launch)
                    .map(move |cell| Measurement {
                        cell: cell.key.clone(),
                        start,
                        repeat,
                    })
            })
            .collect(),
    };
    let rounds = 1..=repeats.starts.get();
    if interleaves {
        rounds
            .flat_map(|round| {
                let mut turn: Vec<_> = launches.iter().map(|launch| start(launch, round)).collect();
                if round % 2 == 0 {
                    turn.reverse();
                }
                turn
            })
            .collect()
    } else {
        launches
            .iter()
            .flat_map(|launch| rounds.clone().map(move |round| start(launch, round)))
            .collect()
    }
}

/// Whether two of the launches are there to be held against each other: one engine and model in two versions.
fn has_arms(launches: &[Launch]) -> bool {
    let are_arms = |a: &Launch, b: &Launch| {
        (&a.engine.recipe, &a.model) == (&b.engine.recipe, &b.model) && a.engine.version != b.engine.version
    };
    launches
        .iter()
        .enumerate()
        .any(|(at, one)| launches[at + 1..].iter().any(|other| are_arms(one, other)))
}

impl Plan {
    /// Plans more starts after those that are planned: each cell on so many of them, launches taking turns A B B A. Every start measures its
    /// cells as often as those before did.
    pub fn start_again(&mut self, wanted: &BTreeMap<CellKey, u32>) {
        let measurements = || self.starts.iter().flat_map(|start| &start.cells);
        let per_start = measurements()
            .map(|measurement| measurement.repeat)
            .max()
            .unwrap_or(1);
        let mut more = Vec::new();
        for round in 1..=wanted.values().copied().max().unwrap_or(0) {
            let mut turn = Vec::new();
            for launch in &self.launches {
                let earlier = self
                    .starts
                    .iter()
                    .chain(&more)
                    .filter(|start| start.launch == launch.id);
                let number = earlier.map(|start| start.start).max().unwrap_or(0) + 1;
                let cells: Vec<&Cell> = self
                    .cells
                    .iter()
                    .filter(|cell| {
                        cell.launch == launch.id && wanted.get(&cell.key).is_some_and(|n| *n >= round)
                    })
                    .collect();
                let measured = (1..=per_start).flat_map(|repeat| {
                    cells.iter().map(move |cell| Measurement {
                        cell: cell.key.clone(),
                        start: number,
                        repeat,
                    })
                });
                turn.push(Start {
                    launch: launch.id.clone(),
                    start: number,
                    cells: measured.collect(),
                });
            }
            turn.retain(|start| !start.cells.is_empty());
            if round % 2 == 0 {
                turn.reverse();
            }
            more.extend(turn);
        }
        self.starts.extend(more);
    }

    /// Plans every launch to be started so many times, A B B A, instead of what the matrix says.
    pub fn start_times(&mut self, starts: u32) {
        let per_start = self
            .starts
            .iter()
            .flat_map(|start| &start.cells)
            .map(|measurement| measurement.repeat)
            .max()
            .unwrap_or(1);
        let repeats = Repeats {
            starts: NonZeroU32::new(starts).unwrap_or(NonZeroU32::MIN),
            per_start: NonZeroU32::new(per_start).unwrap_or(NonZeroU32::MIN),
            interleave: Some(true),
        };
        self.starts = self::starts(&self.launches, &self.cells, repeats);
    }

    /// Plans those cells alone.
    pub fn keep(&mut self, is_wanted: impl Fn(&Cell) -> bool) {
        self.cells.retain(is_wanted);
        for start in &mut self.starts {
            start
                .cells
                .retain(|measurement| self.cells.iter().any(|cell| cell.key == measurement.cell));
        }
        self.starts.retain(|start| !start.cells.is_empty());
        self.launches
            .retain(|launch| self.starts.iter().any(|start| start.launch == launch.id));
    }
}
