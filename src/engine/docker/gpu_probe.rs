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
use crate::engine::docker::lack::Lack;
use crate::engine::docker::own_container;
use crate::engine::docker::refused::Refused;
use crate::engine::docker::removal::{REMOVED, remove};
use crate::engine::ownership::Marks;
use crate::plan::{Container, Gpus, Launch};

/// A program that exists in no image.
const NOTHING: &str = "/matrix-trial-of-gpus";

/// Why launches' containers get no GPUs. Each combination of runtime, GPU request and environment is tried
/// once.
///
/// `cache` is the folder of start records.
pub(super) async fn lacks(
    daemon: &Daemon,
    cache: &Path,
    launches: &[(&Launch, &Container)],
) -> BTreeSet<Lack> {
    let mut found = BTreeSet::new();
    let mut tried: Vec<(Option<&String>, Gpus, u32, Vec<&str>)> = Vec::new();
    for (launch, container) in launches {
        // The environment controls NVIDIA's hook. Values with placeholders or secrets are unknown before the
        // start.
        let env = container.env.iter();
        let env: Vec<(&str, &str)> = env
            .filter(|(_, value)| value.holes().next().is_none() && value.secrets().next().is_none())
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let way = (
            container.runtime.as_ref(),
            container.gpus,
            launch.devices,
            env.iter().flat_map(|(name, value)| [*name, *value]).collect(),
        );
        let asks = container.runtime.is_some() || container.gpus != Gpus::None;
        if !asks || tried.contains(&way) || daemon.docker.inspect_image(&container.image).await.is_err() {
            continue;
        }
        tried.push(way);
        if let Err(refused) = attempt(daemon, cache, launch, container, &env).await {
            found.insert(Lack {
                what: format!(
                    "a trial container of engine `{}` gets no GPU: {}",
                    launch.engine.name,
                    Lack::from(&refused).what
                ),
                help: refused.meaning.help.clone(),
            });
        }
    }
    found
}

async fn attempt(
    daemon: &Daemon,
    cache: &Path,
    launch: &Launch,
    container: &Container,
    env: &[(&str, &str)],
) -> Result<(), Refused> {
    let marks = Marks::new(&RunId::new("check"), &launch.id, 0)
        .map_err(|error| Refused::saying("try", error.to_string()))?;
    let devices: Vec<String> = (0..launch.devices).map(|device| device.to_string()).collect();
    let body = ContainerCreateBody {
        image: Some(container.image.clone()),
        entrypoint: Some(vec![NOTHING.to_owned()]),
        env: Some(
            env.iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
        ),
        labels: Some(own_container::labels(&daemon.docker, &marks).await),
        host_config: Some(HostConfig {
            runtime: container.runtime.clone(),
            device_requests: create_body::gpus(container.gpus, &devices).map(|request| vec![request]),
            network_mode: Some("none".to_owned()),
            auto_remove: Some(false),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let creation = Creation {
        daemon: daemon.clone(),
        body,
        marks,
        cache: cache.to_owned(),
    };
    let made = creation.create(None).await;
    let mut trial = made.map_err(|error| Refused::of("create", &error))?;
    let started = daemon.docker.start_container(&trial.id, None).await;
    trial.is_gone = remove(&daemon.docker, &trial.id, Instant::now() + REMOVED)
        .await
        .is_ok();
    match started {
        Ok(()) => Ok(()),
        Err(error) => {
            let refused = Refused::of("start", &error);
            // The error names the program, so the runtime and its hooks succeeded.
            match refused.raw.contains(NOTHING) {
                true => Ok(()),
                false => Err(refused),
            }
        }
    }
}
