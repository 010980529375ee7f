//! In which order launches are started and cells measured.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::base::ids::{CellKey, LaunchId};
use crate::matrix::plan::{Cell, Launch, Measurement, Plan, Start};
use crate::matrix::spec::repeats::Repeats;

/// The starts of a plan: the cells of one launch are neighbours. Several starts of one launch follow one another, or, interleaved,
/// launches take turns and every second round goes backwards (A B B A), so that drift of the machine hits all alike.
pub(crate) fn starts(launches: &[Launch], cells: &[Cell], repeats: &Repeats) -> Vec<Start> {
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
        confirms: false,
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
    /// Plans more starts after those that are planned, and gives them: each cell on so many of them, launches going on to take turns
    /// A B B A. Every start measures its cells as often as those before did.
    pub fn start_again(&mut self, wanted: &BTreeMap<CellKey, u32>) -> Vec<Start> {
        let more = self.further(wanted, false);
        self.starts.extend(more.iter().cloned());
        more
    }

    /// As [`Plan::start_again`], for starts that decide about suspects.
    pub fn confirm(&mut self, wanted: &BTreeMap<CellKey, u32>) {
        let more = self.further(wanted, true);
        self.starts.extend(more);
    }

    fn further(&self, wanted: &BTreeMap<CellKey, u32>, confirms: bool) -> Vec<Start> {
        let rounds_before = self.starts.iter().map(|start| start.start).max().unwrap_or(0);
        let mut more: Vec<Start> = Vec::new();
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
                let measured = (1..=self.per_start()).flat_map(|repeat| {
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
                    confirms,
                });
            }
            turn.retain(|start| !start.cells.is_empty());
            if (rounds_before + round).is_multiple_of(2) {
                turn.reverse();
            }
            more.extend(turn);
        }
        more
    }

    /// How often a start measures its cells.
    fn per_start(&self) -> u32 {
        let measurements = self.starts.iter().flat_map(|start| &start.cells);
        measurements
            .map(|measurement| measurement.repeat)
            .max()
            .unwrap_or(1)
    }

    /// Takes over the starts that an earlier plan of the same run holds beyond those planned here, of the cells that are still the same. Those
    /// that decided about suspects are left where they are: what they measured was chosen.
    pub fn take_up(&mut self, earlier: &Plan) {
        let is_same = |key: &CellKey| {
            let of = |plan: &Plan| {
                let cell = plan.cells.iter().find(|cell| cell.key == *key)?;
                Some((cell.content.clone(), cell.launch.clone()))
            };
            of(self).is_some_and(|cell| of(earlier) == Some(cell))
        };
        let planned = |launch: &LaunchId| {
            let starts = self.starts.iter().filter(|start| start.launch == *launch);
            starts.map(|start| start.start).max().unwrap_or(0)
        };
        let beyond = earlier
            .starts
            .iter()
            .filter(|start| !start.confirms && start.start > planned(&start.launch));
        let same = beyond.map(|start| Start {
            cells: start
                .cells
                .iter()
                .filter(|measurement| is_same(&measurement.cell))
                .cloned()
                .collect(),
            ..start.clone()
        });
        let more: Vec<Start> = same.filter(|start| !start.cells.is_empty()).collect();
        self.starts.extend(more);
    }

    /// Plans every launch to be started so many times, A B B A, instead of what the matrix says.
    pub fn start_times(&mut self, starts: u32) {
        let repeats = Repeats {
            starts: NonZeroU32::new(starts).unwrap_or(NonZeroU32::MIN),
            per_start: NonZeroU32::new(self.per_start()).unwrap_or(NonZeroU32::MIN),
            interleave: Some(true),
            ..Repeats::default()
        };
        self.starts = self::starts(&self.launches, &self.cells, &repeats);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::plan::expand;
    use crate::matrix::spec::engine::{Recipe, Recipes};
    use crate::matrix::spec::matrix::Matrix;
    use crate::matrix::spec::source::{Source, read};

    /// Two engines with two cells each, three starts.
    fn plan() -> Plan {
        let text = "name: t\nengines:\n  - sim: { as: a, variant: vllm }\n  - sim: { as: b, variant: sglang }\nmodels: [m]\n\
                    scenarios: [sharegpt, random-1k-1k]\nrepeats: { starts: 3, interleave: true, until: 2% }\n";
        let (matrix, wrong) = read::<Matrix>(&Source::new("m.yaml", text));
        assert!(wrong.is_empty(), "{wrong:?}");
        let recipe = Source::new("sim.yaml", include_str!("../../../engines/sim.yaml"));
        let recipe = read::<Recipe>(&recipe).0.expect("the recipe is well formed");
        expand(
            &matrix.expect("the matrix is well formed"),
            &Recipes::from([("sim".to_owned(), recipe)]),
        )
        .expect("the matrix can be expanded")
    }

    fn wanted(plan: &Plan, starts: [u32; 4]) -> BTreeMap<CellKey, u32> {
        let cells = plan.cells.iter().map(|cell| cell.key.clone());
        cells.zip(starts).filter(|(_, starts)| *starts > 0).collect()
    }

    /// Which launch is started which time, with how many cells: `a4x2`.
    fn told(starts: &[Start]) -> Vec<String> {
        let told = |start: &Start| {
            format!(
                "{}{}x{}",
                &start.launch.as_str()[..1],
                start.start,
                start.cells.len()
            )
        };
        starts.iter().map(told).collect()
    }

    #[test]
    fn later_starts_go_on_to_take_turns_and_measure_only_what_is_wanted() {
        let mut plan = plan();
        assert_eq!(
            told(&plan.starts),
            ["a1x2", "b1x2", "b2x2", "a2x2", "a3x2", "b3x2"]
        );
        let more = plan.start_again(&wanted(&plan, [1, 0, 2, 1]));
        // The fourth round goes backwards, as it would have if it had been planned from the beginning.
        assert_eq!(told(&more), ["b4x2", "a4x1", "b5x1"]);
        assert_eq!(plan.starts.len(), 9);
        let more = plan.start_again(&wanted(&plan, [1, 1, 0, 0]));
        assert_eq!(told(&more), ["a5x2"]);
    }

    #[test]
    fn a_run_that_goes_on_takes_up_its_later_starts_but_not_those_that_decided_of_suspects() {
        let mut earlier = plan();
        earlier.start_again(&wanted(&earlier, [1, 1, 1, 0]));
        let mut night = earlier.clone();
        night.confirm(&wanted(&night, [2, 0, 0, 0]));
        assert_eq!(told(&night.starts[8..]), ["a5x1", "a6x1"]);
        let mut again = plan();
        again.take_up(&night);
        assert_eq!(again, earlier);
        // What a changed cell measured is of another cell, and more planned starts leave fewer to take up.
        let mut changed = plan();
        let key = changed.cells[0].key.clone();
        changed.cells[0].content = changed.cells[3].content.clone();
        changed.take_up(&earlier);
        let later = &changed.starts[6..];
        assert_eq!(told(later), ["b4x1", "a4x1"]);
        assert!(
            later
                .iter()
                .flat_map(|start| &start.cells)
                .all(|measurement| measurement.cell != key)
        );
        let mut longer = plan();
        longer.start_times(4);
        let planned = longer.clone();
        longer.take_up(&earlier);
        assert_eq!(longer, planned);
    }
}
