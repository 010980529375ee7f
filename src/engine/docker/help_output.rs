//! Prints an engine's `--help`: starts the image's program once, without network, GPU or mounts, and removes
//! the container.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{LogsOptions, WaitContainerOptions};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout};

use crate::base::ids::{LaunchId, RunId};
use crate::engine::docker::client::Daemon;
use crate::engine::docker::create_body::with_short_log;
use crate::engine::docker::creation::Creation;
use crate::engine::docker::docker_error::{DockerError, error_text, is_not_found};
use crate::engine::docker::host::DockerEnv;
use crate::engine::docker::own_container;
use crate::engine::docker::removal::{REMOVE_TIMEOUT, remove};
use crate::engine::ownership::OwnershipTags;

/// Maximum size of the output, in bytes.
const MAX_OUTPUT: usize = 4 << 20;

pub(crate) struct HelpContainer<'a> {
    pub(crate) image: &'a str,
    /// Replaces the image's entrypoint.
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) command: Vec<String>,
    pub(crate) run: RunId,
    pub(crate) launch: &'a LaunchId,
    /// Timeout of the container's run.
    pub(crate) timeout: Duration,
}

/// The id of a local image, or the reason that there is none.
pub(crate) async fn local_image_id(docker_env: &DockerEnv, image: &str) -> Result<String, String> {
    let daemon = Daemon::connect(docker_env)
        .await
        .map_err(|docker_error| docker_error.problem())?;
    match daemon.docker.inspect_image(image).await {
        Ok(inspected) => inspected
            .id
            .ok_or_else(|| format!("the container daemon returned no id for the image `{image}`")),
        Err(error) if is_not_found(&error) => {
            Err(format!("the image `{image}` is not available locally yet"))
        }
        Err(error) => Err(error_text(&error)),
    }
}

/// The container's output. Fails if the container does not start, exits with an error, or exceeds the
/// timeout.
///
/// `cache` is the folder of start records.
pub(crate) async fn container_help(
    docker_env: &DockerEnv,
    cache: &Path,
    help: HelpContainer<'_>,
) -> Result<String, String> {
    let described =
        |docker_error: DockerError| format!("{}: {}", docker_error.problem(), docker_error.message.trim());
    let daemon = Daemon::connect(docker_env).await.map_err(described)?;
    let limit = help.timeout;
    let tags = OwnershipTags::new(&help.run, help.launch, 0).map_err(|error| error.to_string())?;
    let labels = own_container::ownership_labels(&daemon.docker, &tags).await;
    let creation = Creation {
        body: with_short_log(help_create_body(help, labels), daemon.is_podman),
        daemon,
        tags,
        cache_dir: cache.to_owned(),
    };
    let created = creation.create(None).await;
    let mut container = created.map_err(|error| described(DockerError::new("create", &error)))?;
    let daemon = &creation.daemon;
    let text = match timeout(limit, run_help(&daemon.docker, &container.id)).await {
        Ok(text) => text,
        Err(_) => Err(format!(
            "the program did not print its help within {} s",
            limit.as_secs()
        )),
    };
    container.is_removed = remove(&daemon.docker, &container.id, Instant::now() + REMOVE_TIMEOUT)
        .await
        .is_ok();
    text
}

fn help_create_body(help: HelpContainer<'_>, labels: HashMap<String, String>) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(help.image.to_owned()),
        entrypoint: help.entrypoint,
        cmd: Some(help.command),
        // Otherwise argparse wraps lines at 80 columns and may split a word.
        env: Some(vec!["COLUMNS=200".to_owned(), "NO_COLOR=1".to_owned()]),
        labels: Some(labels),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            auto_remove: Some(false),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

async fn run_help(docker: &Docker, id: &str) -> Result<String, String> {
    docker.start_container(id, None).await.map_err(|error| {
        let docker_error = DockerError::new("start", &error);
        format!("{}: {}", docker_error.problem(), docker_error.message.trim())
    })?;
    let options = WaitContainerOptions {
        condition: "not-running".to_owned(),
    };
    match Box::pin(docker.wait_container(id, Some(options))).next().await {
        Some(Ok(_)) => {}
        Some(Err(Error::DockerContainerWaitError { code, .. })) => {
            return Err(format!(
                "the program exited with code {code} instead of printing its help"
            ));
        }
        Some(Err(error)) => return Err(error_text(&error)),
        None => return Err("the container daemon closed the connection".to_owned()),
    }
    let options = LogsOptions {
        stdout: true,
        stderr: true,
        tail: "all".to_owned(),
        ..LogsOptions::default()
    };
    let mut lines = Box::pin(docker.logs(id, Some(options)));
    let mut text = Vec::new();
    while let Some(chunk) = lines.next().await {
        let chunk = chunk.map_err(|error| {
            format!(
                "the output of the help command cannot be read: {}",
                error_text(&error)
            )
        })?;
        text.extend_from_slice(&chunk.into_bytes());
        if text.len() > MAX_OUTPUT {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_log_can_be_read_whatever_the_daemon_s_own_driver_is() {
        let launch = LaunchId::new("l");
        let run = RunId::new("r");
        let help = HelpContainer {
            image: "sha256:00",
            entrypoint: None,
            command: Vec::new(),
            run,
            launch: &launch,
            timeout: Duration::from_secs(1),
        };
        let body = with_short_log(help_create_body(help, HashMap::new()), false);
        let log = body.host_config.unwrap().log_config.unwrap();
        assert_eq!(log.typ.as_deref(), Some("json-file"));
    }
}
