//! Launches in a container.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;

use crate::engine::context::Asking;
use crate::engine::context::{Context, Logs};
use crate::engine::docker;
use crate::engine::docker::host::Whereabouts;
use crate::engine::error::StartError;
use crate::engine::executor::launcher::Launcher;
use crate::engine::help_check;
use crate::engine::running::Running;
use crate::engine::start_progress::Tell;
use crate::plan::{Container, Launch};

impl Launcher for Container {
    fn start<'a>(
        &'a self,
        launch: &'a Launch,
        context: &'a Context,
        logs: Logs,
        tell: Tell<'a>,
    ) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(docker::start(launch, self, context, logs, tell))
    }

    fn shares_memory(&self) -> bool {
        self.ipc.as_deref() == Some("host")
    }

    fn image(&self) -> Option<&str> {
        Some(&self.image)
    }

    fn is_local(&self, whereabouts: &Whereabouts) -> bool {
        docker::is_here(whereabouts)
    }

    fn takes_port(&self) -> bool {
        true
    }

    fn help_source(&self, _launch: &Launch, _asking: &Asking<'_>) -> Option<String> {
        Some(self.image.clone())
    }

    fn help<'a>(
        &'a self,
        launch: &'a Launch,
        asking: &'a Asking<'a>,
    ) -> BoxFuture<'a, Result<BTreeSet<String>, String>> {
        Box::pin(help_check::of_image(launch, self, asking))
    }
}
