//! A running engine: its facts, its exit, and its stop.

use std::fmt;

use crate::base::clock;
use crate::base::proc;
use crate::engine::endpoint::{Devices, Endpoint, OtherServer};
use crate::engine::executor::control::Executor;
use crate::engine::log::{FatalLine, Log};
use crate::engine::shared_memory;
use crate::results::record::cell::FailureClass;
use crate::results::record::post_mortem::EngineExitStatus;

/// An engine that was started or attached to. Drop kills what was started; [`RunningEngine::stop`] stops it
/// with a grace period.
pub(crate) struct RunningEngine {
    pub(super) endpoint: Endpoint,
    pub(super) log: Log,
    pub(super) devices: Devices,
    pub(super) started_at: clock::MonotonicTime,
    pub(super) executor: Box<dyn Executor>,
    /// Its shared memory, if it shares the host's.
    pub(super) shared_memory: Option<shared_memory::Tracker>,
    /// Reports new shared memory during the start.
    pub(super) shared_memory_events: Option<shared_memory::CreationEvents>,
}

#[derive(Clone, Debug)]
pub(crate) struct EngineExit {
    /// What happened: `the engine ended (…)` with `exit status: 1`, `signal: 9 (SIGKILL)`, a container's `exit code 137`
    /// or the fatal log line; or why the engine is given up although it may run.
    pub(crate) status: String,
    pub(crate) tail: Vec<String>,
    /// The log line that explains it, from the recipe's patterns or from the container daemon.
    pub(crate) fatal_line: Option<FatalLine>,
    /// Exit code and signal; `None` if the process runs and only its log reports a fatal error.
    pub(crate) end: Option<EngineExitStatus>,
    pub(crate) class: FailureClass,
}

impl EngineExit {
    /// Whether a signal such as SIGTERM may have caused it. False for SIGKILL.
    pub(crate) fn may_follow_signal(&self) -> bool {
        let is_kill = |end: &EngineExitStatus| end.signal == Some(9) || end.code == Some(137);
        !self.end.as_ref().is_some_and(is_kill)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct StopResult {
    pub(crate) description: String,
    /// Size of the shared memory that it left behind and that was freed; `None` if it left none.
    pub(crate) shm_freed_bytes: Option<u64>,
    pub(crate) seconds: f64,
}

impl RunningEngine {
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Further servers that share the load.
    pub(crate) fn other_endpoints(&self) -> &[Endpoint] {
        self.executor.other_endpoints()
    }

    /// Whether it consists of several processes and one of them has exited: others may still answer.
    pub(crate) fn has_lost_process(&mut self) -> bool {
        self.executor.has_several_processes() && self.executor.has_exited()
    }

    /// Its servers besides the one that requests are sent to.
    pub(crate) fn other_servers(&self) -> &[OtherServer] {
        self.executor.other_servers()
    }

    /// A process id, a container's name and id, or an attached server's address.
    pub(crate) fn identity(&self) -> String {
        self.executor.identity()
    }

    pub(crate) const fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) const fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Start of the process, after its environment was created.
    pub(crate) const fn started_at(&self) -> clock::MonotonicTime {
        self.started_at
    }

    /// The digest of a container's image; the image id if the image came from no registry.
    pub(crate) fn image_digest(&self) -> Option<&str> {
        self.executor.image_digest()
    }

    /// Size of the image on disk, in bytes.
    pub(crate) fn image_bytes(&self) -> Option<u64> {
        self.executor.image_bytes()
    }

    /// Whether its log can be read; false for an attached server.
    pub(super) fn has_log(&self) -> bool {
        self.executor.has_log()
    }

    /// Whether its exit is noticed; false for an attached server.
    pub(crate) fn can_observe_exit(&self) -> bool {
        self.executor.can_observe_exit()
    }

    /// Waits until the engine is dead: its process exited or its log has a fatal line. Never returns for an
    /// attached server. Cancel-safe; later calls give the same answer.
    pub(crate) async fn wait_for_exit(&mut self) -> EngineExit {
        let ended = tokio::select! {
            biased;
            ended = self.executor.wait_for_exit(&self.log) => Ok(ended),
            fatal_line = self.log.wait_fatal_line() => Err(fatal_line),
        };
        let tail = self.log.tail();
        match ended {
            Ok(mut ended) => {
                let tail = ended.tail.take().unwrap_or(tail);
                ended.fatal_line = ended.fatal_line.or_else(|| self.log.fatal_line());
                EngineExit {
                    class: ended.class(),
                    status: ended.description,
                    tail,
                    fatal_line: ended.fatal_line,
                    end: Some(ended.end),
                }
            }
            Err(fatal_line) => EngineExit {
                class: fatal_line.class(),
                status: format!("the engine ended (its log says `{}`)", fatal_line.line.trim()),
                tail,
                fatal_line: Some(fatal_line),
                end: None,
            },
        }
    }

    /// Whether it is currently unknown if the engine runs, for example because the container daemon does not
    /// answer.
    pub(crate) fn is_liveness_unknown(&self) -> bool {
        self.executor.is_liveness_unknown()
    }

    /// Records that the engine sent part of an answer and therefore runs, whatever the container daemon
    /// reports.
    pub(crate) fn note_activity(&self) {
        self.executor.note_activity();
    }

    /// Asks the executor why no answer makes progress; a container may be paused. If the engine is dead,
    /// [`RunningEngine::wait_for_exit`] returns.
    pub(crate) fn request_check(&self) {
        self.executor.request_check();
    }

    /// Takes the periods in which the container daemon did not answer and after which the engine still ran.
    pub(crate) fn take_unknown_periods(&self) -> Vec<std::time::Duration> {
        self.executor.take_unknown_periods()
    }

    /// Records the engine's processes and their shared memory, because nothing else identifies what they
    /// leave behind. Reads `/proc`: do not call it during a measurement.
    pub(crate) async fn record_processes(&mut self) {
        let mut shm = self.shared_memory.clone();
        let mut record = self.executor.record().cloned();
        let records_processes = self.executor.records_processes();
        if shm.is_none() && record.is_none() {
            return;
        }
        let roots = self.root_pids();
        let looking = tokio::task::spawn_blocking(move || {
            let members = proc::live_tree(&roots);
            if let Some(shm) = &mut shm {
                shm.record_open_files(&members);
            }
            if let Some(record) = &mut record {
                if records_processes {
                    record.add(&members);
                }
                if let Some(shm) = &shm {
                    record.add_shared(shm.engine_files());
                }
            }
            (shm, record)
        });
        let record;
        (self.shared_memory, record) = looking.await.expect("looking does not panic");
        if let Some(record) = record {
            self.executor.set_record(record);
        }
        self.executor.record_each_process();
    }

    /// Stops the engine and waits until no process is left. Dropping the future kills the rest at once.
    pub(crate) async fn stop(mut self) -> StopResult {
        let started_at = clock::now();
        self.record_processes().await;
        let (description, record) = self.executor.stop(&self.log).await;
        let cleanup = match self.shared_memory {
            Some(watch) => tokio::task::spawn_blocking(move || watch.remove_leaked())
                .await
                .expect("removing files does not panic"),
            None => shared_memory::Cleanup::default(),
        };
        if let Some(record) = record {
            record.remove();
        }
        StopResult {
            description: format!("{description}{}", cleanup.summary()),
            shm_freed_bytes: (cleanup.files > 0).then_some(cleanup.bytes),
            seconds: clock::now().since(started_at).as_secs_f64(),
        }
    }
}

impl fmt::Debug for RunningEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("identity", &self.identity())
            .finish_non_exhaustive()
    }
}
