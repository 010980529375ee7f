//! Launches on an attached server.

use futures_util::future::BoxFuture;

use crate::engine::attach;
use crate::engine::context::HelpContext;
use crate::engine::context::{Logs, StartContext};
use crate::engine::error::StartError;
use crate::engine::executor::Launcher;
use crate::engine::flag_parser::HelpFlags;
use crate::engine::running::RunningEngine;
use crate::engine::start_progress::ProgressFn;
use crate::plan::{AttachedServer, Launch};

impl Launcher for AttachedServer {
    fn start<'a>(
        &'a self,
        launch: &'a Launch,
        context: &'a StartContext,
        _logs: Logs,
        _report_progress: ProgressFn<'a>,
    ) -> BoxFuture<'a, Result<RunningEngine, StartError>> {
        Box::pin(async move { attach::start(launch, self, context) })
    }

    /// Hosted APIs often have no health check, so the list of models is tried as well.
    fn health_paths<'a>(&self, launch: &'a Launch) -> Vec<&'a str> {
        let api = &launch.api;
        vec![&api.health, api.models.as_deref().unwrap_or("/v1/models")]
    }

    fn flags_in_help<'a>(
        &'a self,
        _launch: &'a Launch,
        _asking: &'a HelpContext<'a>,
    ) -> BoxFuture<'a, Result<HelpFlags, String>> {
        Box::pin(async { Err("the server is not started by `matrix`: the engine is attached".to_owned()) })
    }
}
