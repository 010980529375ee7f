//! The shim between `matrix` and a process that it starts. As a subreaper it remains the ancestor of
//! everything that the process forks, in any group or session, and notices when all of it has ended. When
//! `matrix` ends for any reason, the shim ends these processes and then itself.
//!
//! Its standard input is a socket to `matrix`. It sends the pid and the exit status of the process. When the
//! other side closes, `matrix` has ended or has given up the process.

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

/// Subcommand of the shim.
pub(super) const SUPERVISE: &str = "__shim";
/// Subcommand that executes the program.
pub(super) const EXEC: &str = "__exec";
/// Option of both: the folder of a cgroup.
pub(super) const CGROUP: &str = "--cgroup";

/// How long the processes may take to end after `matrix` has ended.
const TERM_TIMEOUT: Duration = Duration::from_secs(10);
/// How long killed processes may take to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which new descendants are looked up while they are killed.
const POLL_INTERVAL: Duration = Duration::from_millis(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Pid of the process.
    Started(u32),
    /// Its `wait` status.
    Exited(i32),
}

impl Message {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (what, number) = line.split_once(' ')?;
        match what {
            "began" => number.parse().ok().map(Self::Started),
            "ended" => number.parse().ok().map(Self::Exited),
            _ => None,
        }
    }

    fn to_line(self) -> String {
        match self {
            Self::Started(pid) => format!("began {pid}\n"),
            Self::Exited(status) => format!("ended {status}\n"),
        }
    }
}

/// Starts a program and returns when no process of it is left. Body of the hidden subcommand
/// `matrix __shim <parent-pid> [--cgroup <folder>] -- <program> <args…>`.
///
/// Fails if the parent has ended or the program cannot be started.
pub(crate) fn supervise(parent: i32, cgroup: Option<PathBuf>, command: &[OsString]) -> io::Result<()> {
    end_with_parent(parent)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut shim = Shim::start(parent, cgroup, command)?;
        shim.run().await?;
        if let Some(cgroup) = &shim.cgroup {
            cgroup.remove_when_empty();
        }
        Ok(())
    })
}

/// Replaces this process by a program that gets SIGTERM when the thread of `parent` that started it ends.
/// Body of the hidden subcommand `matrix __exec <parent-pid> [--cgroup <folder>] -- <program> <args…>`.
///
/// Returns only on failure: [`io::ErrorKind::Interrupted`] if the parent has ended, else the error of
/// `execve`, such as [`io::ErrorKind::NotFound`].
pub(crate) fn exec(
    parent: i32,
    cgroup: Option<PathBuf>,
    program: OsString,
    args: Vec<OsString>,
) -> io::Error {
    if let Err(error) = end_with_parent(parent) {
        return error;
    }
    // A process outside the cgroup is found by other means.
    let _ = cgroup
        .and_then(|folder| Cgroup::from_folder(&folder))
        .map(|group| group.enter());
    Command::new(program).args(args).exec()
}

/// Requests SIGTERM for the end of the parent.
fn end_with_parent(parent: i32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // If the parent ended before the request, the signal never comes.
    match is_child_of(parent) {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "the parent process has ended",
        )),
    }
}

fn is_child_of(parent: i32) -> bool {
    rustix::process::getppid().map(Pid::as_raw_pid) == Some(parent)
}

struct Shim {
    parent: i32,
    /// The process that executes the program.
    main_pid: u32,
    parent_socket: tokio::net::UnixStream,
    /// The same socket, for writing.
    parent_writer: UnixStream,
    child_signals: tokio::signal::unix::Signal,
    term_signals: [tokio::signal::unix::Signal; 3],
    cgroup: Option<Cgroup>,
    /// Observed here too, because `matrix` may be killed before it has seen the files.
    shared_memory: shared_memory::Tracker,
}

impl Shim {
    fn start(parent: i32, cgroup: Option<PathBuf>, command: &[OsString]) -> io::Result<Self> {
        let messages = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        messages.set_nonblocking(true)?;
        let matrix = tokio::net::UnixStream::from_std(messages.try_clone()?)?;
        let children = signal(SignalKind::child())?;
        let others = [
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        ];
        let shared = shared_memory::Tracker::start();
        let mut exec = Command::new("/proc/self/exe");
        exec.arg(EXEC).arg(std::process::id().to_string());
        if let Some(folder) = &cgroup {
            exec.arg(CGROUP).arg(folder);
        }
        exec.arg("--").args(command).stdin(Stdio::null()).process_group(0);
        let child = exec.spawn()?;
        let mut shim = Self {
            parent,
            main_pid: child.id(),
            parent_socket: matrix,
            parent_writer: messages,
            child_signals: children,
            term_signals: others,
            cgroup: cgroup.and_then(|folder| Cgroup::from_folder(&folder)),
            shared_memory: shared,
        };
        shim.send(Message::Started(shim.main_pid));
        Ok(shim)
    }

    /// Sends a message. It fails if `matrix` has ended, which is fine.
    fn send(&mut self, message: Message) {
        let _ = self.parent_writer.write_all(message.to_line().as_bytes());
    }

    /// Waits until no process is left below the shim, and ends them if `matrix` has ended.
    async fn run(&mut self) -> io::Result<()> {
        while self.reap() {
            let [terminate, interrupt, hangup] = &mut self.term_signals;
            let is_given_up = tokio::select! {
                _ = self.child_signals.recv() => false,
                // While `matrix` runs, it ends the processes itself.
                _ = terminate.recv() => !is_child_of(self.parent),
                _ = interrupt.recv() => !is_child_of(self.parent),
                _ = hangup.recv() => !is_child_of(self.parent),
                () = wait_until_closed(&self.parent_socket) => true,
            };
            if is_given_up {
                self.end_descendants().await;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reaps ended children. Returns whether any child is left; a subreaper without children has no
    /// descendants.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid.as_raw_pid().unsigned_abs() == self.main_pid {
                        self.send(Message::Exited(status.as_raw()));
                    }
                }
                Ok(None) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Sends SIGTERM to all descendants, SIGKILL after [`TERM_TIMEOUT`], and frees their shared memory.
    async fn end_descendants(&mut self) {
        let members = descendants();
        self.shared_memory.record_open_files(&members);
        for member in members {
            member.signal(Signal::TERM);
        }
        let grace = Instant::now() + TERM_TIMEOUT;
        while self.reap() && timeout_at(grace, self.child_signals.recv()).await.is_ok() {}
        let deadline = Instant::now() + KILL_TIMEOUT;
        while self.reap() && Instant::now() < deadline {
            for member in descendants() {
                member.signal(Signal::KILL);
            }
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill();
            }
            tokio::select! {
                _ = self.child_signals.recv() => {}
                () = sleep(POLL_INTERVAL) => {}
            }
        }
        self.shared_memory.remove_leaked();
    }
}

/// Waits until the other side of the socket is closed.
async fn wait_until_closed(matrix: &tokio::net::UnixStream) {
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

/// All descendants of this process.
fn descendants() -> Vec<ProcessId> {
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
        for message in [Message::Started(4711), Message::Exited(9)] {
            assert_eq!(Message::parse(message.to_line().trim_end()), Some(message));
        }
        assert_eq!(Message::parse("ended"), None);
    }
}
