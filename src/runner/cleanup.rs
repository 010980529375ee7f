//! Removes orphans of runs that have ended: processes, containers and files.

use std::path::Path;
use std::time::Duration;

pub(crate) use crate::engine::SweepResult;
use crate::engine::{self, DockerEnv};
use crate::results::store;
use crate::runner::environment::Environment;
use crate::runner::host_error::{self, HostError};

/// Time that an orphan gets to end by itself.
const GRACE: Duration = Duration::from_secs(10);

/// Removes orphans of all runs on this host.
pub(crate) fn clean(environment: &Environment, cache: &Path) -> Result<SweepResult, HostError> {
    Ok(host_error::small_runtime()?.block_on(sweep(&environment.docker(), cache)))
}

/// As [`clean`], inside a runtime.
pub(super) async fn sweep(docker: &DockerEnv, cache: &Path) -> SweepResult {
    let swept = engine::sweep(GRACE, docker, cache).await;
    store::calibration::sweep(cache);
    swept
}
