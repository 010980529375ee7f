//! An engine that runs: how it is watched, how its end is noticed, how it is stopped.

use std::fmt;

use crate::base::clock;
use crate::base::proc;
use crate::engine::endpoint::{Devices, Endpoint};
use crate::engine::executor::Executor;
use crate::engine::log::{Log, Omen};
use crate::engine::shared_memory;
use crate::results::record::cell::FailureClass;
use crate::results::record::post_mortem::End;

/// An engine that was started, or attached to. Dropping it kills what was started; [`Running::stop`] is the orderly way.
pub(crate) struct Running {
    pub(super) endpoint: Endpoint,
    pub(super) log: Log,
    pub(super) devices: Devices,
    pub(super) began: clock::Moment,
    pub(super) executor: Box<dyn Executor>,
    /// Its shared memory, where it shares this host's.
    pub(super) shm: Option<shared_memory::Watch>,
    /// Tells of new shared memory while it starts.
    pub(super) alarm: Option<shared_memory::Alarm>,
}

/// How an engine was found to be dead.
#[derive(Clone, Debug)]
pub(crate) struct Death {
    /// What became of it: `ended (…)` with `exit status: 1`, `signal: 9 (SIGKILL)` or, of a container, `exit code 137`, or with the line by
    /// which its log says that it is dead; or why it is given up though it may live.
    pub status: String,
    pub tail: Vec<String>,
    /// The line that explains it, where the recipe knows one or the container daemon tells.
    pub omen: Option<Omen>,
    /// How its process ended; `None` where it has not, and only its log says that it is dead.
    pub end: Option<End>,
    /// Whose fault it is.
    pub class: FailureClass,
}

impl Death {
    /// Whether a signal that asks a process to end may have caused it. SIGKILL asks nothing.
    pub(crate) fn may_follow_a_request(&self) -> bool {
        let is_kill = |end: &End| end.signal == Some(9) || end.code == Some(137);
        !self.end.as_ref().is_some_and(is_kill)
    }
}

/// How an engine was stopped.
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    /// How it ended, in words.
    pub how: String,
    /// The bytes of shared memory that it left behind and that were freed, where it left any.
    pub shm_freed_bytes: Option<u64>,
    pub seconds: f64,
}

impl Running {
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What identifies it: a process id, a container's name and id, or the address that was attached to.
    pub(crate) fn identity(&self) -> String {
        self.executor.identity()
    }

    pub(crate) const fn log(&self) -> &Log {
        &self.log
    }

    /// Where its devices are.
    pub(crate) const fn devices(&self) -> &Devices {
        &self.devices
    }

    /// When its process was started, after its environment was made.
    pub(crate) const fn began(&self) -> clock::Moment {
        self.began
    }

    /// The digest of the image that was started, for a container; the image's own id where it came from no registry.
    pub(crate) fn image_digest(&self) -> Option<&str> {
        self.executor.image_digest()
    }

    /// The size of that image on the daemon's disk, in bytes.
    pub(crate) fn image_bytes(&self) -> Option<u64> {
        self.executor.image_bytes()
    }

    /// Whether its log can be read; of an engine that someone else started it cannot.
    pub(super) fn is_audible(&self) -> bool {
        self.executor.has_log()
    }

    /// Whether its end is noticed; of an engine that someone else started it is not.
    pub(crate) fn sees_exit(&self) -> bool {
        self.executor.sees_exit()
    }

    /// Waits until it is dead: its process ended, or its log has a line that means so. An engine that someone else started is
    /// never seen dead. Nothing is lost when this is dropped; later calls give the same answer.
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

    /// Whether nobody can tell at the moment if it lives, as when the container daemon is away.
    pub(crate) fn is_unheard(&self) -> bool {
        self.executor.is_unheard()
    }

    /// An answer of it moved, so that it lives, whatever its container daemon says or does not.
    pub(crate) fn moves(&self) {
        self.executor.moves();
    }

    /// Nothing moves, so that its executor looks why: a container may be paused. What it finds ends [`Running::exited`].
    pub(crate) fn suspect(&self) {
        self.executor.suspect();
    }

    /// The stretches since it was asked last in which its container daemon was away and it lived on.
    pub(crate) fn take_unheard(&self) -> Vec<std::time::Duration> {
        self.executor.take_unheard()
    }

    /// Records which processes it has and what shared memory they use, by which alone what they leave is known as theirs. It reads
    /// `/proc`: do not call it while a load is driven.
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

    /// Stops it and waits until nothing of it is left. When this is dropped halfway what is left is killed at once.
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
