//! A process group of ours: spawned with marks below a shim, its output read from the first byte, ended with everything it started.
//!
//! A [`Group`] that is dropped is killed; [`Group::stop`] is the orderly way.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::base::proc::{self, ProcessInfo};
use crate::engine::cgroup::Cgroup;
use crate::engine::ownership::Marks;
use crate::engine::shim::{self, Message};
use crate::engine::start_record::{self, StartRecord};
use crate::engine::tagged_process::{self, TaggedProcess};

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
    /// The cache, for the record of the start.
    pub(crate) cache: PathBuf,
}

/// A process and everything it starts.
#[derive(Debug)]
pub(crate) struct Group {
    /// The shim, or the process itself where there is none.
    child: Child,
    shim: Option<Shim>,
    /// The process that was asked for, which leads the group.
    pid: u32,
    session: u32,
    marks: Marks,
    cgroup: Option<Cgroup>,
    record: StartRecord,
    is_gone: bool,
}

/// The shim as seen from here.
#[derive(Debug)]
struct Shim {
    pid: u32,
    /// The socket to it; once it is closed the shim ends everything.
    socket: tokio::net::UnixStream,
    /// The same socket, for a look without waiting.
    messages: UnixStream,
    /// What was read of a line that is not complete.
    partial: String,
    /// How the process ended.
    status: Option<ExitStatus>,
}

impl Group {
    /// Spawns a group. Into `writer` goes what the process and all its descendants write to stdout and stderr, in order.
    pub(crate) async fn spawn(order: &Order, writer: &io::PipeWriter) -> io::Result<Self> {
        let id = start_record::unique_id(&order.marks);
        let planned = order.shim.as_ref().and_then(|_| Cgroup::planned(&id));
        // Before the group and the first process, so that none can be lost.
        let record = StartRecord::begin(&order.cache, &id, &order.marks, planned.as_ref());
        let cgroup = planned.and_then(Cgroup::create);
        let spawned = spawn(order, cgroup.as_ref(), writer);
        let (child, sockets) = spawned.inspect_err(|_| {
            if let Some(cgroup) = &cgroup {
                cgroup.remove();
            }
            record.remove();
        })?;
        let pid = child.id().expect("a process that was just spawned has an id");
        let shim = sockets.map(|(socket, messages)| Shim {
            pid,
            socket,
            messages,
            partial: String::new(),
            status: None,
        });
        // Not by `getsid`: where the session was begun outside our namespace of process ids (in a container, under a build's runner),
        // it is 0, which `rustix` takes for impossible.
        let session = proc::this().map_or(0, |this| this.session);
        let mut group = Self {
            child,
            shim,
            pid,
            session,
            marks: order.marks.clone(),
            cgroup,
            record,
            is_gone: false,
        };
        let known = tagged_process::by_id(pid).map(|process| process.info.id());
        group.record.add(known.as_slice());
        group.begin().await;
        Ok(group)
    }

    /// Waits until the shim has started the process.
    async fn begin(&mut self) {
        let Some(shim) = &mut self.shim else { return };
        while self.pid == shim.pid {
            // A shim that ends before has said why in the log.
            let Some(message) = shim.message().await else {
                return;
            };
            match message {
                Message::Began(pid) => self.pid = pid,
                Message::Ended(_) => return,
            }
        }
    }

    /// Whether nothing of it lives, as [`Group::stop`] found.
    pub(crate) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The id of the process that was asked for, which is also the group's.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// The process from which all others descend, also those of other groups and sessions.
    pub(crate) fn root(&self) -> u32 {
        self.shim.as_ref().map_or(self.pid, |shim| shim.pid)
    }

    /// The marks of everything that it starts.
    pub(crate) const fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The record of the start.
    pub(crate) const fn record(&self) -> &StartRecord {
        &self.record
    }

    /// Replaces the record by one that holds more.
    pub(crate) fn set_record(&mut self, record: StartRecord) {
        self.record = record;
    }

    /// Waits until the process that was asked for ends. Nothing is lost when this is dropped; later calls give the same answer.
    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        while let Some(shim) = &mut self.shim {
            if let Some(status) = shim.status {
                return Ok(status);
            }
            if shim.message().await.is_none() {
                break;
            }
        }
        self.child.wait().await
    }

    /// How the process ended, if it has.
    fn status(&mut self) -> Option<ExitStatus> {
        if let Some(shim) = &mut self.shim {
            shim.read();
            if shim.status.is_some() {
                return shim.status;
            }
        }
        self.child.try_wait().ok().flatten()
    }

    /// Ends it: SIGTERM to all, after `grace` SIGKILL, then waits until nothing of it lives.
    /// Says how, in words.
    pub(crate) async fn stop(&mut self, grace: Duration) -> String {
        let before = self.status();
        self.signal(Signal::TERM);
        let ended = self.all_gone(grace, false).await;
        let mut left = Vec::new();
        if !ended && !self.all_gone(KILLED, true).await {
            left = self.alive();
        }
        let status = self.status();
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
                .map(|process| format!("{} `{}`", process.info.pid, process.command))
                .collect();
            how.push_str(&format!("; still there: {}", left.join(", ")));
        }
        self.is_gone = left.is_empty();
        if self.is_gone {
            // The shim has done so, unless it was killed.
            if let Some(cgroup) = &self.cgroup {
                cgroup.remove();
            }
            self.record.remove();
        }
        how
    }

    /// Whether all of it is gone within `limit`; on the way everything is killed if so asked.
    async fn all_gone(&mut self, limit: Duration, kills: bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if kills {
                self.signal(Signal::KILL);
            }
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

    /// What lives of it: by its marks, its group, its cgroup, its record, or below its shim.
    fn alive(&self) -> Vec<TaggedProcess> {
        let mut all = tagged_process::all();
        let infos: Vec<ProcessInfo> = all.iter().map(|process| process.info).collect();
        let below = self
            .shim
            .as_ref()
            .map(|shim| proc::descendants(&infos, shim.pid))
            .unwrap_or_default();
        let grouped = self.cgroup.as_ref().map(Cgroup::members).unwrap_or_default();
        all.retain(|process| {
            process.marks.as_ref() == Some(&self.marks)
                || self.is_member(process)
                || self.record.contains(process.info.id())
                || below.contains(&process.info.pid)
                || grouped.contains(&process.info.pid)
        });
        all
    }

    /// Whether a process is of our group. The number alone is not enough: once the group is gone it may come back.
    fn is_member(&self, process: &TaggedProcess) -> bool {
        let TaggedProcess { info, marks, .. } = process;
        let is_same_owner = marks.as_ref().is_none_or(|marks| *marks == self.marks);
        info.group == self.pid && is_same_owner && (info.session == self.session || info.session == self.pid)
    }

    /// Sends everything but the shim a signal: the shim ends once nothing lives below it.
    fn signal(&mut self, signal: Signal) {
        // As long as its first process is not reaped the group's number is surely ours.
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
        for TaggedProcess { info, .. } in self.alive() {
            let is_done = group.is_some() && info.group == self.pid;
            if !is_done && info.pid != self.shim_pid() {
                info.id().signal(signal);
            }
        }
    }

    /// The id of the shim; 0, which no process has, without one.
    fn shim_pid(&self) -> u32 {
        self.shim.as_ref().map_or(0, |shim| shim.pid)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_gone {
            self.signal(Signal::KILL);
            // What was being forked at that moment; the shim ends what is forked later.
            self.signal(Signal::KILL);
        }
    }
}

impl Shim {
    /// The next message; `None` once the shim has ended. Nothing is lost when this is dropped.
    async fn message(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.take_message() {
                return Some(message);
            }
            self.socket.readable().await.ok()?;
            let mut bytes = [0; 256];
            match self.socket.try_read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.partial.push_str(&String::from_utf8_lossy(&bytes[..count])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Reads what is there already.
    fn read(&mut self) {
        let mut bytes = [0; 256];
        while let Ok(count @ 1..) = self.messages.read(&mut bytes) {
            self.partial.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        while self.take_message().is_some() {}
    }

    /// The next message of what was read.
    fn take_message(&mut self) -> Option<Message> {
        let (line, rest) = self.partial.split_once('\n')?;
        let message = Message::parse(line);
        self.partial = rest.to_owned();
        if let Some(Message::Ended(status)) = message {
            self.status = Some(ExitStatus::from_raw(status));
        }
        message
    }
}

/// The sockets to a shim: the same one, for waiting and for a look.
type Sockets = (tokio::net::UnixStream, UnixStream);

fn spawn(
    order: &Order,
    cgroup: Option<&Cgroup>,
    writer: &io::PipeWriter,
) -> io::Result<(Child, Option<Sockets>)> {
    let (mut command, sockets) = match &order.shim {
        Some(shim) => {
            let (command, sockets) = shimmed(shim, cgroup, &order.program)?;
            (command, Some(sockets))
        }
        None => {
            let mut command = Command::new(&order.program);
            command.stdin(Stdio::null()).kill_on_drop(true);
            (command, None)
        }
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
        .stdout(writer.try_clone()?)
        .stderr(writer.try_clone()?)
        .process_group(0);
    if let Some(dir) = &order.dir {
        command.current_dir(dir);
    }
    Ok((command.spawn()?, sockets))
}

/// `matrix __shim <parent> -- <program>`: see [`shim::supervise`].
fn shimmed(shim: &Path, cgroup: Option<&Cgroup>, program: &Path) -> io::Result<(Command, Sockets)> {
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
