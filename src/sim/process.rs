//! The process of a simulated server: its log, its errors, how it ends, and what it leaves behind on request.

use std::future::pending;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::sim::faults::{DieAfter, Faults};
use crate::sim::options::OptionsError;
use crate::sim::ranks::JoinError;
use crate::sim::startup;

/// Receives lines of the engine's log, without line ends.
pub(crate) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Why a simulated engine failed.
#[derive(Debug, Error)]
pub(crate) enum SimError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error("cannot listen on {address}: {source}; choose another `--port`, or 0 for a free one")]
    Bind {
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    #[error(
        "cannot listen for other ranks on {address}: {source}; choose another `--head-port`, the same on every node"
    )]
    BindHead {
        address: SocketAddr,
        source: std::io::Error,
    },
    /// A thread, a signal handler or a child process could not be created.
    #[error("cannot start the simulated engine: {0}; see the limits of this user (`ulimit -a`)")]
    System(#[from] std::io::Error),
    /// A fault ended the engine. All connections have been reset, and the process must exit with this status.
    #[error("the simulated engine crashed as requested (exit status: {status})")]
    InjectedDeath {
        /// Exit status of the process.
        status: u8,
    },
    /// The memory of the GPUs does not suffice. The process must exit with status 1.
    #[error(
        "the simulated engine ran out of memory; lower `--memory-share` or `--graph-sequences`, or use `--no-graphs`"
    )]
    OutOfMemory,
    /// A rank could not join the head.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The connection to another rank ended. All connections of clients have been reset, and the process must exit
    /// with status 1.
    #[error("rank {rank} was lost")]
    RankLost { rank: u32 },
}

/// Does `work` until it ends, `stop` is cancelled, SIGTERM or SIGINT arrives, or a fault ends the process. `died` is
/// cancelled by faults that requests cause.
pub(crate) async fn run_until_end(
    faults: &Faults,
    log: &Log,
    stop: &CancellationToken,
    died: &CancellationToken,
    work: impl Future<Output = Result<(), SimError>>,
) -> Result<(), SimError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        signal = wait_for_stop_signal(faults.ignore_sigterm, log) => signal.map_err(SimError::System),
        () = died.cancelled() => Err(startup::log_death(&**log)),
        () = wait_for_death(faults.die_after) => Err(startup::log_death(&**log)),
        end = work => end,
    }
}

async fn wait_for_death(lifetime: Option<DieAfter>) {
    match lifetime {
        Some(DieAfter::Time(time)) => tokio::time::sleep(time).await,
        _ => pending().await,
    }
}

async fn wait_for_stop_signal(ignores_sigterm: bool, log: &Log) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => {
                if !ignores_sigterm {
                    return Ok(());
                }
                startup::log_line(&**log, "SIGTERM ignored, as requested");
            }
        }
    }
}

/// What the faults have the process leave behind: a child process, and a file in shared memory, which is kept open
/// until the process ends, because engines keep their shared memory mapped. `port` is part of the file's name.
pub(crate) fn leave_behind(faults: &Faults, port: u16, log: &Log) -> std::io::Result<Option<std::fs::File>> {
    if faults.leak_child {
        leak_child(log)?;
    }
    faults.leave_shm.map(|bytes| leave_shm(bytes, port)).transpose()
}

fn leak_child(log: &Log) -> std::io::Result<()> {
    let child = tokio::process::Command::new("sleep")
        .arg("600")
        .stdin(Stdio::null())
        .kill_on_drop(false)
        .spawn()?;
    let id = child
        .id()
        .map_or_else(|| "ended already".to_owned(), |id| id.to_string());
    startup::log_line(
        &**log,
        &format!("the simulated engine left a child process running: pid {id}"),
    );
    Ok(())
}

fn leave_shm(bytes: u64, port: u16) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = format!("/dev/shm/matrix-sim-{port}-{}", std::process::id());
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    std::io::copy(&mut std::io::Read::take(std::io::repeat(1), bytes), &mut file)?;
    Ok(file)
}

/// Writes much to the log, if the faults say so, without waiting for its reader. It ends with the process.
pub(crate) fn flood_log(faults: &Faults, log: &Log) {
    if let Some(bytes) = faults.log_flood {
        let log = Arc::clone(log);
        std::thread::spawn(move || startup::flood_log(&*log, bytes));
    }
}
