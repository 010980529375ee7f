//! Launches imported from files of another tool; they cannot be started.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;

use crate::engine::context::Asking;
use crate::engine::context::{Context, Logs};
use crate::engine::docker::lack::Lack;
use crate::engine::error::StartError;
use crate::engine::executor::launcher::Launcher;
use crate::engine::running::Running;
use crate::engine::start_progress::Tell;
use crate::plan::{Imported, Launch};

impl Launcher for Imported {
    fn start<'a>(
        &'a self,
        launch: &'a Launch,
        _context: &'a Context,
        _logs: Logs,
        _tell: Tell<'a>,
    ) -> BoxFuture<'a, Result<Running, StartError>> {
        let engine = launch.engine.name.clone();
        Box::pin(async { Err(StartError::NoCommand { engine }) })
    }

    fn lacks(&self, launch: &Launch, _path: Option<&str>) -> Option<Lack> {
        Some(Lack {
            what: format!("the launch `{}` was imported and cannot be started", launch.id),
            help: "write a matrix for it".to_owned(),
        })
    }

    fn help<'a>(
        &'a self,
        _launch: &'a Launch,
        _asking: &'a Asking<'a>,
    ) -> BoxFuture<'a, Result<BTreeSet<String>, String>> {
        Box::pin(async { Err("it was imported".to_owned()) })
    }
}
