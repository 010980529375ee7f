//! The plan of a search for the best configuration: a cell for each, started in the given order.

use std::collections::BTreeMap;

use crate::base::ids::{CellKey, LaunchId};
use crate::config::select;
use crate::config::tune::{TrialSet, TunedCell};
use crate::plan::{Cell, Measurement, Plan, Start};

impl Plan {
    /// Keeps the cells of these configurations, under a name of its own, so that the run does not count as a run of the matrix.
    /// `starts` names the configuration of each start, in order. Returns the names of those that the matrix excludes, which are
    /// not started. Answers are compared with those of the first configuration.
    pub(crate) fn plan_tune(
        &mut self,
        name: &str,
        tuned: &TunedCell,
        sets: &[TrialSet],
        starts: &[&str],
    ) -> Vec<String> {
        name.clone_into(&mut self.matrix);
        self.reference = None;
        self.until = None;
        self.parallel = false;
        let cell_of = |set: &TrialSet| {
            let axes = tuned.axes_of(set);
            let cell = self.cells.iter().find(|cell| cell.axes == axes)?;
            let axes = tuned.named_axes(&axes);
            let key = CellKey::new(select::cell_key(&axes));
            Some((
                set.name.clone(),
                Cell {
                    key,
                    axes,
                    ..cell.clone()
                },
            ))
        };
        let cells: BTreeMap<String, Cell> = sets.iter().filter_map(cell_of).collect();
        self.left_out.clear();
        self.cells = sets
            .iter()
            .filter_map(|set| cells.get(&set.name))
            .cloned()
            .collect();
        let is_used = |id: &LaunchId| cells.values().any(|cell| cell.launch == *id);
        self.launches.retain(|launch| is_used(&launch.id));
        self.starts.clear();
        for cell in starts.iter().filter_map(|set| cells.get(*set)) {
            let number = self.next_start(&cell.launch);
            self.starts.push(Start {
                launch: cell.launch.clone(),
                start: number,
                cells: vec![Measurement {
                    cell: cell.key.clone(),
                    start: number,
                    repeat: 1,
                }],
                confirms: false,
            });
        }
        let baseline = self.cells.first().map(|cell| cell.key.clone());
        let others = self.cells.iter().skip(1);
        let pairs = others.filter_map(|cell| Some((baseline.clone()?, cell.key.clone())));
        self.compare_answers_of(pairs.collect());
        let is_missing = |set: &&TrialSet| !cells.contains_key(&set.name);
        sets.iter()
            .filter(is_missing)
            .map(|set| set.name.clone())
            .collect()
    }

    /// The number of the next start of a launch.
    fn next_start(&self, launch: &LaunchId) -> u32 {
        let starts = self.starts.iter().filter(|start| start.launch == *launch);
        starts.map(|start| start.start).max().unwrap_or(0) + 1
    }
}
