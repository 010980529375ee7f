//! Executor of containers. It creates a container through the daemon's API from the launch that `matrix plan`
//! prints, follows its log and its state, stops it and removes it. Only this folder uses bollard.
//!
//! Containers do not remove themselves, so that exit code and last output can be read. Labels let the next
//! run find a container if this run is killed. No container without these labels is ever changed.

mod client;
mod config;
mod container_engine;
mod container_exit;
mod create_body;
mod creation;
mod credentials;
pub(crate) mod docker_error;
mod errors;
mod first_process;
mod gpu_probe;
mod help_output;
pub(crate) mod host;
pub(crate) mod image;
mod image_ref;
mod kill_events;
mod lifecycle;
mod orphans;
mod own_container;
pub(crate) mod preflight;
mod pull;
mod removal;
pub(crate) mod unmet;
pub(crate) mod unremoved;

use std::io;
use std::sync::Arc;

use bollard::Docker;
use bollard::models::ContainerState;
use bollard::query_parameters::InspectContainerOptions;
use tokio::net::unix::pipe::Sender;

use crate::base::clock;
use crate::engine::api;
use crate::engine::context::{Logs, StartContext};
use crate::engine::docker::client::Daemon;
use crate::engine::docker::container_engine::ContainerEngine;
use crate::engine::docker::create_body::with_short_log;
use crate::engine::docker::creation::{CreatedContainer, Creation};
use crate::engine::docker::first_process::FirstProcess;
use crate::engine::docker::host::Address;
use crate::engine::docker::lifecycle::{LivenessHints, WatchedContainer};
use crate::engine::endpoint::{Devices, Endpoint};
use crate::engine::error::StartError;
use crate::engine::log::Log;
use crate::engine::ownership::OwnershipTags;
use crate::engine::port;
use crate::engine::running::RunningEngine;
use crate::engine::start_progress::ProgressFn;
use crate::engine::start_record::{self, StartRecord};
use crate::plan::{Container, ContainerNetwork, Launch, command};
use crate::results::store;

pub use docker_error::DockerError;
pub(crate) use help_output::{HelpContainer, container_help, local_image_id};
pub(crate) use host::DockerEnv;
pub(crate) use image::{Images, PullPolicy};
pub(crate) use orphans::sweep;
pub(crate) use preflight::{ContainerChecks, unmet_container_requirements};
pub(crate) use unremoved::UnremovedContainers;

pub(super) async fn start(
    launch: &Launch,
    container: &Container,
    context: &StartContext,
    logs: Logs,
    report_progress: ProgressFn<'_>,
) -> Result<RunningEngine, StartError> {
    let start_error =
        |start_error: DockerError| StartError::Container(Box::new(start_error.redacted(&context.redactor)));
    let headers = api::request_headers(launch, context)?;
    let tags = OwnershipTags::new(&context.run, &launch.id, context.start)?;
    let mut body = create_body::create_body(launch, container, context, &tags)?;
    let daemon = Daemon::connect(&context.docker_env).await.map_err(start_error)?;
    let image = context
        .images
        .ensure(
            &daemon,
            &context.docker_env,
            &container.image,
            logs.install,
            report_progress,
        )
        .await
        .map_err(start_error)?;
    // The id, because the name may have moved to another image.
    body.image = Some(image.id.clone());
    if daemon.address.is_local() && !port::is_free(context.port) {
        return Err(StartError::PortTaken { port: context.port });
    }
    let started_at = clock::now();
    let (log, writer) = open_log(launch, context, logs.engine).map_err(|source| StartError::Spawn {
        program: "the part of matrix that reads the container's log".to_owned(),
        source,
    })?;
    let labels = own_container::ownership_labels(&daemon.docker, &tags).await;
    body.labels.get_or_insert_default().extend(labels);
    let body = with_short_log(body, daemon.is_podman);
    let record = begin_record(container, context, &daemon, &tags);
    let names = candidate_names(&command::container_name(launch), context);
    let creation = Creation {
        daemon: daemon.clone(),
        body,
        tags,
        cache_dir: context.cache_dir.clone(),
    };
    let created = creation.create_named(names.to_vec(), &context.unremoved).await;
    let mut created = created.map_err(start_error)?;
    let started = daemon.docker.start_container(&created.id, None).await;
    started.map_err(|error| start_error(DockerError::new("start", &error)))?;
    let hints = Arc::new(LivenessHints::default());
    let watched = watched_container(&daemon, &mut created, Arc::clone(&hints)).await;
    let (following, liveness) = lifecycle::watch_container(watched, writer);
    let host = daemon.address.host();
    let base_url = format!("http://{host}:{}", context.port);
    Ok(RunningEngine {
        endpoint: Endpoint::new(host, context.port, base_url, headers),
        log,
        devices: match daemon.address.is_local() {
            true => Devices::Local(context.devices.clone()),
            false => Devices::Remote,
        },
        started_at,
        executor: Box::new(ContainerEngine {
            docker: daemon.docker,
            container: created,
            grace: launch.timeouts.stop.duration(),
            image,
            liveness,
            hints,
            log_drain_deadline: None,
            record,
            publishes_port: container.network == ContainerNetwork::Bridge,
            _watch_tasks: following,
        }),
        shared_memory: None,
        shared_memory_events: None,
    })
}

/// The log of a container, and the pipe to write its output to.
fn open_log(launch: &Launch, context: &StartContext, log: store::Log) -> io::Result<(Log, Sender)> {
    let (reader, writer) = io::pipe()?;
    let writer = Sender::from_owned_fd(writer.into())?;
    let log = Log::follow(reader, log, launch.log_patterns.clone(), &context.redactor)?;
    Ok((log, writer))
}

/// Begins the record of a container that shares the host's memory.
fn begin_record(
    container: &Container,
    context: &StartContext,
    daemon: &Daemon,
    tags: &OwnershipTags,
) -> Option<StartRecord> {
    let shares_memory = daemon.address.is_local() && container.ipc.as_deref() == Some("host");
    shares_memory.then(|| {
        let id = start_record::unique_id(tags);
        StartRecord::begin(&context.cache_dir, &id, tags, None)
    })
}

/// What is watched of a container that was started. Identifies its first process if it runs on this host.
async fn watched_container(
    daemon: &Daemon,
    created: &mut CreatedContainer,
    hints: Arc<LivenessHints>,
) -> WatchedContainer {
    let docker = daemon.docker.clone();
    let state = inspect_state(&docker, &created.id).await.unwrap_or_default();
    if daemon.address.is_local() {
        created.first_process = FirstProcess::identify(&created.id, state.pid);
    }
    WatchedContainer {
        docker,
        id: created.id.clone(),
        started_at: state.started_at,
        first_process: created.first_process.clone(),
        hints,
    }
}

/// Whether the daemon runs on this host, judged by its address.
pub(crate) fn is_daemon_local(docker_env: &DockerEnv) -> bool {
    Address::resolve(docker_env).is_ok_and(|address| address.is_local())
}

/// A container daemon that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DaemonFacts {
    pub(crate) address: String,
    pub(crate) version: Option<String>,
    /// Names of its runtimes, sorted.
    pub(crate) runtimes: Vec<String>,
}

/// Asks the container daemon what it is.
pub(crate) async fn daemon_facts(docker_env: &DockerEnv) -> Result<DaemonFacts, DockerError> {
    let daemon = Daemon::connect(docker_env).await?;
    let info = daemon.docker.info().await;
    let info = info.map_err(|error| DockerError::new("info", &error))?;
    let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
    runtimes.sort();
    Ok(DaemonFacts {
        address: daemon.address.to_string(),
        version: info.server_version,
        runtimes,
    })
}

/// Pulls the image of a later start. That start reports errors.
pub(crate) async fn prefetch_image(
    docker_env: &DockerEnv,
    images: &Images,
    image: &str,
    log: store::Log,
    report_progress: ProgressFn<'_>,
) {
    if let Ok(daemon) = Daemon::connect(docker_env).await {
        // The start tries again and reports the error.
        let _ = images
            .ensure(&daemon, docker_env, image, log, report_progress)
            .await;
    }
}

/// Container names to try: the one that `matrix plan` prints, then with run and start, then also with our
/// pid.
fn candidate_names(usual: &str, context: &StartContext) -> [String; 3] {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let run: String = context.run.to_string().chars().filter(|c| allowed(*c)).collect();
    let with_run = format!("{usual}-{run}-{}", context.start);
    let last = format!("{with_run}-{}", std::process::id());
    [usual.to_owned(), with_run, last]
}

async fn inspect_state(docker: &Docker, id: &str) -> Option<ContainerState> {
    let response = docker.inspect_container(id, None::<InspectContainerOptions>);
    response.await.ok()?.state
}
