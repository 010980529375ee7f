//! What each executor does with an engine that runs ([`Executor`]), and with a launch that is to be started ([`launcher::Launcher`]). The set is
//! open: another place to run engines is a file here with both, and an arm of [`launcher::of`].

mod attach;
mod container;
mod imported;
pub(super) mod launcher;
mod process;

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::engine::endpoint::Endpoint;
use crate::engine::log::{Log, Omen};
use crate::engine::ownership::Marks;
use crate::engine::start_record::StartRecord;
use crate::results::record::cell::FailureClass;
use crate::results::record::post_mortem::End;

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

    /// Whether [`Executor::exited`] can return.
    fn sees_exit(&self) -> bool {
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

/// How an executor saw an engine end.
pub(super) struct Ended {
    /// In words: `ended (exit code 3)`.
    pub(super) how: String,
    /// What explains it, where the executor knows.
    pub(super) omen: Option<Omen>,
    pub(super) end: End,
    /// Whose fault it is, where the executor knows that it is not the engine's.
    pub(super) blame: Option<FailureClass>,
}

impl Ended {
    /// Whose fault it is as far as the executor knows.
    pub(super) fn class(&self) -> FailureClass {
        let omen = self.omen.as_ref().map(Omen::class);
        self.blame.or(omen).unwrap_or(FailureClass::Engine)
    }
}
