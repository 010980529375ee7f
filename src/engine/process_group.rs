//! A process group: spawned with ownership tags below a shim, with its output in a pipe, ended with all its
//! descendants.
//!
//! Dropping a [`ProcessGroup`] kills it; [`ProcessGroup::stop`] ends it with a grace period.

mod shim_handle;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use self::shim_handle::ShimHandle;
use crate::base::proc::{self, ProcessInfo};
use crate::engine::cgroup::Cgroup;
use crate::engine::ownership::OwnershipTags;
use crate::engine::shim::{self, Message};
use crate::engine::start_record::{self, StartRecord};
use crate::engine::tagged_process::{self, TaggedProcess};

/// Interval at which an ending group is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(30);

/// How long killed processes may take to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct SpawnSpec {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// Variables of our environment that it does not inherit.
    pub(crate) withheld_variables: Vec<String>,
    /// Variables added to the inherited environment.
    pub(crate) env: Vec<(String, OsString)>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) tags: OwnershipTags,
    /// The `matrix` binary that acts as shim; `None` spawns the program directly.
    pub(crate) shim: Option<PathBuf>,
    /// Folder for the start record.
    pub(crate) cache_dir: PathBuf,
}

/// A spawned process with all its descendants.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    /// The shim, or the program itself if there is no shim.
    child: Child,
    shim: Option<ShimHandle>,
    /// The program's process, which leads the group.
    pid: u32,
    session: u32,
    tags: OwnershipTags,
    cgroup: Option<Cgroup>,
    record: StartRecord,
    is_gone: bool,
}

impl ProcessGroup {
    /// Spawns a group. The process and its descendants write stdout and stderr to `writer`.
    pub(crate) async fn spawn(spec: &SpawnSpec, writer: &io::PipeWriter) -> io::Result<Self> {
        let id = start_record::unique_id(&spec.tags);
        let planned = spec.shim.as_ref().and_then(|_| Cgroup::for_start(&id));
        // The record exists before cgroup and process, so that neither can be lost.
        let record = StartRecord::begin(&spec.cache_dir, &id, &spec.tags, planned.as_ref());
        let cgroup = planned.and_then(Cgroup::create);
        let spawned = spawn(spec, cgroup.as_ref(), writer);
        let (child, sockets) = spawned.inspect_err(|_| {
            if let Some(cgroup) = &cgroup {
                cgroup.remove();
            }
            record.remove();
        })?;
        let pid = child.id().expect("a process that was just spawned has an id");
        let shim = sockets.map(|(socket, messages)| ShimHandle::new(pid, socket, messages));
        // `getsid` returns 0 if the session began outside our pid namespace (in a container, under a build's
        // runner), which `rustix` does not accept.
        let session = proc::current_process().map_or(0, |this| this.session);
        let mut group = Self {
            child,
            shim,
            pid,
            session,
            tags: spec.tags.clone(),
            cgroup,
            record,
            is_gone: false,
        };
        let known = tagged_process::by_id(pid).map(|process| process.info.id());
        group.record.add(known.as_slice());
        group.wait_started().await;
        Ok(group)
    }

    /// Waits until the shim has started the program.
    async fn wait_started(&mut self) {
        let Some(shim) = &mut self.shim else { return };
        while self.pid == shim.pid {
            // A shim that exits before has written the reason to the log.
            let Some(message) = shim.next_message().await else {
                return;
            };
            match message {
                Message::Started(pid) => self.pid = pid,
                Message::Exited(_) => return,
            }
        }
    }

    /// Whether [`ProcessGroup::stop`] found that no process is left.
    pub(crate) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Pid of the program, which is also the group id.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Pid of the process from which all others descend, also those in other groups and sessions.
    pub(crate) fn root_pid(&self) -> u32 {
        self.shim.as_ref().map_or(self.pid, |shim| shim.pid)
    }

    pub(crate) const fn record(&self) -> &StartRecord {
        &self.record
    }

    pub(crate) fn set_record(&mut self, record: StartRecord) {
        self.record = record;
    }

    /// Waits for the program to exit. Cancel-safe; later calls give the same answer.
    pub(crate) async fn wait_for_exit(&mut self) -> io::Result<ExitStatus> {
        while let Some(shim) = &mut self.shim {
            if let Some(status) = shim.status {
                return Ok(status);
            }
            if shim.next_message().await.is_none() {
                break;
            }
        }
        self.child.wait().await
    }

    /// Exit status of the program, if it has ended.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        if let Some(shim) = &mut self.shim {
            shim.read_available();
            if shim.status.is_some() {
                return shim.status;
            }
        }
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGTERM to all, SIGKILL after `grace`, and waits until no process is left. Returns a
    /// description.
    pub(crate) async fn stop(&mut self, grace: Duration) -> String {
        let before = self.status();
        self.signal(Signal::TERM);
        let ended = self.wait_all_gone(grace, false).await;
        let mut survivors = Vec::new();
        if !ended && !self.wait_all_gone(KILL_TIMEOUT, true).await {
            survivors = self.live_processes();
        }
        let status = self.status();
        let status = status.map_or_else(|| "no exit status".to_owned(), |status| status.to_string());
        let mut description = match (before, ended) {
            (Some(_), true) => format!("the process had already ended ({status})"),
            (Some(_), false) => {
                format!(
                    "the process had already ended ({status}); the processes that it had started were killed"
                )
            }
            (None, true) => format!("the process ended after SIGTERM from `matrix` ({status})"),
            (None, false) => format!(
                "the process was killed after a grace period of {} ({status})",
                crate::base::units::HumanDuration(grace)
            ),
        };
        if !survivors.is_empty() {
            let survivors: Vec<String> = survivors
                .iter()
                .map(|process| format!("{} `{}`", process.info.pid, process.command))
                .collect();
            description.push_str(&format!("; still running: {}", survivors.join(", ")));
        }
        self.is_gone = survivors.is_empty();
        if self.is_gone {
            // The shim removes the cgroup itself unless it was killed.
            if let Some(cgroup) = &self.cgroup {
                cgroup.remove();
            }
            self.record.remove();
        }
        description
    }

    /// Waits until no process is left, at most for `limit`; with `kills`, sends SIGKILL repeatedly. Returns
    /// whether all are gone.
    async fn wait_all_gone(&mut self, limit: Duration, kills: bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if kills {
                self.signal(Signal::KILL);
            }
            let is_reaped = match timeout(POLL_INTERVAL, self.child.wait()).await {
                Ok(_) => {
                    // A child of a dying parent may be in `execve` and show no tags, so check twice.
                    if self.live_processes().is_empty() {
                        sleep(POLL_INTERVAL / 3).await;
                    }
                    true
                }
                Err(_) => false,
            };
            if is_reaped && self.live_processes().is_empty() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            if is_reaped {
                sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Processes that are left, found by tags, group, cgroup, start record, or as descendants of the shim.
    fn live_processes(&self) -> Vec<TaggedProcess> {
        let mut all = tagged_process::all();
        let infos: Vec<ProcessInfo> = all.iter().map(|process| process.info).collect();
        let below = self
            .shim
            .as_ref()
            .map(|shim| proc::descendants(&infos, shim.pid))
            .unwrap_or_default();
        let grouped = self.cgroup.as_ref().map(Cgroup::members).unwrap_or_default();
        all.retain(|process| {
            process.tags.as_ref() == Some(&self.tags)
                || self.is_member(process)
                || self.record.contains(process.info.id())
                || below.contains(&process.info.pid)
                || grouped.contains(&process.info.pid)
        });
        all
    }

    /// Whether a process is in this group. The group id alone is not enough, because it may be reused after
    /// the group has ended.
    fn is_member(&self, process: &TaggedProcess) -> bool {
        let TaggedProcess { info, tags, .. } = process;
        let is_same_owner = tags.as_ref().is_none_or(|tags| *tags == self.tags);
        info.group == self.pid && is_same_owner && (info.session == self.session || info.session == self.pid)
    }

    /// Signals every process except the shim, which exits once no process is left below it.
    fn signal(&mut self, signal: Signal) {
        // The group id cannot be reused while the group's first process is not reaped.
        let is_ours = self.status().is_none() && self.child.id().is_some() && self.pid != self.shim_pid();
        let group = i32::try_from(self.pid)
            .ok()
            .and_then(Pid::from_raw)
            .filter(|_| is_ours);
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, signal);
        }
        if let Some(cgroup) = self.cgroup.as_ref().filter(|_| signal == Signal::KILL) {
            cgroup.kill();
        }
        for TaggedProcess { info, .. } in self.live_processes() {
            let is_done = group.is_some() && info.group == self.pid;
            if !is_done && info.pid != self.shim_pid() {
                info.id().signal(signal);
            }
        }
    }

    /// Pid of the shim; 0, which no process has, without one.
    fn shim_pid(&self) -> u32 {
        self.shim.as_ref().map_or(0, |shim| shim.pid)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.is_gone {
            self.signal(Signal::KILL);
            // Again for processes that were just being forked. The shim ends those that are forked later.
            self.signal(Signal::KILL);
        }
    }
}

/// The socket to a shim, twice: for waiting and for reads that do not wait.
type ShimSockets = (tokio::net::UnixStream, UnixStream);

fn spawn(
    spec: &SpawnSpec,
    cgroup: Option<&Cgroup>,
    writer: &io::PipeWriter,
) -> io::Result<(Child, Option<ShimSockets>)> {
    let (mut command, sockets) = match &spec.shim {
        Some(shim) => {
            let (command, sockets) = shim_command(shim, cgroup, &spec.program)?;
            (command, Some(sockets))
        }
        None => {
            let mut command = Command::new(&spec.program);
            command.stdin(Stdio::null()).kill_on_drop(true);
            (command, None)
        }
    };
    command.args(&spec.args);
    for name in &spec.withheld_variables {
        command.env_remove(name);
    }
    command
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .envs(spec.tags.variables())
        // With this variable, each start would compile all of the engine's Python code again.
        .env_remove("PYTHONDONTWRITEBYTECODE")
        // A process that sets its title would otherwise overwrite the tags in its environment
        // (`setproctitle`).
        .env("SPT_NOENV", "1")
        .stdout(writer.try_clone()?)
        .stderr(writer.try_clone()?)
        .process_group(0);
    if let Some(dir) = &spec.dir {
        command.current_dir(dir);
    }
    Ok((command.spawn()?, sockets))
}

/// The command `matrix __shim <parent> -- <program>`, see [`shim::supervise`].
fn shim_command(shim: &Path, cgroup: Option<&Cgroup>, program: &Path) -> io::Result<(Command, ShimSockets)> {
    let (ours, its) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let messages = ours.try_clone()?;
    let mut command = Command::new(shim);
    command
        .stdin(Stdio::from(OwnedFd::from(its)))
        .arg(shim::SUPERVISE)
        .arg(std::process::id().to_string());
    if let Some(cgroup) = cgroup {
        command.arg(shim::CGROUP).arg(cgroup.folder());
    }
    command.arg("--").arg(program);
    Ok((command, (tokio::net::UnixStream::from_std(ours)?, messages)))
}
