//! A process of an engine, here or on another node of the job.

use std::process::ExitStatus;
use std::time::Duration;

use crate::base::proc;
use crate::engine::process_group::ProcessGroup;
use crate::engine::remote_process::RemoteProcess;

/// A process of the engine.
pub(super) struct EngineProcess {
    /// Its name among several; `None` for an engine of one process.
    pub(super) name: Option<String>,
    pub(super) place: ProcessPlace,
}

pub(super) enum ProcessPlace {
    Here(Box<ProcessGroup>),
    /// On another node of the job.
    Elsewhere(Box<RemoteProcess>),
}

impl EngineProcess {
    pub(super) async fn wait_for_exit(&mut self) -> std::io::Result<ExitStatus> {
        match &mut self.place {
            ProcessPlace::Here(group) => group.wait_for_exit().await,
            ProcessPlace::Elsewhere(remote) => remote.wait_for_exit().await,
        }
    }

    /// Whether it has exited, without waiting.
    pub(super) fn has_exited(&mut self) -> bool {
        match &mut self.place {
            ProcessPlace::Here(group) => group.status().is_some(),
            ProcessPlace::Elsewhere(remote) => remote.has_exited(),
        }
    }

    /// Records its running processes, by which a later run finds what it leaves behind.
    pub(super) fn record_processes(&mut self) {
        if let ProcessPlace::Here(group) = &mut self.place {
            let mut record = group.record().clone();
            record.add(&proc::live_tree(&[group.root_pid()]));
            group.set_record(record);
        }
    }

    /// Stops it and describes its end.
    pub(super) async fn stop(&mut self, grace: Duration) -> String {
        match &mut self.place {
            ProcessPlace::Here(group) => group.stop(grace).await,
            ProcessPlace::Elsewhere(remote) => remote.stop().await,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        match &self.place {
            ProcessPlace::Here(group) => group.is_gone(),
            ProcessPlace::Elsewhere(remote) => remote.is_gone(),
        }
    }
}
