//! Follows a container: copies its log into the run's log, and waits for its exit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerState;
use bollard::query_parameters::{InspectContainerOptions, LogsOptions, WaitContainerOptions};
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::Notify;
use tokio::sync::watch::{self, Receiver};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::base::clock;
use crate::engine::docker::container_exit::{ContainerExit, ExitKind};
use crate::engine::docker::docker_error::{error_text, is_not_found};
use crate::engine::docker::first_process::FirstProcess;
use crate::engine::docker::kill_events;

/// Pause before a daemon that did not answer is asked again.
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// How long the daemon may be unreachable, for example during a restart, before a container without other
/// signs of life is given up.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(30);

/// Known state of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Liveness {
    /// It ran when the daemon last answered.
    #[default]
    Alive,
    /// The daemon does not answer, so the state is unknown.
    Unknown,
    Exited(ContainerExit),
}

/// What the rest of `matrix` observes about a container, shared with the task that watches it.
#[derive(Debug, Default)]
pub(super) struct LivenessHints {
    /// Last time that the engine sent part of an answer.
    last_activity: Mutex<Option<Instant>>,
    /// Wakes the watcher when no answer makes progress.
    check_requested: Notify,
    is_signalled: AtomicBool,
    /// Periods in which the daemon did not answer and after which the container still ran.
    unknown_periods: Mutex<Vec<Duration>>,
}

impl LivenessHints {
    /// Records that the engine sent part of an answer.
    pub(super) fn note_activity(&self) {
        *self.last_activity.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Makes the watcher ask the daemon why there is no progress.
    pub(super) fn request_check(&self) {
        self.check_requested.notify_one();
    }

    /// Records that `matrix` is about to send a signal.
    pub(super) fn note_signal(&self) {
        self.is_signalled.store(true, Ordering::Relaxed);
    }

    /// Takes the periods in which the state of the container was unknown.
    pub(super) fn take_unknown_periods(&self) -> Vec<Duration> {
        std::mem::take(
            &mut *self
                .unknown_periods
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn was_active_within(&self, limit: Duration) -> bool {
        let moved = *self.last_activity.lock().unwrap_or_else(PoisonError::into_inner);
        moved.is_some_and(|moved| moved.elapsed() < limit)
    }
}

pub(super) struct WatchedContainer {
    pub(super) docker: Docker,
    pub(super) id: String,
    /// Start time as the daemon writes it; a different value means that the container was started again.
    pub(super) started_at: Option<String>,
    pub(super) first_process: Option<FirstProcess>,
    pub(super) hints: Arc<LivenessHints>,
}

/// Starts tasks that copy the log and watch the container. Containers do not remove themselves, so this also
/// works for one that has already ended.
pub(super) fn watch_container(watched: WatchedContainer, log: Sender) -> (JoinSet<()>, Receiver<Liveness>) {
    let (liveness_sender, liveness) = watch::channel(Liveness::Alive);
    let mut following = JoinSet::new();
    let (reader, reading) = (watched.docker.clone(), watched.id.clone());
    following.spawn(async move { copy_log(&reader, &reading, log).await });
    following.spawn(async move {
        let exit = watched.wait_for_exit(&liveness_sender).await;
        liveness_sender.send_replace(Liveness::Exited(exit));
    });
    (following, liveness)
}

impl WatchedContainer {
    /// Waits for the exit, and publishes meanwhile whether the daemon answers.
    async fn wait_for_exit(mut self, liveness_sender: &watch::Sender<Liveness>) -> ContainerExit {
        let mut last_heard = Instant::now();
        let mut was_away = false;
        loop {
            // After a failed answer the state is inspected before the next wait.
            let answer = match was_away {
                true => DaemonEvent::Unreadable,
                false => self.next_event().await,
            };
            let code = match answer {
                DaemonEvent::Ended(code) => Some(code),
                DaemonEvent::Paused => return ContainerExit::paused(&self.id),
                DaemonEvent::Missing => {
                    return ContainerExit::external("another program removed the container");
                }
                // The daemon is gone or sent an unreadable answer; only the state helps.
                DaemonEvent::Unreadable => {
                    was_away = true;
                    liveness_sender.send_replace(Liveness::Unknown);
                    None
                }
            };
            match self.inspect().await {
                Ok(state) if state.running != Some(true) => {
                    return self
                        .attribute_exit(ContainerExit::from_state(&state), was_away)
                        .await;
                }
                // A container that exited and runs is being restarted by the daemon, possibly before
                // `started_at` changes.
                Ok(state) if code.is_some() || self.was_restarted(&state) => {
                    let restarted = ContainerExit {
                        code,
                        note: "the daemon restarted the container".to_owned(),
                        is_external: false,
                        is_out_of_memory: false,
                        kind: ExitKind::Exited,
                    };
                    return self.attribute_exit(restarted, was_away).await;
                }
                Ok(_) => {
                    if was_away {
                        let mut unheard = self
                            .hints
                            .unknown_periods
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner);
                        unheard.push(last_heard.elapsed());
                    }
                    last_heard = Instant::now();
                    was_away = false;
                    liveness_sender.send_replace(Liveness::Alive);
                }
                Err(error) if is_not_found(&error) => {
                    let removed = ContainerExit::external("another program removed the container");
                    return ContainerExit { code, ..removed };
                }
                Err(error) if last_heard.elapsed() >= DAEMON_TIMEOUT => {
                    if let Some(exit) = self.assumed_exit(&error_text(&error)) {
                        return exit;
                    }
                }
                Err(_) => {}
            }
            sleep(RETRY_DELAY).await;
        }
    }

    /// Waits for the daemon to report a change of the container's state.
    async fn next_event(&self) -> DaemonEvent {
        let options = WaitContainerOptions {
            condition: "not-running".to_owned(),
        };
        let mut waiting = Box::pin(self.docker.wait_container(&self.id, Some(options)));
        loop {
            let answer = tokio::select! {
                answer = waiting.next() => answer,
                () = self.hints.check_requested.notified() => match self.inspect().await {
                    Ok(state) if state.paused == Some(true) => return DaemonEvent::Paused,
                    Ok(_) | Err(_) => continue,
                },
            };
            return match answer {
                Some(Ok(answer)) if answer.status_code >= 0 => DaemonEvent::Ended(answer.status_code),
                // bollard returns an exit code other than 0 as an error.
                Some(Err(Error::DockerContainerWaitError { code, .. })) if code >= 0 => {
                    DaemonEvent::Ended(code)
                }
                Some(Err(error)) if is_not_found(&error) => DaemonEvent::Missing,
                Some(Ok(_) | Err(_)) | None => DaemonEvent::Unreadable,
            };
        }
    }

    async fn inspect(&self) -> Result<ContainerState, Error> {
        let response = self
            .docker
            .inspect_container(&self.id, None::<InspectContainerOptions>);
        Ok(response.await?.state.unwrap_or_default())
    }

    /// Whether the container was started again. If no start time is known yet, the first one is taken.
    fn was_restarted(&mut self, state: &ContainerState) -> bool {
        match (&self.started_at, &state.started_at) {
            (Some(first), Some(now)) => first != now,
            (None, now) => {
                self.started_at.clone_from(now);
                false
            }
            (Some(_), None) => false,
        }
    }

    /// The exit to assume if the daemon has been unreachable for long; `None` if the container is seen to
    /// run.
    fn assumed_exit(&self, reason: &str) -> Option<ContainerExit> {
        match &self.first_process {
            Some(first) if first.is_alive() => None,
            Some(_) => Some(ContainerExit::external(format!(
                "the container ended while the container daemon was unreachable: {reason}"
            ))),
            None if self.hints.was_active_within(DAEMON_TIMEOUT) => None,
            None => Some(ContainerExit::unknown(format!(
                "the container daemon became unreachable: {reason}"
            ))),
        }
    }

    /// Adds who caused the exit, if that was neither the engine nor a lack of memory.
    async fn attribute_exit(&self, exit: ContainerExit, was_away: bool) -> ContainerExit {
        // A daemon that stops ends its containers.
        if was_away {
            return exit.caused_by("the container daemon was unreachable when the container ended");
        }
        let by_signal = exit.code.is_none_or(|code| code == 0 || code > 128);
        // An exit that `matrix` caused itself needs no explanation.
        if exit.is_out_of_memory || !by_signal || self.hints.is_signalled.load(Ordering::Relaxed) {
            return exit;
        }
        match kill_events::recent_signals(&self.docker, &self.id).await {
            Some(stranger) => exit.caused_by(&stranger),
            None => exit,
        }
    }
}

/// What the daemon reports about a container.
enum DaemonEvent {
    Ended(i64),
    Paused,
    Missing,
    Unreadable,
}

/// Copies both output streams of a container until it has ended.
async fn copy_log(docker: &Docker, id: &str, mut log: Sender) {
    let mut since = 0;
    loop {
        let options = LogsOptions {
            follow: true,
            stdout: true,
            stderr: true,
            tail: "all".to_owned(),
            since,
            ..LogsOptions::default()
        };
        let mut lines = Box::pin(docker.logs(id, Some(options)));
        let mut broken = None;
        while let Some(chunk) = lines.next().await {
            match chunk {
                Ok(chunk) => {
                    if log.write_all(&chunk.into_bytes()).await.is_err() {
                        return;
                    }
                }
                Err(error) => broken = Some(error_text(&error)),
            }
        }
        let Some(reason) = broken else {
            return;
        };
        // The next request asks for the output from now on, including what is written while the daemon is
        // unreachable.
        since = clock::unix_seconds() as i32;
        let note = format!("\n[matrix: the container's log was interrupted: {reason}]\n");
        if log.write_all(note.as_bytes()).await.is_err() {
            return;
        }
        if !exists(docker, id).await {
            return;
        }
    }
}

/// Waits until the daemon says whether a container still exists.
async fn exists(docker: &Docker, id: &str) -> bool {
    loop {
        sleep(RETRY_DELAY).await;
        let response = docker.inspect_container(id, None::<InspectContainerOptions>);
        match response.await {
            Ok(_) => return true,
            Err(error) if is_not_found(&error) => return false,
            Err(_) => {}
        }
    }
}
