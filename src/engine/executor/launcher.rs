//! The part of an executor that prepares and starts a launch.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;

use crate::engine::context::Asking;
use crate::engine::context::{Context, Logs};
use crate::engine::docker::host::Whereabouts;
use crate::engine::docker::lack::Lack;
use crate::engine::error::StartError;
use crate::engine::running::Running;
use crate::engine::start_progress::Tell;
use crate::plan::{Launch, Place};

pub(crate) fn of(place: &Place) -> &dyn Launcher {
    match place {
        Place::Container(container) => &**container,
        Place::Process(process) => process,
        Place::Attach(attach) => attach,
        Place::Imported(imported) => imported,
    }
}

/// What an executor knows about a launch before it starts, and how it starts it.
pub(crate) trait Launcher: Sync {
    /// Starts the engine. Dropping the future stops what was begun.
    fn start<'a>(
        &'a self,
        launch: &'a Launch,
        context: &'a Context,
        logs: Logs,
        tell: Tell<'a>,
    ) -> BoxFuture<'a, Result<Running, StartError>>;

    fn shares_memory(&self) -> bool {
        false
    }

    fn image(&self) -> Option<&str> {
        None
    }

    /// Whether `matrix` starts it on this host.
    fn is_local(&self, _whereabouts: &Whereabouts) -> bool {
        false
    }

    fn takes_port(&self) -> bool {
        false
    }

    /// What this host lacks for the launch. Container daemon and attached servers have checks of their own.
    /// `path` is the `PATH` of programs.
    fn lacks(&self, _launch: &Launch, _path: Option<&str>) -> Option<Lack> {
        None
    }

    /// Paths to ask for readiness; the first that answers counts.
    fn health_paths<'a>(&self, launch: &'a Launch) -> Vec<&'a str> {
        vec![&launch.contact.health]
    }

    /// The image or program whose `--help` lists the engine's flags; `None` if there is none.
    fn help_source(&self, _launch: &Launch, _asking: &Asking<'_>) -> Option<String> {
        None
    }

    /// The long flags that the engine's `--help` lists, or the reason that it cannot be asked.
    fn help<'a>(
        &'a self,
        launch: &'a Launch,
        asking: &'a Asking<'a>,
    ) -> BoxFuture<'a, Result<BTreeSet<String>, String>>;
}
