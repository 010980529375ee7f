//! Preflight check that containers get their GPUs: starts a small container with the launch's runtime and GPU
//! request, before any model is loaded.
//!
//! The container uses the launch's image if it is present, and a program that exists in no image. The runtime
//! and its hooks run before the program is looked up, so the error "no such program" means success.

use std::collections::BTreeSet;
use std::path::Path;

use bollard::models::{ContainerCreateBody, HostConfig};
use tokio::time::Instant;

use crate::base::ids::RunId;
use crate::engine::docker::client::Daemon;
use crate::engine::docker::create_body;
use crate::engine::docker::creation::Creation;
use crate::engine::docker::docker_error::DockerError;
use crate::engine::docker::own_container;
use crate::engine::docker::removal::{REMOVE_TIMEOUT, remove};
use crate::engine::docker::unmet::Unmet;
use crate::engine::ownership::OwnershipTags;
use crate::plan::{Container, ContainerGpus, Launch};

/// A program that exists in no image.
const MISSING_PROGRAM: &str = "/matrix-trial-of-gpus";

/// Why launches' containers get no GPUs. Each combination of runtime, GPU request and environment is tried
/// once.
///
/// `cache` is the folder of start records.
pub(super) async fn unmet_gpu_requests(
    daemon: &Daemon,
    cache: &Path,
    launches: &[(&Launch, &Container)],
) -> BTreeSet<Unmet> {
    let mut unmet = BTreeSet::new();
    let mut tried: Vec<(Option<&String>, ContainerGpus, u32, Vec<&str>)> = Vec::new();
    for (launch, container) in launches {
        // The environment controls NVIDIA's hook. Values with placeholders or secrets are unknown before the
        // start.
        let env = container.env.iter();
        let env: Vec<(&str, &str)> = env
            .filter(|(_, value)| value.placeholders().next().is_none() && value.secrets().next().is_none())
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let way = (
            container.runtime.as_ref(),
            container.gpus,
            launch.devices,
            env.iter().flat_map(|(name, value)| [*name, *value]).collect(),
        );
        let asks = container.runtime.is_some() || container.gpus != ContainerGpus::None;
        if !asks || tried.contains(&way) || daemon.docker.inspect_image(&container.image).await.is_err() {
            continue;
        }
        tried.push(way);
        if let Err(docker_error) = try_start(daemon, cache, launch, container, &env).await {
            unmet.insert(Unmet {
                problem: format!(
                    "a test container of engine `{}` gets no GPU: {}",
                    launch.engine.name,
                    Unmet::from(&docker_error).problem
                ),
                help: docker_error.diagnosis.help.clone(),
            });
        }
    }
    unmet
}

async fn try_start(
    daemon: &Daemon,
    cache: &Path,
    launch: &Launch,
    container: &Container,
    env: &[(&str, &str)],
) -> Result<(), DockerError> {
    let tags = OwnershipTags::new(&RunId::new("check"), &launch.id, 0)
        .map_err(|error| DockerError::from_message("try", error.to_string()))?;
    let devices: Vec<String> = (0..launch.devices).map(|device| device.to_string()).collect();
    let body = ContainerCreateBody {
        image: Some(container.image.clone()),
        entrypoint: Some(vec![MISSING_PROGRAM.to_owned()]),
        env: Some(
            env.iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
        ),
        labels: Some(own_container::ownership_labels(&daemon.docker, &tags).await),
        host_config: Some(HostConfig {
            runtime: container.runtime.clone(),
            device_requests: create_body::gpu_request(container.gpus, &devices).map(|request| vec![request]),
            network_mode: Some("none".to_owned()),
            auto_remove: Some(false),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let creation = Creation {
        daemon: daemon.clone(),
        body,
        tags,
        cache_dir: cache.to_owned(),
    };
    let created = creation.create(None).await;
    let mut trial = created.map_err(|error| DockerError::new("create", &error))?;
    let started = daemon.docker.start_container(&trial.id, None).await;
    trial.is_removed = remove(&daemon.docker, &trial.id, Instant::now() + REMOVE_TIMEOUT)
        .await
        .is_ok();
    match started {
        Ok(()) => Ok(()),
        Err(error) => {
            let docker_error = DockerError::new("start", &error);
            // The error names the program, so the runtime and its hooks succeeded.
            match docker_error.message.contains(MISSING_PROGRAM) {
                true => Ok(()),
                false => Err(docker_error),
            }
        }
    }
}
