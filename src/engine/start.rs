//! Starts the engine of a launch, and answers questions about a launch that its executor knows.

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

/// Starts the engine of a launch, after creating its environment if it needs one. Does not wait for
/// readiness. `tell` receives the progress of a pull.
///
/// Dropping the future stops what was begun.
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

/// The image of a launch; `None` if it does not run in a container.
pub(crate) fn image(launch: &Launch) -> Option<&str> {
    launcher::of(&launch.place).image()
}

/// Whether `matrix` starts the launch on this host.
pub(crate) fn is_local(launch: &Launch, whereabouts: &Whereabouts) -> bool {
    launcher::of(&launch.place).is_local(whereabouts)
}

/// Whether the launch needs a port of this host.
pub(crate) fn takes_port(launch: &Launch) -> bool {
    launcher::of(&launch.place).takes_port()
}

/// What this host lacks for a launch. Container daemon and attached servers have checks of their own. `path`
/// is the `PATH` of programs.
pub(crate) fn host_lacks(launch: &Launch, path: Option<&str>) -> Option<Lack> {
    launcher::of(&launch.place).lacks(launch, path)
}
