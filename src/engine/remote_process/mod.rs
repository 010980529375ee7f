//! A process on another node of the job of a cluster. `srun` starts `matrix __remote` there ([`serve`]), which starts the
//! program below a shim as on this host, and ends it when its standard input ends: that is when this side stops it, or
//! is gone.
//!
//! The program and its arguments are sent through the standard input, because schedulers record command lines and
//! arguments may contain secrets.

pub(super) mod serve;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::plan::SRUN;

/// Variables by which users have `srun` start other steps than it is asked for, or send the lines of a process elsewhere.
pub(crate) const STEP_VARIABLES: [&str; 29] = [
    "SLURM_CORE_SPEC",
    "SLURM_DEBUG",
    "SLURM_DISTRIBUTION",
    "SLURM_EPILOG",
    "SLURM_EXCLUSIVE",
    "SLURM_EXACT",
    "SLURM_EXPORT_ENV",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_GPUS_PER_TASK",
    "SLURM_HOSTFILE",
    "SLURM_IMMEDIATE",
    "SLURM_LABELIO",
    "SLURM_MPI_TYPE",
    "SLURM_MULTI_PROG",
    "SLURM_NO_KILL",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_OPEN_MODE",
    "SLURM_PROLOG",
    "SLURM_STDERRMODE",
    "SLURM_STDINMODE",
    "SLURM_STDOUTMODE",
    "SLURM_STEP_GRES",
    "SLURM_TASK_EPILOG",
    "SLURM_TASK_PROLOG",
    "SLURM_TIMELIMIT",
    "SLURM_WAIT",
    "SRUN_CPUS_PER_TASK",
    "SRUN_EXPORT_ENV",
];

/// Subcommand that starts the program on the other node.
const REMOTE: &str = "__remote";
/// Time for `srun` to end after the program has ended.
const SRUN_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for the scheduler to end a step that `srun` gives up.
const ABORT_TIMEOUT: Duration = Duration::from_secs(60);

/// What the other node needs to start a program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RemoteStart {
    pub(super) run: String,
    pub(super) start: String,
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    /// Variables of the job that it does not inherit.
    pub(super) withheld_variables: Vec<String>,
    /// Variables added to the inherited ones.
    pub(super) env: Vec<(String, String)>,
    pub(super) dir: Option<PathBuf>,
    /// Its GPUs; `None` if it has none, or no variable that names them.
    pub(super) gpus: Option<NodeGpus>,
    /// The ports on which it may listen, which must be free on its node.
    pub(super) ports: Vec<u16>,
    pub(super) cache_dir: PathBuf,
    /// Milliseconds between SIGTERM and SIGKILL.
    pub(super) grace_ms: u64,
}

/// The GPUs of a process on another node, among those that the scheduler gave the job there.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NodeGpus {
    /// The variable that names them.
    pub(super) variable: String,
    /// How many come before them.
    pub(super) skip: u32,
    pub(super) count: u32,
}

/// The end of what [`serve`] says of a port on which somebody else listens.
const PORT_IN_USE: &str = "by another process";

/// A process on another node, as seen from this one.
pub(super) struct RemoteProcess {
    srun: Child,
    /// The other node ends the process when this is closed.
    stdin: Option<ChildStdin>,
    grace: Duration,
    is_gone: bool,
}

impl RemoteProcess {
    /// Starts a process on a node of the job. It and its descendants write stdout and stderr to `writer`.
    pub(super) async fn spawn(
        srun: &Path,
        matrix: &Path,
        node: &str,
        start: &RemoteStart,
        writer: &io::PipeWriter,
    ) -> io::Result<Self> {
        let mut command = Command::new(srun);
        command
            .args(&SRUN[1..])
            .args(["--unbuffered", "--kill-on-bad-exit=1"])
            .arg(format!("--nodelist={node}"))
            .arg(matrix)
            .arg(REMOTE)
            .stdin(Stdio::piped())
            .stdout(writer.try_clone()?)
            .stderr(writer.try_clone()?)
            .process_group(0);
        for variable in STEP_VARIABLES {
            command.env_remove(variable);
        }
        let mut srun = command.spawn()?;
        let mut stdin = srun.stdin.take().expect("it was requested");
        let mut text = serde_json::to_vec(start).map_err(io::Error::other)?;
        text.push(b'\n');
        // If `srun` has ended, its exit says why.
        let _ = stdin.write_all(&text).await;
        Ok(Self {
            srun,
            stdin: Some(stdin),
            grace: Duration::from_millis(start.grace_ms),
            is_gone: false,
        })
    }

    /// Pid of `srun`.
    pub(super) fn pid(&self) -> Option<u32> {
        self.srun.id()
    }

    /// Whether [`RemoteProcess::stop`] saw its end.
    pub(super) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Waits for the process to exit. Cancel-safe; later calls give the same answer.
    pub(super) async fn wait_for_exit(&mut self) -> io::Result<ExitStatus> {
        self.srun.wait().await
    }

    /// Whether it has exited, without waiting.
    pub(super) fn has_exited(&mut self) -> bool {
        matches!(self.srun.try_wait(), Ok(Some(_)))
    }

    /// Has the other node end the process, with SIGTERM and a grace period, and waits for it. Returns a description.
    pub(super) async fn stop(&mut self) -> String {
        if let Ok(Some(status)) = self.srun.try_wait() {
            self.is_gone = true;
            return format!("the process had already ended ({status})");
        }
        drop(self.stdin.take());
        if let Ok(Ok(status)) = timeout(self.grace + SRUN_TIMEOUT, self.srun.wait()).await {
            self.is_gone = true;
            return format!("the process ended after `matrix` asked it to end ({status})");
        }
        self.signal(Signal::TERM);
        if let Ok(Ok(status)) = timeout(ABORT_TIMEOUT, self.srun.wait()).await {
            self.is_gone = true;
            return format!("the scheduler ended the process ({status})");
        }
        "`srun` is still running, and the process on the node may be running too".to_owned()
    }

    fn signal(&self, signal: Signal) {
        let pid = self.srun.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// The error in a line of the log by which the scheduler says that it could not start or keep the process, or `matrix` that a
/// port of the node is in use. An error about the task is the process's own.
pub(super) fn host_error(line: &str) -> Option<&str> {
    if let Some(start) = line.find("matrix: ").filter(|_| line.ends_with(PORT_IN_USE)) {
        return Some(&line[start..]);
    }
    let error = &line[line.find("srun: error: ")?..];
    (!error.contains(": task ")).then_some(error.trim())
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        if !self.is_gone {
            // `srun` has the scheduler kill the process.
            self.signal(Signal::TERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_scheduler_and_node_are_not_those_of_the_process() {
        let away = "srun: error: Unable to confirm allocation for job 95: Unable to contact slurm controller (connect failure)";
        assert_eq!(host_error(&format!("[rank 1] {away}")), Some(away));
        assert!(host_error("[rank 1] srun: error: Node failure on node2").is_some());
        let port = format!(
            "matrix: cannot start a process on this node: port 20100 is in use on this node {PORT_IN_USE}"
        );
        assert_eq!(host_error(&format!("[rank 1] {port}")), Some(&*port));
        let own = "[rank 1] srun: error: node2: task 0: Exited with exit code 1";
        assert_eq!(host_error(own), None);
        assert_eq!(host_error("[rank 1] CUDA error: out of memory"), None);
    }
}
