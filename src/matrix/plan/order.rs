//! In which order launches are started and cells measured.

use crate::base::ids::LaunchId;
use crate::matrix::plan::{Cell, Measurement, Start};
use crate::matrix::spec::matrix::Repeats;

/// The starts of a plan: the cells of one launch are neighbours. Several starts of one launch follow one another, or, interleaved,
/// launches take turns and every second round goes backwards (A B B A), so that drift of the machine hits all alike.
pub(crate) fn starts(launches: &[LaunchId], cells: &[Cell], repeats: Repeats) -> Vec<Start> {
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
    if repeats.interleave {
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
