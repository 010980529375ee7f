//! The conductor: Plan -> events. It hands to each wing what another made, and sees to it that what was started is stopped.

mod answers;
pub mod bench;
pub mod calibrate;
mod cell;
mod gpu_idle;
pub mod gpu_lock;
pub mod gpu_selection;
mod launch;
pub mod lease;
mod post_mortem;
mod prefetch;
pub mod preflight;
mod prompt_store;
mod requests;
mod scheduling;
pub mod search;
pub mod server;
pub mod shutdown;
mod supervise;
mod target;
mod telemetry;

use std::collections::BTreeMap;
use std::ops::Add;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::engine::{Images, Orphans, Whereabouts};
use crate::loadgen::dataset::Caches;
use crate::plan::{Launch, Plan, Start};
use crate::results::record::cell::Ending;
use crate::results::record::client::Calibration;
use crate::results::record::event::Event;
use crate::results::record::machine::Machine;
use crate::results::store::{self, Store, StoreError};
use crate::runner::launch::Order;
use crate::runner::lease::Pool;
use crate::runner::prefetch::Ahead;
use crate::runner::prompt_store::Library;
use crate::runner::scheduling::Roster;
use crate::runner::shutdown::Stop;
use crate::telemetry::gpu::Gpus;

/// Where a run takes place.
#[derive(Clone, Debug)]
pub struct Host {
    /// The run.
    pub run: RunId,
    /// The `matrix` binary, which the simulated engine and the shim are.
    pub matrix: PathBuf,
    /// The folder of the matrix file.
    pub folder: PathBuf,
    /// Where Hugging Face's cache is.
    pub hf_home: Option<PathBuf>,
    /// The `PATH` in which programs are looked up.
    pub path: Option<String>,
    /// The names of the variables of our environment.
    pub environment: Vec<String>,
    /// Where environments and prepared data are kept.
    pub cache: PathBuf,
    /// The folder that keeps prepared prompts; without it they are prepared anew.
    pub prompts: Option<PathBuf>,
    /// Where the container daemon is.
    pub whereabouts: Whereabouts,
    /// The images of the run.
    pub images: Arc<Images>,
    /// The containers of the run that could not be removed.
    pub orphans: Arc<Orphans>,
    /// The values of the secrets that the plan names.
    pub secrets: BTreeMap<String, String>,
    /// Takes those values out of everything that is written.
    pub redactor: Redactor,
    /// The client for every untimed call.
    pub http: reqwest::Client,
    /// The machine.
    pub machine: Machine,
    /// The GPUs that the run uses.
    pub devices: Vec<u32>,
    /// Who tells about its devices; `None` where nobody does, or they are only pretended.
    pub gpus: Option<Arc<Gpus>>,
}

impl Host {
    /// Where data sets and tokenizers are looked up.
    pub fn caches(&self) -> Caches {
        Caches {
            hf_home: self.hf_home.clone(),
            prompts: self.prompts.clone(),
        }
    }
}

/// How long a container that could not be removed is tried again at the end of a run.
const PARTING: Duration = Duration::from_secs(5);

/// The same where everything is to be over at once.
const PARTING_NOW: Duration = Duration::from_millis(500);

/// Everybody who listens to a run.
#[derive(Default)]
pub struct Events {
    listeners: Vec<Listener>,
    redactor: Redactor,
}

type Listener = Box<dyn Fn(&Event) + Send + Sync>;

impl Events {
    /// Nobody listens yet; no event will hold a secret.
    pub fn without_secrets(redactor: Redactor) -> Self {
        Self {
            listeners: Vec::new(),
            redactor,
        }
    }

    /// Adds a listener. It is called at once and in order; a slow one holds up the conductor, never the load.
    pub fn listen(&mut self, listener: impl Fn(&Event) + Send + Sync + 'static) {
        self.listeners.push(Box::new(listener));
    }

    /// Tells everybody. Secrets are taken out here, once for all who listen.
    pub fn tell(&self, event: Event) {
        let event = store::redacted(event, &self.redactor);
        for listener in &self.listeners {
            listener(&event);
        }
    }
}

/// What a run needs.
pub struct Job<'a> {
    /// The whole plan.
    pub plan: &'a Plan,
    /// What is to be done of it.
    pub todo: Vec<Start>,
    /// Where results go.
    pub store: &'a Store,
    /// Who listens.
    pub events: &'a Events,
    /// Where it takes place.
    pub host: &'a Host,
    /// How often a measurement that is invalid is made again.
    pub retry_invalid: u32,
    /// What the client is worth on this machine, where it was measured.
    pub calibration: Option<&'a Calibration>,
}

/// How the measurements of a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// To their end.
    pub done: usize,
    /// Failed.
    pub failed: usize,
    /// Not tried.
    pub skipped: usize,
    /// Stopped while they were measured.
    pub interrupted: usize,
    /// To their end, but worth no figure.
    pub invalid: usize,
}

impl Tally {
    /// Counts a measurement that ended.
    fn count(&mut self, ending: &Ending, is_invalid: bool) {
        match ending {
            Ending::Done => {
                self.done += 1;
                self.invalid += usize::from(is_invalid);
            }
            Ending::Failed { .. } => self.failed += 1,
            Ending::Skipped { .. } => self.skipped += 1,
            Ending::Interrupted => self.interrupted += 1,
        }
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            done: self.done + other.done,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
            interrupted: self.interrupted + other.interrupted,
            invalid: self.invalid + other.invalid,
        }
    }
}

/// How long what is under way may take to end once the run was told to kill.
const KILLED: Duration = Duration::from_millis(500);

/// Runs what is to be done, launch by launch, or side by side where the plan allows it. It returns when nothing that it started is
/// left, with how the measurements ended, and an error where the disk refuses what must be kept.
pub async fn run(job: &Job<'_>, stop: &Stop) -> (Tally, Result<(), StoreError>) {
    let devices = u32::try_from(job.host.devices.len()).unwrap_or(u32::MAX);
    let pool = Pool::new(job.host.devices.clone());
    let library = Library::new(job.host.folder.clone(), job.host.caches());
    let roster = Roster::default();
    let ahead = Ahead::default();
    let mut waiting = job.todo.clone();
    let mut at_work = FuturesUnordered::new();
    let mut running: Vec<&Launch> = Vec::new();
    let mut tally = Tally::default();
    let mut broken = Ok(());
    let killed = async {
        stop.now.cancelled().await;
        tokio::time::sleep(KILLED).await;
    };
    tokio::pin!(killed);
    loop {
        let next = match stop.is_asked() || broken.is_err() {
            true => None,
            false => scheduling::next(job.plan, &waiting, &running, devices, pool.free()),
        };
        if let Some(at) = next {
            let start = waiting.remove(at);
            let launch = job.plan.launch(&start.launch);
            running.push(launch);
            // Preflight has seen that the host has enough; and what fits is free.
            let lease = pool.acquire(launch.devices).await;
            let (library, roster, ahead) = (&library, &roster, &ahead);
            at_work.push(async move {
                let order = Order {
                    job,
                    launch,
                    start: &start,
                    lease: &lease,
                    library,
                    roster,
                    ahead,
                    stop,
                };
                let mut tally = Tally::default();
                let told = launch::launch(order, &mut tally).await;
                (&launch.id, tally, told)
            });
            continue;
        }
        // What does not end in time is dropped, which kills its engine.
        let next = tokio::select! {
            biased;
            next = at_work.next() => next,
            () = &mut killed => None,
        };
        let Some((ended, more, told)) = next else {
            return (tally, broken);
        };
        tally = tally + more;
        broken = broken.and(told);
        running.retain(|launch| launch.id != *ended);
    }
}

/// Tries a last time to remove the containers that could not be removed, says which are still there, and how many of them may run.
pub async fn orphans(host: &Host, events: &Events, stop: &Stop) -> usize {
    let patience = match stop.now.is_cancelled() {
        true => PARTING_NOW,
        false => PARTING,
    };
    let remaining = host.orphans.remove(patience).await;
    for orphan in &remaining {
        let state = match orphan.may_run {
            true => "may still run",
            false => "has ended and is not removed",
        };
        events.tell(Event::Warning {
            message: format!("{} {state}: {}; {}", orphan.what, orphan.reason, orphan.help),
        });
    }
    remaining.iter().filter(|orphan| orphan.may_run).count()
}
