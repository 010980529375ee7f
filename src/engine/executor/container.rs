//! Launches in a container.

use futures_util::future::BoxFuture;

use crate::engine::context::HelpContext;
use crate::engine::context::{Logs, StartContext};
use crate::engine::docker;
use crate::engine::docker::host::DockerEnv;
use crate::engine::error::StartError;
use crate::engine::executor::Launcher;
use crate::engine::flag_parser::HelpFlags;
use crate::engine::help_check;
use crate::engine::packages::Packages;
use crate::engine::running::RunningEngine;
use crate::engine::start_progress::ProgressFn;
use crate::plan::{Container, Launch};

impl Launcher for Container {
    fn start<'a>(
        &'a self,
        launch: &'a Launch,
        context: &'a StartContext,
        logs: Logs,
        report_progress: ProgressFn<'a>,
    ) -> BoxFuture<'a, Result<RunningEngine, StartError>> {
        Box::pin(docker::start(launch, self, context, logs, report_progress))
    }

    fn shares_memory(&self) -> bool {
        self.ipc.as_deref() == Some("host")
    }

    fn image(&self) -> Option<&str> {
        Some(&self.image)
    }

    fn is_local(&self, docker_env: &DockerEnv) -> bool {
        docker::is_daemon_local(docker_env)
    }

    fn takes_port(&self) -> bool {
        true
    }

    fn help_source(&self, _launch: &Launch, _asking: &HelpContext<'_>) -> Option<String> {
        Some(self.image.clone())
    }

    fn packages<'a>(
        &'a self,
        launch: &'a Launch,
        asking: &'a HelpContext<'a>,
    ) -> BoxFuture<'a, Result<Packages, String>> {
        Box::pin(help_check::image_packages(launch, self, asking))
    }

    fn flags_in_help<'a>(
        &'a self,
        launch: &'a Launch,
        context: &'a HelpContext<'a>,
    ) -> BoxFuture<'a, Result<HelpFlags, String>> {
        Box::pin(help_check::image_flags(launch, self, context))
    }
}
