//! Executor of containers. It creates a container through the daemon's API from the launch that `matrix plan`
//! prints, follows its log and its state, stops it and removes it. Only this folder uses bollard.
//!
//! Containers do not remove themselves, so that exit code and last output can be read. Labels let the next
//! run find a container if this run is killed. No container without these labels is ever changed.

mod client;
mod config;
mod create_body;
mod creation;
mod credentials;
mod errors;
mod first_process;
mod gpu_probe;
mod help_output;
pub(crate) mod host;
pub(crate) mod image;
mod image_ref;
mod kill_events;
pub(crate) mod lack;
mod lifecycle;
mod orphans;
mod own_container;
pub(crate) mod preflight;
mod pull;
pub(crate) mod refused;
mod removal;
pub(crate) mod unremoved;

use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerState;
use bollard::query_parameters::{InspectContainerOptions, KillContainerOptions};
use futures_util::future::BoxFuture;
use rustix::process::Signal;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::base::clock;
use crate::engine::api;
use crate::engine::context::{Context, Logs};
use crate::engine::docker::client::Daemon;
use crate::engine::docker::create_body::body_with_short_log;
use crate::engine::docker::creation::{Created, Creation};
use crate::engine::docker::first_process::FirstProcess;
use crate::engine::docker::host::Address;
use crate::engine::docker::image::Had;
use crate::engine::docker::lifecycle::{Exit, Life, Signs, Watched};
use crate::engine::docker::refused::{is_missing, words};
use crate::engine::docker::removal::{REMOVED, remove};
use crate::engine::endpoint::{Devices, Endpoint};
use crate::engine::error::StartError;
use crate::engine::executor::Ended;
use crate::engine::executor::{Executor, PortHolder};
use crate::engine::log::Log;
use crate::engine::ownership::Marks;
use crate::engine::port;
use crate::engine::running::Running;
use crate::engine::start_progress::Tell;
use crate::engine::start_record::{self, StartRecord};
use crate::plan::{Container, Launch, Network, command};
use crate::results::store;

pub(crate) use help_output::{Dry, help, image_at_hand};
pub(crate) use host::Whereabouts;
pub(crate) use image::{Images, Pull};
pub(crate) use orphans::sweep;
pub(crate) use preflight::{Wanted, lacks};
pub use refused::Refused;
pub(crate) use unremoved::Orphans;

/// How long to wait for the end of the log after a container has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long the daemon may take to end a killed container.
const KILLED: Duration = Duration::from_secs(20);

/// How long the daemon may take to forward a signal. After that `matrix` sends it itself, if it can.
const SIGNALLED: Duration = Duration::from_secs(10);

/// Interval of checks of the first process while the daemon does not answer.
const LOOK: Duration = Duration::from_millis(100);

/// How long the daemon may take to report an exit after the first process has ended.
const TOLD: Duration = Duration::from_secs(2);

pub(super) struct Engine {
    docker: Docker,
    container: Created,
    grace: Duration,
    image: Had,
    life: Receiver<Life>,
    signs: Arc<Signs>,
    /// Until when `exited` waits for the rest of the log; set at the first call after the exit.
    last_words: Option<Instant>,
    /// The record of its shared memory, if it shares the host's.
    record: Option<StartRecord>,
    /// Whether the daemon publishes its port; otherwise it uses the host's network.
    publishes_port: bool,
    /// Tasks that follow log and state; they end when this is dropped.
    _following: JoinSet<()>,
}

pub(super) async fn start(
    launch: &Launch,
    container: &Container,
    context: &Context,
    logs: Logs,
    tell: Tell<'_>,
) -> Result<Running, StartError> {
    let refused = |refused: Refused| StartError::Container(Box::new(refused.redacted(&context.redactor)));
    let headers = api::headers(launch, context)?;
    let marks = Marks::new(&context.run, &launch.id, context.start)?;
    let mut body = create_body::body(launch, container, context, &marks)?;
    let daemon = Daemon::connect(&context.whereabouts).await.map_err(refused)?;
    let image = context
        .images
        .ensure(
            &daemon,
            &context.whereabouts,
            &container.image,
            logs.install,
            tell,
        )
        .await
        .map_err(refused)?;
    // The id, because the name may have moved to another image.
    body.image = Some(image.id.clone());
    if daemon.address.is_local() && !port::is_free(context.port) {
        return Err(StartError::PortTaken { port: context.port });
    }
    let pipe = |source| StartError::Spawn {
        program: "the reader of the container's log".to_owned(),
        source,
    };
    let began = clock::now();
    let (reader, writer) = std::io::pipe().map_err(pipe)?;
    let writer = tokio::net::unix::pipe::Sender::from_owned_fd(writer.into()).map_err(pipe)?;
    let log = Log::follow(reader, logs.engine, launch.signs.clone(), &context.redactor).map_err(pipe)?;
    let labels = own_container::labels(&daemon.docker, &marks).await;
    body.labels.get_or_insert_default().extend(labels);
    let body = body_with_short_log(body, daemon.is_podman);
    let shares_memory = daemon.address.is_local() && container.ipc.as_deref() == Some("host");
    let record = shares_memory.then(|| {
        let id = start_record::unique_id(&marks);
        StartRecord::begin(&context.cache, &id, &marks, None)
    });
    let names = names(&command::container_name(launch), context);
    let creation = Creation {
        daemon: daemon.clone(),
        body,
        marks,
        cache: context.cache.clone(),
    };
    let created = creation.create_named(names.to_vec(), &context.orphans).await;
    let mut created = created.map_err(refused)?;
    let docker = daemon.docker.clone();
    let started = docker.start_container(&created.id, None).await;
    started.map_err(|error| refused(Refused::of("start", &error)))?;
    let state = state(&docker, &created.id).await.unwrap_or_default();
    if daemon.address.is_local() {
        created.first = FirstProcess::of(&created.id, state.pid);
    }
    let signs = Arc::new(Signs::default());
    let watched = Watched {
        docker: docker.clone(),
        id: created.id.clone(),
        started_at: state.started_at,
        first: created.first.clone(),
        signs: Arc::clone(&signs),
    };
    let (following, life) = lifecycle::follow(watched, writer);
    let host = daemon.address.host();
    Ok(Running {
        endpoint: Endpoint {
            base_url: format!("http://{host}:{}", context.port),
            host,
            port: context.port,
            headers,
        },
        log,
        devices: match daemon.address.is_local() {
            true => Devices::Local(context.devices.clone()),
            false => Devices::Remote,
        },
        began,
        executor: Box::new(Engine {
            docker,
            container: created,
            grace: launch.patience.stop.duration(),
            image,
            life,
            signs,
            last_words: None,
            record,
            publishes_port: container.network == Network::Bridge,
            _following: following,
        }),
        shm: None,
        alarm: None,
    })
}

/// Whether the daemon runs on this host, judged by its address.
pub(crate) fn is_here(whereabouts: &Whereabouts) -> bool {
    Address::of(whereabouts).is_ok_and(|address| address.is_local())
}

/// Pulls the image of a later start. That start reports errors.
pub(crate) async fn pull_ahead(
    whereabouts: &Whereabouts,
    images: &Images,
    image: &str,
    log: store::Log,
    tell: Tell<'_>,
) {
    if let Ok(daemon) = Daemon::connect(whereabouts).await {
        // The start tries again and reports the error.
        let _ = images.ensure(&daemon, whereabouts, image, log, tell).await;
    }
}

/// Container names to try: the one that `matrix plan` prints, then with run and start, then also with our
/// pid.
fn names(usual: &str, context: &Context) -> [String; 3] {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let run: String = context.run.to_string().chars().filter(|c| allowed(*c)).collect();
    let own = format!("{usual}-{run}-{}", context.start);
    let last = format!("{own}-{}", std::process::id());
    [usual.to_owned(), own, last]
}

impl Executor for Engine {
    fn identity(&self) -> String {
        let id: String = self.container.id.chars().take(12).collect();
        format!("container {} ({id})", self.container.name)
    }

    fn image_digest(&self) -> Option<&str> {
        Some(&self.image.digest)
    }

    fn image_bytes(&self) -> Option<u64> {
        self.image.bytes
    }

    /// Waits for the exit, and then up to [`LAST_WORDS`] for the rest of the log.
    fn exited<'a>(&'a mut self, log: &'a Log) -> BoxFuture<'a, Ended> {
        Box::pin(async move {
            let exit = self.ended().await;
            // The caller may call this repeatedly; the deadline is set once.
            let until = *self.last_words.get_or_insert_with(|| Instant::now() + LAST_WORDS);
            if exit.is_over() {
                log.over(until.saturating_duration_since(Instant::now())).await;
            }
            exit.ended()
        })
    }

    fn is_unheard(&self) -> bool {
        *self.life.borrow() == Life::Unheard
    }

    fn moves(&self) {
        self.signs.moves();
    }

    fn suspect(&self) {
        self.signs.suspect();
    }

    fn take_unheard(&self) -> Vec<Duration> {
        self.signs.take_unheard()
    }

    fn root_pids(&self, _endpoint: &Endpoint) -> Vec<u32> {
        self.container
            .first
            .as_ref()
            .map(FirstProcess::pid)
            .into_iter()
            .collect()
    }

    /// The daemon publishes a port for one container only.
    fn port_holder(&self) -> PortHolder {
        match self.publishes_port {
            true => PortHolder::EngineAlone,
            false => PortHolder::Processes(None),
        }
    }

    fn record(&self) -> Option<&StartRecord> {
        self.record.as_ref()
    }

    fn set_record(&mut self, record: StartRecord) {
        self.record = Some(record);
    }

    fn stop(self: Box<Self>, log: &Log) -> BoxFuture<'_, (String, Option<StartRecord>)> {
        Box::pin(async move {
            let record = self.record.clone();
            (self.stopped(log).await, record)
        })
    }
}

impl Engine {
    async fn ended(&mut self) -> Exit {
        let ended = |life: &Life| matches!(life, Life::Ended(_));
        match self.life.wait_for(ended).await.map(|life| life.clone()) {
            Ok(Life::Ended(exit)) => exit,
            Ok(_) | Err(_) => Exit::foreign("nobody watches it any more"),
        }
    }

    async fn stopped(mut self, log: &Log) -> String {
        let before = self.life.borrow().clone();
        let (how, has_ended) = match before {
            Life::Ended(exit) => (format!("it had ended before ({})", exit.words()), exit.is_over()),
            Life::Lives | Life::Unheard => self.end().await,
        };
        log.over(LAST_WORDS).await;
        match remove(&self.docker, &self.container.id, Instant::now() + REMOVED).await {
            Ok(()) => {
                self.container.is_gone = true;
                format!("{how}; the container is removed")
            }
            Err(reason) => {
                let how = format!(
                    "{how}; the container {} is still there: {reason}",
                    self.container.name
                );
                self.container.abandon(has_ended, reason);
                how
            }
        }
    }

    /// Sends SIGTERM, waits for the grace period, sends SIGKILL. Returns a description and whether it has
    /// certainly ended.
    async fn end(&mut self) -> (String, bool) {
        let grace = crate::base::units::Span(self.grace);
        let asked = self.signal(Signal::TERM).await;
        if asked.is_ok()
            && let Ok(words) = timeout(self.grace, self.over()).await
        {
            return (format!("it ended on SIGTERM ({words})"), true);
        }
        if let Err(reason) = self.signal(Signal::KILL).await {
            return (format!("it could not be signalled: {reason}"), false);
        }
        match timeout(KILLED, self.over()).await {
            Ok(words) => (format!("it was killed after {grace} of grace ({words})"), true),
            Err(_) => (
                format!("it was killed after {grace} of grace and has not ended since"),
                false,
            ),
        }
    }

    /// Waits for the exit and describes it: as the daemon reports it, or, if it does not, as seen from the
    /// first process.
    async fn over(&mut self) -> String {
        let first = self.container.first.clone();
        let gone = async {
            match &first {
                Some(first) => {
                    while first.is_alive() {
                        sleep(LOOK).await;
                    }
                    sleep(TOLD).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            exit = self.ended() => exit.words(),
            () = gone => "its process is gone; the container daemon does not tell how".to_owned(),
        }
    }

    /// Sends a signal through the daemon, or directly if the daemon does not answer.
    async fn signal(&self, signal: Signal) -> Result<(), String> {
        let name = match signal {
            Signal::KILL => "SIGKILL",
            _ => "SIGTERM",
        };
        self.signs.ends();
        let options = KillContainerOptions {
            signal: name.to_owned(),
        };
        let asked = self.docker.kill_container(&self.container.id, Some(options));
        let refused = match timeout(SIGNALLED, asked).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if has_ended(&error) => return Ok(()),
            Ok(Err(error)) => words(&error),
            Err(_) => format!("no answer within {} s", SIGNALLED.as_secs()),
        };
        let refused = format!("the container daemon at {}: {refused}", self.container.address);
        match &self.container.first {
            Some(first) => first
                .signal(signal)
                .map_err(|error| format!("{refused}; its process {}: {error}", first.pid())),
            None => Err(refused),
        }
    }
}

/// Whether a signal failed because the container has ended.
fn has_ended(error: &Error) -> bool {
    let is_not_running = |message: &str| message.contains("is not running");
    is_missing(error)
        || matches!(error, Error::DockerResponseServerError { message, .. } if is_not_running(message))
}

async fn state(docker: &Docker, id: &str) -> Option<ContainerState> {
    let seen = docker.inspect_container(id, None::<InspectContainerOptions>);
    seen.await.ok()?.state
}
