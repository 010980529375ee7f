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
pub(crate) mod docker_error;
mod errors;
mod first_process;
mod gpu_probe;
mod help_output;
pub(crate) mod host;
pub(crate) mod image;
mod image_ref;
mod kill_events;
mod lifecycle;
mod orphans;
mod own_container;
pub(crate) mod preflight;
mod pull;
mod removal;
pub(crate) mod unmet;
pub(crate) mod unremoved;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerState;
use bollard::query_parameters::{InspectContainerOptions, KillContainerOptions};
use futures_util::future::BoxFuture;
use rustix::process::Signal;
use tokio::net::unix::pipe::Sender;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::base::clock;
use crate::engine::api;
use crate::engine::context::{Logs, StartContext};
use crate::engine::docker::client::Daemon;
use crate::engine::docker::create_body::with_short_log;
use crate::engine::docker::creation::{CreatedContainer, Creation};
use crate::engine::docker::docker_error::{error_text, is_not_found};
use crate::engine::docker::first_process::FirstProcess;
use crate::engine::docker::host::Address;
use crate::engine::docker::image::LocalImage;
use crate::engine::docker::lifecycle::{ContainerExit, Liveness, LivenessHints, WatchedContainer};
use crate::engine::docker::removal::{REMOVE_TIMEOUT, remove};
use crate::engine::endpoint::{Devices, Endpoint};
use crate::engine::error::StartError;
use crate::engine::executor::ExitCause;
use crate::engine::executor::{AllowedListeners, Executor};
use crate::engine::log::Log;
use crate::engine::ownership::OwnershipTags;
use crate::engine::port;
use crate::engine::running::RunningEngine;
use crate::engine::start_progress::ProgressFn;
use crate::engine::start_record::{self, StartRecord};
use crate::plan::{Container, ContainerNetwork, Launch, command};
use crate::results::store;

pub use docker_error::DockerError;
pub(crate) use help_output::{HelpContainer, container_help, local_image_id};
pub(crate) use host::DockerEnv;
pub(crate) use image::{Images, PullPolicy};
pub(crate) use orphans::sweep;
pub(crate) use preflight::{ContainerChecks, unmet_container_requirements};
pub(crate) use unremoved::UnremovedContainers;

/// How long to wait for the end of the log after a container has ended.
const LOG_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the daemon may take to end a killed container.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

/// How long the daemon may take to forward a signal. After that `matrix` sends it itself, if it can.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of checks of the first process while the daemon does not answer.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long the daemon may take to report an exit after the first process has ended.
const EXIT_REPORT_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct ContainerEngine {
    docker: Docker,
    container: CreatedContainer,
    grace: Duration,
    image: LocalImage,
    liveness: Receiver<Liveness>,
    hints: Arc<LivenessHints>,
    /// Until when `exited` waits for the rest of the log; set at the first call after the exit.
    log_drain_deadline: Option<Instant>,
    /// The record of its shared memory, if it shares the host's.
    record: Option<StartRecord>,
    /// Whether the daemon publishes its port; otherwise it uses the host's network.
    publishes_port: bool,
    /// Tasks that follow log and state; they end when this is dropped.
    _watch_tasks: JoinSet<()>,
}

pub(super) async fn start(
    launch: &Launch,
    container: &Container,
    context: &StartContext,
    logs: Logs,
    report_progress: ProgressFn<'_>,
) -> Result<RunningEngine, StartError> {
    let start_error =
        |start_error: DockerError| StartError::Container(Box::new(start_error.redacted(&context.redactor)));
    let headers = api::request_headers(launch, context)?;
    let tags = OwnershipTags::new(&context.run, &launch.id, context.start)?;
    let mut body = create_body::create_body(launch, container, context, &tags)?;
    let daemon = Daemon::connect(&context.docker_env).await.map_err(start_error)?;
    let image = context
        .images
        .ensure(
            &daemon,
            &context.docker_env,
            &container.image,
            logs.install,
            report_progress,
        )
        .await
        .map_err(start_error)?;
    // The id, because the name may have moved to another image.
    body.image = Some(image.id.clone());
    if daemon.address.is_local() && !port::is_free(context.port) {
        return Err(StartError::PortTaken { port: context.port });
    }
    let started_at = clock::now();
    let (log, writer) = open_log(launch, context, logs.engine).map_err(|source| StartError::Spawn {
        program: "the reader of the container's log".to_owned(),
        source,
    })?;
    let labels = own_container::ownership_labels(&daemon.docker, &tags).await;
    body.labels.get_or_insert_default().extend(labels);
    let body = with_short_log(body, daemon.is_podman);
    let record = begin_record(container, context, &daemon, &tags);
    let names = candidate_names(&command::container_name(launch), context);
    let creation = Creation {
        daemon: daemon.clone(),
        body,
        tags,
        cache_dir: context.cache_dir.clone(),
    };
    let created = creation.create_named(names.to_vec(), &context.unremoved).await;
    let mut created = created.map_err(start_error)?;
    let started = daemon.docker.start_container(&created.id, None).await;
    started.map_err(|error| start_error(DockerError::new("start", &error)))?;
    let hints = Arc::new(LivenessHints::default());
    let watched = watched_container(&daemon, &mut created, Arc::clone(&hints)).await;
    let (following, liveness) = lifecycle::watch_container(watched, writer);
    let host = daemon.address.host();
    let base_url = format!("http://{host}:{}", context.port);
    Ok(RunningEngine {
        endpoint: Endpoint::new(host, context.port, base_url, headers),
        log,
        devices: match daemon.address.is_local() {
            true => Devices::Local(context.devices.clone()),
            false => Devices::Remote,
        },
        started_at,
        executor: Box::new(ContainerEngine {
            docker: daemon.docker,
            container: created,
            grace: launch.timeouts.stop.duration(),
            image,
            liveness,
            hints,
            log_drain_deadline: None,
            record,
            publishes_port: container.network == ContainerNetwork::Bridge,
            _watch_tasks: following,
        }),
        shared_memory: None,
        shared_memory_events: None,
    })
}

/// The log of a container, and the pipe to write its output to.
fn open_log(launch: &Launch, context: &StartContext, log: store::Log) -> io::Result<(Log, Sender)> {
    let (reader, writer) = io::pipe()?;
    let writer = Sender::from_owned_fd(writer.into())?;
    let log = Log::follow(reader, log, launch.log_patterns.clone(), &context.redactor)?;
    Ok((log, writer))
}

/// Begins the record of a container that shares the host's memory.
fn begin_record(
    container: &Container,
    context: &StartContext,
    daemon: &Daemon,
    tags: &OwnershipTags,
) -> Option<StartRecord> {
    let shares_memory = daemon.address.is_local() && container.ipc.as_deref() == Some("host");
    shares_memory.then(|| {
        let id = start_record::unique_id(tags);
        StartRecord::begin(&context.cache_dir, &id, tags, None)
    })
}

/// What is watched of a container that was started. Identifies its first process if it runs on this host.
async fn watched_container(
    daemon: &Daemon,
    created: &mut CreatedContainer,
    hints: Arc<LivenessHints>,
) -> WatchedContainer {
    let docker = daemon.docker.clone();
    let state = inspect_state(&docker, &created.id).await.unwrap_or_default();
    if daemon.address.is_local() {
        created.first_process = FirstProcess::identify(&created.id, state.pid);
    }
    WatchedContainer {
        docker,
        id: created.id.clone(),
        started_at: state.started_at,
        first_process: created.first_process.clone(),
        hints,
    }
}

/// Whether the daemon runs on this host, judged by its address.
pub(crate) fn is_daemon_local(docker_env: &DockerEnv) -> bool {
    Address::resolve(docker_env).is_ok_and(|address| address.is_local())
}

/// Pulls the image of a later start. That start reports errors.
pub(crate) async fn prefetch_image(
    docker_env: &DockerEnv,
    images: &Images,
    image: &str,
    log: store::Log,
    report_progress: ProgressFn<'_>,
) {
    if let Ok(daemon) = Daemon::connect(docker_env).await {
        // The start tries again and reports the error.
        let _ = images
            .ensure(&daemon, docker_env, image, log, report_progress)
            .await;
    }
}

/// Container names to try: the one that `matrix plan` prints, then with run and start, then also with our
/// pid.
fn candidate_names(usual: &str, context: &StartContext) -> [String; 3] {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let run: String = context.run.to_string().chars().filter(|c| allowed(*c)).collect();
    let with_run = format!("{usual}-{run}-{}", context.start);
    let last = format!("{with_run}-{}", std::process::id());
    [usual.to_owned(), with_run, last]
}

impl Executor for ContainerEngine {
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

    /// Waits for the exit, and then up to [`LOG_DRAIN_TIMEOUT`] for the rest of the log.
    fn wait_for_exit<'a>(&'a mut self, log: &'a Log) -> BoxFuture<'a, ExitCause> {
        Box::pin(async move {
            let exit = self.container_exit().await;
            // The caller may call this repeatedly; the deadline is set once.
            let until = *self
                .log_drain_deadline
                .get_or_insert_with(|| Instant::now() + LOG_DRAIN_TIMEOUT);
            if exit.is_certain() {
                log.wait_closed(until.saturating_duration_since(Instant::now()))
                    .await;
            }
            exit.exit_cause()
        })
    }

    fn is_liveness_unknown(&self) -> bool {
        *self.liveness.borrow() == Liveness::Unknown
    }

    fn note_activity(&self) {
        self.hints.note_activity();
    }

    fn request_check(&self) {
        self.hints.request_check();
    }

    fn take_unknown_periods(&self) -> Vec<Duration> {
        self.hints.take_unknown_periods()
    }

    fn root_pids(&self, _endpoint: &Endpoint) -> Vec<u32> {
        self.container
            .first_process
            .as_ref()
            .map(FirstProcess::pid)
            .into_iter()
            .collect()
    }

    /// The daemon publishes a port for one container only.
    fn allowed_listeners(&self) -> AllowedListeners {
        match self.publishes_port {
            true => AllowedListeners::Any,
            false => AllowedListeners::Processes(None),
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
            (self.stop_and_remove(log).await, record)
        })
    }
}

impl ContainerEngine {
    async fn container_exit(&mut self) -> ContainerExit {
        let ended = |liveness: &Liveness| matches!(liveness, Liveness::Exited(_));
        match self
            .liveness
            .wait_for(ended)
            .await
            .map(|liveness| liveness.clone())
        {
            Ok(Liveness::Exited(exit)) => exit,
            Ok(_) | Err(_) => ContainerExit::external("it is no longer watched"),
        }
    }

    async fn stop_and_remove(mut self, log: &Log) -> String {
        let before = self.liveness.borrow().clone();
        let (description, has_ended) = match before {
            Liveness::Exited(exit) => (
                format!("it had already ended ({})", exit.description()),
                exit.is_certain(),
            ),
            Liveness::Alive | Liveness::Unknown => self.terminate().await,
        };
        log.wait_closed(LOG_DRAIN_TIMEOUT).await;
        match remove(&self.docker, &self.container.id, Instant::now() + REMOVE_TIMEOUT).await {
            Ok(()) => {
                self.container.is_removed = true;
                format!("{description}; the container was removed")
            }
            Err(reason) => {
                let description = format!(
                    "{description}; the container {} could not be removed: {reason}",
                    self.container.name
                );
                self.container.abandon(has_ended, reason);
                description
            }
        }
    }

    /// Sends SIGTERM, waits for the grace period, sends SIGKILL. Returns a description and whether it has
    /// certainly ended.
    async fn terminate(&mut self) -> (String, bool) {
        let grace = crate::base::units::HumanDuration(self.grace);
        let sent = self.signal(Signal::TERM).await;
        if sent.is_ok()
            && let Ok(words) = timeout(self.grace, self.exit_description()).await
        {
            return (format!("it ended on SIGTERM ({words})"), true);
        }
        if let Err(reason) = self.signal(Signal::KILL).await {
            return (format!("it could not be signalled: {reason}"), false);
        }
        match timeout(KILL_TIMEOUT, self.exit_description()).await {
            Ok(words) => (
                format!("it was killed after a grace period of {grace} ({words})"),
                true,
            ),
            Err(_) => (
                format!("SIGKILL was sent after a grace period of {grace}, and it has not ended"),
                false,
            ),
        }
    }

    /// Waits for the exit and describes it: as the daemon reports it, or, if it does not, as seen from the
    /// first process.
    async fn exit_description(&mut self) -> String {
        let first = self.container.first_process.clone();
        let gone = async {
            match &first {
                Some(first) => {
                    while first.is_alive() {
                        sleep(POLL_INTERVAL).await;
                    }
                    sleep(EXIT_REPORT_TIMEOUT).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            exit = self.container_exit() => exit.description(),
            () = gone => "its process has ended; the container daemon does not report its exit code".to_owned(),
        }
    }

    /// Sends a signal through the daemon, or directly if the daemon does not answer.
    async fn signal(&self, signal: Signal) -> Result<(), String> {
        let name = match signal {
            Signal::KILL => "SIGKILL",
            _ => "SIGTERM",
        };
        self.hints.note_signal();
        let options = KillContainerOptions {
            signal: name.to_owned(),
        };
        let request = self.docker.kill_container(&self.container.id, Some(options));
        let reason = match timeout(SIGNAL_TIMEOUT, request).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if is_not_running_error(&error) => return Ok(()),
            Ok(Err(error)) => error_text(&error),
            Err(_) => format!("no response within {} s", SIGNAL_TIMEOUT.as_secs()),
        };
        let reason = format!("the container daemon at {}: {reason}", self.container.address);
        match &self.container.first_process {
            Some(first) => first
                .signal(signal)
                .map_err(|error| format!("{reason}; its process {}: {error}", first.pid())),
            None => Err(reason),
        }
    }
}

/// Whether a signal failed because the container has ended.
fn is_not_running_error(error: &Error) -> bool {
    let is_not_running = |message: &str| message.contains("is not running");
    is_not_found(error)
        || matches!(error, Error::DockerResponseServerError { message, .. } if is_not_running(message))
}

async fn inspect_state(docker: &Docker, id: &str) -> Option<ContainerState> {
    let response = docker.inspect_container(id, None::<InspectContainerOptions>);
    response.await.ok()?.state
}
