//! Launches on an attached server.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;

use crate::engine::attach;
use crate::engine::context::Asking;
use crate::engine::context::{Context, Logs};
use crate::engine::error::StartError;
use crate::engine::executor::launcher::Launcher;
use crate::engine::running::Running;
use crate::engine::start_progress::Tell;
use crate::plan::{Attach, Launch};

impl Launcher for Attach {
    fn start<'a>(
        &'a self,
        launch: &'a Launch,
        context: &'a Context,
        _logs: Logs,
        _tell: Tell<'a>,
    ) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move { attach::start(launch, self, context) })
    }

    /// Hosted APIs often have no health check, so the list of models is tried as well.
    fn health_paths<'a>(&self, launch: &'a Launch) -> Vec<&'a str> {
        let contact = &launch.contact;
        vec![&contact.health, contact.models.as_deref().unwrap_or("/v1/models")]
    }

    fn help<'a>(
        &'a self,
        _launch: &'a Launch,
        _asking: &'a Asking<'a>,
    ) -> BoxFuture<'a, Result<BTreeSet<String>, String>> {
        Box::pin(async { Err("somebody else started it".to_owned()) })
    }
}
