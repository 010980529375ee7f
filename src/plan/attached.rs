//! The plan of loads on one running server.

use crate::base::ids::{CellKey, LaunchId};
use crate::config::scenario::Scenario;
use crate::plan::{Cell, Launch, Measurement, Plan, Start, canonical};

impl Plan {
    /// One launch that is attached to once, with a cell for each scenario.
    pub(crate) fn attached(launch: Launch, scenarios: Vec<Scenario>) -> Self {
        let launch = Launch {
            id: LaunchId::new(&launch.engine.name),
            ..launch
        };
        let cell = |(place, scenario): (usize, Scenario)| Cell {
            key: CellKey::new(format!("{} {}", scenario.name, place + 1)),
            axes: Default::default(),
            content: canonical::cell_hash(&launch.id, &scenario),
            launch: launch.id.clone(),
            scenario,
            why: None,
        };
        let cells: Vec<Cell> = scenarios.into_iter().enumerate().map(cell).collect();
        let measurement = |cell: &Cell| Measurement {
            cell: cell.key.clone(),
            start: 1,
            repeat: 1,
        };
        let empty = Self::empty(&launch.engine.name);
        Self {
            starts: vec![Start {
                launch: launch.id.clone(),
                start: 1,
                cells: cells.iter().map(measurement).collect(),
                confirms: false,
            }],
            cells,
            launches: vec![launch],
            ..empty
        }
    }
}
