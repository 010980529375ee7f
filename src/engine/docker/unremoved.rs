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
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(super) struct UnremovedContainer {
    pub(super) address: Address,
    pub(super) id: String,
    pub(super) name: String,
    /// Its first process, if it is on this host and the daemon reported it.
    pub(super) first_process: Option<FirstProcess>,
    pub(super) has_ended: bool,
    pub(super) reason: String,
}

/// A create request that the daemon has not answered.
#[derive(Debug)]
pub(super) struct UnansweredRequest {
    pub(super) address: Address,
    pub(super) name: String,
    pub(super) task: JoinHandle<()>,
}

/// An orphan as the user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnremovedNotice {
    /// The container's name, with the pid of its first process if that runs.
    pub(crate) description: String,
    pub(crate) may_run: bool,
    pub(crate) reason: String,
    /// The command that removes it.
    pub(crate) help: String,
}

#[derive(Debug, Default)]
pub(crate) struct UnremovedContainers {
    containers: Mutex<Vec<UnremovedContainer>>,
    /// The task of each request removes its container once the daemon has answered.
    requests: Mutex<Vec<UnansweredRequest>>,
    /// Held during removal, so that concurrent callers wait for its result.
    removal_lock: tokio::sync::Mutex<()>,
}

impl UnremovedContainers {
    pub(super) fn add(&self, orphan: UnremovedContainer) {
        lock(&self.containers).push(orphan);
    }

    pub(super) fn add_request(&self, request: UnansweredRequest) {
        lock(&self.requests).push(request);
    }

    /// Tries again to remove every orphan, for at most `limit` each, and returns those that remain.
    pub(crate) async fn remove(&self, limit: Duration) -> Vec<UnremovedNotice> {
        let _removing = self.removal_lock.lock().await;
        let mut remaining = self.await_answers(limit).await;
        // They stay listed until they are gone, because the caller may drop this future.
        let orphans = lock(&self.containers).clone();
        for mut orphan in orphans {
            match orphan.remove(limit).await {
                Ok(()) => lock(&self.containers).retain(|other| other.id != orphan.id),
                Err(reason) => {
                    orphan.reason = reason;
                    remaining.push(orphan.notice());
                }
            }
        }
        remaining
    }

    /// Waits for the answers to the pending requests, and returns those without one.
    async fn await_answers(&self, limit: Duration) -> Vec<UnremovedNotice> {
        let deadline = Instant::now() + limit;
        loop {
            let words: Vec<UnremovedNotice> = {
                let mut requests = lock(&self.requests);
                requests.retain(|request| !request.task.is_finished());
                requests.iter().map(UnansweredRequest::notice).collect()
            };
            if words.is_empty() || Instant::now() >= deadline {
                return words;
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

fn lock<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UnansweredRequest {
    fn notice(&self) -> UnremovedNotice {
        UnremovedNotice {
            description: format!("container {}", self.name),
            // The container is created but not started.
            may_run: false,
            reason: format!(
                "the container daemon at {} has not responded to the request to create the container",
                self.address
            ),
            help: format!("docker rm -f {}", self.name),
        }
    }
}

impl UnremovedContainer {
    fn may_run(&self) -> bool {
        !self.has_ended && self.first_process.as_ref().is_none_or(FirstProcess::is_alive)
    }

    async fn remove(&self, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        if let Some(first) = &self.first_process {
            // The removal below shows whether it worked.
            let _ = first.signal(Signal::KILL);
        }
        let daemon = timeout(limit, Daemon::connect_to(self.address.clone())).await;
        match daemon {
            Ok(Ok(daemon)) => remove(&daemon.docker, &self.id, deadline).await,
            Ok(Err(docker_error)) => Err(docker_error.problem()),
            Err(_) => Err(format!(
                "the container daemon at {} does not respond",
                self.address
            )),
        }
    }

    fn notice(&self) -> UnremovedNotice {
        let may_run = self.may_run();
        let pid = self.first_process.as_ref().filter(|_| may_run);
        let pid = pid.map_or_else(String::new, |first| format!(" (pid {})", first.pid()));
        UnremovedNotice {
            description: format!("container {}{pid}", self.name),
            may_run,
            reason: self.reason.clone(),
            help: format!("docker rm -f {}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unremoved(has_ended: bool) -> UnremovedContainer {
        UnremovedContainer {
            address: Address::Unix("/no/such.sock".to_owned()),
            id: "f".repeat(64),
            name: "matrix-x".to_owned(),
            first_process: None,
            has_ended,
            reason: String::new(),
        }
    }

    #[tokio::test]
    async fn an_orphan_stays_until_a_daemon_says_that_it_is_gone() {
        let orphans = UnremovedContainers::default();
        orphans.add(unremoved(false));
        orphans.add(unremoved(true));
        for _ in 0..2 {
            let remaining = orphans.remove(Duration::from_millis(50)).await;
            let may_run: Vec<bool> = remaining.iter().map(|orphan| orphan.may_run).collect();
            assert_eq!(may_run, [true, false], "{remaining:?}");
            assert!(remaining[0].reason.contains("/no/such.sock"), "{remaining:?}");
            assert_eq!(remaining[0].help, "docker rm -f matrix-x");
        }
    }
}
