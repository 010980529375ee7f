//! What a host is, and what it lacks for a run that is not started.

use std::time::Duration;

use crate::analysis::validity;
use crate::base::threads;
use crate::config::validity::ValidityBounds;
use crate::engine::{self, DaemonFacts};
use crate::results::record::machine::Machine;
use crate::results::record::telemetry::HostWindow;
use crate::runner::environment::Environment;
use crate::runner::gpu_selection;
use crate::runner::preflight::{RunPaths, UnmetRequirement};
use crate::runner::session::error::SessionError;
use crate::runner::session::gpus;
use crate::runner::session::observer::Observer;
use crate::runner::session::preparation;
use crate::runner::session::request::RunRequest;
use crate::telemetry::{host, machine};

/// A host, and its container daemon or why it cannot be used.
pub(crate) struct HostFacts {
    pub(crate) machine: Machine,
    pub(crate) daemon: Result<DaemonFacts, String>,
    /// What other processes use of the processors; `None` if the kernel does not say it.
    pub(crate) load: Option<HostWindow>,
}

impl HostFacts {
    /// Why the host is too busy to measure on, if it is.
    pub(crate) fn busy(&self) -> Option<String> {
        validity::other_processes(self.load.as_ref()?, &ValidityBounds::default())
    }
}

/// How long other processes are watched.
const WATCHED: Duration = Duration::from_secs(1);

/// Reads the facts of this host.
pub(crate) fn host_facts(
    environment: &Environment,
    observer: &dyn Observer,
) -> Result<HostFacts, SessionError> {
    let open_files = machine::raise_open_files();
    let (mut machine, _) = gpus::machine(environment, &|notice| observer.notice(notice))?;
    machine.open_files = open_files.or(machine.open_files);
    let runtime = threads::runtime()?;
    let docker = environment.docker();
    let (daemon, load) = runtime
        .block_on(async { tokio::join!(engine::daemon_facts(&docker), host::other_processes(WATCHED)) });
    Ok(HostFacts {
        machine,
        daemon: daemon.map_err(|error| error.to_string()),
        load,
    })
}

/// What this host lacks for a run. Nothing is started, removed or locked; images are not pulled if the request says so.
pub(crate) fn unmet_requirements(
    request: &RunRequest<'_>,
    observer: &dyn Observer,
) -> Result<Vec<UnmetRequirement>, SessionError> {
    let mut plan = request.matrix.plan.clone();
    let environment = &request.environment;
    let (secrets, redactor) = preparation::plan_secrets(&plan, environment, observer);
    let runtime = threads::runtime()?;
    let mut host = preparation::host_env(request, secrets, redactor, observer)?;
    runtime.block_on(async {
        let notice = |notice| observer.notice(notice);
        let allowed = gpus::allowed_gpus(request.gpus.as_ref(), &plan, &host.machine, environment, &notice)?;
        host.devices = gpu_selection::choose_gpus(&plan, &host, &allowed).await;
        if plan.launches.iter().any(|launch| launch.nodes() > 1) {
            host.job_nodes = preparation::job_nodes(environment, observer).await;
        }
        if host.devices.len() < host.machine.gpus.len() {
            gpu_selection::restrict_to_leased(&mut plan);
        }
        let places = RunPaths {
            matrix: &request.matrix_file,
            results: &request.results,
        };
        Ok(preparation::run_preflight(&plan, &host, places, observer).await)
    })
}
