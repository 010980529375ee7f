//! The plan: a matrix with all axes expanded, in the order of execution. Pure.

mod answer_references;
pub(crate) mod arms;
mod attached;
mod axes;
mod canonical;
mod check;
pub(crate) mod command;
mod executor;
mod expand;
mod grid;
pub(crate) mod job;
pub(crate) mod launch;
mod layers;
mod merge;
pub(crate) mod notes;
mod order;
mod resolve;
pub(crate) mod selection;
mod shell;
mod stored_reference;
mod tune;
mod upgrade;

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

pub(crate) use executor::*;
pub(crate) use expand::expand;
pub(crate) use launch::{Api, Engine, Parallel, Port, Timeouts};
pub use launch::{Launch, ProtocolSpec};
pub(crate) use order::OrderCost;
pub(crate) use stored_reference::{StoredPairError, StoredReference, item_difference};

use crate::base::ids::{CellKey, ContentHash, LaunchId};
pub(crate) use crate::config::api::CacheResetSpec;
#[cfg(test)]
pub(crate) use crate::config::api::JsonField;
pub use crate::config::api::{ClientStyle, Protocol, UsageRequest};
#[cfg(test)]
pub(crate) use crate::config::container::Mount;
pub(crate) use crate::config::container::{ContainerGpus, ContainerNetwork};
use crate::config::gpus::GpuList;
#[cfg(test)]
pub(crate) use crate::config::log_patterns::PhasePattern;
pub(crate) use crate::config::log_patterns::{FatalPattern, FaultOwner, LogPatterns};
use crate::config::prices::MatrixPrice;
use crate::config::repeats::StopRule;
use crate::config::scenario::Scenario;
use crate::config::select::AxisValues;
use crate::config::validity::ValidityBounds;

/// Everything that will run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub(crate) matrix: String,
    /// What the matrix is for, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) about: Option<String>,
    /// The launches, in the order of first use.
    pub(crate) launches: Vec<Launch>,
    /// The cells, in the order of first measurement.
    pub cells: Vec<Cell>,
    /// The starts in order, with the cells measured on each.
    pub starts: Vec<Start>,
    /// Cells that the matrix excludes, with the reason.
    pub(crate) left_out: Vec<ExcludedCell>,
    /// Whether launches may run concurrently on separate GPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) parallel: bool,
    /// GPUs of the host that may be used; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gpus: Option<GpuList>,
    /// The engine that comparisons refer to, by its name in the matrix.
    pub(crate) reference: Option<String>,
    /// The cell with whose answers those of a graded cell are compared, by its key; the answers of other cells are
    /// compared with none. It is a cell of the stored reference, if there is one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) answer_references: BTreeMap<CellKey, CellKey>,
    /// The stored run with whose answers those of all graded cells are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stored_reference: Option<StoredReference>,
    /// Whether the next launch's image is pulled while cells run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) pull_ahead: bool,
    /// Bounds of the reason codes of validity.
    #[serde(default, skip_serializing_if = "ValidityBounds::is_default")]
    pub(crate) validity: ValidityBounds,
    /// Prices of the matrix, for costs in reports.
    #[serde(default, skip_serializing_if = "MatrixPrice::is_empty")]
    pub(crate) price: MatrixPrice,
    /// Whether nightly runs start the baseline beside every cell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) paired: bool,
    /// Stopping rule for extra starts; absent if no starts are added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<StopRule>,
}

impl Plan {
    /// A plan in which nothing is started.
    pub(crate) fn empty(matrix: &str) -> Self {
        Self {
            matrix: matrix.to_owned(),
            about: None,
            launches: Vec::new(),
            cells: Vec::new(),
            starts: Vec::new(),
            left_out: Vec::new(),
            parallel: false,
            gpus: None,
            reference: None,
            answer_references: BTreeMap::new(),
            stored_reference: None,
            pull_ahead: false,
            validity: ValidityBounds::default(),
            price: MatrixPrice::default(),
            paired: false,
            until: None,
        }
    }

    /// The launch of that name.
    pub(crate) fn launch(&self, id: &LaunchId) -> &Launch {
        self.launches
            .iter()
            .find(|launch| launch.id == *id)
            .expect("expand gives every cell and start a launch")
    }

    /// The cell with this key, which must exist.
    pub fn cell(&self, key: &CellKey) -> &Cell {
        self.cells
            .iter()
            .find(|cell| cell.key == *key)
            .expect("expand gives every measurement a cell")
    }

    /// Whether this is an earlier plan with further launches, cells and starts at its end.
    pub(crate) fn continues(&self, earlier: &Self) -> bool {
        let ended = Self {
            launches: self
                .launches
                .iter()
                .take(earlier.launches.len())
                .cloned()
                .collect(),
            cells: self.cells.iter().take(earlier.cells.len()).cloned().collect(),
            starts: self.starts.iter().take(earlier.starts.len()).cloned().collect(),
            answer_references: earlier.answer_references.clone(),
            ..self.clone()
        };
        let has_all = |(cell, reference)| self.answer_references.get(cell) == Some(reference);
        ended == *earlier && earlier.answer_references.iter().all(has_all)
    }

    /// Returns the first launch or cell that the plan refers to and does not contain. A stored plan may have been
    /// edited.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let launches: HashSet<&LaunchId> = self.launches.iter().map(|launch| &launch.id).collect();
        let cells: HashSet<&CellKey> = self.cells.iter().map(|cell| &cell.key).collect();
        let named = self.cells.iter().map(|cell| &cell.launch);
        let started = self.starts.iter().map(|start| &start.launch);
        let mut missing = named.chain(started).filter(|launch| !launches.contains(launch));
        if let Some(launch) = missing.next() {
            return Some(format!(
                "the plan refers to the launch `{launch}`, but does not contain it"
            ));
        }
        let measured = self.starts.iter().flat_map(|start| &start.cells);
        let mut missing = measured.filter(|measurement| !cells.contains(&measurement.cell));
        let cell = &missing.next()?.cell;
        Some(format!(
            "the plan refers to the cell `{cell}`, but does not contain it"
        ))
    }

    /// The cells of each launch, in the plan's order.
    pub(crate) fn cells_by_launch(&self) -> BTreeMap<&LaunchId, Vec<&Cell>> {
        order::by_launch(&self.cells)
    }

    pub(crate) fn measurements(&self) -> usize {
        self.starts.iter().map(|start| start.cells.len()).sum()
    }
}

/// Launch × scenario: the unit of comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its axis values as text; cells of two runs are paired by it.
    pub(crate) key: CellKey,
    /// The values of its axes.
    pub(crate) axes: AxisValues,
    /// Digest of launch, scenario and seed; a changed cell is measured again.
    pub(crate) content: ContentHash,
    /// The launch on which it is measured.
    pub(crate) launch: LaunchId,
    /// Workload, arrival, limits and SLO.
    pub scenario: Scenario,
    /// The reason given by `include`, if that added the cell.
    pub(crate) why: Option<String>,
}

/// One start of a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The launch that is started.
    pub launch: LaunchId,
    /// Index of the start, from 1.
    pub(crate) start: u32,
    /// The measurements on it, in order; a repeated cell appears several times.
    pub cells: Vec<Measurement>,
    /// Whether it was added to confirm suspected losses of earlier starts. Only runs of older versions have
    /// such starts; confirmations are now separate runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) confirms: bool,
}

/// One measurement of a cell. The cell's key does not contain start and repeat.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Measurement {
    /// Key of the measured cell.
    pub cell: CellKey,
    /// Index of the start of the launch, from 1.
    pub(crate) start: u32,
    /// Index of the repeat on that start, from 1.
    pub(crate) repeat: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExcludedCell {
    /// The key that it would have.
    pub(crate) cell: CellKey,
    /// The reason given in the matrix.
    pub(crate) why: String,
}

#[cfg(test)]
mod tests;
