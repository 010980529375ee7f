//! Plans that also start a baseline, so that candidate and baseline alternate within one run.

use std::collections::BTreeMap;

use crate::base::ids::{CellKey, ContentHash, LaunchId};
use crate::config::select;
use crate::plan::{Cell, Launch, Plan};

/// The value of the axis `version` of a cell that is measured with the baseline's build.
pub(crate) const BASELINE_VERSION: &str = "(baseline)";

const VERSION_AXIS: &str = "version";

impl Cell {
    /// Whether it is measured on the baseline's build.
    pub(crate) fn is_baseline(&self) -> bool {
        self.axes
            .get(VERSION_AXIS)
            .is_some_and(|version| version == BASELINE_VERSION)
    }
}

/// Whether this is the key of a cell that is measured on the baseline's build.
pub(crate) fn is_baseline_key(key: &CellKey) -> bool {
    select::parse_key(key.as_str())
        .get(VERSION_AXIS)
        .is_some_and(|version| version == BASELINE_VERSION)
}

/// The key of the cell that measures the baseline of a cell.
pub(crate) fn baseline_key(cell: &Cell) -> CellKey {
    let mut axes = cell.axes.clone();
    axes.insert(VERSION_AXIS.to_owned(), BASELINE_VERSION.to_owned());
    CellKey::new(select::cell_key(&axes))
}

impl Launch {
    /// Returns the launch of exactly the measured build: a container by its image's digest, because its tag
    /// may have moved.
    ///
    /// # Errors
    /// Why that build cannot be started.
    pub(crate) fn pin(&self, image: Option<&str>) -> Result<Self, &'static str> {
        Ok(Self {
            place: self.place.settings().pin(image)?,
            ..self.clone()
        })
    }
}

/// The name under which `matrix noise` measures a matrix. Its runs do not count as runs of the matrix, which
/// `--resume` and comparisons look for.
pub(crate) fn noise_name(matrix: &str) -> String {
    format!("{matrix}-noise")
}

impl Plan {
    /// Adds to each of these cells one that is measured on the baseline's launch.
    pub(crate) fn add_baselines(&mut self, launches: &BTreeMap<CellKey, Launch>) {
        let mut ids: Vec<(LaunchId, LaunchId)> = Vec::new();
        for (key, launch) in launches {
            let Some(cell) = self.cells.iter().find(|cell| cell.key == *key).cloned() else {
                continue;
            };
            // The baseline gets a launch of its own, even if it equals that of the cell.
            let id = LaunchId::new(format!("{}-baseline", launch.id));
            let twin = (launch.id.clone(), id.clone());
            if !ids.contains(&twin) {
                ids.push(twin);
                self.launches.push(Launch {
                    id: id.clone(),
                    ..launch.clone()
                });
            }
            let mut axes = cell.axes.clone();
            axes.insert(VERSION_AXIS.to_owned(), BASELINE_VERSION.to_owned());
            self.cells.push(Cell {
                key: baseline_key(&cell),
                axes,
                content: ContentHash::from_bytes(format!("{id} {}", cell.content).as_bytes()),
                launch: id,
                ..cell
            });
        }
    }

    /// Starts the baseline of each of these cells too, alternating with the cell and as often.
    pub(crate) fn pair_with_baselines(&mut self, launches: &BTreeMap<CellKey, Launch>) {
        let starts = self.starts.iter().map(|start| start.start).max().unwrap_or(1);
        self.add_baselines(launches);
        self.set_starts(starts);
    }

    /// The plan of `matrix noise`: every launch is started so often, in a run under a name of its own.
    pub(crate) fn plan_noise(&mut self, starts: u32) {
        self.matrix = noise_name(&self.matrix);
        self.set_starts(starts);
    }

    /// The plan of a confirmation: each cell in `wanted` is started that many times, alternating with its
    /// baseline.
    pub(crate) fn plan_confirmation(
        &self,
        start_counts: &BTreeMap<CellKey, u32>,
        baselines: &BTreeMap<CellKey, Launch>,
    ) -> Self {
        let per_start = self.per_start();
        let mut plan = Self {
            matrix: format!("{}-confirmation", self.matrix),
            starts: Vec::new(),
            until: None,
            // Answers were compared in the run that is confirmed.
            stored_reference: None,
            ..self.clone()
        };
        plan.cells.retain(|cell| start_counts.contains_key(&cell.key));
        plan.add_baselines(baselines);
        plan.launches
            .retain(|launch| plan.cells.iter().any(|cell| cell.launch == launch.id));
        let twins = plan.cells.iter().filter(|cell| !cell.is_baseline());
        let keys_with_starts = twins.flat_map(|cell| {
            let starts = start_counts.get(&cell.key).copied().unwrap_or(0);
            [(cell.key.clone(), starts), (baseline_key(cell), starts)]
        });
        let keys_with_starts: BTreeMap<CellKey, u32> = keys_with_starts.collect();
        plan.starts = plan.extra_starts(&keys_with_starts, per_start);
        plan
    }
}
