//! Containers of this run that could not be removed because the daemon did not answer. Removal is tried again
//! before the next start and at the end of the run. Create requests that the caller stopped waiting for are
//! included.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::engine::docker::client::Daemon;
use crate::engine::docker::first_process::FirstProcess;
use crate::engine::docker::host::Address;
use crate::engine::docker::removal::remove;

/// Interval at which pending requests are checked.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(super) struct Orphan {
    pub(super) address: Address,
    pub(super) id: String,
    pub(super) name: String,
    /// Its first process, if it is on this host and the daemon reported it.
    pub(super) first: Option<FirstProcess>,
    pub(super) has_ended: bool,
    pub(super) reason: String,
}

/// A create request that the daemon has not answered.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) address: Address,
    pub(super) name: String,
    pub(super) asking: JoinHandle<()>,
}

/// An orphan as the user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// The container's name, with the pid of its first process if that runs.
    pub what: String,
    pub may_run: bool,
    pub reason: String,
    /// The command that removes it.
    pub help: String,
}

#[derive(Debug, Default)]
pub(crate) struct Orphans {
    all: Mutex<Vec<Orphan>>,
    /// The task of each request removes its container once the daemon has answered.
    requests: Mutex<Vec<Request>>,
    /// Held during removal, so that concurrent callers wait for its result.
    removing: tokio::sync::Mutex<()>,
}

impl Orphans {
    pub(super) fn add(&self, orphan: Orphan) {
        locked(&self.all).push(orphan);
    }

    pub(super) fn add_request(&self, request: Request) {
        locked(&self.requests).push(request);
    }

    /// Tries again to remove every orphan, for at most `patience` each, and returns those that remain.
    pub(crate) async fn remove(&self, patience: Duration) -> Vec<Remaining> {
        let _removing = self.removing.lock().await;
        let mut remaining = self.answered(patience).await;
        // They stay listed until they are gone, because the caller may drop this future.
        let orphans = locked(&self.all).clone();
        for mut orphan in orphans {
            match orphan.remove(patience).await {
                Ok(()) => locked(&self.all).retain(|other| other.id != orphan.id),
                Err(reason) => {
                    orphan.reason = reason;
                    remaining.push(orphan.words());
                }
            }
        }
        remaining
    }

    /// Waits for the answers to the pending requests, and returns those without one.
    async fn answered(&self, patience: Duration) -> Vec<Remaining> {
        let deadline = Instant::now() + patience;
        loop {
            let words: Vec<Remaining> = {
                let mut requests = locked(&self.requests);
                requests.retain(|request| !request.asking.is_finished());
                requests.iter().map(Request::words).collect()
            };
            if words.is_empty() || Instant::now() >= deadline {
                return words;
            }
            sleep(LOOK).await;
        }
    }
}

fn locked<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Request {
    fn words(&self) -> Remaining {
        Remaining {
            what: format!("container {}", self.name),
            // The container is created but not started.
            may_run: false,
            reason: format!(
                "the container daemon at {} was asked for it and has not answered",
                self.address
            ),
            help: format!("docker rm -f {}", self.name),
        }
    }
}

impl Orphan {
    fn may_run(&self) -> bool {
        !self.has_ended && self.first.as_ref().is_none_or(FirstProcess::is_alive)
    }

    async fn remove(&self, patience: Duration) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        if let Some(first) = &self.first {
            // The removal below shows whether it worked.
            let _ = first.signal(Signal::KILL);
        }
        let daemon = timeout(patience, Daemon::at(self.address.clone())).await;
        match daemon {
            Ok(Ok(daemon)) => remove(&daemon.docker, &self.id, deadline).await,
            Ok(Err(refused)) => Err(refused.what()),
            Err(_) => Err(format!(
                "the container daemon at {} does not answer",
                self.address
            )),
        }
    }

    fn words(&self) -> Remaining {
        let may_run = self.may_run();
        let pid = self.first.as_ref().filter(|_| may_run);
        let pid = pid.map_or_else(String::new, |first| format!(" (pid {})", first.pid()));
        Remaining {
            what: format!("container {}{pid}", self.name),
            may_run,
            reason: self.reason.clone(),
            help: format!("docker rm -f {}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphan(has_ended: bool) -> Orphan {
        Orphan {
            address: Address::Unix("/no/such.sock".to_owned()),
            id: "f".repeat(64),
            name: "matrix-x".to_owned(),
            first: None,
            has_ended,
            reason: String::new(),
        }
    }

    #[tokio::test]
    async fn an_orphan_stays_until_a_daemon_says_that_it_is_gone() {
        let orphans = Orphans::default();
        orphans.add(orphan(false));
        orphans.add(orphan(true));
        for _ in 0..2 {
            let remaining = orphans.remove(Duration::from_millis(50)).await;
            let may_run: Vec<bool> = remaining.iter().map(|orphan| orphan.may_run).collect();
            assert_eq!(may_run, [true, false], "{remaining:?}");
            assert!(remaining[0].reason.contains("/no/such.sock"), "{remaining:?}");
            assert_eq!(remaining[0].help, "docker rm -f matrix-x");
        }
    }
}
