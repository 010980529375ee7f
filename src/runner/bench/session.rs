//! The prompts of a bench at one arrival.

use std::path::Path;
use std::sync::Arc;

use crate::base::ids::ContentHash;
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::loadgen::Target;
use crate::loadgen::dataset::{RngState, shared_with_earlier};
use crate::loadgen::protocol::path;
use crate::runner::load::PreparedLoad;
use crate::runner::prompt_store::PreparedWorkload;

/// A load that is ready to be sent.
#[derive(Clone)]
pub(crate) struct Session {
    pub(super) target: Target,
    pub(super) workload: Arc<PreparedWorkload>,
    pub(super) load: PreparedLoad,
}

impl Session {
    /// Every prompt of a workload; arrivals and adapters are drawn from `draws`.
    ///
    /// # Errors
    /// In words, why images have no place in the prompts.
    pub(super) fn new(
        target: Target,
        workload: Arc<PreparedWorkload>,
        scenario: Scenario,
        draws: &mut RngState,
    ) -> Result<Self, String> {
        Ok(Self {
            load: PreparedLoad::for_all_prompts(scenario, &workload, target.dialect.protocol, draws)?,
            target,
            workload,
        })
    }

    /// The share of its prompts that begins like one of earlier loads, which a prefix cache may know from them.
    pub(crate) fn share_known_from(&self, earlier: &[Self]) -> f64 {
        let earlier = earlier
            .iter()
            .flat_map(|session| &session.workload.prepared.prompts);
        shared_with_earlier(earlier, &self.workload.prepared.prompts)
    }

    /// The arrival at which it sends.
    pub(crate) fn arrival(&self) -> &Arrival {
        &self.load.scenario.arrival
    }

    /// What its prompts are drawn from.
    pub(crate) const fn seed(&self) -> u64 {
        self.load.scenario.seed
    }

    /// How many prompts the data set gave.
    pub(crate) fn prompts(&self) -> usize {
        self.workload.prepared.prompts.len()
    }

    /// How many rows there are, a conversation being one; may be fewer than asked for.
    pub(crate) fn rows(&self) -> usize {
        self.load.items.len()
    }

    /// Whether rows are conversations.
    pub(crate) fn has_conversations(&self) -> bool {
        let first = self.load.items.first().and_then(|item| item.extras.as_ref());
        first.is_some_and(|extras| extras.turns.is_some())
    }

    /// What the Python tool prints about the prompts, line by line.
    pub(crate) fn preparation_lines(&self) -> &[String] {
        &self.workload.prepared.printed_lines
    }

    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.target.address, path(&self.target.dialect))
    }

    /// The model as requests name it.
    pub(crate) fn model(&self) -> &str {
        &self.target.model
    }

    /// The tokenizer's name, and its file where it has one.
    pub(crate) fn tokenizer(&self) -> (&str, Option<&Path>) {
        (self.workload.tokenizer.name(), self.workload.tokenizer.path())
    }

    /// What fixes the load: digests of the prompts and of the schedule.
    pub(crate) fn digests(&self) -> (&ContentHash, &ContentHash) {
        (&self.workload.prepared.hash, &self.load.schedule)
    }
}
