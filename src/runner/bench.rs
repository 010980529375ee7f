//! One load on a server that someone else runs: prompts, warm-up, measurement. It starts nothing and stops nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::base::clock::Moment;
use crate::base::ids::ContentHash;
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::config::search::Search;
use crate::loadgen::dataset::{Caches, Draws, known_share};
use crate::loadgen::protocol::path;
use crate::loadgen::{self, DriveError, Driven, Item, Lag, Load, Progress, Sink, Spill, Stamp, Target};
use crate::results::record::client::ClientFacts;
use crate::results::record::request::Request;
use crate::results::record::telemetry::Telemetry;
use crate::runner::calibrate;
use crate::runner::cell::{count_chunks, count_tokens, load_of, span_of};
use crate::runner::prompt_store::{PreparedWorkload, PromptStore, repeated_share_of};
use crate::runner::requests::{RanOut, items, placed, ran_out, warm_up};
use crate::runner::search::load_at;
use crate::runner::telemetry::Sampling;
use crate::telemetry::gpu::Gpus;

/// The first of these tokenizers that can be opened is taken, as prompts are cut and counted by it.
pub struct Tokenizers<'a>(pub &'a [String]);

/// A load that is ready to be sent.
#[derive(Clone)]
pub struct Session {
    target: Target,
    scenario: Scenario,
    workload: Arc<PreparedWorkload>,
    items: Vec<Item>,
    /// The place of its first prompt in the data set.
    from: usize,
    schedule: ContentHash,
    /// When one more request would fall due.
    next: Option<Duration>,
    /// Where the draws of arrivals and adapters have come to.
    draws: Draws,
    prompt_store: Arc<PromptStore>,
    /// The tokenizer's name by which the prompt store knows it.
    tokenizer: String,
    /// What is asked around its loads; sessions of other arrivals share it.
    sampling: Option<Arc<Sampling>>,
}

/// What a measurement came to.
pub struct LoadOutcome {
    /// A record for each request, with our own count of its tokens.
    pub requests: Vec<Request>,
    /// The moment from which the moments in records are told.
    pub zero: Moment,
    /// How late requests were sent by our own fault.
    pub lag: Option<Lag>,
    /// Whose clock took the moments of arrival.
    pub stamp: Stamp,
    /// What the client was busy with.
    pub client: ClientFacts,
    /// The host and the server's devices meanwhile, where they were watched.
    pub telemetry: Option<Telemetry>,
    /// That the prompts ran out before the time to send was over, where they did.
    pub ran_out: Option<RanOut>,
    /// The share of prompt tokens that the prompts repeat of each other; `None` where that is unknown.
    pub repeated: Option<f64>,
    /// Where answers went that are more than memory is to hold.
    pub spill: Option<Arc<Spill>>,
}

/// Where answers go that are more than memory is to hold: into a file of the current folder, else of the one for temporary files.
fn spill() -> Option<Arc<Spill>> {
    let folders = [PathBuf::from("."), std::env::temp_dir()];
    folders
        .iter()
        .find_map(|folder| Spill::new(folder, Spill::BUDGET).ok())
}

impl Session {
    /// Prepares the prompts of a scenario; `folder` is where its paths begin.
    ///
    /// # Errors
    /// In words, why there are no prompts.
    pub async fn prepare(
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
                    let sending = items(&scenario, &workload.prepared, &mut draws);
                    let items = placed(sending.items, target.dialect.protocol, &workload.tokenizer)?;
                    return Ok(Self {
                        target,
                        scenario,
                        workload,
                        items,
                        from: 0,
                        schedule: sending.schedule,
                        next: sending.next,
                        draws,
                        prompt_store,
                        tokenizer: name.clone(),
                        sampling: None,
                    });
                }
                Err(reason) => said.push(reason),
            }
        }
        said.dedup();
        Err(said.join("\n"))
    }

    /// Has the host watched around every load from now on, and the devices on which the server computes, where both are here.
    pub async fn watch(&mut self, gpus: Option<Arc<Gpus>>) {
        self.sampling = Some(Arc::new(Sampling::around(&self.target.address, gpus).await));
    }

    /// The same prompts at another arrival, drawn as if it were the only one.
    ///
    /// # Errors
    /// In words, why pictures have no place in the prompts.
    pub fn at(&self, arrival: &Arrival) -> Result<Self, String> {
        self.drawn(arrival, self.workload.prepared.draws.clone())
    }

    /// The same prompts at another arrival, drawn where the draws of this one ended.
    ///
    /// # Errors
    /// In words, why pictures have no place in the prompts.
    pub fn on_at(&self, arrival: &Arrival) -> Result<Self, String> {
        self.drawn(arrival, self.draws.clone())
    }

    /// Other prompts at another arrival: those that another seed draws.
    ///
    /// # Errors
    /// In words, why there are none.
    pub async fn reseeded(&self, arrival: &Arrival, seed: u64) -> Result<Self, String> {
        let mut scenario = self.scenario.clone();
        scenario.seed = seed;
        let workload = self.prompt_store.workload(&scenario, &self.tokenizer).await?;
        let draws = workload.prepared.draws.clone();
        let other = Self {
            scenario,
            workload,
            items: Vec::new(),
            ..self.clone()
        };
        other.drawn(arrival, draws)
    }

    /// The share of its prompts that begins like one of earlier loads, which a prefix cache may know from them.
    pub fn known_from(&self, earlier: &[Self]) -> f64 {
        let prompts = |session: &Self| Arc::clone(&session.workload);
        let earlier: Vec<Arc<PreparedWorkload>> = earlier.iter().map(prompts).collect();
        let earlier = earlier.iter().flat_map(|workload| &workload.prepared.prompts);
        known_share(earlier, &self.workload.prepared.prompts)
    }

    fn drawn(&self, arrival: &Arrival, mut draws: Draws) -> Result<Self, String> {
        let mut scenario = self.scenario.clone();
        scenario.arrival = arrival.clone();
        let sending = items(&scenario, &self.workload.prepared, &mut draws);
        let items = placed(
            sending.items,
            self.target.dialect.protocol,
            &self.workload.tokenizer,
        )?;
        Ok(Self {
            scenario,
            items,
            schedule: sending.schedule,
            next: sending.next,
            draws,
            ..self.clone()
        })
    }

    /// What a point of a search sends at a value, when earlier points have `used` so many prompts.
    ///
    /// # Errors
    /// In words, why pictures have no place in the prompts.
    pub fn at_point(&self, search: &Search, value: f64, used: usize) -> Result<Self, String> {
        let protocol = self.target.dialect.protocol;
        let point = load_at(&self.scenario, search, &self.workload, protocol, value, used)?;
        Ok(Self {
            scenario: point.scenario,
            items: point.items,
            from: used,
            schedule: point.schedule,
            next: point.next,
            ..self.clone()
        })
    }

    /// The arrival at which it sends.
    pub fn arrival(&self) -> &Arrival {
        &self.scenario.arrival
    }

    /// What its prompts are drawn from.
    pub const fn seed(&self) -> u64 {
        self.scenario.seed
    }

    /// How many prompts the data set gave.
    pub fn prompts(&self) -> usize {
        self.workload.prepared.prompts.len()
    }

    /// How many rows there are, a conversation being one; may be fewer than asked for.
    pub fn rows(&self) -> usize {
        self.items.len()
    }

    /// How many requests there are: one for each row, or for each round of a conversation.
    pub fn len(&self) -> usize {
        self.items.iter().map(Item::rounds).sum()
    }

    /// Whether rows are conversations.
    pub fn is_of_talks(&self) -> bool {
        let first = self.items.first().and_then(|item| item.extras.as_ref());
        first.is_some_and(|extras| extras.turns.is_some())
    }

    /// What the Python tool prints about the prompts, line by line.
    pub fn said(&self) -> &[String] {
        &self.workload.prepared.said
    }

    /// What is sent, in order.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Where requests go.
    pub fn url(&self) -> String {
        format!("{}{}", self.target.address, path(&self.target.dialect))
    }

    /// The model as requests name it.
    pub fn model(&self) -> &str {
        &self.target.model
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The tokenizer's name, and its file where it has one.
    pub fn tokenizer(&self) -> (&str, Option<&std::path::Path>) {
        (self.workload.tokenizer.name(), self.workload.tokenizer.path())
    }

    /// What fixes the load: digests of the prompts and of the schedule.
    pub fn digests(&self) -> (&ContentHash, &ContentHash) {
        (&self.workload.prepared.hash, &self.schedule)
    }

    /// What warms up: the first request so many times, its answer cut to `limit` tokens.
    pub fn warm_items(&self, count: u32, limit: Option<u32>) -> Vec<Item> {
        let warm = warm_up(&self.scenario, &self.workload.prepared, limit);
        warm.map_or_else(Vec::new, |warm| vec![warm; count as usize])
    }

    /// Sends these items at once.
    ///
    /// # Errors
    /// No request can be written or sent at all.
    pub async fn warm_up(&self, items: Vec<Item>, stop: CancellationToken) -> Result<Driven, DriveError> {
        loadgen::drive(self.load(items), Arc::default(), stop).await
    }

    /// Sends every request at its due time, follows it to its end, and counts the tokens of all answers after the last one. Records go
    /// to `sink` as requests end, before their tokens are counted.
    ///
    /// # Errors
    /// No request can be written or sent at all.
    pub async fn measure(
        &self,
        progress: Arc<Progress>,
        stop: CancellationToken,
        sink: Option<Sink>,
    ) -> Result<LoadOutcome, DriveError> {
        if let Some(sampling) = &self.sampling {
            sampling.before().await;
        }
        let spill = spill();
        let load = Load {
            sink,
            spill: spill.clone(),
            ..self.load(self.items.clone())
        };
        let driven = loadgen::drive(load, progress, stop).await?;
        let telemetry = match &self.sampling {
            Some(sampling) => Some(sampling.after(span_of(&driven), true).await.0),
            None => None,
        };
        let sent = self.items.len();
        // Of users who ran out of time not every prompt was sent, and a few of many may repeat each other more than all do.
        let begun = sent.min(driven.requests.len());
        Ok(LoadOutcome {
            repeated: repeated_share_of(&self.workload, self.from, begun).await,
            ran_out: ran_out(&self.scenario, sent, self.next, &driven),
            client: calibrate::facts(&driven, None),
            telemetry,
            requests: count_tokens(driven.requests, &self.workload).await,
            zero: driven.zero,
            lag: driven.lag,
            stamp: driven.stamp,
            spill,
        })
    }

    /// Counts the tokens of each chunk's text by itself, which some figures divide gaps by.
    pub async fn count_chunks(&self, measured: LoadOutcome) -> LoadOutcome {
        LoadOutcome {
            requests: count_chunks(measured.requests, &self.workload).await,
            ..measured
        }
    }

    fn load(&self, items: Vec<Item>) -> Load {
        load_of(&self.target, &self.scenario, items)
    }
}
