use std::collections::BTreeSet;
use std::path::Path;

use futures_util::future::BoxFuture;

use crate::engine::context::Asking;
use crate::engine::context::{Context, Logs};
use crate::engine::docker::host::Whereabouts;
use crate::engine::docker::lack::Lack;
use crate::engine::error::StartError;
use crate::engine::executor::launcher::Launcher;
use crate::engine::help_check;
use crate::engine::process;
use crate::engine::running::Running;
use crate::engine::start_progress::Tell;
use crate::plan::{Launch, Process};

impl Launcher for Process {
    fn start<'a>(
        &'a self,
        launch: &'a Launch,
        context: &'a Context,
        logs: Logs,
        _tell: Tell<'a>,
    ) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(process::start(launch, self, context, logs))
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn is_local(&self, _whereabouts: &Whereabouts) -> bool {
        true
    }

    fn takes_port(&self) -> bool {
        true
    }

    fn lacks(&self, launch: &Launch, path: Option<&str>) -> Option<Lack> {
        let program = self.command.first().filter(|_| self.venv.is_none())?;
        let is_known = program.holes().next().is_none();
        (is_known && !is_program(program.as_str(), path)).then(|| Lack {
            what: format!(
                "the program `{program}` of engine `{}` is not in PATH",
                launch.engine.name
            ),
            help: "install it, or give its environment with `venv:`".to_owned(),
        })
    }

    /// A venv that `matrix` creates may not exist yet.
    fn help_source(&self, launch: &Launch, asking: &Asking<'_>) -> Option<String> {
        self.venv.is_none().then(|| help_check::program(launch, asking))
    }

    fn help<'a>(
        &'a self,
        launch: &'a Launch,
        asking: &'a Asking<'a>,
    ) -> BoxFuture<'a, Result<BTreeSet<String>, String>> {
        Box::pin(help_check::of_program(launch, self, asking))
    }
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
