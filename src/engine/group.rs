//! A process group of ours: spawned with marks, its output read from the first byte, ended with everything it started.
//!
//! Whoever drops a [`Group`] kills it; [`Group::stop`] is the orderly way.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use procfs::process::Process;
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::engine::marks::{self, Marks, Seen};

/// How often a group is looked at while it ends.
const LOOK: Duration = Duration::from_millis(30);

/// How long the system may take to remove killed processes.
const KILLED: Duration = Duration::from_secs(10);

/// What is to be spawned.
pub(crate) struct Order {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// Variables of ours that it does not get.
    pub(crate) withheld: Vec<String>,
    /// Variables set on top of ours.
    pub(crate) env: Vec<(String, OsString)>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) marks: Marks,
    /// The `matrix` binary that ties the process to our life; `None` spawns the program itself.
    pub(crate) shim: Option<PathBuf>,
}

/// A process and everything it starts.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    pid: i32,
    session: i32,
    marks: Marks,
    is_gone: bool,
}

impl Group {
    /// Spawns a group. Into `writer` goes what the process and all its descendants write to stdout and stderr, in order.
    ///
    /// Must be called on a thread that lives as long as the runtime: with a shim the process ends with that thread.
    pub(crate) fn spawn(order: &Order, writer: &io::PipeWriter) -> io::Result<Self> {
        let mut command = match &order.shim {
            Some(shim) => shimmed(shim, &order.program),
            None => Command::new(&order.program),
        };
        command.args(&order.args);
        for name in &order.withheld {
            command.env_remove(name);
        }
        command
            .envs(order.env.iter().map(|(name, value)| (name, value)))
            .envs(order.marks.variables())
            // Where it is set every start compiles all of an engine's Python anew.
            .env_remove("PYTHONDONTWRITEBYTECODE")
            // A process that gives itself a title would otherwise wipe the marks from its environment.
            .env("SPT_NOENV", "1")
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer.try_clone()?)
            .process_group(0)
            .kill_on_drop(true);
        if let Some(dir) = &order.dir {
            command.current_dir(dir);
        }
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        // Not by `getsid`: where the session was begun outside our namespace of process ids (in a container, under a build's runner),
        // it is 0, which `rustix` takes for impossible.
        let session = Process::myself()
            .and_then(|process| process.stat())
            .map_or(0, |stat| stat.session);
        Ok(Self {
            pid: pid.expect("a process that was just spawned has an id"),
            child,
            session,
            marks: order.marks.clone(),
            is_gone: false,
        })
    }

    /// The id of its first process, which is also the group's.
    pub(crate) const fn pid(&self) -> i32 {
        self.pid
    }

    /// The marks of everything that it starts.
    pub(crate) const fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Waits until its first process ends. Nothing is lost when this is dropped; later calls give the same answer.
    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends it: SIGTERM to all, after `grace` SIGKILL, then waits until nothing of it lives.
    /// Says how, in words.
    pub(crate) async fn stop(&mut self, grace: Duration) -> String {
        let before = self.child.try_wait().ok().flatten();
        self.signal(Signal::TERM);
        let ended = self.all_gone(grace).await;
        let mut left = Vec::new();
        if !ended {
            self.signal(Signal::KILL);
            if !self.all_gone(KILLED).await {
                left = self.alive();
            }
        }
        let status = self.child.try_wait().ok().flatten();
        let status = status.map_or_else(|| "no exit status".to_owned(), |status| status.to_string());
        let mut how = match (before, ended) {
            (Some(_), true) => format!("it had ended before ({status})"),
            (Some(_), false) => format!("it had ended before ({status}); what it had started was killed"),
            (None, true) => format!("it ended on SIGTERM ({status})"),
            (None, false) => format!(
                "it was killed after {} of grace ({status})",
                crate::base::units::Span(grace)
            ),
        };
        if !left.is_empty() {
            let left: Vec<String> = left
                .iter()
                .map(|seen| format!("{} `{}`", seen.pid, seen.command))
                .collect();
            how.push_str(&format!("; still there: {}", left.join(", ")));
        }
        self.is_gone = left.is_empty();
        how
    }

    /// Whether all of it is gone within `limit`.
    async fn all_gone(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let is_reaped = match timeout(LOOK, self.child.wait()).await {
                Ok(_) => {
                    // What a dying parent leaves may be seen between two programs, without marks: look twice.
                    if self.alive().is_empty() {
                        sleep(LOOK / 3).await;
                    }
                    true
                }
                Err(_) => false,
            };
            if is_reaped && self.alive().is_empty() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            if is_reaped {
                sleep(LOOK).await;
            }
        }
    }

    /// What lives of it: by its marks or its group.
    fn alive(&self) -> Vec<Seen> {
        let mut all = marks::processes();
        all.retain(|seen| seen.marks.as_ref() == Some(&self.marks) || self.is_member(seen));
        all
    }

    /// Whether a process is of our group. The number alone is not enough: once the group is gone it may come back.
    fn is_member(&self, seen: &Seen) -> bool {
        let is_same_owner = seen.marks.as_ref().is_none_or(|marks| *marks == self.marks);
        seen.pgid == self.pid && is_same_owner && (seen.session == self.session || seen.session == self.pid)
    }

    fn signal(&self, signal: Signal) {
        // As long as its first process is not reaped the group's number is surely ours.
        let group = self.child.id().and_then(|_| Pid::from_raw(self.pid));
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, signal);
        }
        for seen in self.alive() {
            if group.is_none() || seen.pgid != self.pid {
                seen.signal(signal);
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_gone {
            self.signal(Signal::KILL);
            // What was being forked at that moment.
            self.signal(Signal::KILL);
        }
    }
}

/// `matrix __exec <parent> -- <program>`: see [`exec_shim`].
fn shimmed(shim: &Path, program: &Path) -> Command {
    let mut command = Command::new(shim);
    command
        .arg("__exec")
        .arg(std::process::id().to_string())
        .arg("--")
        .arg(program);
    command
}

/// Becomes `program`, which gets SIGTERM when the thread of `parent` that started it ends, however it ends.
///
/// This is the body of the hidden subcommand `matrix __exec <parent-pid> -- <program> <args…>`. It returns only on failure: with
/// [`io::ErrorKind::NotFound`] and its like where the program cannot be started, with [`io::ErrorKind::Interrupted`] where the parent
/// ended before.
pub fn exec_shim(parent: i32, program: OsString, args: Vec<OsString>) -> io::Error {
    use std::os::unix::process::CommandExt;
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::TERM)) {
        return error.into();
    }
    // The parent may have ended before the signal was asked for; then it never comes.
    if rustix::process::getppid().map(Pid::as_raw_pid) != Some(parent) {
        return io::Error::new(
            io::ErrorKind::Interrupted,
            "the process that asked for it has ended",
        );
    }
    std::process::Command::new(program).args(args).exec()
}
