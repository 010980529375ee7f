//! The conductor: Plan -> events. It hands to each wing what another made, and sees to it that what was started is stopped.

mod ahead;
pub mod bench;
pub mod calibrate;
mod cell;
mod items;
mod launch;
pub mod lease;
pub mod preflight;
mod prompts;
pub mod search;
pub mod server;
pub mod stop;
mod target;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::engine::{Images, Whereabouts};
use crate::load::dataset::Caches;
use crate::matrix::plan::{Plan, Start};
use crate::results::record::client::Calibration;
use crate::results::record::event::Event;
use crate::results::record::machine::Machine;
use crate::results::store::{Store, StoreError};
use crate::run::ahead::Ahead;
use crate::run::lease::Pool;
use crate::run::prompts::Library;
use crate::run::stop::Stop;

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
    /// Where environments and prepared data are kept.
    pub cache: PathBuf,
    /// The folder that keeps prepared prompts; without it they are prepared anew.
    pub prompts: Option<PathBuf>,
    /// Where the container daemon is.
    pub whereabouts: Whereabouts,
    /// The images of the run.
    pub images: Arc<Images>,
    /// The values of the secrets that the plan names.
    pub secrets: BTreeMap<String, String>,
    /// Takes those values out of everything that is written.
    pub redactor: Redactor,
    /// The client for every untimed call.
    pub http: reqwest::Client,
    /// The machine.
    pub machine: Machine,
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

/// Everybody who listens to a run.
#[derive(Default)]
pub struct Events(Vec<Listener>);

type Listener = Box<dyn Fn(&Event) + Send + Sync>;

impl Events {
    /// Adds a listener. It is called at once and in order; a slow one holds up the conductor, never the load.
    pub fn listen(&mut self, listener: impl Fn(&Event) + Send + Sync + 'static) {
        self.0.push(Box::new(listener));
    }

    /// Tells everybody.
    pub fn tell(&self, event: Event) {
        for listener in &self.0 {
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
    /// To their end, but with more failed requests than the scenario allows.
    pub above_error_share: usize,
}

/// What the launches of a run share, one after another.
struct Course {
    library: Arc<Library>,
    ahead: Ahead,
    tally: Tally,
}

/// Runs what is to be done, launch by launch. It returns when nothing that it started is left.
///
/// # Errors
/// The disk refuses what must be kept.
pub async fn run(job: &Job<'_>, stop: &Stop) -> Result<Tally, StoreError> {
    let pool = Pool::new(u32::try_from(job.host.machine.gpus.len()).unwrap_or(u32::MAX));
    let mut course = Course {
        library: Library::new(job.host.folder.clone(), job.host.caches()),
        ahead: Ahead::default(),
        tally: Tally::default(),
    };
    for start in &job.todo {
        if stop.is_asked() {
            break;
        }
        let launch = job.plan.launch(&start.launch);
        // Preflight has seen that the host has enough; a lease waits for its turn all the same.
        let lease = pool.acquire(launch.devices).await;
        launch::launch(job, launch, start, &lease, stop, &mut course).await?;
    }
    Ok(course.tally)
}
