//! One side of a comparison of two cells.

use std::collections::BTreeSet;

use crate::analysis::metrics::{self, Metric};
use crate::base::ids::ContentHash;
use crate::plan::{Cell, Launch};
use crate::results::record::cell::{Definitions, MeasurementStatus, MeasurementSummary, Origin};
use crate::results::record::machine::Machine;
use crate::results::record::provenance::{Provenance, UnknownFact};

#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparedCell<'a> {
    pub(crate) launch: &'a Launch,
    pub(crate) cell: &'a Cell,
    pub(crate) summaries: &'a [&'a MeasurementSummary],
    /// Machine that measured the cell. `None` if both sides are of one run, or if it is unknown.
    pub(crate) machine: Option<&'a Machine>,
}

impl<'a> ComparedCell<'a> {
    pub(crate) fn imported(&self) -> Option<&'a Provenance> {
        self.summaries
            .iter()
            .find_map(|summary| summary.imported.as_ref())
    }

    pub(crate) fn is_unknown(&self, what: UnknownFact) -> bool {
        self.imported().is_some_and(|imported| imported.lacks(what))
    }

    /// Returns the definitions in which all metrics are known. An import has only its own, because it has
    /// only some metrics in others.
    pub(crate) fn definitions(&self) -> BTreeSet<Definitions> {
        let done = self
            .summaries
            .iter()
            .filter(|summary| summary.status == MeasurementStatus::Done);
        let mut sets: BTreeSet<Definitions> =
            done.flat_map(|summary| summary.figures.keys().copied()).collect();
        if self.imported().is_some() {
            sets.remove(&Definitions::Matrix);
        }
        sets
    }

    /// Returns the digest of the prompts, if all measurements sent the same.
    pub(crate) fn prompts_hash(&self) -> Option<&'a ContentHash> {
        let first = self.summaries.first()?.prompts_hash.as_ref()?;
        let is_same = |summary: &&MeasurementSummary| summary.prompts_hash.as_ref() == Some(first);
        self.summaries.iter().all(is_same).then_some(first)
    }

    /// Returns the metric of the first measurement, in the first definitions that have it.
    pub(crate) fn figure(&self, metric: Metric) -> Option<f64> {
        let summary = self.summaries.first()?;
        [Definitions::Matrix, Definitions::Classic, Definitions::Current]
            .iter()
            .find_map(|definitions| metrics::metric_value(summary.figures.get(definitions)?, metric))
    }

    pub(crate) fn prompts(&self) -> Option<u64> {
        if self.is_unknown(UnknownFact::Prompts) {
            return None;
        }
        let prompts = self.summaries.first().and_then(|summary| summary.prompts);
        Some(u64::from(prompts.unwrap_or(self.cell.scenario.workload.prompts)))
    }

    /// Returns whether every prompt was answered, so that sums describe all prompts.
    pub(crate) fn is_complete(&self) -> bool {
        let prompts = self.prompts().map(|prompts| prompts as f64);
        prompts.is_some() && self.figure(Metric::Completed) == prompts
    }

    /// Returns whether the prompts of the cell had a unique prefix.
    pub(crate) fn has_unique_prefixes(&self) -> bool {
        let proofs = self
            .summaries
            .iter()
            .filter_map(|summary| summary.cache_reset.as_ref());
        proofs.into_iter().any(|proof| proof.unique_prefix.is_some())
    }

    pub(crate) fn is_simulated(&self) -> bool {
        let is_simulated = |summary: &&MeasurementSummary| summary.origin == Origin::Simulated;
        self.launch.engine.simulated || self.summaries.iter().any(is_simulated)
    }
}

/// Returns the definitions in which two cells can be compared: `matrix` if both were measured here, otherwise
/// those of the import. `None` if they share none.
pub(crate) fn shared_metric_definitions(
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) -> Option<Definitions> {
    let (first_value, second_value) = (first.definitions(), second.definitions());
    [Definitions::Matrix, Definitions::Current, Definitions::Classic]
        .into_iter()
        .find(|definitions| first_value.contains(definitions) && second_value.contains(definitions))
}
