//! A container that runs an engine: how it is observed, signalled and removed.

use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::query_parameters::KillContainerOptions;
use futures_util::future::BoxFuture;
use rustix::process::Signal;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::base::units::HumanDuration;
use crate::engine::docker::container_exit::ContainerExit;
use crate::engine::docker::creation::CreatedContainer;
use crate::engine::docker::docker_error::{error_text, is_not_found};
use crate::engine::docker::first_process::FirstProcess;
use crate::engine::docker::image::LocalImage;
use crate::engine::docker::lifecycle::{Liveness, LivenessHints};
use crate::engine::docker::removal::{REMOVE_TIMEOUT, remove};
use crate::engine::endpoint::Endpoint;
use crate::engine::executor::control::{AllowedListeners, Executor, ExitCause};
use crate::engine::log::Log;
use crate::engine::start_record::StartRecord;

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
    pub(super) docker: Docker,
    pub(super) container: CreatedContainer,
    pub(super) grace: Duration,
    pub(super) image: LocalImage,
    pub(super) liveness: Receiver<Liveness>,
    pub(super) hints: Arc<LivenessHints>,
    /// Until when `exited` waits for the rest of the log; set at the first call after the exit.
    pub(super) log_drain_deadline: Option<Instant>,
    /// The record of its shared memory, if it shares the host's.
    pub(super) record: Option<StartRecord>,
    /// Whether the daemon publishes its port; otherwise it uses the host's network.
    pub(super) publishes_port: bool,
    /// Tasks that follow log and state; they end when this is dropped.
    pub(super) _watch_tasks: JoinSet<()>,
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
            Ok(_) | Err(_) => ContainerExit::external("`matrix` no longer watches the container"),
        }
    }

    async fn stop_and_remove(mut self, log: &Log) -> String {
        let before = self.liveness.borrow().clone();
        let (description, has_ended) = match before {
            Liveness::Exited(exit) => (
                format!("the container had already ended ({})", exit.description()),
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
        let grace = HumanDuration(self.grace);
        let sent = self.signal(Signal::TERM).await;
        if sent.is_ok()
            && let Ok(words) = timeout(self.grace, self.exit_description()).await
        {
            return (
                format!("the container ended after SIGTERM from `matrix` ({words})"),
                true,
            );
        }
        if let Err(reason) = self.signal(Signal::KILL).await {
            return (
                format!("no signal could be sent to the container: {reason}"),
                false,
            );
        }
        match timeout(KILL_TIMEOUT, self.exit_description()).await {
            Ok(words) => (
                format!("the container was killed after a grace period of {grace} ({words})"),
                true,
            ),
            Err(_) => (
                format!("SIGKILL was sent after a grace period of {grace}, but the container has not ended"),
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
            () = gone => "the container has ended, but the container daemon does not report the exit code".to_owned(),
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
        let reason = format!(
            "the request to the container daemon at {} failed: {reason}",
            self.container.address
        );
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
