//! Containers of this run that could not be removed when they were to go, because the daemon did not answer. They are tried again before
//! anything else is started, and at the end. Requests for a container that nobody waits for any more are among them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::engine::docker::client::Daemon;
use crate::engine::docker::first_process::FirstProcess;
use crate::engine::docker::host::Address;
use crate::engine::docker::removal::remove;

/// How often it is looked whether the daemon has answered.
const LOOK: Duration = Duration::from_millis(20);

/// A container of ours that is not known to be gone.
#[derive(Clone, Debug)]
pub(super) struct Orphan {
    pub(super) address: Address,
    pub(super) id: String,
    pub(super) name: String,
    /// Its first process, where that is of this host and was told.
    pub(super) first: Option<FirstProcess>,
    /// Whether it was seen to end.
    pub(super) has_ended: bool,
    /// Why it could not be removed.
    pub(super) reason: String,
}

/// A request for a container that the daemon has not answered.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) address: Address,
    pub(super) name: String,
    pub(super) asking: JoinHandle<()>,
}

/// What is said of an orphan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// Its name, with its first process where that runs.
    pub what: String,
    /// Whether its engine may still run.
    pub may_run: bool,
    /// Why it could not be removed.
    pub reason: String,
    /// The command that removes it.
    pub help: String,
}

/// The orphans of a run.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    all: Mutex<Vec<Orphan>>,
    /// Removed by whoever asked, once the daemon has answered.
    requests: Mutex<Vec<Request>>,
    /// Whoever removes them holds it, so that nobody meanwhile takes them for gone.
    removing: tokio::sync::Mutex<()>,
}

impl Orphans {
    pub(super) fn add(&self, orphan: Orphan) {
        locked(&self.all).push(orphan);
    }

    pub(super) fn add_request(&self, request: Request) {
        locked(&self.requests).push(request);
    }

    /// Tries again to remove every orphan, for `patience` each, and says which ones are still there.
    pub(crate) async fn remove(&self, patience: Duration) -> Vec<Remaining> {
        let _removing = self.removing.lock().await;
        let mut remaining = self.answered(patience).await;
        // They stay listed until they are gone: whoever asks may stop waiting.
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

    /// Waits until the daemon has answered the requests, and says which it has not.
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
            // It is created and not started.
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
            // Whether it is gone is looked at below.
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
