//! Order of the starts and of the measurements.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use serde::Serialize;

use crate::base::ids::{CellKey, LaunchId};
use crate::config::repeats::{Repeats, StartOrder};
use crate::plan::{Cell, Launch, Measurement, Plan, Start};

/// The starts of a plan. Each start measures the cells of its launch one after another. Launches of one
/// group ([`alternation_groups`]) alternate, and every second round is reversed (A B B A), so that drift of
/// the host affects all equally; then the next group follows. With blocks, all starts of one launch follow one another.
pub(crate) fn plan_starts(launches: &[Launch], cells: &[Cell], repeats: &Repeats) -> Vec<Start> {
    let by_launch = by_launch(cells);
    let start = |launch: &LaunchId, start: u32| Start {
        launch: launch.clone(),
        start,
        cells: (1..=repeats.per_start.get())
            .flat_map(|repeat| {
                by_launch
                    .get(launch)
                    .into_iter()
                    .flatten()
                    .map(move |cell| Measurement {
                        cell: cell.key.clone(),
                        start,
                        repeat,
                    })
            })
            .collect(),
        confirms: false,
    };
    let rounds = 1..=repeats.planned_starts().get();
    match repeats.order() {
        StartOrder::Alternate if repeats.planned_starts().get() > 1 => alternation_groups(launches, cells)
            .into_iter()
            .flat_map(|group| {
                rounds.clone().flat_map(move |round| {
                    let mut turn: Vec<_> = group.iter().map(|launch| start(launch, round)).collect();
                    if round % 2 == 0 {
                        turn.reverse();
                    }
                    turn
                })
            })
            .collect(),
        StartOrder::Alternate | StartOrder::Blocks => launches
            .iter()
            .flat_map(|launch| rounds.clone().map(move |round| start(&launch.id, round)))
            .collect(),
    }
}

pub(crate) fn by_launch(cells: &[Cell]) -> BTreeMap<&LaunchId, Vec<&Cell>> {
    let mut all: BTreeMap<&LaunchId, Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        all.entry(&cell.launch).or_default().push(cell);
    }
    all
}

/// Groups of launches that alternate: launches of one model that share a scenario, directly or through other
/// launches, in the plan's order.
fn alternation_groups<'a>(launches: &'a [Launch], cells: &[Cell]) -> Vec<Vec<&'a LaunchId>> {
    let by_launch = by_launch(cells);
    let loads = |launch: &Launch| -> BTreeSet<&str> {
        let own = by_launch.get(&launch.id).into_iter().flatten();
        own.map(|cell| cell.scenario.name.as_str()).collect()
    };
    let mut groups: Vec<(&str, BTreeSet<&str>, Vec<usize>)> = Vec::new();
    for (index, launch) in launches.iter().enumerate() {
        let mut group = (launch.model.as_str(), loads(launch), vec![index]);
        let (joined, others): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|(model, loads, _)| *model == group.0 && !loads.is_disjoint(&group.1));
        for (model, loads, members) in joined {
            // Extend the existing group, which is usually the larger one, so that few launches are moved.
            let smaller = std::mem::replace(&mut group, (model, loads, members));
            group.1.extend(smaller.1);
            group.2.extend(smaller.2);
        }
        groups = others;
        groups.push(group);
    }
    for (.., members) in &mut groups {
        members.sort_unstable();
    }
    groups.sort_by_key(|(.., members)| members.first().copied());
    let named =
        |(.., members): (_, _, Vec<usize>)| members.into_iter().map(|index| &launches[index].id).collect();
    groups.into_iter().map(named).collect()
}

/// Loading that an order of starts causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OrderCost {
    /// Number of times that an engine loads its model.
    pub(crate) starts: usize,
    /// Number of times that the next start has another launch, whose files may no longer be in the page
    /// cache.
    pub(crate) changes: usize,
}

impl Plan {
    /// The order of this plan's starts: blocks, if every launch makes all of its several starts in a row.
    pub(crate) fn order(&self) -> StartOrder {
        let changes = self.order_cost(StartOrder::Blocks).changes;
        let is_choice = self.launches.len() > 1 && self.starts.len() > self.launches.len();
        match is_choice && count_changes(self.starts.iter().map(|start| &start.launch)) <= changes {
            true => StartOrder::Blocks,
            false => StartOrder::Alternate,
        }
    }

    /// The loading that this plan's starts cause in an order.
    pub(crate) fn order_cost(&self, order: StartOrder) -> OrderCost {
        let mut numbers: BTreeMap<&LaunchId, usize> = BTreeMap::new();
        for start in &self.starts {
            *numbers.entry(&start.launch).or_default() += 1;
        }
        let counts = |launch: &LaunchId| numbers.get(launch).copied().unwrap_or(0);
        let sequence: Vec<&LaunchId> = match order {
            StartOrder::Blocks => {
                let launches = self.launches.iter().map(|launch| &launch.id);
                launches
                    .flat_map(|launch| std::iter::repeat_n(launch, counts(launch)))
                    .collect()
            }
            StartOrder::Alternate => alternation_groups(&self.launches, &self.cells)
                .into_iter()
                .flat_map(|group| {
                    let rounds = group.iter().map(|launch| counts(launch)).max().unwrap_or(0);
                    (0..rounds).flat_map(move |round| {
                        let mut turn: Vec<&LaunchId> = group
                            .iter()
                            .copied()
                            .filter(|launch| counts(launch) > round)
                            .collect();
                        if round % 2 == 1 {
                            turn.reverse();
                        }
                        turn
                    })
                })
                .collect(),
        };
        OrderCost {
            starts: sequence.len(),
            changes: count_changes(sequence.into_iter()),
        }
    }

    /// The rounds in which two launches alternated: pairs of start numbers that are adjacent among the starts
    /// of the two. Empty if one launch made all its starts before the other's first.
    pub(crate) fn rounds(&self, first: &LaunchId, second: &LaunchId) -> Vec<[u32; 2]> {
        let mut waiting: Option<&Start> = None;
        let mut rounds = Vec::new();
        let of_both = |launch: &LaunchId| {
            let starts = self.starts.iter().filter(|start| start.launch == *launch);
            starts.count()
        };
        for start in &self.starts {
            if start.launch != *first && start.launch != *second {
                continue;
            }
            match waiting.take() {
                Some(before) if before.launch != start.launch => {
                    let is_forward = before.launch == *first;
                    let (one, two) = if is_forward {
                        (before, start)
                    } else {
                        (start, before)
                    };
                    rounds.push([one.start, two.start]);
                }
                // The earlier start has no partner.
                _ => waiting = Some(start),
            }
        }
        // The last start of one block and the first of the next are no round.
        match rounds.len() >= of_both(first).min(of_both(second)) {
            true => rounds,
            false => Vec::new(),
        }
    }

    /// Appends starts to the plan and returns them. `starts` has the number of further starts of each cell.
    /// Launches continue to alternate (A B B A), and a start measures each cell as often as earlier starts.
    pub(crate) fn add_starts(&mut self, starts: &BTreeMap<CellKey, u32>) -> Vec<Start> {
        let more = self.extra_starts(starts, self.per_start());
        self.starts.extend(more.iter().cloned());
        more
    }

    /// Additional starts of each cell after the planned ones, with `per_start` measurements of each cell.
    pub(super) fn extra_starts(&self, starts: &BTreeMap<CellKey, u32>, per_start: u32) -> Vec<Start> {
        let mut more: Vec<Start> = Vec::new();
        for group in alternation_groups(&self.launches, &self.cells) {
            let of_group = self.starts.iter().filter(|start| group.contains(&&start.launch));
            let rounds_before = of_group.map(|start| start.start).max().unwrap_or(0);
            for round in 1..=starts.values().copied().max().unwrap_or(0) {
                let mut turn = Vec::new();
                for launch in &group {
                    let earlier = self
                        .starts
                        .iter()
                        .chain(&more)
                        .filter(|start| start.launch == **launch);
                    let number = earlier.map(|start| start.start).max().unwrap_or(0) + 1;
                    let cells: Vec<&Cell> = self
                        .cells
                        .iter()
                        .filter(|cell| {
                            cell.launch == **launch && starts.get(&cell.key).is_some_and(|n| *n >= round)
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
                        launch: (*launch).clone(),
                        start: number,
                        cells: measured.collect(),
                        confirms: false,
                    });
                }
                turn.retain(|start| !start.cells.is_empty());
                if (rounds_before + round).is_multiple_of(2) {
                    turn.reverse();
                }
                more.extend(turn);
            }
        }
        more
    }

    /// Number of measurements of each cell on a start.
    pub(super) fn per_start(&self) -> u32 {
        let measurements = self.starts.iter().flat_map(|start| &start.cells);
        measurements
            .map(|measurement| measurement.repeat)
            .max()
            .unwrap_or(1)
    }

    /// Takes over the further starts of an earlier plan of the same run, with the cells that have not changed.
    /// Starts that confirmed suspected losses are left out, because their cells were selected by result.
    pub(crate) fn resume_from(&mut self, earlier: &Plan) {
        let is_same = |key: &CellKey| {
            let cells_of = |plan: &Plan| {
                let cell = plan.cells.iter().find(|cell| cell.key == *key)?;
                Some((cell.content.clone(), cell.launch.clone()))
            };
            cells_of(self).is_some_and(|cell| cells_of(earlier) == Some(cell))
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

    /// Replaces the planned starts: every launch is started `starts` times, alternating (A B B A).
    pub(crate) fn set_starts(&mut self, starts: u32) {
        let repeats = Repeats {
            starts: NonZeroU32::new(starts).unwrap_or(NonZeroU32::MIN),
            per_start: NonZeroU32::new(self.per_start()).unwrap_or(NonZeroU32::MIN),
            ..Repeats::default()
        };
        self.starts = plan_starts(&self.launches, &self.cells, &repeats);
    }

    /// The part of the plan that one start measures. Further starts are not added to it.
    pub(crate) fn part(&self, start: &Start) -> Self {
        let cells: BTreeSet<&CellKey> = start.cells.iter().map(|measurement| &measurement.cell).collect();
        Self {
            launches: vec![self.launch(&start.launch).clone()],
            cells: self
                .cells
                .iter()
                .filter(|cell| cells.contains(&cell.key))
                .cloned()
                .collect(),
            starts: vec![start.clone()],
            left_out: Vec::new(),
            until: None,
            matrix: self.matrix.clone(),
            about: self.about.clone(),
            gpus: self.gpus.clone(),
            reference: self.reference.clone(),
            // The part has no cell of another start, and answers are judged over the whole run.
            answer_references: BTreeMap::new(),
            stored_reference: None,
            validity: self.validity.clone(),
            ..*self
        }
    }

    /// Keeps only the wanted cells.
    pub(crate) fn retain_cells(&mut self, is_wanted: impl Fn(&Cell) -> bool) {
        self.cells.retain(is_wanted);
        let cells: BTreeSet<&CellKey> = self.cells.iter().map(|cell| &cell.key).collect();
        for start in &mut self.starts {
            start
                .cells
                .retain(|measurement| cells.contains(&measurement.cell));
        }
        self.starts.retain(|start| !start.cells.is_empty());
        let started: BTreeSet<&LaunchId> = self.starts.iter().map(|start| &start.launch).collect();
        self.launches.retain(|launch| started.contains(&launch.id));
    }
}

/// Number of times that the next launch differs.
fn count_changes<'a>(launches: impl Iterator<Item = &'a LaunchId>) -> usize {
    let launches: Vec<&LaunchId> = launches.collect();
    launches.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::engine::{Recipe, Recipes};
    use crate::config::matrix::Matrix;
    use crate::config::yaml::{Source, read};
    use crate::plan::expand;

    /// Two engines with two cells each, three starts.
    fn plan() -> Plan {
        plan_with("models: [m]\nscenarios: [sharegpt, random-1k-1k]\nrepeats: { starts: 3 }\n")
    }

    /// Two engines and further keys of a matrix.
    fn plan_with(rest: &str) -> Plan {
        let text =
            "name: t\nengines:\n  - sim: { as: a, variant: vllm }\n  - sim: { as: b, variant: sglang }\n";
        let text = format!("{text}{rest}");
        let (matrix, wrong) = read::<Matrix>(&Source::new("m.yaml", text));
        assert!(wrong.is_empty(), "{wrong:?}");
        let recipe = Source::new("sim.yaml", include_str!("../../engines/sim.yaml"));
        let recipe = read::<Recipe>(&recipe).0.expect("the recipe is well formed");
        expand(
            &matrix.expect("the matrix is well formed"),
            &Recipes::from([("sim".to_owned(), recipe)]),
        )
        .expect("the matrix can be expanded")
    }

    fn start_counts(plan: &Plan, starts: [u32; 4]) -> BTreeMap<CellKey, u32> {
        let cells = plan.cells.iter().map(|cell| cell.key.clone());
        cells.zip(starts).filter(|(_, starts)| *starts > 0).collect()
    }

    /// Launch, start number and number of cells: `a4x2`.
    fn describe_starts(starts: &[Start]) -> Vec<String> {
        let describe = |start: &Start| {
            format!(
                "{}{}x{}",
                &start.launch.as_str()[..1],
                start.start,
                start.cells.len()
            )
        };
        starts.iter().map(describe).collect()
    }

    /// Launch, model and start number: `a-m1:2`.
    fn sequence(plan: &Plan) -> Vec<String> {
        let describe = |start: &Start| {
            let launch = plan.launch(&start.launch);
            format!("{}-{}:{}", launch.engine.name, launch.model, start.start)
        };
        plan.starts.iter().map(describe).collect()
    }

    #[test]
    fn engines_of_one_model_take_turns_and_then_comes_the_next_model() {
        let of = |repeats: &str| {
            plan_with(&format!(
                "models: [m1, m2]\nscenarios: [sharegpt]\nrepeats: {{ starts: 2{repeats} }}\n"
            ))
        };
        let turns = [
            "a-m1:1", "b-m1:1", "b-m1:2", "a-m1:2", "a-m2:1", "b-m2:1", "b-m2:2", "a-m2:2",
        ];
        let blocks = [
            "a-m1:1", "a-m1:2", "a-m2:1", "a-m2:2", "b-m1:1", "b-m1:2", "b-m2:1", "b-m2:2",
        ];
        for (repeats, expected) in [
            ("", turns),
            (", order: alternate", turns),
            (", interleave: true", turns),
            (", order: blocks", blocks),
            (", interleave: false", blocks),
        ] {
            assert_eq!(sequence(&of(repeats)), expected, "{repeats}");
        }
        let plan = of("");
        assert_eq!(plan.order(), StartOrder::Alternate);
        assert_eq!(of(", order: blocks").order(), StartOrder::Blocks);
        let loads = |starts, changes| OrderCost { starts, changes };
        assert_eq!(plan.order_cost(StartOrder::Alternate), loads(8, 5));
        assert_eq!(plan.order_cost(StartOrder::Blocks), loads(8, 3));
        assert_eq!(
            plan.order_cost(plan.order()).changes,
            count_changes(plan.starts.iter().map(|start| &start.launch))
        );
    }

    #[test]
    fn launches_that_share_no_load_do_not_wait_for_each_other() {
        let plan = plan_with(
            "models: [m]\nscenarios: [sharegpt, random-1k-1k]\nrepeats: { starts: 2 }\n\
             exclude:\n  - { when: { engine: a, scenario: sharegpt }, why: x }\n  - { when: { engine: b, scenario: random-1k-1k }, why: x }\n",
        );
        assert_eq!(sequence(&plan), ["a-m:1", "a-m:2", "b-m:1", "b-m:2"]);
    }

    #[test]
    fn rounds_are_the_starts_of_two_launches_that_were_neighbours() {
        let rounds = |plan: &Plan| plan.rounds(&plan.launches[0].id, &plan.launches[1].id);
        let mut plan = plan();
        assert_eq!(rounds(&plan), [[1, 1], [2, 2], [3, 3]]);
        // The fourth start of the first launch has no partner.
        plan.add_starts(&start_counts(&plan, [1, 0, 0, 0]));
        assert_eq!(rounds(&plan), [[1, 1], [2, 2], [3, 3]]);
        let blocks = plan_with("models: [m]\nscenarios: [sharegpt]\nrepeats: { starts: 3, order: blocks }\n");
        assert_eq!(rounds(&blocks), [] as [[u32; 2]; 0]);
    }

    #[test]
    fn the_part_of_a_start_has_its_launch_and_its_cells_alone() {
        let plan = plan();
        let part = plan.part(&plan.starts[2]);
        assert_eq!(describe_starts(&part.starts), ["b2x2"]);
        assert_eq!((part.launches.len(), part.cells.len()), (1, 2));
        assert_eq!(part.contradiction(), None);
        assert!(part.cells.iter().all(|cell| plan.cell(&cell.key) == cell));
    }

    #[test]
    fn later_starts_go_on_to_take_turns_and_measure_only_what_is_wanted() {
        let mut plan = plan();
        assert_eq!(
            describe_starts(&plan.starts),
            ["a1x2", "b1x2", "b2x2", "a2x2", "a3x2", "b3x2"]
        );
        let more = plan.add_starts(&start_counts(&plan, [1, 0, 2, 1]));
        // The fourth round is reversed, as if it had been planned from the beginning.
        assert_eq!(describe_starts(&more), ["b4x2", "a4x1", "b5x1"]);
        assert_eq!(plan.starts.len(), 9);
        let more = plan.add_starts(&start_counts(&plan, [1, 1, 0, 0]));
        assert_eq!(describe_starts(&more), ["a5x2"]);
    }

    #[test]
    fn a_run_that_goes_on_takes_up_its_later_starts_but_not_those_that_decided_of_suspects() {
        let mut earlier = plan();
        earlier.add_starts(&start_counts(&earlier, [1, 1, 1, 0]));
        // Older runs contain starts that confirm suspected losses.
        let mut night = earlier.clone();
        night.add_starts(&start_counts(&night, [2, 0, 0, 0]));
        night.starts[8..]
            .iter_mut()
            .for_each(|start| start.confirms = true);
        assert_eq!(describe_starts(&night.starts[8..]), ["a5x1", "a6x1"]);
        let mut again = plan();
        again.resume_from(&night);
        assert_eq!(again, earlier);
        // Measurements of a changed cell belong to another cell, and with more planned starts fewer are
        // adopted.
        let mut changed = plan();
        let key = changed.cells[0].key.clone();
        changed.cells[0].content = changed.cells[3].content.clone();
        changed.resume_from(&earlier);
        let later = &changed.starts[6..];
        assert_eq!(describe_starts(later), ["b4x1", "a4x1"]);
        assert!(
            later
                .iter()
                .flat_map(|start| &start.cells)
                .all(|measurement| measurement.cell != key)
        );
        let mut longer = plan();
        longer.set_starts(4);
        let planned = longer.clone();
        longer.resume_from(&earlier);
        assert_eq!(longer, planned);
    }
}
