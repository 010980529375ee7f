//! What a run is given and what it reports: where it takes place, who listens, what is to be done, and how the measurements ended.

use std::collections::BTreeMap;
use std::ops::Add;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::engine::{Images, Orphans, Whereabouts};
use crate::loadgen::dataset::Caches;
use crate::plan::{Plan, Start};
use crate::results::record::cell::Ending;
use crate::results::record::client::Calibration;
use crate::results::record::event::Event;
use crate::results::record::machine::Machine;
use crate::results::store::{self, Store};
use crate::telemetry::gpu::Gpus;

/// Where a run takes place.
#[derive(Clone, Debug)]
pub(crate) struct Host {
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
    pub machine: Machine,
    /// The GPUs that the run uses.
    pub devices: Vec<u32>,
    /// Who tells about its devices; `None` where nobody does, or they are only pretended.
    pub gpus: Option<Arc<Gpus>>,
}

impl Host {
    /// Where data sets and tokenizers are looked up.
    pub(crate) fn caches(&self) -> Caches {
        Caches {
            hf_home: self.hf_home.clone(),
            prompts: self.prompts.clone(),
        }
    }
}

/// Everybody who listens to a run.
#[derive(Default)]
pub(crate) struct Events {
    listeners: Vec<Listener>,
    redactor: Redactor,
}

type Listener = Box<dyn Fn(&Event) + Send + Sync>;

impl Events {
    /// Nobody listens yet; no event will hold a secret.
    pub(crate) fn without_secrets(redactor: Redactor) -> Self {
        Self {
            listeners: Vec::new(),
            redactor,
        }
    }

    /// Adds a listener. It is called at once and in order; a slow one holds up the conductor, never the load.
    pub(crate) fn listen(&mut self, listener: impl Fn(&Event) + Send + Sync + 'static) {
        self.listeners.push(Box::new(listener));
    }

    /// Tells everybody. Secrets are taken out here, once for all who listen.
    pub(crate) fn tell(&self, event: Event) {
        let event = store::redacted(event, &self.redactor);
        for listener in &self.listeners {
            listener(&event);
        }
    }
}

/// What a run needs.
pub(crate) struct Job<'a> {
    pub plan: &'a Plan,
    /// What is to be done of it.
    pub todo: Vec<Start>,
    pub store: &'a Store,
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
pub(crate) struct Tally {
    pub done: usize,
    pub failed: usize,
    pub skipped: usize,
    /// Stopped while they were measured.
    pub interrupted: usize,
    /// To their end, but worth no figure.
    pub invalid: usize,
}

impl Tally {
    /// Counts a measurement that ended.
    pub(super) fn count(&mut self, ending: &Ending, is_invalid: bool) {
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
