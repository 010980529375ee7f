//! The shim between `matrix` and a process that it starts. The shim is subreaper, so that whatever the process forks, in whatever group
//! or session, stays below it and is known to have ended. When `matrix` ends, however it ends, the shim ends all of it and then itself.
//!
//! Its standard input is a socket to `matrix`: it says the id of the process and how that ended, and its end means that `matrix` is gone
//! or has given the process up.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout_at};

use crate::base::proc::{self, ProcessId};
use crate::engine::cgroup::Cgroup;
use crate::engine::shared_memory;

/// The subcommand that supervises.
pub(super) const SUPERVISE: &str = "__shim";
/// The subcommand that becomes the program.
pub(super) const EXEC: &str = "__exec";
/// The option of both that names the folder of a cgroup.
pub(super) const CGROUP: &str = "--cgroup";

/// How long the processes may take to end once `matrix` is gone.
const GRACE: Duration = Duration::from_secs(10);
/// How long the system may take to remove killed processes.
const KILLED: Duration = Duration::from_secs(60);
/// How often it is looked for new descendants while they are killed.
const LOOK: Duration = Duration::from_millis(30);

/// What the shim says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The process has this id.
    Began(u32),
    /// It ended with this status of `wait`.
    Ended(i32),
}

impl Message {
    /// A line without its end.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (what, number) = line.split_once(' ')?;
        match what {
            "began" => number.parse().ok().map(Self::Began),
            "ended" => number.parse().ok().map(Self::Ended),
            _ => None,
        }
    }

    fn line(self) -> String {
        match self {
            Self::Began(pid) => format!("began {pid}\n"),
            Self::Ended(status) => format!("ended {status}\n"),
        }
    }
}

/// Starts a program and stays until nothing of it lives. This is the body of the hidden subcommand
/// `matrix __shim <parent-pid> [--cgroup <folder>] -- <program> <args…>`.
///
/// # Errors
/// The parent is gone, or the system refuses.
pub(crate) fn supervise(parent: i32, cgroup: Option<PathBuf>, command: &[OsString]) -> io::Result<()> {
    end_with(parent)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut shim = Shim::begin(parent, cgroup, command)?;
        shim.watch().await?;
        if let Some(cgroup) = &shim.cgroup {
            cgroup.remove_soon();
        }
        Ok(())
    })
}

/// Becomes a program, which gets SIGTERM when the thread of `parent` that started it ends. This is the body of the hidden subcommand
/// `matrix __exec <parent-pid> [--cgroup <folder>] -- <program> <args…>`.
///
/// It returns only on failure: with [`io::ErrorKind::NotFound`] and its like where the program cannot be started, with
/// [`io::ErrorKind::Interrupted`] where the parent ended before.
pub(crate) fn exec(
    parent: i32,
    cgroup: Option<PathBuf>,
    program: OsString,
    args: Vec<OsString>,
) -> io::Error {
    if let Err(error) = end_with(parent) {
        return error;
    }
    // Outside the group it is found as well.
    let _ = cgroup
        .and_then(|folder| Cgroup::of(&folder))
        .map(|group| group.enter());
    Command::new(program).args(args).exec()
}

/// Asks for SIGTERM when the parent ends.
fn end_with(parent: i32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have ended before the signal was asked for; then it never comes.
    match is_child_of(parent) {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "the process that asked for it has ended",
        )),
    }
}

fn is_child_of(parent: i32) -> bool {
    rustix::process::getppid().map(Pid::as_raw_pid) == Some(parent)
}

struct Shim {
    parent: i32,
    /// The process that became the program.
    first: u32,
    matrix: tokio::net::UnixStream,
    /// The same socket for writing.
    messages: UnixStream,
    children: tokio::signal::unix::Signal,
    others: [tokio::signal::unix::Signal; 3],
    cgroup: Option<Cgroup>,
    /// `matrix` may be killed before it has seen what was written.
    shared: shared_memory::Watch,
}

impl Shim {
    fn begin(parent: i32, cgroup: Option<PathBuf>, command: &[OsString]) -> io::Result<Self> {
        let messages = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        messages.set_nonblocking(true)?;
        let matrix = tokio::net::UnixStream::from_std(messages.try_clone()?)?;
        let children = signal(SignalKind::child())?;
        let others = [
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        ];
        let shared = shared_memory::Watch::begin();
        let mut exec = Command::new("/proc/self/exe");
        exec.arg(EXEC).arg(std::process::id().to_string());
        if let Some(folder) = &cgroup {
            exec.arg(CGROUP).arg(folder);
        }
        exec.arg("--").args(command).stdin(Stdio::null()).process_group(0);
        let child = exec.spawn()?;
        let mut shim = Self {
            parent,
            first: child.id(),
            matrix,
            messages,
            children,
            others,
            cgroup: cgroup.and_then(|folder| Cgroup::of(&folder)),
            shared,
        };
        shim.say(Message::Began(shim.first));
        Ok(shim)
    }

    /// `matrix` may be gone, and then does not want to know.
    fn say(&mut self, message: Message) {
        let _ = self.messages.write_all(message.line().as_bytes());
    }

    /// Waits until nothing lives below it; ends what does once `matrix` is gone.
    async fn watch(&mut self) -> io::Result<()> {
        while self.reap() {
            let [terminate, interrupt, hangup] = &mut self.others;
            let is_given_up = tokio::select! {
                _ = self.children.recv() => false,
                // `matrix` ends what it started itself, in order, as long as it lives.
                _ = terminate.recv() => !is_child_of(self.parent),
                _ = interrupt.recv() => !is_child_of(self.parent),
                _ = hangup.recv() => !is_child_of(self.parent),
                () = given_up(&self.matrix) => true,
            };
            if is_given_up {
                self.end().await;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes the statuses of children that ended. Whether any child is left: as it is subreaper, nothing lives below it without one.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid.as_raw_pid().unsigned_abs() == self.first {
                        self.say(Message::Ended(status.as_raw()));
                    }
                }
                Ok(None) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Ends everything below it: SIGTERM, after some grace SIGKILL; frees the shared memory that it leaves.
    async fn end(&mut self) {
        let members = below();
        self.shared.look(&members);
        for member in members {
            member.signal(Signal::TERM);
        }
        let grace = Instant::now() + GRACE;
        while self.reap() && timeout_at(grace, self.children.recv()).await.is_ok() {}
        let deadline = Instant::now() + KILLED;
        while self.reap() && Instant::now() < deadline {
            for member in below() {
                member.signal(Signal::KILL);
            }
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill();
            }
            tokio::select! {
                _ = self.children.recv() => {}
                () = sleep(LOOK) => {}
            }
        }
        self.shared.free();
    }
}

/// Waits until the other end of the socket is closed.
async fn given_up(matrix: &tokio::net::UnixStream) {
    let mut byte = [0];
    loop {
        if matrix.readable().await.is_err() {
            return;
        }
        match matrix.try_read(&mut byte) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Everything that descends from this process.
fn below() -> Vec<ProcessId> {
    let own = std::process::id();
    let mut members = proc::live_tree(&[own]);
    members.retain(|member| member.pid != own);
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_what_it_writes() {
        for message in [Message::Began(4711), Message::Ended(9)] {
            assert_eq!(Message::parse(message.line().trim_end()), Some(message));
        }
        assert_eq!(Message::parse("ended"), None);
    }
}
