//! Removes orphaned containers: those whose labels name a `matrix` process that has ended. Containers of live
//! runs and containers without labels are not changed. If no daemon is configured and the default socket does
//! not exist, there is nothing to remove; otherwise a daemon that does not answer is reported.

use std::collections::{BTreeSet, HashMap};
use std::ffi::CStr;
use std::path::Path;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{InspectContainerOptions, ListContainersOptions, StopContainerOptions};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::base::date;
use crate::base::proc;
use crate::engine::docker::client::Daemon;
use crate::engine::docker::create_body::{
    IMAGE_LABEL, OWNER_CONTAINER_LABEL, OWNER_LABEL, RUN_LABEL, START_LABEL,
};
use crate::engine::docker::docker_error::error_text;
use crate::engine::docker::host::DockerEnv;
use crate::engine::docker::own_container;
use crate::engine::docker::removal::{REMOVE_TIMEOUT, remove};
use crate::engine::ownership::{Owner, OwnershipTags};
use crate::engine::root_processes::is_of_container;
use crate::engine::shared_memory;
use crate::engine::start_record::{self, OrphanRequest};
use crate::engine::sweep_result::SweepResult;

const SECONDS_PER_DAY: f64 = 86_400.0;

/// Timeout of listing containers. A daemon that hangs must not hold up a run of processes.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for a container that was requested before its owner died. If it is created later, the
/// next sweep finds it.
const CREATE_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which the containers are listed meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
struct OrphanContainer {
    id: String,
    name: String,
    /// The image name of the recipe.
    image: String,
    run: String,
    /// Launch and start: `<launch>#<start>`.
    start: String,
    owner: Owner,
}

/// State of a container's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerState {
    Dead,
    Alive,
    /// The owner is in another pid namespace, and the container in which it runs is unknown.
    Unknown,
}

impl OrphanContainer {
    fn has_tags(&self, tags: &OwnershipTags) -> bool {
        (&self.run, &self.start, &self.owner) == (&tags.run, &tags.start, &tags.owner)
    }

    fn description(&self) -> String {
        format!(
            "container {} `{}` of run {} ({})",
            self.name, self.image, self.run, self.start
        )
    }
}

/// Removes every container whose owner has ended, after its stop signal and, `grace` later, SIGKILL.
///
/// The daemon may still be creating a container that was requested just before its owner died. `cache` has
/// the records of such requests, and their containers are waited for.
pub(crate) async fn sweep(grace: Duration, docker_env: &DockerEnv, cache: &Path) -> SweepResult {
    let (docker, containers) = match owned_containers(docker_env, cache).await {
        Ok(orphans) => orphans,
        Err(reason) => {
            return SweepResult {
                containers_error: docker_env.is_expected().then_some(reason),
                ..SweepResult::default()
            };
        }
    };
    let mut result = SweepResult::default();
    let mut ending = JoinSet::new();
    for (container, owner_state) in containers {
        match owner_state {
            OwnerState::Alive => {}
            OwnerState::Dead => {
                let docker = docker.clone();
                ending.spawn(async move { end_container(&docker, &container, grace).await });
            }
            OwnerState::Unknown => result.notes.push(format!(
                "the {} was started by a `matrix` in another container and may still be in use; if it is not in use, remove it with `docker rm -f {}`",
                container.description(),
                container.name
            )),
        }
    }
    for ended in ending.join_all().await {
        match ended {
            Ok(words) => result.removed.push(words),
            Err(words) => result.remaining.push(words),
        }
    }
    result.removed.sort();
    result
}

/// All containers with labels of `matrix`, or the reason that the daemon cannot be asked.
async fn owned_containers(
    docker_env: &DockerEnv,
    cache: &Path,
) -> Result<(Docker, Vec<(OrphanContainer, OwnerState)>), String> {
    let timed_out = |_| {
        format!(
            "the container daemon does not respond within {} s",
            LIST_TIMEOUT.as_secs()
        )
    };
    let daemon = timeout(LIST_TIMEOUT, Daemon::connect(docker_env))
        .await
        .map_err(timed_out)?;
    let daemon = daemon.map_err(|docker_error| docker_error.problem())?;
    let started_at = Instant::now();
    loop {
        let orphans = timeout(LIST_TIMEOUT, list_containers(&daemon))
            .await
            .map_err(timed_out)??;
        let is_there = |request: &OrphanRequest| {
            orphans
                .iter()
                .any(|(container, _)| container.has_tags(&request.tags))
        };
        let waited = started_at.elapsed();
        let mut requests = start_record::orphan_requests(cache).into_iter();
        if !requests.any(|request| !is_there(&request) && waited.max(request.age) < CREATE_TIMEOUT) {
            return Ok((daemon.docker, orphans));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Stops and removes a container. Returns its description; the error adds the reason.
async fn end_container(
    docker: &Docker,
    orphans: &OrphanContainer,
    grace: Duration,
) -> Result<String, String> {
    let options = StopContainerOptions {
        t: Some(i32::try_from(grace.as_secs()).unwrap_or(i32::MAX)),
        ..StopContainerOptions::default()
    };
    let shared = shared_memory_files(docker, &orphans.id).await;
    // Stopping fails for a container that never ran or has ended; the removal works all the same.
    let _ = docker.stop_container(&orphans.id, Some(options)).await;
    match remove(docker, &orphans.id, Instant::now() + REMOVE_TIMEOUT).await {
        Ok(()) => Ok(orphans.description() + &shared_memory::remove_orphans(&shared).summary()),
        Err(reason) => Err(format!("{}: {reason}", orphans.description())),
    }
}

/// Files in this host's shared memory that a running container created. `matrix` may have been killed before
/// it recorded them.
async fn shared_memory_files(docker: &Docker, id: &str) -> BTreeSet<shared_memory::ShmFile> {
    let response = docker
        .inspect_container(id, None::<InspectContainerOptions>)
        .await;
    let (pid, created) = response.map_or((None, None), |response| {
        (response.state.and_then(|state| state.pid), response.created)
    });
    let pid = pid.and_then(|pid| u32::try_from(pid).ok());
    // The pid is meaningful only if the daemon runs on this host.
    let pid = pid.filter(|pid| is_of_container(*pid, id));
    let since = created.and_then(|created| date::days_since_epoch(&created));
    let (Some(pid), Some(since)) = (pid, since) else {
        return BTreeSet::new();
    };
    let looking = tokio::task::spawn_blocking(move || {
        shared_memory::files_written_since(since * SECONDS_PER_DAY, &proc::live_tree(&[pid]))
    });
    looking.await.unwrap_or_default()
}

async fn list_containers(daemon: &Daemon) -> Result<Vec<(OrphanContainer, OwnerState)>, String> {
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([(
            "label".to_owned(),
            vec![OWNER_LABEL.to_owned()],
        )])),
        ..ListContainersOptions::default()
    };
    let summaries = daemon.docker.list_containers(Some(options)).await;
    let summaries = summaries.map_err(|error| error_text(&error))?;
    let is_here = is_daemon_on_this_host(daemon).await;
    let mut orphans = Vec::new();
    for container in summaries {
        let labels = container.labels.unwrap_or_default();
        let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
        let (Some(id), Some(owner)) = (container.id, Owner::parse(&label(OWNER_LABEL))) else {
            continue;
        };
        let owner_state = owner_state(daemon, is_here, &owner, labels.get(OWNER_CONTAINER_LABEL)).await;
        let image = container.image_id.unwrap_or_default();
        // An image made from an engine's container (`docker commit`) has its labels, and so have containers
        // of that image.
        if owner_state != OwnerState::Alive && is_label_from_image(&daemon.docker, &image, &owner).await {
            continue;
        }
        let names = container.names.unwrap_or_default();
        let container = OrphanContainer {
            name: names
                .first()
                .map_or_else(|| id.clone(), |name| name.trim_start_matches('/').to_owned()),
            id,
            // Earlier versions did not set this label.
            image: labels
                .get(IMAGE_LABEL)
                .cloned()
                .or(container.image)
                .unwrap_or_default(),
            run: label(RUN_LABEL),
            start: label(START_LABEL),
            owner,
        };
        orphans.push((container, owner_state));
    }
    Ok(orphans)
}

/// The state of an owner, judged by its process, else by the container in which it runs.
async fn owner_state(
    daemon: &Daemon,
    is_here: bool,
    owner: &Owner,
    container: Option<&String>,
) -> OwnerState {
    if is_owner_dead(owner, is_here) {
        return OwnerState::Dead;
    }
    // An owner of another boot is on another host that uses the same daemon.
    if owner.is_in_this_namespace() || !owner.is_of_this_boot() {
        return OwnerState::Alive;
    }
    let Some(container) = container else {
        return OwnerState::Unknown;
    };
    match own_container::has_ended(&daemon.docker, container).await {
        true => OwnerState::Dead,
        false => OwnerState::Alive,
    }
}

/// Whether an owner has certainly ended. A remote daemon may serve several hosts, so another boot id may be
/// another host.
fn is_owner_dead(owner: &Owner, is_here: bool) -> bool {
    owner.is_dead() && (is_here || owner.is_of_this_boot())
}

/// Whether the daemon runs on this host. A local socket may be forwarded from another host, for example by
/// ssh.
async fn is_daemon_on_this_host(daemon: &Daemon) -> bool {
    if !daemon.address.is_local() {
        return false;
    }
    let Ok(about) = daemon.docker.info().await else {
        return false;
    };
    let host_name = rustix::system::uname();
    let is =
        |host_name: &CStr, its: Option<String>| its.is_some_and(|its| host_name.to_bytes() == its.as_bytes());
    is(host_name.nodename(), about.name) && is(host_name.release(), about.kernel_version)
}

/// Whether the owner label of a container comes from its image.
async fn is_label_from_image(docker: &Docker, image: &str, owner: &Owner) -> bool {
    let Ok(image) = docker.inspect_image(image).await else {
        return false;
    };
    let labels = image.config.and_then(|config| config.labels);
    labels.is_some_and(|labels| labels.get(OWNER_LABEL) == Some(&owner.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_daemon_elsewhere_another_boot_may_be_another_host() {
        let owner = Owner::parse("1:1:another-boot:[1]").unwrap();
        assert!(is_owner_dead(&owner, true));
        assert!(!is_owner_dead(&owner, false));
    }

    #[tokio::test]
    async fn a_daemon_that_was_named_and_is_not_there_is_told() {
        let nowhere = DockerEnv::with_host("unix:///no/such/docker.sock");
        let result = sweep(Duration::ZERO, &nowhere, Path::new("/no/such/cache")).await;
        let reason = result.containers_error.expect("it was named");
        assert!(reason.contains("no container daemon was found"), "{reason}");
        assert_eq!((result.removed, result.remaining), (Vec::new(), Vec::new()));
        let usual = DockerEnv::default();
        assert_eq!(usual.is_expected(), Path::new("/var/run/docker.sock").exists());
    }
}
