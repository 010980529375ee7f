//! Containers that a `matrix` that was killed left, found by their labels. Those of live runs and of strangers are left alone, and
//! a daemon that is not there has none.

use std::collections::HashMap;
use std::time::Duration;

use bollard::Docker;
use bollard::models::ContainerSummaryStateEnum;
use bollard::query_parameters::{ListContainersOptions, StopContainerOptions};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::engine::docker::address::{Address, Whereabouts};
use crate::engine::docker::body::{IMAGE, OWNER, RUN, START};
use crate::engine::docker::daemon::Daemon;
use crate::engine::docker::{REMOVED, remove};
use crate::engine::marks::Owner;

/// How long a daemon may take to say what it has; one that hangs must not hold up a run of processes.
const LIST: Duration = Duration::from_secs(10);

/// A container that `matrix` created.
#[derive(Clone, Debug)]
pub struct LeftContainer {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its image as it was named.
    pub image: String,
    /// The run it was created for.
    pub run: String,
    /// The launch and the start: `<launch>#<start>`.
    pub start: String,
    /// The `matrix` process that created it.
    pub owner: Owner,
    /// Whether it runs.
    pub is_running: bool,
}

impl LeftContainer {
    fn words(&self) -> String {
        format!(
            "container {} `{}` of run {} ({})",
            self.name, self.image, self.run, self.start
        )
    }
}

/// Containers with labels of `matrix`: all of them, or only those whose owner lives no more. None where there is no daemon.
pub async fn find(whereabouts: &Whereabouts, owner_is_dead_only: bool) -> Vec<LeftContainer> {
    let daemon = timeout(LIST, Daemon::connect(whereabouts)).await;
    let Ok(Ok(daemon)) = daemon else {
        return Vec::new();
    };
    listed(&daemon, owner_is_dead_only).await
}

/// Removes every container whose owner lives no more: its stop signal, after `grace` SIGKILL. Says what it was.
pub async fn sweep(grace: Duration, whereabouts: &Whereabouts) -> Vec<String> {
    let Ok(Ok(daemon)) = timeout(LIST, Daemon::connect(whereabouts)).await else {
        return Vec::new();
    };
    let mut ending = JoinSet::new();
    for left in listed(&daemon, true).await {
        let docker = daemon.docker.clone();
        ending.spawn(async move { end(&docker, &left, grace).await });
    }
    let mut told = ending.join_all().await;
    told.sort();
    told
}

async fn end(docker: &Docker, left: &LeftContainer, grace: Duration) -> String {
    let options = StopContainerOptions {
        t: Some(i32::try_from(grace.as_secs()).unwrap_or(i32::MAX)),
        ..StopContainerOptions::default()
    };
    // One that never ran, or that has ended, cannot be stopped; it is removed all the same.
    let _ = docker.stop_container(&left.id, Some(options)).await;
    match remove(docker, &left.id, Instant::now() + REMOVED).await {
        Ok(()) => left.words(),
        Err(reason) => format!("{}, which is still there: {reason}", left.words()),
    }
}

async fn listed(daemon: &Daemon, owner_is_dead_only: bool) -> Vec<LeftContainer> {
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_owned(), vec![OWNER.to_owned()])])),
        ..ListContainersOptions::default()
    };
    let Ok(Ok(found)) = timeout(LIST, daemon.docker.list_containers(Some(options))).await else {
        return Vec::new();
    };
    let mut left = Vec::new();
    for container in found {
        let labels = container.labels.unwrap_or_default();
        let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
        let (Some(id), Some(owner)) = (container.id, Owner::parse(&label(OWNER))) else {
            continue;
        };
        if owner_is_dead_only && !is_dead(&owner, &daemon.address) {
            continue;
        }
        let names = container.names.unwrap_or_default();
        left.push(LeftContainer {
            name: names
                .first()
                .map_or_else(|| id.clone(), |name| name.trim_start_matches('/').to_owned()),
            id,
            // One of an earlier version has no such label.
            image: labels.get(IMAGE).cloned().or(container.image).unwrap_or_default(),
            run: label(RUN),
            start: label(START),
            owner,
            is_running: container.state == Some(ContainerSummaryStateEnum::RUNNING),
        });
    }
    left
}

/// Whether an owner surely lives no more. A daemon elsewhere may serve several hosts: another boot may then be another host.
fn is_dead(owner: &Owner, address: &Address) -> bool {
    owner.is_dead() && (address.is_local() || owner.is_of_this_boot())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_daemon_elsewhere_another_boot_may_be_another_host() {
        let owner = Owner::parse("1:1:another-boot:[1]").unwrap();
        assert!(is_dead(&owner, &Address::Unix("/s".into())));
        assert!(!is_dead(&owner, &Address::Tcp("h:1".into())));
    }

    #[tokio::test]
    async fn a_daemon_that_is_not_there_has_no_containers() {
        let nowhere = Whereabouts::at("unix:///no/such/docker.sock");
        assert!(find(&nowhere, false).await.is_empty());
        assert!(sweep(Duration::ZERO, &nowhere).await.is_empty());
    }
}
