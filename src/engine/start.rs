//! Starts the engine of a launch, and answers questions about a launch that its executor knows.

use crate::engine::context::{Logs, StartContext};
use crate::engine::docker::host::DockerEnv;
use crate::engine::docker::unmet::Unmet;
use crate::engine::endpoint::Devices;
use crate::engine::error::StartError;
use crate::engine::executor;
use crate::engine::running::RunningEngine;
use crate::engine::shared_memory;
use crate::engine::start_progress::ProgressFn;
use crate::plan::Launch;

/// Starts the engine of a launch, after creating its environment if it needs one. Does not wait for
/// readiness. `report_progress` receives the progress of a pull.
///
/// Dropping the future stops what was begun.
pub(crate) async fn start(
    launch: &Launch,
    context: &StartContext,
    logs: Logs,
    report_progress: ProgressFn<'_>,
) -> Result<RunningEngine, StartError> {
    let (watch, alarm) = (
        shared_memory::Tracker::start(),
        shared_memory::CreationEvents::start(),
    );
    let launcher = executor::launcher_for(&launch.place);
    let running = launcher.start(launch, context, logs, report_progress).await?;
    let is_here = matches!(running.devices, Devices::Local(_));
    let has_shm = launcher.shares_memory() && is_here;
    Ok(RunningEngine {
        shared_memory: has_shm.then_some(watch),
        shared_memory_events: has_shm.then_some(alarm),
        ..running
    })
}

/// The image of a launch; `None` if it does not run in a container.
pub(crate) fn image_name(launch: &Launch) -> Option<&str> {
    executor::launcher_for(&launch.place).image()
}

/// Whether `matrix` starts the launch on this host.
pub(crate) fn is_local(launch: &Launch, docker_env: &DockerEnv) -> bool {
    executor::launcher_for(&launch.place).is_local(docker_env)
}

/// Whether the launch needs a port of this host.
pub(crate) fn takes_port(launch: &Launch) -> bool {
    executor::launcher_for(&launch.place).takes_port()
}

/// What this host lacks for a launch. Container daemon and attached servers have checks of their own. `path`
/// is the `PATH` of programs.
pub(crate) fn unmet_host_requirement(launch: &Launch, path: Option<&str>) -> Option<Unmet> {
    executor::launcher_for(&launch.place).unmet_requirement(launch, path)
}

/// Describes what the engine of a launch inherits of our environment variables, whose names are given; `None`
/// if there is nothing to say.
pub(crate) fn describe_inherited(launch: &Launch, names: &[String]) -> Option<String> {
    executor::launcher_for(&launch.place).describe_inherited(launch, names)
}
