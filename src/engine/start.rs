//! Starts the engine of a launch, and answers what its executor knows of the launch before.

use crate::engine::context::{Context, Logs};
use crate::engine::docker::host::Whereabouts;
use crate::engine::docker::lack::Lack;
use crate::engine::endpoint::Devices;
use crate::engine::error::StartError;
use crate::engine::executor::launcher;
use crate::engine::running::Running;
use crate::engine::shared_memory;
use crate::engine::start_progress::Tell;
use crate::plan::Launch;

/// Starts the engine of a launch, its environment first where it needs one. It does not wait until the engine answers. How far a
/// pull is goes to `tell`.
///
/// Dropping the future ends what was begun.
///
/// # Errors
/// What the launch asks for cannot be had here.
pub(crate) async fn start(
    launch: &Launch,
    context: &Context,
    logs: Logs,
    tell: Tell<'_>,
) -> Result<Running, StartError> {
    let (watch, alarm) = (shared_memory::Watch::begin(), shared_memory::Alarm::begin());
    let launcher = launcher::of(&launch.place);
    let running = launcher.start(launch, context, logs, tell).await?;
    let is_here = matches!(running.devices, Devices::Local(_));
    let has_shm = launcher.shares_memory() && is_here;
    Ok(Running {
        shm: has_shm.then_some(watch),
        alarm: has_shm.then_some(alarm),
        ..running
    })
}

/// The name of the image that a launch is started from; `None` where it runs in no container.
pub(crate) fn image(launch: &Launch) -> Option<&str> {
    launcher::of(&launch.place).image()
}

/// Whether a launch runs on this host, started by us.
pub(crate) fn is_local(launch: &Launch, whereabouts: &Whereabouts) -> bool {
    launcher::of(&launch.place).is_local(whereabouts)
}

/// Whether a launch takes a port of this host.
pub(crate) fn takes_port(launch: &Launch) -> bool {
    launcher::of(&launch.place).takes_port()
}

/// What this host lacks for a launch, beside what a container daemon or an attached server says; `path` is the `PATH` of programs.
pub(crate) fn host_lacks(launch: &Launch, path: Option<&str>) -> Option<Lack> {
    launcher::of(&launch.place).lacks(launch, path)
}
