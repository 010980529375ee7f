//! The executors: [`Launcher`] prepares and starts a launch, [`control::Executor`] controls the running engine.
//! To add one, implement both in a file here and add an arm to [`launcher_for`].

mod attach;
mod container;
pub(super) mod control;
mod imported;
mod process;

use futures_util::future::BoxFuture;

use crate::engine::context::HelpContext;
use crate::engine::context::{Logs, StartContext};
use crate::engine::docker::host::DockerEnv;
use crate::engine::docker::unmet::Unmet;
use crate::engine::error::StartError;
use crate::engine::flag_parser::HelpFlags;
use crate::engine::packages::Packages;
use crate::engine::running::RunningEngine;
use crate::engine::start_progress::ProgressFn;
use crate::plan::{ExecutorSpec, Launch};

pub(crate) fn launcher_for(place: &ExecutorSpec) -> &dyn Launcher {
    match place {
        ExecutorSpec::Container(container) => &**container,
        ExecutorSpec::Process(process) => process,
        ExecutorSpec::Attach(attach) => attach,
        ExecutorSpec::Imported(imported) => imported,
    }
}

/// What an executor knows about a launch before it starts, and how it starts it.
pub(crate) trait Launcher: Sync {
    /// Starts the engine. Dropping the future stops what was begun.
    fn start<'a>(
        &'a self,
        launch: &'a Launch,
        context: &'a StartContext,
        logs: Logs,
        report_progress: ProgressFn<'a>,
    ) -> BoxFuture<'a, Result<RunningEngine, StartError>>;

    fn shares_memory(&self) -> bool {
        false
    }

    fn image(&self) -> Option<&str> {
        None
    }

    /// Whether `matrix` starts it on this host.
    fn is_local(&self, _docker_env: &DockerEnv) -> bool {
        false
    }

    fn takes_port(&self) -> bool {
        false
    }

    /// What this host lacks for the launch. Container daemon and attached servers have checks of their own.
    /// `path` is the `PATH` of programs.
    fn unmet_requirement(&self, _launch: &Launch, _path: Option<&str>) -> Option<Unmet> {
        None
    }

    /// Describes what the engine inherits of our environment variables, whose names are given; `None` if there
    /// is nothing to say.
    fn describe_inherited(&self, _launch: &Launch, _names: &[String]) -> Option<String> {
        None
    }

    /// Paths to ask for readiness; the first that answers counts.
    fn health_paths<'a>(&self, launch: &'a Launch) -> Vec<&'a str> {
        vec![&launch.api.health]
    }

    /// The image or program whose `--help` lists the engine's flags; `None` if there is none.
    fn help_source(&self, _launch: &Launch, _asking: &HelpContext<'_>) -> Option<String> {
        None
    }

    /// The Python packages beside the engine, or the reason that they are unknown; none if it is no Python program.
    fn packages<'a>(
        &'a self,
        _launch: &'a Launch,
        _asking: &'a HelpContext<'a>,
    ) -> BoxFuture<'a, Result<Packages, String>> {
        Box::pin(async {
            Err(
                "the engine's packages can be read only if it runs as a process or in a Docker container"
                    .to_owned(),
            )
        })
    }

    /// The long flags that the engine's `--help` lists, or the reason that it cannot be asked.
    fn flags_in_help<'a>(
        &'a self,
        launch: &'a Launch,
        asking: &'a HelpContext<'a>,
    ) -> BoxFuture<'a, Result<HelpFlags, String>>;
}
