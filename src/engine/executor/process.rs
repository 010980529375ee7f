use std::path::Path;

use futures_util::future::BoxFuture;

use crate::engine::context::HelpContext;
use crate::engine::context::{Logs, StartContext};
use crate::engine::docker::host::DockerEnv;
use crate::engine::docker::unmet::Unmet;
use crate::engine::environment;
use crate::engine::error::StartError;
use crate::engine::executor::Launcher;
use crate::engine::flag_parser::HelpFlags;
use crate::engine::help_check;
use crate::engine::packages::Packages;
use crate::engine::process;
use crate::engine::running::RunningEngine;
use crate::engine::start_progress::ProgressFn;
use crate::plan::{Launch, Process};

impl Launcher for Process {
    fn start<'a>(
        &'a self,
        launch: &'a Launch,
        context: &'a StartContext,
        logs: Logs,
        _report_progress: ProgressFn<'a>,
    ) -> BoxFuture<'a, Result<RunningEngine, StartError>> {
        Box::pin(process::start(launch, self, context, logs))
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn is_local(&self, _docker_env: &DockerEnv) -> bool {
        true
    }

    fn takes_port(&self) -> bool {
        true
    }

    fn unmet_requirement(&self, launch: &Launch, path: Option<&str>) -> Option<Unmet> {
        if let Some(command) = &self.container {
            return unmet_runtime(launch, command.runtime().name(), path);
        }
        let program = self.command.first().filter(|_| self.venv.is_none())?;
        let is_known = program.placeholders().next().is_none();
        (is_known && !is_program(program.as_str(), path)).then(|| Unmet {
            problem: format!(
                "the program `{program}` of engine `{}` is not in PATH",
                launch.engine.name
            ),
            help: "install the program, or set `venv:` to the Python environment that contains it".to_owned(),
        })
    }

    fn describe_inherited(&self, launch: &Launch, names: &[String]) -> Option<String> {
        environment::describe_environment(launch, self, names)
    }

    /// A venv that `matrix` creates may not exist yet.
    fn help_source(&self, launch: &Launch, asking: &HelpContext<'_>) -> Option<String> {
        if let Some(command) = &self.container {
            return Some(command.container.image.clone());
        }
        self.venv
            .is_none()
            .then(|| help_check::program_text(launch, asking))
    }

    fn packages<'a>(
        &'a self,
        launch: &'a Launch,
        asking: &'a HelpContext<'a>,
    ) -> BoxFuture<'a, Result<Packages, String>> {
        Box::pin(async move {
            match &self.container {
                Some(_) => Err(
                    "packages cannot be read from the image of a container that runs in a cluster job"
                        .to_owned(),
                ),
                None => help_check::program_packages(launch, self, asking),
            }
        })
    }

    fn flags_in_help<'a>(
        &'a self,
        launch: &'a Launch,
        asking: &'a HelpContext<'a>,
    ) -> BoxFuture<'a, Result<HelpFlags, String>> {
        match &self.container {
            Some(_) => Box::pin(help_check::container_process_flags(launch, self, asking)),
            None => Box::pin(help_check::program_flags(launch, self, asking)),
        }
    }
}

/// What this node lacks to start containers.
fn unmet_runtime(launch: &Launch, runtime: &str, path: Option<&str>) -> Option<Unmet> {
    (!is_program(runtime, path)).then(|| {
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Unmet {
            problem: format!(
                "the program `{runtime}`, which starts the container of engine `{}`, is not in PATH of the node `{node}`",
                launch.engine.name
            ),
            help: "install the program on the nodes, or add its module to `modules` of the cluster profile".to_owned(),
        }
    })
}

/// Whether the program exists, by its path or in `PATH`.
fn is_program(program: &str, path: Option<&str>) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    path.unwrap_or_default()
        .split(':')
        .any(|folder| Path::new(folder).join(program).is_file())
}
