//! The container in which this `matrix` process runs, if the daemon knows it, as in a CI job with the host's
//! socket. Other pid namespaces cannot check the process, but when the container has ended, so has its
//! `matrix`.

use std::collections::HashMap;
use std::fs;

use bollard::Docker;
use bollard::query_parameters::InspectContainerOptions;

use crate::engine::docker::create_body::{OWNER_CONTAINER_LABEL, OWNER_LABEL, RUN_LABEL, START_LABEL};
use crate::engine::docker::docker_error::is_not_found;
use crate::engine::ownership::OwnershipTags;

/// Files that a container runtime mounts into every container, from a folder named by the container's id.
const MOUNTED_FILES: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];

/// Labels by which a later `matrix` recognises the container.
pub(super) async fn ownership_labels(docker: &Docker, tags: &OwnershipTags) -> HashMap<String, String> {
    let mut labels = HashMap::from([
        (RUN_LABEL.to_owned(), tags.run.clone()),
        (START_LABEL.to_owned(), tags.start.clone()),
        (OWNER_LABEL.to_owned(), tags.owner.to_string()),
    ]);
    if let Some(label) = own_label(docker).await {
        labels.insert(OWNER_CONTAINER_LABEL.to_owned(), label);
    }
    labels
}

/// Our own container as a label: id and start time. `None` outside of containers and in a container that this
/// daemon does not know.
async fn own_label(docker: &Docker) -> Option<String> {
    let id = container_id(&fs::read_to_string("/proc/self/mountinfo").ok()?)?;
    Some(format!("{id}@{}", start_time(docker, &id).await.ok()??))
}

/// Whether the labelled container has ended or was started again.
pub(super) async fn has_ended(docker: &Docker, label: &str) -> bool {
    let (id, since) = label.split_once('@').unwrap_or((label, ""));
    match start_time(docker, id).await {
        Ok(now) => now.as_deref() != Some(since),
        Err(error) => is_not_found(&error),
    }
}

/// Start time of a running container; `None` if it does not run.
async fn start_time(docker: &Docker, id: &str) -> Result<Option<String>, bollard::errors::Error> {
    let response = docker
        .inspect_container(id, None::<InspectContainerOptions>)
        .await?;
    let state = response.state.filter(|state| state.running == Some(true));
    Ok(state.and_then(|state| state.started_at))
}

/// Finds the container id in `/proc/self/mountinfo`: it is part of the source of each file in [`MOUNTED_FILES`].
fn container_id(mounts: &str) -> Option<String> {
    let is_id = |part: &&str| part.len() == 64 && part.chars().all(|c| c.is_ascii_hexdigit());
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (source, target) = (fields.next()?, fields.next()?);
        let source = MOUNTED_FILES.contains(&target).then_some(source)?;
        source.split('/').find(is_id).map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_what_is_mounted_into_it() {
        let own = "5".repeat(64);
        let inside = format!(
            "1 2 0:3 / / rw - overlay overlay rw\n4 1 8:1 /var/lib/docker/containers/{own}/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n"
        );
        assert_eq!(container_id(&inside), Some(own.clone()));
        // A host sees the mounts of its containers but is in none of them.
        let host = format!("7 1 0:9 / /var/lib/docker/containers/{own}/mounts/shm rw - tmpfs shm rw\n");
        assert_eq!(container_id(&host), None);
        assert_eq!(
            container_id("8 1 8:1 /short/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n"),
            None
        );
    }
}
