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
use crate::engine::docker::create_body::{IMAGE, OWNER, OWNER_CONTAINER, RUN, START};
use crate::engine::docker::host::Whereabouts;
use crate::engine::docker::own_container;
use crate::engine::docker::refused::words;
use crate::engine::docker::removal::{REMOVED, remove};
use crate::engine::ownership::{Marks, Owner};
use crate::engine::root_processes::is_of_container;
use crate::engine::shared_memory;
use crate::engine::start_record::{self, Request};
use crate::engine::sweep_result::Swept;

const SECONDS_OF_A_DAY: f64 = 86_400.0;

/// Timeout of listing containers. A daemon that hangs must not hold up a run of processes.
const LIST: Duration = Duration::from_secs(10);

/// How long to wait for a container that was requested before its owner died. If it is created later, the
/// next sweep finds it.
const MADE: Duration = Duration::from_secs(10);

/// Interval at which the containers are listed meanwhile.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
struct LeftContainer {
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
enum Judgement {
    Dead,
    Lives,
    /// The owner is in another pid namespace, and the container in which it runs is unknown.
    Unknown,
}

impl LeftContainer {
    fn is_of(&self, marks: &Marks) -> bool {
        (&self.run, &self.start, &self.owner) == (&marks.run, &marks.start, &marks.owner)
    }

    fn words(&self) -> String {
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
pub(crate) async fn sweep(grace: Duration, whereabouts: &Whereabouts, cache: &Path) -> Swept {
    let (docker, containers) = match left(whereabouts, cache).await {
        Ok(left) => left,
        Err(reason) => {
            return Swept {
                unseen: whereabouts.is_expected().then_some(reason),
                ..Swept::default()
            };
        }
    };
    let mut swept = Swept::default();
    let mut ending = JoinSet::new();
    for (container, judgement) in containers {
        match judgement {
            Judgement::Lives => {}
            Judgement::Dead => {
                let docker = docker.clone();
                ending.spawn(async move { end(&docker, &container, grace).await });
            }
            Judgement::Unknown => swept.notes.push(format!(
                "whether anybody still needs the {} cannot be known, as it was started in another container; `docker rm -f {}` removes it",
                container.words(),
                container.name
            )),
        }
    }
    for ended in ending.join_all().await {
        match ended {
            Ok(words) => swept.removed.push(words),
            Err(words) => swept.remaining.push(words),
        }
    }
    swept.removed.sort();
    swept
}

/// All containers with labels of `matrix`, or the reason that the daemon cannot be asked.
async fn left(
    whereabouts: &Whereabouts,
    cache: &Path,
) -> Result<(Docker, Vec<(LeftContainer, Judgement)>), String> {
    let late = |_| format!("the container daemon does not answer within {} s", LIST.as_secs());
    let daemon = timeout(LIST, Daemon::connect(whereabouts)).await.map_err(late)?;
    let daemon = daemon.map_err(|refused| refused.what())?;
    let began = Instant::now();
    loop {
        let left = timeout(LIST, listed(&daemon)).await.map_err(late)??;
        let is_there = |request: &Request| left.iter().any(|(container, _)| container.is_of(&request.marks));
        let waited = began.elapsed();
        let mut requests = start_record::requests(cache).into_iter();
        if !requests.any(|request| !is_there(&request) && waited.max(request.age) < MADE) {
            return Ok((daemon.docker, left));
        }
        sleep(LOOK).await;
    }
}

/// Stops and removes a container. Returns its description; the error adds the reason.
async fn end(docker: &Docker, left: &LeftContainer, grace: Duration) -> Result<String, String> {
    let options = StopContainerOptions {
        t: Some(i32::try_from(grace.as_secs()).unwrap_or(i32::MAX)),
        ..StopContainerOptions::default()
    };
    let shared = written(docker, &left.id).await;
    // Stopping fails for a container that never ran or has ended; the removal works all the same.
    let _ = docker.stop_container(&left.id, Some(options)).await;
    match remove(docker, &left.id, Instant::now() + REMOVED).await {
        Ok(()) => Ok(left.words() + &shared_memory::free_left(&shared).words()),
        Err(reason) => Err(format!("{}: {reason}", left.words())),
    }
}

/// Files in this host's shared memory that a running container created. `matrix` may have been killed before
/// it recorded them.
async fn written(docker: &Docker, id: &str) -> BTreeSet<shared_memory::File> {
    let seen = docker
        .inspect_container(id, None::<InspectContainerOptions>)
        .await;
    let (pid, created) = seen.map_or((None, None), |seen| {
        (seen.state.and_then(|state| state.pid), seen.created)
    });
    let pid = pid.and_then(|pid| u32::try_from(pid).ok());
    // The pid is meaningful only if the daemon runs on this host.
    let pid = pid.filter(|pid| is_of_container(*pid, id));
    let since = created.and_then(|created| date::days(&created));
    let (Some(pid), Some(since)) = (pid, since) else {
        return BTreeSet::new();
    };
    let looking = tokio::task::spawn_blocking(move || {
        shared_memory::written_since(since * SECONDS_OF_A_DAY, &proc::live_tree(&[pid]))
    });
    looking.await.unwrap_or_default()
}

async fn listed(daemon: &Daemon) -> Result<Vec<(LeftContainer, Judgement)>, String> {
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_owned(), vec![OWNER.to_owned()])])),
        ..ListContainersOptions::default()
    };
    let found = daemon.docker.list_containers(Some(options)).await;
    let found = found.map_err(|error| words(&error))?;
    let is_here = is_of_this_host(daemon).await;
    let mut left = Vec::new();
    for container in found {
        let labels = container.labels.unwrap_or_default();
        let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
        let (Some(id), Some(owner)) = (container.id, Owner::parse(&label(OWNER))) else {
            continue;
        };
        let judgement = judged(daemon, is_here, &owner, labels.get(OWNER_CONTAINER)).await;
        let image = container.image_id.unwrap_or_default();
        // An image made from an engine's container (`docker commit`) has its labels, and so have containers
        // of that image.
        if judgement != Judgement::Lives && inherits(&daemon.docker, &image, &owner).await {
            continue;
        }
        let names = container.names.unwrap_or_default();
        let container = LeftContainer {
            name: names
                .first()
                .map_or_else(|| id.clone(), |name| name.trim_start_matches('/').to_owned()),
            id,
            // Earlier versions did not set this label.
            image: labels.get(IMAGE).cloned().or(container.image).unwrap_or_default(),
            run: label(RUN),
            start: label(START),
            owner,
        };
        left.push((container, judgement));
    }
    Ok(left)
}

/// The state of an owner, judged by its process, else by the container in which it runs.
async fn judged(daemon: &Daemon, is_here: bool, owner: &Owner, container: Option<&String>) -> Judgement {
    if is_dead(owner, is_here) {
        return Judgement::Dead;
    }
    // An owner of another boot is on another host that uses the same daemon.
    if owner.is_seen_from_here() || !owner.is_of_this_boot() {
        return Judgement::Lives;
    }
    let Some(container) = container else {
        return Judgement::Unknown;
    };
    match own_container::is_over(&daemon.docker, container).await {
        true => Judgement::Dead,
        false => Judgement::Lives,
    }
}

/// Whether an owner has certainly ended. A remote daemon may serve several hosts, so another boot id may be
/// another host.
fn is_dead(owner: &Owner, is_here: bool) -> bool {
    owner.is_dead() && (is_here || owner.is_of_this_boot())
}

/// Whether the daemon runs on this host. A local socket may be forwarded from another host, for example by
/// ssh.
async fn is_of_this_host(daemon: &Daemon) -> bool {
    if !daemon.address.is_local() {
        return false;
    }
    let Ok(about) = daemon.docker.info().await else {
        return false;
    };
    let own = rustix::system::uname();
    let is = |own: &CStr, its: Option<String>| its.is_some_and(|its| own.to_bytes() == its.as_bytes());
    is(own.nodename(), about.name) && is(own.release(), about.kernel_version)
}

/// Whether the owner label of a container comes from its image.
async fn inherits(docker: &Docker, image: &str, owner: &Owner) -> bool {
    let Ok(image) = docker.inspect_image(image).await else {
        return false;
    };
    let labels = image.config.and_then(|config| config.labels);
    labels.is_some_and(|labels| labels.get(OWNER) == Some(&owner.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_daemon_elsewhere_another_boot_may_be_another_host() {
        let owner = Owner::parse("1:1:another-boot:[1]").unwrap();
        assert!(is_dead(&owner, true));
        assert!(!is_dead(&owner, false));
    }

    #[tokio::test]
    async fn a_daemon_that_was_named_and_is_not_there_is_told() {
        let nowhere = Whereabouts::at("unix:///no/such/docker.sock");
        let swept = sweep(Duration::ZERO, &nowhere, Path::new("/no/such/cache")).await;
        let reason = swept.unseen.expect("it was named");
        assert!(reason.contains("no container daemon is there"), "{reason}");
        assert_eq!((swept.removed, swept.remaining), (Vec::new(), Vec::new()));
        let usual = Whereabouts::default();
        assert_eq!(usual.is_expected(), Path::new("/var/run/docker.sock").exists());
    }
}
