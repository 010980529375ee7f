use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{InspectContainerOptions, RemoveContainerOptions};
use tokio::time::{Instant, sleep, timeout_at};

use crate::engine::docker::docker_error::{error_text, is_not_found};

pub(super) const REMOVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Removes a container and waits until the daemon does not list it any more.
pub(super) async fn remove(docker: &Docker, id: &str, deadline: Instant) -> Result<(), String> {
    let options = || RemoveContainerOptions {
        force: true,
        v: true,
        ..RemoveContainerOptions::default()
    };
    let mut reason = "the container daemon does not respond".to_owned();
    loop {
        let attempt = async {
            let removed = docker.remove_container(id, Some(options())).await;
            let response = docker
                .inspect_container(id, None::<InspectContainerOptions>)
                .await;
            (removed, response)
        };
        match timeout_at(deadline, attempt).await {
            Ok((_, Err(error))) if is_not_found(&error) => return Ok(()),
            Ok((removed, _)) => {
                reason = removed.map_or_else(
                    |error| error_text(&error),
                    |()| "the removal of the container is not finished".to_owned(),
                );
            }
            Err(_) => return Err(reason),
        }
        if Instant::now() >= deadline {
            return Err(reason);
        }
        sleep(Duration::from_millis(200)).await;
    }
}
