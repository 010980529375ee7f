//! Follows a container: its log, from the first byte into the run's log, and its life, until it ended.

use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerState;
use bollard::query_parameters::{InspectContainerOptions, LogsOptions, WaitContainerOptions};
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::watch::{self, Receiver};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::engine::docker::daemon::{is_missing, words};
use crate::engine::docker::inquest;
use crate::engine::{Ended, Omen};
use crate::matrix::plan::{Blame, DeadSign};
use crate::results::record::cell::FailureClass;
use crate::results::record::post_mortem::End;

/// The pause before a daemon that did not answer is asked again.
const AGAIN: Duration = Duration::from_millis(300);

/// How long a daemon may be away, as when it restarts, until its containers are taken for dead.
const AWAY: Duration = Duration::from_secs(30);

/// What is known of a container's life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    /// It lives, as far as the daemon was heard.
    #[default]
    Lives,
    /// The daemon is not heard, so nobody knows.
    Unheard,
    /// It ended.
    Ended(Exit),
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    code: Option<i64>,
    is_out_of_memory: bool,
    /// What the daemon or we have to say about it.
    note: String,
    /// Whether somebody else than the engine ended it.
    is_foreign: bool,
}

impl Exit {
    /// An end that only the host or a stranger can have brought.
    pub(super) fn foreign(note: impl Into<String>) -> Self {
        Self {
            code: None,
            is_out_of_memory: false,
            note: note.into(),
            is_foreign: true,
        }
    }

    /// The same, brought by somebody else.
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
        }
    }

    /// Such as `exit code 137: killed, out of memory`.
    pub(super) fn words(&self) -> String {
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

    /// The end as an engine's.
    pub(super) fn ended(&self) -> Ended {
        Ended {
            how: self.words(),
            omen: self.omen(),
            end: End {
                code: self.code,
                signal: None,
                out_of_memory: self.code.is_some().then_some(self.is_out_of_memory),
            },
            blame: self.is_foreign.then_some(FailureClass::Infrastructure),
        }
    }

    /// What explains it, where the daemon knows.
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

/// Begins to follow a container that was started. It never removes itself, so even one that has ended already tells how.
pub(super) fn follow(docker: &Docker, id: &str, log: Sender) -> (JoinSet<()>, Receiver<Life>) {
    let (told, life) = watch::channel(Life::Lives);
    let mut following = JoinSet::new();
    let (reader, reading) = (docker.clone(), id.to_owned());
    following.spawn(async move { copy(&reader, &reading, log).await });
    let (watcher, watched) = (docker.clone(), id.to_owned());
    following.spawn(async move {
        let exit = end(&watcher, &watched, &told).await;
        told.send_replace(Life::Ended(exit));
    });
    (following, life)
}

/// Waits until a container has ended, and tells meanwhile whether the daemon is heard.
async fn end(docker: &Docker, id: &str, told: &watch::Sender<Life>) -> Exit {
    let mut heard = Instant::now();
    let mut was_away = false;
    loop {
        let options = WaitContainerOptions {
            condition: "not-running".to_owned(),
        };
        let mut waiting = Box::pin(docker.wait_container(id, Some(options)));
        let code = match waiting.next().await {
            Some(Ok(answer)) => Some(answer.status_code),
            // An exit with another code than 0 comes as an error.
            Some(Err(Error::DockerContainerWaitError { code, .. })) => Some(code),
            Some(Err(error)) if is_missing(&error) => return Exit::foreign("somebody removed the container"),
            // The daemon went away, or says what cannot be read: only the state tells.
            Some(Err(_)) | None => {
                was_away = true;
                told.send_replace(Life::Unheard);
                None
            }
        };
        match docker
            .inspect_container(id, None::<InspectContainerOptions>)
            .await
        {
            Ok(seen) => {
                heard = Instant::now();
                let state = seen.state.unwrap_or_default();
                if state.running != Some(true) {
                    return judged(docker, id, Exit::of(&state), was_away).await;
                }
                was_away = false;
                told.send_replace(Life::Lives);
            }
            Err(error) if is_missing(&error) => {
                let gone = Exit::foreign("somebody removed the container");
                return Exit { code, ..gone };
            }
            Err(error) if heard.elapsed() >= AWAY => {
                return Exit::foreign(format!("the container daemon went away: {}", words(&error)));
            }
            Err(_) => {}
        }
        sleep(AGAIN).await;
    }
}

/// The exit with whoever brought it, where that was not the engine or its memory.
async fn judged(docker: &Docker, id: &str, exit: Exit, was_away: bool) -> Exit {
    // A daemon that goes ends what it has started.
    if was_away {
        return exit.by("the container daemon broke off meanwhile");
    }
    let by_signal = exit.code.is_none_or(|code| code == 0 || code > 128);
    if exit.is_out_of_memory || !by_signal {
        return exit;
    }
    match inquest::signals(docker, id).await {
        Some(stranger) => exit.by(&stranger),
        None => exit,
    }
}

/// Copies what a container says, both streams, until it has ended.
async fn copy(docker: &Docker, id: &str, mut log: Sender) {
    let mut tail = "all";
    loop {
        let options = LogsOptions {
            follow: true,
            stdout: true,
            stderr: true,
            tail: tail.to_owned(),
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
        let note = format!("\n[matrix: the container's log broke off: {reason}]\n");
        if log.write_all(note.as_bytes()).await.is_err() {
            return;
        }
        sleep(AGAIN).await;
        match docker
            .inspect_container(id, None::<InspectContainerOptions>)
            .await
        {
            Ok(seen) if seen.state.as_ref().and_then(|state| state.running) == Some(true) => tail = "0",
            _ => return,
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
        assert!(killed.how.ends_with(": somebody ended it"), "{}", killed.how);
        let killed = Exit::of(&state(137, false, "")).words();
        assert!(killed.contains("SIGKILL"), "{killed}");
        assert!(
            Exit::of(&state(128, false, "no gpu"))
                .words()
                .ends_with(": no gpu")
        );
    }
}
