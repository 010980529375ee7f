//! A prepared load of a bench, with the texts about it.

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
    /// Prepares a load of every prompt of a workload; draws arrivals and adapters from `draws`. Fails if the
    /// images cannot be placed in the prompts.
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

    /// The share of the prompts' bytes that a prefix cache may hold, because prompts of earlier loads begin
    /// with them.
    pub(crate) fn share_known_from(&self, earlier: &[Self]) -> f64 {
        let earlier = earlier
            .iter()
            .flat_map(|session| &session.workload.prepared.prompts);
        shared_with_earlier(earlier, &self.workload.prepared.prompts)
    }

    pub(crate) fn arrival(&self) -> &Arrival {
        &self.load.scenario.arrival
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.load.scenario.seed
    }

    /// The number of prompts that the data set provided.
    pub(crate) fn prompts(&self) -> usize {
        self.workload.prepared.prompts.len()
    }

    /// The number of rows, at most the requested number; a conversation is one row.
    pub(crate) fn rows(&self) -> usize {
        self.load.items.len()
    }

    /// Whether rows are conversations.
    pub(crate) fn has_conversations(&self) -> bool {
        let first = self.load.items.first().and_then(|item| item.extras.as_ref());
        first.is_some_and(|extras| extras.turns.is_some())
    }

    /// What a reader of the figures should know about the prompts.
    pub(crate) fn prompt_notes(&self) -> &[String] {
        &self.workload.notes
    }

    /// The lines that the Python tool prints about the prompts.
    pub(crate) fn preparation_lines(&self) -> &[String] {
        &self.workload.prepared.printed_lines
    }

    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.target.address, path(&self.target.dialect))
    }

    /// The model's name in requests.
    pub(crate) fn model(&self) -> &str {
        &self.target.model
    }

    /// The tokenizer's name, and its file if it has one.
    pub(crate) fn tokenizer(&self) -> (&str, Option<&Path>) {
        (self.workload.tokenizer.name(), self.workload.tokenizer.path())
    }

    /// Digests of the prompts and of the schedule, which identify the load.
    pub(crate) fn digests(&self) -> (&ContentHash, &ContentHash) {
        (&self.workload.prepared.hash, &self.load.schedule)
    }
}
