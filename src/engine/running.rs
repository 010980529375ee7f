//! A running engine: its facts, its exit, and its stop.

use std::fmt;

use crate::base::clock;
use crate::base::proc;
use crate::engine::endpoint::{Devices, Endpoint};
use crate::engine::executor::Executor;
use crate::engine::log::{Log, Omen};
use crate::engine::shared_memory;
use crate::results::record::cell::FailureClass;
use crate::results::record::post_mortem::End;

/// An engine that was started or attached to. Drop kills what was started; [`Running::stop`] stops it with a
/// grace period.
pub(crate) struct Running {
    pub(super) endpoint: Endpoint,
    pub(super) log: Log,
    pub(super) devices: Devices,
    pub(super) began: clock::Moment,
    pub(super) executor: Box<dyn Executor>,
    /// Its shared memory, if it shares the host's.
    pub(super) shm: Option<shared_memory::Watch>,
    /// Reports new shared memory during the start.
    pub(super) alarm: Option<shared_memory::Alarm>,
}

#[derive(Clone, Debug)]
pub(crate) struct Death {
    /// What happened: `ended (…)` with `exit status: 1`, `signal: 9 (SIGKILL)`, a container's `exit code 137`
    /// or the fatal log line; or why the engine is given up although it may run.
    pub status: String,
    pub tail: Vec<String>,
    /// The log line that explains it, from the recipe's patterns or from the container daemon.
    pub omen: Option<Omen>,
    /// Exit code and signal; `None` if the process runs and only its log says that the engine is dead.
    pub end: Option<End>,
    pub class: FailureClass,
}

impl Death {
    /// Whether a signal such as SIGTERM may have caused it. False for SIGKILL.
    pub(crate) fn may_follow_a_request(&self) -> bool {
        let is_kill = |end: &End| end.signal == Some(9) || end.code == Some(137);
        !self.end.as_ref().is_some_and(is_kill)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    pub how: String,
    /// Size of the shared memory that it left behind and that was freed; `None` if it left none.
    pub shm_freed_bytes: Option<u64>,
    pub seconds: f64,
}

impl Running {
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
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
    pub(crate) const fn began(&self) -> clock::Moment {
        self.began
    }

    /// The digest of the image that was started, for a container; the image's own id where it came from no registry.
    pub(crate) fn image_digest(&self) -> Option<&str> {
        self.executor.image_digest()
    }

    /// Size of the image on disk, in bytes.
    pub(crate) fn image_bytes(&self) -> Option<u64> {
        self.executor.image_bytes()
    }

    /// Whether its log can be read; false for an attached server.
    pub(super) fn is_audible(&self) -> bool {
        self.executor.has_log()
    }

    /// Whether its exit is noticed; false for an attached server.
    pub(crate) fn sees_exit(&self) -> bool {
        self.executor.sees_exit()
    }

    /// Waits until the engine is dead: its process exited or its log has a fatal line. Never returns for an
    /// attached server. Cancel-safe; later calls give the same answer.
    pub(crate) async fn exited(&mut self) -> Death {
        let ended = tokio::select! {
            biased;
            ended = self.executor.exited(&self.log) => Ok(ended),
            omen = self.log.fatal() => Err(omen),
        };
        let tail = self.log.tail();
        match ended {
            Ok(mut ended) => {
                ended.omen = ended.omen.or_else(|| self.log.omen());
                Death {
                    class: ended.class(),
                    status: ended.how,
                    tail,
                    omen: ended.omen,
                    end: Some(ended.end),
                }
            }
            Err(omen) => Death {
                class: omen.class(),
                status: format!("ended (its log says `{}`)", omen.line.trim()),
                tail,
                omen: Some(omen),
                end: None,
            },
        }
    }

    /// Whether it is currently unknown if the engine runs, for example because the container daemon does not
    /// answer.
    pub(crate) fn is_unheard(&self) -> bool {
        self.executor.is_unheard()
    }

    /// Records that the engine sent part of an answer and therefore runs, whatever the container daemon
    /// reports.
    pub(crate) fn moves(&self) {
        self.executor.moves();
    }

    /// Asks the executor why no answer makes progress; a container may be paused. If the engine is dead,
    /// [`Running::exited`] returns.
    pub(crate) fn suspect(&self) {
        self.executor.suspect();
    }

    /// Takes the periods in which the container daemon did not answer and after which the engine still ran.
    pub(crate) fn take_unheard(&self) -> Vec<std::time::Duration> {
        self.executor.take_unheard()
    }

    /// Records the engine's processes and their shared memory, because nothing else identifies what they
    /// leave behind. Reads `/proc`: do not call it during a measurement.
    pub(crate) async fn look(&mut self) {
        let mut shm = self.shm.clone();
        let mut record = self.executor.record().cloned();
        let records_processes = self.executor.records_processes();
        if shm.is_none() && record.is_none() {
            return;
        }
        let roots = self.tree();
        let looking = tokio::task::spawn_blocking(move || {
            let members = proc::live_tree(&roots);
            if let Some(shm) = &mut shm {
                shm.look(&members);
            }
            if let Some(record) = &mut record {
                if records_processes {
                    record.add(&members);
                }
                if let Some(shm) = &shm {
                    record.add_shared(shm.seen());
                }
            }
            (shm, record)
        });
        let record;
        (self.shm, record) = looking.await.expect("looking does not panic");
        if let Some(record) = record {
            self.executor.set_record(record);
        }
    }

    /// Stops the engine and waits until no process is left. Dropping the future kills the rest at once.
    pub(crate) async fn stop(mut self) -> Stopped {
        let began = clock::now();
        self.look().await;
        let (how, record) = self.executor.stop(&self.log).await;
        let freed = match self.shm {
            Some(watch) => tokio::task::spawn_blocking(move || watch.free())
                .await
                .expect("removing files does not panic"),
            None => shared_memory::Freed::default(),
        };
        if let Some(record) = record {
            record.remove();
        }
        Stopped {
            how: format!("{how}{}", freed.words()),
            shm_freed_bytes: (freed.files > 0).then_some(freed.bytes),
            seconds: clock::now().since(began).as_secs_f64(),
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("identity", &self.identity())
            .finish_non_exhaustive()
    }
}
