//! Launch to running engine: start, wait, stop, sweep.
//!
//! An executor implements `executor::Executor`: how to notice that an engine ended, how to stop it, and which processes are its own.
//! Nothing here measures, decides what to start, or knows an engine by name.

mod api;
mod attach;
mod cgroup;
mod docker;
mod environment;
mod executor;
mod help_check;
mod log;
mod orphans;
mod ownership;
mod port;
mod process;
mod process_group;
mod readiness;
mod root_processes;
mod shared_memory;
mod shim;
mod start_record;
mod tree;
mod venv;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use reqwest::header::HeaderMap;

use crate::base::clock;
use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::config::template::{Text, Unfilled};
use crate::plan::Launch;
use crate::results::record::cell::{FailureClass, Phase};
use crate::results::record::post_mortem::End;
use crate::results::store;

pub use api::{check_model, facts, http_client, info, lacks, proxied_client, reset_caches};
pub use attach::unreachable;
pub use docker::{
    Images, Lack, Orphans, Pull, Refused, Remaining, Wanted, Whereabouts, lacks as container_lacks,
    pull_ahead,
};
pub use environment::described as environment_described;
use executor::Executor;
pub use help_check::{Asking, Flags, UnknownFlag, check_flags};
pub use log::{Log, Omen};
pub use orphans::{Leftover, Swept, find, kill_own, sweep};
pub use ownership::Owner;
pub use port::free_port;
pub use readiness::{NoToken, NotReady, Progress, Readiness, ready};
pub use root_processes::{Listener, holder, is_here, listeners, still_answers};
pub use shim::{exec, supervise};
pub use venv::VenvError;

/// What a start needs beside the launch.
pub struct Context {
    /// The run it belongs to.
    pub run: RunId,
    /// Which start of the launch, from 1.
    pub start: u32,
    /// The devices it was given.
    pub devices: Vec<u32>,
    /// What it is told that they are called, as [`Machine::device_names`](crate::results::record::machine::Machine::device_names) has it.
    pub device_names: Vec<String>,
    /// The CPUs that a container without a CPU set of its own is held to, beside a neighbour.
    pub cpus: Option<String>,
    /// Takes secrets out of what is quoted.
    pub redactor: Redactor,
    /// The values of secrets by name.
    pub secret: Secrets,
    /// The `matrix` binary, for `{matrix}`.
    pub matrix: PathBuf,
    /// The binary whose `__shim` ties processes to our life; `None` spawns programs themselves.
    pub shim: Option<PathBuf>,
    /// The `PATH` in which programs are looked up.
    pub path: Option<String>,
    /// The names of the variables of our environment.
    pub environment: Vec<String>,
    /// Where Hugging Face's cache is, for `{hf_home}`.
    pub hf_home: Option<PathBuf>,
    /// Where environments and the records of starts are kept.
    pub cache: PathBuf,
    /// Where the container daemon is.
    pub whereabouts: Whereabouts,
    /// The images of the run.
    pub images: Arc<Images>,
    /// The containers of the run that could not be removed.
    pub orphans: Arc<Orphans>,
    /// The folder of the matrix file, for `{dir}` and relative paths.
    pub folder: PathBuf,
    /// The port that the engine is to listen on.
    pub port: u16,
}

/// Where all that a start says is kept.
pub struct Logs {
    /// What the engine says.
    pub engine: store::Log,
    /// What its installation says.
    pub install: store::Log,
}

/// Hears how far a start is.
pub type Tell<'a> = &'a (dyn Fn(Progress) + Sync);

/// Gives the value of a secret.
pub type Secrets = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl Context {
    /// What fills the holes of the launch's texts.
    fn hole(&self, venv: Option<&std::path::Path>, name: &str) -> Option<String> {
        let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
        match name {
            "port" => Some(self.port.to_string()),
            "devices" => Some(self.device_list()),
            "matrix" => Some(text(&self.matrix)),
            "dir" => Some(text(&self.folder)),
            "hf_home" => self.hf_home.as_deref().map(text),
            "venv" => venv.map(text),
            _ => None,
        }
    }

    fn device_list(&self) -> String {
        self.device_names.join(",")
    }

    /// A text with everything filled in; `place` says where it stands.
    fn reveal(&self, venv: Option<&std::path::Path>, text: &Text, place: &str) -> Result<String, StartError> {
        text.reveal(&|name| self.hole(venv, name), &*self.secret)
            .map_err(|source| StartError::Unfilled {
                place: place.to_owned(),
                text: text.as_str().to_owned(),
                source,
            })
    }
}

/// Where an engine answers.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Host name or address, an IPv6 one in brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Scheme, host, port and the path that precedes every path of a request; no slash at its end. It may hold a secret.
    pub base_url: String,
    /// The headers that go with every request.
    headers: HeaderMap,
}

impl Endpoint {
    /// The headers that go with every request; they may hold a secret.
    pub const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The URL of a path, or of a path with its query.
    pub fn url(&self, path: &str) -> String {
        format!("{}/{}", self.base_url, path.trim_start_matches('/'))
    }
}

/// Where the devices of an engine are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// On this host: the leased ones.
    Local(Vec<u32>),
    /// Elsewhere, or unknown: only the engine itself can tell about them.
    Remote,
}

/// An engine that was started, or attached to. Dropping it kills what was started; [`Running::stop`] is the orderly way.
pub struct Running {
    endpoint: Endpoint,
    log: Log,
    devices: Devices,
    began: clock::Moment,
    install_seconds: Option<f64>,
    executor: Box<dyn Executor>,
    /// Its shared memory, where it shares this host's.
    shm: Option<shared_memory::Watch>,
    /// Tells of new shared memory while it starts.
    alarm: Option<shared_memory::Alarm>,
}

/// How an engine was found to be dead.
#[derive(Clone, Debug)]
pub struct Death {
    /// What became of it: `ended (…)` with `exit status: 1`, `signal: 9 (SIGKILL)` or, of a container, `exit code 137`, or with the line by
    /// which its log says that it is dead; or why it is given up though it may live.
    pub status: String,
    /// Its last words.
    pub tail: Vec<String>,
    /// The line that explains it, where the recipe knows one or the container daemon tells.
    pub omen: Option<Omen>,
    /// How its process ended; `None` where it has not, and only its log says that it is dead.
    pub end: Option<End>,
    /// Whose fault it is.
    pub class: FailureClass,
}

impl Death {
    /// Whether a signal that asks a process to end may have caused it. SIGKILL asks nothing.
    pub fn may_follow_a_request(&self) -> bool {
        let is_kill = |end: &End| end.signal == Some(9) || end.code == Some(137);
        !self.end.as_ref().is_some_and(is_kill)
    }
}

/// How an executor saw an engine end.
struct Ended {
    /// In words: `ended (exit code 3)`.
    how: String,
    /// What explains it, where the executor knows.
    omen: Option<Omen>,
    end: End,
    /// Whose fault it is, where the executor knows that it is not the engine's.
    blame: Option<FailureClass>,
}

impl Ended {
    /// Whose fault it is as far as the executor knows.
    fn class(&self) -> FailureClass {
        let omen = self.omen.as_ref().map(Omen::class);
        self.blame.or(omen).unwrap_or(FailureClass::Engine)
    }
}

/// How an engine was stopped.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// How it ended, in words.
    pub how: String,
    /// The bytes of shared memory that it left behind and that were freed, where it left any.
    pub shm_freed_bytes: Option<u64>,
    /// Seconds it took.
    pub seconds: f64,
}

/// Starts the engine of a launch, its environment first where it needs one. It does not wait until the engine answers. How far a
/// pull is goes to `tell`.
///
/// Dropping the future ends what was begun.
///
/// # Errors
/// What the launch asks for cannot be had here.
pub async fn start(
    launch: &Launch,
    context: &Context,
    logs: Logs,
    tell: Tell<'_>,
) -> Result<Running, StartError> {
    let (watch, alarm) = (shared_memory::Watch::begin(), shared_memory::Alarm::begin());
    let launcher = executor::of(&launch.place);
    let running = launcher.start(launch, context, logs, tell).await?;
    let is_here = matches!(running.devices, Devices::Local(_));
    let has_shm = launcher.shares_memory() && is_here;
    Ok(Running {
        shm: has_shm.then_some(watch),
        alarm: has_shm.then_some(alarm),
        ..running
    })
}

/// The name of the image that a launch is started from; `None` where it runs in no container.
pub fn image(launch: &Launch) -> Option<&str> {
    executor::of(&launch.place).image()
}

/// Whether a launch runs on this host, started by us.
pub fn is_local(launch: &Launch, whereabouts: &Whereabouts) -> bool {
    executor::of(&launch.place).is_local(whereabouts)
}

/// Whether a launch takes a port of this host.
pub fn takes_port(launch: &Launch) -> bool {
    executor::of(&launch.place).takes_port()
}

/// What this host lacks for a launch, beside what a container daemon or an attached server says; `path` is the `PATH` of programs.
pub fn host_lacks(launch: &Launch, path: Option<&str>) -> Option<Lack> {
    executor::of(&launch.place).lacks(launch, path)
}

impl Running {
    /// Where it answers.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What identifies it: a process id, a container's name and id, or the address that was attached to.
    pub fn identity(&self) -> String {
        self.executor.identity()
    }

    /// What it says.
    pub const fn log(&self) -> &Log {
        &self.log
    }

    /// Where its devices are.
    pub const fn devices(&self) -> &Devices {
        &self.devices
    }

    /// When its process was started, after its environment was made.
    pub const fn began(&self) -> clock::Moment {
        self.began
    }

    /// How long making its environment took, where it has one that `matrix` keeps.
    pub const fn install_seconds(&self) -> Option<f64> {
        self.install_seconds
    }

    /// The digest of the image that was started, for a container; the image's own id where it came from no registry.
    pub fn image_digest(&self) -> Option<&str> {
        self.executor.image_digest()
    }

    /// The size of that image on the daemon's disk, in bytes.
    pub fn image_bytes(&self) -> Option<u64> {
        self.executor.image_bytes()
    }

    /// Whether its log can be read; of an engine that someone else started it cannot.
    fn is_audible(&self) -> bool {
        self.executor.has_log()
    }

    /// Waits until it is dead: its process ended, or its log has a line that means so. An engine that someone else started is
    /// never seen dead. Nothing is lost when this is dropped; later calls give the same answer.
    pub async fn exited(&mut self) -> Death {
        let ended = tokio::select! {
            biased;
            ended = self.executor.exited(&self.log) => Ok(ended),
            omen = self.log.fatal() => Err(omen),
        };
        let tail = self.log.tail();
        match ended {
            Ok(mut ended) => {
                ended.omen = ended.omen.or_else(|| self.log.omen());
                Death {
                    class: ended.class(),
                    status: ended.how,
                    tail,
                    omen: ended.omen,
                    end: Some(ended.end),
                }
            }
            Err(omen) => Death {
                class: omen.class(),
                status: format!("ended (its log says `{}`)", omen.line.trim()),
                tail,
                omen: Some(omen),
                end: None,
            },
        }
    }

    /// Whether nobody can tell at the moment if it lives, as when the container daemon is away.
    pub fn is_unheard(&self) -> bool {
        self.executor.is_unheard()
    }

    /// An answer of it moved, so that it lives, whatever its container daemon says or does not.
    pub fn moves(&self) {
        self.executor.moves();
    }

    /// Nothing moves, so that its executor looks why: a container may be paused. What it finds ends [`Running::exited`].
    pub fn suspect(&self) {
        self.executor.suspect();
    }

    /// The stretches since it was asked last in which its container daemon was away and it lived on.
    pub fn take_unheard(&self) -> Vec<std::time::Duration> {
        self.executor.take_unheard()
    }

    /// Records which processes it has and what shared memory they use, by which alone what they leave is known as theirs. It reads
    /// `/proc`: do not call it while a load is driven.
    pub async fn look(&mut self) {
        let mut shm = self.shm.clone();
        let mut record = self.executor.record().cloned();
        let records_processes = self.executor.records_processes();
        if shm.is_none() && record.is_none() {
            return;
        }
        let roots = self.tree();
        let looking = tokio::task::spawn_blocking(move || {
            let members = tree::of(&roots);
            if let Some(shm) = &mut shm {
                shm.look(&members);
            }
            if let Some(record) = &mut record {
                if records_processes {
                    record.add(&members);
                }
                if let Some(shm) = &shm {
                    record.add_shared(shm.seen());
                }
            }
            (shm, record)
        });
        let record;
        (self.shm, record) = looking.await.expect("looking does not panic");
        if let Some(record) = record {
            self.executor.set_record(record);
        }
    }

    /// Stops it and waits until nothing of it is left. When this is dropped halfway what is left is killed at once.
    pub async fn stop(mut self) -> Stopped {
        let began = clock::now();
        self.look().await;
        let (how, record) = self.executor.stop(&self.log).await;
        let freed = match self.shm {
            Some(watch) => tokio::task::spawn_blocking(move || watch.free())
                .await
                .expect("removing files does not panic"),
            None => shared_memory::Freed::default(),
        };
        if let Some(record) = record {
            record.remove();
        }
        Stopped {
            how: format!("{how}{}", freed.words()),
            shm_freed_bytes: (freed.files > 0).then_some(freed.bytes),
            seconds: clock::now().since(began).as_secs_f64(),
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("identity", &self.identity())
            .finish_non_exhaustive()
    }
}

/// Why an engine could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A text has a hole or a secret that nothing fills.
    #[error("`{text}` in {place}: {source}")]
    Unfilled {
        /// Where the text stands.
        place: String,
        /// The text as written.
        text: String,
        /// What is missing.
        source: Unfilled,
    },
    /// The recipe's command is empty.
    #[error(
        "the recipe of engine `{engine}` has an empty command; write the program and its arguments in `command:`"
    )]
    NoCommand {
        /// The engine.
        engine: String,
    },
    /// The program is nowhere.
    #[error(
        "the program `{program}` was not found in {looked}; install it, or give its environment with `venv:`"
    )]
    NoProgram {
        /// The program.
        program: String,
        /// Where it was looked for.
        looked: String,
    },
    /// The working directory is no directory.
    #[error("the working directory {dir} does not exist; make it, or mend `dir:` of the recipe")]
    NoFolder {
        /// The directory.
        dir: String,
    },
    /// Somebody else listens on the port.
    #[error(
        "port {port} is taken by another process; stop it, or take `port:` out: then a free one is chosen"
    )]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// The URL to attach to cannot be used.
    #[error("the url `{url}` cannot be attached to: {reason}; write it like `http://host:8000`")]
    Url {
        /// The URL as written.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// A header cannot be sent.
    #[error("the header `{name}` cannot be sent: {reason}; mend `headers:` of the recipe")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The container daemon refuses.
    #[error(transparent)]
    Container(Box<Refused>),
    /// The Python environment cannot be had.
    #[error(transparent)]
    Venv(#[from] VenvError),
    /// The system refuses to start the process.
    #[error("`{program}` could not be started: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The marks by which a process is found again cannot be made.
    #[error("/proc cannot be read, by which `matrix` finds its own processes again: {0}")]
    Proc(#[from] procfs::ProcError),
}

impl StartError {
    /// Where the start failed.
    pub const fn phase(&self) -> Phase {
        match self {
            Self::Venv(_) => Phase::Install,
            Self::Container(refused) => refused.phase(),
            _ => Phase::Launch,
        }
    }

    /// Whose fault it seems.
    pub const fn class(&self) -> FailureClass {
        match self {
            Self::Venv(error) => error.class(),
            Self::Container(refused) => refused.class(),
            Self::Spawn { .. } | Self::Proc(_) => FailureClass::Infrastructure,
            _ => FailureClass::Spec,
        }
    }

    /// What was said last before it failed.
    pub fn tail(&self) -> Vec<String> {
        match self {
            Self::Venv(error) => error.tail().to_vec(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
