//! What an executor does with a launch that is to be started.

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

/// The executor of a launch.
pub(crate) fn of(place: &Place) -> &dyn Launcher {
    match place {
        Place::Container(container) => &**container,
        Place::Process(process) => process,
        Place::Attach(attach) => attach,
        Place::Imported(imported) => imported,
    }
}

/// Where and how a launch runs: what must hold before it is started, and its start.
pub(crate) trait Launcher: Sync {
    /// Starts the engine. Dropping the future ends what was begun.
    fn start<'a>(
        &'a self,
        launch: &'a Launch,
        context: &'a Context,
        logs: Logs,
        tell: Tell<'a>,
    ) -> BoxFuture<'a, Result<Running, StartError>>;

    /// Whether the engine uses this host's shared memory if it runs on this host.
    fn shares_memory(&self) -> bool {
        false
    }

    /// The name of the image that it is started from.
    fn image(&self) -> Option<&str> {
        None
    }

    /// Whether it will run on this host, started by us.
    fn is_local(&self, _whereabouts: &Whereabouts) -> bool {
        false
    }

    /// Whether it takes a port of this host.
    fn takes_port(&self) -> bool {
        false
    }

    /// What this host lacks for it, beside what a container daemon or an attached server says. `path` is the `PATH` of programs.
    fn lacks(&self, _launch: &Launch, _path: Option<&str>) -> Option<Lack> {
        None
    }

    /// Paths by which it shows that it is there, the first that says so counts.
    fn health_paths<'a>(&self, launch: &'a Launch) -> Vec<&'a str> {
        vec![&launch.contact.health]
    }

    /// Who is asked for the flags that it knows: an image or a program; `None` where nobody can be asked.
    fn help_source(&self, _launch: &Launch, _asking: &Asking<'_>) -> Option<String> {
        None
    }

    /// The long flags that it knows, by its own help.
    ///
    /// # Errors
    /// Why it cannot be asked, in words.
    fn help<'a>(
        &'a self,
        launch: &'a Launch,
        asking: &'a Asking<'a>,
    ) -> BoxFuture<'a, Result<BTreeSet<String>, String>>;
}
