//! Launches imported from files of another tool; they cannot be started.

use futures_util::future::BoxFuture;

use crate::engine::context::HelpContext;
use crate::engine::context::{Logs, StartContext};
use crate::engine::docker::unmet::Unmet;
use crate::engine::error::StartError;
use crate::engine::executor::Launcher;
use crate::engine::flag_parser::HelpFlags;
use crate::engine::running::RunningEngine;
use crate::engine::start_progress::ProgressFn;
use crate::plan::{ImportedLaunch, Launch};

impl Launcher for ImportedLaunch {
    fn start<'a>(
        &'a self,
        launch: &'a Launch,
        _context: &'a StartContext,
        _logs: Logs,
        _report_progress: ProgressFn<'a>,
    ) -> BoxFuture<'a, Result<RunningEngine, StartError>> {
        let engine = launch.engine.name.clone();
        Box::pin(async { Err(StartError::NoCommand { engine }) })
    }

    fn unmet_requirement(&self, launch: &Launch, _path: Option<&str>) -> Option<Unmet> {
        Some(Unmet {
            problem: format!("the launch `{}` was imported and cannot be started", launch.id),
            help: "write a matrix that starts the engine".to_owned(),
        })
    }

    fn flags_in_help<'a>(
        &'a self,
        _launch: &'a Launch,
        _asking: &'a HelpContext<'a>,
    ) -> BoxFuture<'a, Result<HelpFlags, String>> {
        Box::pin(async { Err("its launch was imported".to_owned()) })
    }
}
