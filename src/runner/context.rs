//! The context of a run (host, listeners, starts) and the counts of its results.

use std::collections::BTreeMap;
use std::ops::Add;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::engine::{DockerEnv, Images, JobNodes, UnremovedContainers};
use crate::loadgen::dataset::Caches;
use crate::plan::{Plan, Start};
use crate::results::record::cell::MeasurementStatus;
use crate::results::record::client::Calibration;
use crate::results::record::event::Event;
use crate::results::record::machine::Machine;
use crate::results::store::{self, Store};
use crate::runner::environment::Environment;
use crate::telemetry::gpu::Gpus;

/// The host of a run, with the folders and secrets that it uses.
#[derive(Clone, Debug)]
pub(crate) struct HostEnv {
    pub(crate) run: RunId,
    /// The `matrix` binary, which also runs as the simulated engine and as the shim.
    pub(crate) matrix: PathBuf,
    /// The folder of the matrix file.
    pub(crate) folder: PathBuf,
    /// Hugging Face's cache folder.
    pub(crate) hf_home: Option<PathBuf>,
    /// Our own environment variables.
    pub(crate) environment: Environment,
    /// Folder of environments and prepared data.
    pub(crate) cache: PathBuf,
    /// Folder of prepared prompts; without it they are prepared in each run.
    pub(crate) prompts: Option<PathBuf>,
    /// Address of the container daemon.
    pub(crate) docker: DockerEnv,
    /// The images of the run.
    pub(crate) images: Arc<Images>,
    /// Containers of the run that could not be removed.
    pub(crate) orphans: Arc<UnremovedContainers>,
    /// The values of the plan's secrets, by name.
    pub(crate) secrets: BTreeMap<String, String>,
    /// Hides these values in everything that is written.
    pub(crate) redactor: Redactor,
    /// HTTP client for calls that are not timed.
    pub(crate) http: reqwest::Client,
    pub(crate) machine: Machine,
    /// GPUs that the run uses.
    pub(crate) devices: Vec<u32>,
    /// The nodes of the job of a cluster that this run executes in, if a launch needs several.
    pub(crate) job_nodes: JobNodes,
    /// Access to the GPUs; `None` if there is no library for them or they are simulated.
    pub(crate) gpus: Option<Arc<Gpus>>,
}

impl HostEnv {
    /// Folders in which data sets and tokenizers are searched.
    pub(crate) fn caches(&self) -> Caches {
        Caches {
            hf_home: self.hf_home.clone(),
            prompts: self.prompts.clone(),
        }
    }
}

/// The listeners of a run.
#[derive(Default)]
pub(crate) struct EventBus {
    listeners: Vec<Listener>,
    redactor: Redactor,
}

type Listener = Box<dyn Fn(&Event) + Send + Sync>;

impl EventBus {
    /// Creates a list without listeners that redacts every event.
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self {
            listeners: Vec::new(),
            redactor,
        }
    }

    /// Adds a listener. Listeners are called synchronously in order. A slow one delays the run, but never the
    /// load.
    pub(crate) fn subscribe(&mut self, listener: impl Fn(&Event) + Send + Sync + 'static) {
        self.listeners.push(Box::new(listener));
    }

    /// Redacts an event and passes it to all listeners.
    pub(crate) fn emit(&self, event: Event) {
        let event = store::redact(event, &self.redactor);
        for listener in &self.listeners {
            listener(&event);
        }
    }
}

/// Input of a run.
pub(crate) struct RunContext<'a> {
    pub(crate) plan: &'a Plan,
    /// The starts to make.
    pub(crate) starts: Vec<Start>,
    pub(crate) store: &'a Store,
    pub(crate) events: &'a EventBus,
    pub(crate) host: &'a HostEnv,
    /// Number of times that an invalid measurement is repeated.
    pub(crate) retry_invalid: u32,
    /// The client's calibration, if there is one.
    pub(crate) calibration: Option<&'a Calibration>,
}

/// Counts of measurements by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunCounts {
    pub(crate) done: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    pub(crate) interrupted: usize,
    pub(crate) invalid: usize,
}

impl RunCounts {
    pub(super) fn count(&mut self, ending: &MeasurementStatus, is_invalid: bool) {
        match ending {
            MeasurementStatus::Done => {
                self.done += 1;
                self.invalid += usize::from(is_invalid);
            }
            MeasurementStatus::Failed { .. } => self.failed += 1,
            MeasurementStatus::Skipped { .. } => self.skipped += 1,
            MeasurementStatus::Interrupted => self.interrupted += 1,
        }
    }
}

impl Add for RunCounts {
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
