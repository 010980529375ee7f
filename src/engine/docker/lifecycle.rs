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
use crate::engine::docker::first_process::FirstProcess;
use crate::engine::docker::kill_events;
use crate::engine::docker::refused::{is_missing, words};
use crate::engine::executor::Ended;
use crate::engine::log::Omen;
use crate::plan::{Blame, DeadSign};
use crate::results::record::cell::FailureClass;
use crate::results::record::post_mortem::End;

/// Pause before a daemon that did not answer is asked again.
const AGAIN: Duration = Duration::from_millis(300);

/// How long the daemon may be unreachable, for example during a restart, before a container without other
/// signs of life is given up.
const AWAY: Duration = Duration::from_secs(30);

/// Known state of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    /// It ran when the daemon last answered.
    #[default]
    Lives,
    /// The daemon does not answer, so the state is unknown.
    Unheard,
    Ended(Exit),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    code: Option<i64>,
    is_out_of_memory: bool,
    /// Message of the daemon or of `matrix`.
    note: String,
    /// Whether something other than the engine ended it.
    is_foreign: bool,
    fate: Fate,
}

/// Final state of a container that can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Ended,
    /// It may still run, but its state is unknown.
    Lost,
    Paused,
}

/// What the rest of `matrix` observes about a container, shared with the task that watches it.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// Last time that the engine sent part of an answer.
    moved: Mutex<Option<Instant>>,
    /// Wakes the watcher when no answer makes progress.
    suspicion: Notify,
    is_ending: AtomicBool,
    /// Periods in which the daemon did not answer and after which the container still ran.
    unheard: Mutex<Vec<Duration>>,
}

impl Signs {
    /// Records that the engine sent part of an answer.
    pub(super) fn moves(&self) {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Makes the watcher ask the daemon why there is no progress.
    pub(super) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Records that `matrix` is about to send a signal.
    pub(super) fn ends(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Takes the periods in which the state of the container was unknown.
    pub(super) fn take_unheard(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.unheard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_moved_within(&self, limit: Duration) -> bool {
        let moved = *self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        moved.is_some_and(|moved| moved.elapsed() < limit)
    }
}

impl Exit {
    /// An exit that the engine cannot have caused.
    pub(super) fn foreign(note: impl Into<String>) -> Self {
        Self {
            code: None,
            is_out_of_memory: false,
            note: note.into(),
            is_foreign: true,
            fate: Fate::Ended,
        }
    }

    /// The state of the container is permanently unknown.
    fn lost(note: String) -> Self {
        Self {
            fate: Fate::Lost,
            ..Self::foreign(note)
        }
    }

    fn paused(id: &str) -> Self {
        let short: String = id.chars().take(12).collect();
        Self {
            fate: Fate::Paused,
            ..Self::foreign(format!(
                "somebody paused the container (`docker unpause {short}` lets it go on)"
            ))
        }
    }

    /// Whether the container has certainly ended.
    pub(super) fn is_over(&self) -> bool {
        self.fate == Fate::Ended
    }

    /// Attributes the exit to something other than the engine.
    fn by(mut self, stranger: &str) -> Self {
        let note = std::mem::take(&mut self.note);
        self.note = match note.is_empty() {
            true => stranger.to_owned(),
            false => format!("{note}; {stranger}"),
        };
        self.is_foreign = true;
        self
    }

    fn of(state: &ContainerState) -> Self {
        Self {
            code: state.exit_code,
            is_out_of_memory: state.oom_killed == Some(true),
            note: state.error.clone().unwrap_or_default(),
            is_foreign: false,
            fate: Fate::Ended,
        }
    }

    /// Description such as `exit code 137: killed by the kernel, out of memory`.
    pub(super) fn words(&self) -> String {
        if self.fate != Fate::Ended {
            return self.note.clone();
        }
        let mut text = match self.code {
            Some(code) => format!("exit code {code}"),
            None => "no exit code".to_owned(),
        };
        match self.code {
            _ if self.is_out_of_memory => text.push_str(": killed by the kernel, out of memory"),
            Some(137) => text.push_str(": killed by SIGKILL"),
            Some(143) => text.push_str(": ended by SIGTERM"),
            Some(139) => text.push_str(": segmentation fault"),
            _ => {}
        }
        if !self.note.is_empty() {
            text.push_str(": ");
            text.push_str(&self.note);
        }
        text
    }

    pub(super) fn ended(&self) -> Ended {
        let words = self.words();
        Ended {
            how: match self.fate {
                Fate::Ended => format!("ended ({words})"),
                Fate::Lost => format!("was lost sight of ({words})"),
                Fate::Paused => format!("stands still ({words})"),
            },
            omen: self.omen(),
            end: End {
                code: self.code,
                signal: None,
                out_of_memory: self.code.is_some().then_some(self.is_out_of_memory),
            },
            blame: self.is_foreign.then_some(FailureClass::Infrastructure),
        }
    }

    /// The cause, if the daemon reports one.
    fn omen(&self) -> Option<Omen> {
        self.is_out_of_memory.then(|| Omen {
            sign: DeadSign {
                pattern: String::new(),
                means: "the kernel killed it for want of memory".to_owned(),
                help: "give the host or the container more memory, or lower what the engine takes".to_owned(),
                fatal: false,
                blame: Blame::Capacity,
            },
            line: "State.OOMKilled: true".to_owned(),
        })
    }
}

pub(super) struct Watched {
    pub(super) docker: Docker,
    pub(super) id: String,
    /// Start time as the daemon writes it; a different value means that the container was started again.
    pub(super) started_at: Option<String>,
    pub(super) first: Option<FirstProcess>,
    pub(super) signs: Arc<Signs>,
}

/// Starts tasks that copy the log and watch the container. Containers do not remove themselves, so this also
/// works for one that has already ended.
pub(super) fn follow(watched: Watched, log: Sender) -> (JoinSet<()>, Receiver<Life>) {
    let (told, life) = watch::channel(Life::Lives);
    let mut following = JoinSet::new();
    let (reader, reading) = (watched.docker.clone(), watched.id.clone());
    following.spawn(async move { copy(&reader, &reading, log).await });
    following.spawn(async move {
        let exit = watched.end(&told).await;
        told.send_replace(Life::Ended(exit));
    });
    (following, life)
}

impl Watched {
    /// Waits for the exit, and publishes meanwhile whether the daemon answers.
    async fn end(mut self, told: &watch::Sender<Life>) -> Exit {
        let mut heard = Instant::now();
        let mut was_away = false;
        loop {
            // After a failed answer the state is inspected before the next wait.
            let answer = match was_away {
                true => Answer::Unreadable,
                false => self.next_end().await,
            };
            let code = match answer {
                Answer::Ended(code) => Some(code),
                Answer::Paused => return Exit::paused(&self.id),
                Answer::Missing => return Exit::foreign("somebody removed the container"),
                // The daemon is gone or sent an unreadable answer; only the state helps.
                Answer::Unreadable => {
                    was_away = true;
                    told.send_replace(Life::Unheard);
                    None
                }
            };
            match self.inspect().await {
                Ok(state) if state.running != Some(true) => {
                    return self.judged(Exit::of(&state), was_away).await;
                }
                // A container that exited and runs is being restarted by the daemon, possibly before
                // `started_at` changes.
                Ok(state) if code.is_some() || self.was_started_again(&state) => {
                    let again = Exit {
                        code,
                        note: "and was started again in place".to_owned(),
                        is_foreign: false,
                        is_out_of_memory: false,
                        fate: Fate::Ended,
                    };
                    return self.judged(again, was_away).await;
                }
                Ok(_) => {
                    if was_away {
                        let mut unheard = self.signs.unheard.lock().unwrap_or_else(PoisonError::into_inner);
                        unheard.push(heard.elapsed());
                    }
                    heard = Instant::now();
                    was_away = false;
                    told.send_replace(Life::Lives);
                }
                Err(error) if is_missing(&error) => {
                    let gone = Exit::foreign("somebody removed the container");
                    return Exit { code, ..gone };
                }
                Err(error) if heard.elapsed() >= AWAY => {
                    if let Some(exit) = self.given_up(&words(&error)) {
                        return exit;
                    }
                }
                Err(_) => {}
            }
            sleep(AGAIN).await;
        }
    }

    /// Waits for the daemon to report a change of the container's state.
    async fn next_end(&self) -> Answer {
        let options = WaitContainerOptions {
            condition: "not-running".to_owned(),
        };
        let mut waiting = Box::pin(self.docker.wait_container(&self.id, Some(options)));
        loop {
            let answer = tokio::select! {
                answer = waiting.next() => answer,
                () = self.signs.suspicion.notified() => match self.inspect().await {
                    Ok(state) if state.paused == Some(true) => return Answer::Paused,
                    Ok(_) | Err(_) => continue,
                },
            };
            return match answer {
                Some(Ok(answer)) if answer.status_code >= 0 => Answer::Ended(answer.status_code),
                // bollard returns an exit code other than 0 as an error.
                Some(Err(Error::DockerContainerWaitError { code, .. })) if code >= 0 => Answer::Ended(code),
                Some(Err(error)) if is_missing(&error) => Answer::Missing,
                Some(Ok(_) | Err(_)) | None => Answer::Unreadable,
            };
        }
    }

    async fn inspect(&self) -> Result<ContainerState, Error> {
        let seen = self
            .docker
            .inspect_container(&self.id, None::<InspectContainerOptions>);
        Ok(seen.await?.state.unwrap_or_default())
    }

    /// Whether the container was started again. If no start time is known yet, the first one is taken.
    fn was_started_again(&mut self, state: &ContainerState) -> bool {
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
    fn given_up(&self, reason: &str) -> Option<Exit> {
        match &self.first {
            Some(first) if first.is_alive() => None,
            Some(_) => Some(Exit::foreign(format!(
                "its process ended while the container daemon was away: {reason}"
            ))),
            None if self.signs.has_moved_within(AWAY) => None,
            None => Some(Exit::lost(format!("the container daemon went away: {reason}"))),
        }
    }

    /// Adds who caused the exit, if that was neither the engine nor a lack of memory.
    async fn judged(&self, exit: Exit, was_away: bool) -> Exit {
        // A daemon that stops ends its containers.
        if was_away {
            return exit.by("the container daemon broke off meanwhile");
        }
        let by_signal = exit.code.is_none_or(|code| code == 0 || code > 128);
        // An exit that `matrix` caused itself needs no explanation.
        if exit.is_out_of_memory || !by_signal || self.signs.is_ending.load(Ordering::Relaxed) {
            return exit;
        }
        match kill_events::signals(&self.docker, &self.id).await {
            Some(stranger) => exit.by(&stranger),
            None => exit,
        }
    }
}

/// What the daemon reports about a container.
enum Answer {
    Ended(i64),
    Paused,
    Missing,
    Unreadable,
}

/// Copies both output streams of a container until it has ended.
async fn copy(docker: &Docker, id: &str, mut log: Sender) {
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
        while let Some(said) = lines.next().await {
            match said {
                Ok(said) => {
                    if log.write_all(&said.into_bytes()).await.is_err() {
                        return;
                    }
                }
                Err(error) => broken = Some(words(&error)),
            }
        }
        let Some(reason) = broken else {
            return;
        };
        // The next request asks for the output from now on, including what is written while the daemon is
        // unreachable.
        since = clock::unix_seconds() as i32;
        let note = format!("\n[matrix: the container's log broke off: {reason}]\n");
        if log.write_all(note.as_bytes()).await.is_err() {
            return;
        }
        if !is_there(docker, id).await {
            return;
        }
    }
}

/// Waits until the daemon says whether a container still exists.
async fn is_there(docker: &Docker, id: &str) -> bool {
    loop {
        sleep(AGAIN).await;
        let seen = docker.inspect_container(id, None::<InspectContainerOptions>);
        match seen.await {
            Ok(_) => return true,
            Err(error) if is_missing(&error) => return false,
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_says_its_code_and_whose_fault_it_is() {
        let state = |code, oom, error: &str| ContainerState {
            exit_code: Some(code),
            oom_killed: Some(oom),
            error: Some(error.to_owned()),
            ..ContainerState::default()
        };
        assert_eq!(Exit::of(&state(3, false, "")).words(), "exit code 3");
        let oom = Exit::of(&state(137, true, ""));
        assert!(oom.words().contains("out of memory"));
        assert_eq!(oom.ended().class(), FailureClass::Capacity);
        assert_eq!(oom.ended().end.out_of_memory, Some(true));
        assert_eq!(
            Exit::of(&state(1, false, "")).ended().class(),
            FailureClass::Engine
        );
        let gone = Exit::foreign("somebody removed the container").ended();
        assert_eq!(gone.class(), FailureClass::Infrastructure);
        assert_eq!(gone.end.out_of_memory, None);
        let killed = Exit::of(&state(137, false, "")).by("somebody ended it").ended();
        assert_eq!(killed.class(), FailureClass::Infrastructure);
        assert!(killed.how.ends_with(": somebody ended it)"), "{}", killed.how);
        let killed = Exit::of(&state(137, false, "")).words();
        assert!(killed.contains("SIGKILL"), "{killed}");
        assert!(
            Exit::of(&state(128, false, "no gpu"))
                .words()
                .ends_with(": no gpu")
        );
    }
}
