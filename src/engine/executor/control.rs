//! Control of a running engine: its exit, stop, processes and records.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::engine::endpoint::{Endpoint, OtherServer};
use crate::engine::log::{FatalLine, Log};
use crate::engine::ownership::OwnershipTags;
use crate::engine::start_record::StartRecord;
use crate::results::record::cell::FailureClass;
use crate::results::record::post_mortem::EngineExitStatus;

/// Which processes are accepted as the engine when they listen on its port.
pub(crate) enum AllowedListeners {
    /// Any process that answers is the engine, because the port is published for it alone or the server is
    /// attached.
    Any,
    /// Only processes of the engine's tree, or with these ownership tags.
    Processes(Option<OwnershipTags>),
}

/// A running engine. Drop kills what was started.
pub(crate) trait Executor: Send + Sync {
    /// A process id, a container's name and id, or an address.
    fn identity(&self) -> String;

    fn image_digest(&self) -> Option<&str> {
        None
    }

    /// Size of the image on disk, in bytes.
    fn image_bytes(&self) -> Option<u64> {
        None
    }

    fn has_log(&self) -> bool {
        true
    }

    /// Whether the exit of the engine can be noticed by [`Executor::wait_for_exit`]; false for an attached server.
    fn can_observe_exit(&self) -> bool {
        true
    }

    /// Waits for the engine's exit. Cancel-safe; later calls give the same answer.
    fn wait_for_exit<'a>(&'a mut self, log: &'a Log) -> BoxFuture<'a, ExitCause>;

    /// Whether it is currently unknown if the engine runs, for example because the container daemon does not
    /// answer.
    fn is_liveness_unknown(&self) -> bool {
        false
    }

    /// Records that the engine sent part of an answer and therefore runs.
    fn note_activity(&self) {}

    /// Asks the executor to find out why no answer makes progress. If the engine is dead,
    /// [`Executor::wait_for_exit`] returns.
    fn request_check(&self) {}

    /// Takes the periods in which [`Executor::is_liveness_unknown`] was true and after which the engine still ran.
    fn take_unknown_periods(&self) -> Vec<Duration> {
        Vec::new()
    }

    /// Pids on this host from which all other processes of the engine descend; none if it runs elsewhere.
    /// Reads `/proc`.
    fn root_pids(&self, endpoint: &Endpoint) -> Vec<u32>;

    /// Further servers that share the load.
    fn other_endpoints(&self) -> &[Endpoint] {
        &[]
    }

    /// Whether it consists of several processes, of which one may end while others answer.
    fn has_several_processes(&self) -> bool {
        false
    }

    /// Whether one of its processes has exited, without waiting; false if that is not known.
    fn has_exited(&mut self) -> bool {
        false
    }

    /// Its servers besides the one that requests are sent to, which must be healthy too.
    fn other_servers(&self) -> &[OtherServer] {
        &[]
    }

    fn allowed_listeners(&self) -> AllowedListeners;

    /// The record on disk by which a later run finds what this start leaves behind.
    fn record(&self) -> Option<&StartRecord> {
        None
    }

    /// Whether the record lists the processes, because nothing else finds them.
    fn records_processes(&self) -> bool {
        false
    }

    /// Records the processes of each of several processes in a record of its own. Reads `/proc`.
    fn record_each_process(&mut self) {}

    fn set_record(&mut self, _record: StartRecord) {}

    /// Stops the engine. Returns how it ended, and the record, which the caller removes.
    fn stop(self: Box<Self>, log: &Log) -> BoxFuture<'_, (String, Option<StartRecord>)>;
}

/// An engine's exit as the executor saw it.
pub(crate) struct ExitCause {
    /// Description such as `the engine ended (exit code 3)`.
    pub(crate) description: String,
    /// The cause, if the executor knows it.
    pub(crate) fatal_line: Option<FatalLine>,
    pub(crate) end: EngineExitStatus,
    /// Whose fault it is, if the executor knows that it is not the engine's.
    pub(crate) fault: Option<FailureClass>,
    /// The lines of the log that belong to it, if the last ones of the log may not.
    pub(crate) tail: Option<Vec<String>>,
}

impl ExitCause {
    pub(crate) fn class(&self) -> FailureClass {
        let fatal_line = self.fatal_line.as_ref().map(FatalLine::class);
        self.fault.or(fatal_line).unwrap_or(FailureClass::Engine)
    }
}
