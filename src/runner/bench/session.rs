//! The prompts of a bench at one arrival.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::ids::ContentHash;
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::loadgen::dataset::{Caches, Draws, known_share};
use crate::loadgen::protocol::path;
use crate::loadgen::{Item, Target};
use crate::runner::load::PreparedLoad;
use crate::runner::prompt_store::{PreparedWorkload, PromptStore};

/// The first of these tokenizers that can be opened is taken, as prompts are cut and counted by it.
pub(crate) struct Tokenizers<'a>(pub(crate) &'a [String]);

/// A load that is ready to be sent.
#[derive(Clone)]
pub(crate) struct Session {
    target: Target,
    workload: Arc<PreparedWorkload>,
    load: PreparedLoad,
    /// Where the draws of arrivals and adapters have come to.
    draws: Draws,
    prompt_store: Arc<PromptStore>,
    /// The tokenizer's name by which the prompt store knows it.
    tokenizer: String,
}

impl Session {
    /// Prepares the prompts of a scenario; `folder` is where its paths begin.
    ///
    /// # Errors
    /// In words, why there are no prompts.
    pub(crate) async fn prepare(
        target: Target,
        scenario: Scenario,
        tokenizers: Tokenizers<'_>,
        folder: PathBuf,
        caches: Caches,
    ) -> Result<Self, String> {
        let prompt_store = PromptStore::new(folder, caches);
        let mut said = Vec::new();
        for name in tokenizers.0 {
            match prompt_store.workload(&scenario, name).await {
                Ok(workload) => {
                    let mut draws = workload.prepared.draws.clone();
                    let protocol = target.dialect.protocol;
                    let load = PreparedLoad::whole(scenario, &workload, protocol, &mut draws)?;
                    return Ok(Self {
                        target,
                        workload,
                        load,
                        draws,
                        tokenizer: name.clone(),
                        prompt_store,
                    });
                }
                Err(reason) => said.push(reason),
            }
        }
        said.dedup();
        Err(said.join("\n"))
    }

    /// The same prompts at another arrival, drawn as if it were the only one.
    ///
    /// # Errors
    /// In words, why pictures have no place in the prompts.
    pub(crate) fn at(&self, arrival: &Arrival) -> Result<Self, String> {
        self.drawn(arrival, self.workload.prepared.draws.clone())
    }

    /// The same prompts at another arrival, drawn where the draws of this one ended.
    ///
    /// # Errors
    /// In words, why pictures have no place in the prompts.
    pub(crate) fn on_at(&self, arrival: &Arrival) -> Result<Self, String> {
        self.drawn(arrival, self.draws.clone())
    }

    /// Other prompts at another arrival: those that another seed draws.
    ///
    /// # Errors
    /// In words, why there are none.
    pub(crate) async fn reseeded(&self, arrival: &Arrival, seed: u64) -> Result<Self, String> {
        let mut scenario = self.load.scenario.clone();
        scenario.seed = seed;
        let workload = self.prompt_store.workload(&scenario, &self.tokenizer).await?;
        let draws = workload.prepared.draws.clone();
        let mut other = Self {
            workload,
            ..self.clone()
        };
        other.load.scenario = scenario;
        other.drawn(arrival, draws)
    }

    /// The share of its prompts that begins like one of earlier loads, which a prefix cache may know from them.
    pub(crate) fn known_from(&self, earlier: &[Self]) -> f64 {
        let prompts = |session: &Self| Arc::clone(&session.workload);
        let earlier: Vec<Arc<PreparedWorkload>> = earlier.iter().map(prompts).collect();
        let earlier = earlier.iter().flat_map(|workload| &workload.prepared.prompts);
        known_share(earlier, &self.workload.prepared.prompts)
    }

    fn drawn(&self, arrival: &Arrival, mut draws: Draws) -> Result<Self, String> {
        let mut scenario = self.load.scenario.clone();
        scenario.arrival = arrival.clone();
        let protocol = self.target.dialect.protocol;
        Ok(Self {
            load: PreparedLoad::whole(scenario, &self.workload, protocol, &mut draws)?,
            draws,
            ..self.clone()
        })
    }

    /// The same prompts with another load.
    pub(crate) fn with(&self, load: PreparedLoad) -> Self {
        Self { load, ..self.clone() }
    }

    /// What is sent.
    pub(crate) const fn load(&self) -> &PreparedLoad {
        &self.load
    }

    /// The prompts.
    pub(crate) const fn workload(&self) -> &Arc<PreparedWorkload> {
        &self.workload
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

    /// How many requests there are: one for each row, or for each round of a conversation.
    pub(crate) fn len(&self) -> usize {
        self.load.items.iter().map(Item::rounds).sum()
    }

    /// Whether rows are conversations.
    pub(crate) fn is_of_talks(&self) -> bool {
        let first = self.load.items.first().and_then(|item| item.extras.as_ref());
        first.is_some_and(|extras| extras.turns.is_some())
    }

    /// What the Python tool prints about the prompts, line by line.
    pub(crate) fn said(&self) -> &[String] {
        &self.workload.prepared.said
    }

    /// What is sent, in order.
    pub(crate) fn items(&self) -> &[Item] {
        &self.load.items
    }

    /// Where requests go.
    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.target.address, path(&self.target.dialect))
    }

    /// The model as requests name it.
    pub(crate) fn model(&self) -> &str {
        &self.target.model
    }

    /// The tokenizer's name, and its file where it has one.
    pub(crate) fn tokenizer(&self) -> (&str, Option<&std::path::Path>) {
        (self.workload.tokenizer.name(), self.workload.tokenizer.path())
    }

    /// What fixes the load: digests of the prompts and of the schedule.
    pub(crate) fn digests(&self) -> (&ContentHash, &ContentHash) {
        (&self.workload.prepared.hash, &self.load.schedule)
    }
}
