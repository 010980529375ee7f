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
use crate::engine::docker::create_body::body_with_short_log;
use crate::engine::docker::creation::Creation;
use crate::engine::docker::host::Whereabouts;
use crate::engine::docker::own_container;
use crate::engine::docker::refused::{Refused, is_missing, words};
use crate::engine::docker::removal::{REMOVED, remove};
use crate::engine::ownership::Marks;

/// Maximum size of the output, in bytes.
const MOST: usize = 4 << 20;

pub(crate) struct Dry<'a> {
    pub(crate) image: &'a str,
    /// Replaces the image's entrypoint.
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) command: Vec<String>,
    pub(crate) run: RunId,
    pub(crate) launch: &'a LaunchId,
    /// Timeout of the container's run.
    pub(crate) patience: Duration,
}

/// The id of a local image, or the reason that there is none.
pub(crate) async fn image_at_hand(whereabouts: &Whereabouts, image: &str) -> Result<String, String> {
    let daemon = Daemon::connect(whereabouts)
        .await
        .map_err(|refused| refused.what())?;
    match daemon.docker.inspect_image(image).await {
        Ok(found) => found.id.ok_or_else(|| format!("the image `{image}` has no id")),
        Err(error) if is_missing(&error) => Err(format!("the image `{image}` is not here yet")),
        Err(error) => Err(words(&error)),
    }
}

/// The container's output. Fails if the container does not start, exits with an error, or exceeds the
/// timeout.
///
/// `cache` is the folder of start records.
pub(crate) async fn help(whereabouts: &Whereabouts, cache: &Path, dry: Dry<'_>) -> Result<String, String> {
    let said = |refused: Refused| format!("{}: {}", refused.what(), refused.raw.trim());
    let daemon = Daemon::connect(whereabouts).await.map_err(said)?;
    let patience = dry.patience;
    let marks = Marks::new(&dry.run, dry.launch, 0).map_err(|error| error.to_string())?;
    let labels = own_container::labels(&daemon.docker, &marks).await;
    let creation = Creation {
        body: body_with_short_log(body(dry, labels), daemon.is_podman),
        daemon,
        marks,
        cache: cache.to_owned(),
    };
    let made = creation.create(None).await;
    let mut container = made.map_err(|error| said(Refused::of("create", &error)))?;
    let daemon = &creation.daemon;
    let text = match timeout(patience, run(&daemon.docker, &container.id)).await {
        Ok(text) => text,
        Err(_) => Err(format!("its help does not come within {} s", patience.as_secs())),
    };
    container.is_gone = remove(&daemon.docker, &container.id, Instant::now() + REMOVED)
        .await
        .is_ok();
    text
}

fn body(dry: Dry<'_>, labels: HashMap<String, String>) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(dry.image.to_owned()),
        entrypoint: dry.entrypoint,
        cmd: Some(dry.command),
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

async fn run(docker: &Docker, id: &str) -> Result<String, String> {
    docker.start_container(id, None).await.map_err(|error| {
        let refused = Refused::of("start", &error);
        format!("{}: {}", refused.what(), refused.raw.trim())
    })?;
    let options = WaitContainerOptions {
        condition: "not-running".to_owned(),
    };
    match Box::pin(docker.wait_container(id, Some(options))).next().await {
        Some(Ok(_)) => {}
        Some(Err(Error::DockerContainerWaitError { code, .. })) => {
            return Err(format!(
                "its program ends with code {code} instead of printing its help"
            ));
        }
        Some(Err(error)) => return Err(words(&error)),
        None => return Err("the container daemon broke off".to_owned()),
    }
    let options = LogsOptions {
        stdout: true,
        stderr: true,
        tail: "all".to_owned(),
        ..LogsOptions::default()
    };
    let mut lines = Box::pin(docker.logs(id, Some(options)));
    let mut text = Vec::new();
    while let Some(said) = lines.next().await {
        let said = said.map_err(|error| format!("its help cannot be read: {}", words(&error)))?;
        text.extend_from_slice(&said.into_bytes());
        if text.len() > MOST {
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
        let dry = Dry {
            image: "sha256:00",
            entrypoint: None,
            command: Vec::new(),
            run,
            launch: &launch,
            patience: Duration::from_secs(1),
        };
        let body = body_with_short_log(body(dry, HashMap::new()), false);
        let log = body.host_config.unwrap().log_config.unwrap();
        assert_eq!(log.typ.as_deref(), Some("json-file"));
    }
}
