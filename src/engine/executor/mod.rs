//! What each executor does: with a launch that is to be started ([`Launcher`]), and with an engine that runs ([`Executor`]). The set is open:
//! another place to run engines is a file here with both, and an arm of [`of`].

mod attach;
mod container;
mod imported;
mod process;

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::help_check::Asking;
use super::ownership::Marks;
use super::start_record::StartRecord;
use super::{Context, Ended, Endpoint, Lack, Log, Logs, Running, StartError, Tell, Whereabouts};
use crate::plan::{Launch, Place};

/// The executor of a launch.
pub(super) fn of(place: &Place) -> &dyn Launcher {
    match place {
        Place::Container(container) => &**container,
        Place::Process(process) => process,
        Place::Attach(attach) => attach,
        Place::Imported(imported) => imported,
    }
}

/// Where and how a launch runs: what must hold before it is started, and its start.
pub(super) trait Launcher: Sync {
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

/// Who may answer on the port of an engine.
pub(super) enum PortHolder {
    /// Only the engine: somebody gives the port to it alone, or any process that answers is the engine.
    EngineAlone,
    /// Processes of the engine's tree, or with these marks.
    Processes(Option<Marks>),
}

/// An engine as its executor runs it. Dropping it kills what was started.
pub(super) trait Executor: Send + Sync {
    /// What identifies it: a process id, a container's name and id, or an address.
    fn identity(&self) -> String;

    /// The digest of the image that was started, if it was started from one.
    fn image_digest(&self) -> Option<&str> {
        None
    }

    /// The size of that image on disk, in bytes.
    fn image_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether its log can be read.
    fn has_log(&self) -> bool {
        true
    }

    /// Waits until it ended. Nothing is lost when the future is dropped; later calls give the same answer.
    fn exited<'a>(&'a mut self, log: &'a Log) -> BoxFuture<'a, Ended>;

    /// Whether nothing tells at the moment if it lives, as when a container daemon is away.
    fn is_unheard(&self) -> bool {
        false
    }

    /// An answer of it moved, so it lives, whatever its executor says.
    fn moves(&self) {}

    /// Nothing moves, so the executor looks why. What it finds ends [`Executor::exited`].
    fn suspect(&self) {}

    /// The stretches since the last call in which [`Executor::is_unheard`] held and it lived on.
    fn take_unheard(&self) -> Vec<Duration> {
        Vec::new()
    }

    /// The processes of this host from which all others of the engine descend; none where it runs elsewhere. It reads `/proc`.
    fn root_pids(&self, endpoint: &Endpoint) -> Vec<u32>;

    /// Who may answer on its port.
    fn port_holder(&self) -> PortHolder;

    /// What is kept on disk of this start, by which a later run finds what it leaves.
    fn record(&self) -> Option<&StartRecord> {
        None
    }

    /// Whether the record lists its processes, because nothing else finds them.
    fn records_processes(&self) -> bool {
        false
    }

    /// Replaces the record of this start.
    fn set_record(&mut self, _record: StartRecord) {}

    /// Stops it. Returns how it ended, in words, and the record that nobody needs any more.
    fn stop(self: Box<Self>, log: &Log) -> BoxFuture<'_, (String, Option<StartRecord>)>;
}
