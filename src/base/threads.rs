//! Starts threads on hosts that may refuse them, and names the limit to raise.

use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use procfs::process::{LimitValue, Process};
use tokio::runtime::Runtime;

/// Threads that a run needs beyond those of its runtime and tokenizer: loads, telemetry, logs, blocking
/// calls.
const EXTRA_THREADS: usize = 16;

/// The error of a process that has reached its limit of open files.
const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();

/// How long an idle thread for blocking calls is kept: longer than any run.
const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The host refuses to start a thread.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a thread: {error}\n  = help: {}", limit_advice(.error))]
pub struct ThreadLimitError {
    error: io::Error,
}

impl From<io::Error> for ThreadLimitError {
    fn from(error: io::Error) -> Self {
        Self { error }
    }
}

/// How long the end of a runtime waits for work that cannot be cancelled, such as the preparation of prompts.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// A runtime whose end cancels its tasks and waits only briefly for blocking calls, so that an interrupted command
/// ends at once.
pub(crate) struct InterruptibleRuntime(Option<Runtime>);

impl Deref for InterruptibleRuntime {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is taken only when it is dropped")
    }
}

impl Drop for InterruptibleRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        }
    }
}

/// Creates a runtime on all cores, after checking that the host allows the threads of the runtime and the
/// tokenizer.
pub(crate) fn runtime() -> Result<InterruptibleRuntime, ThreadLimitError> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    try_to_start(2 * cores + EXTRA_THREADS)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_keep_alive(BLOCKING_KEEP_ALIVE)
        .build()?;
    // Once one thread for blocking calls exists, calls wait for it instead of panicking if no further thread
    // starts.
    let _started = runtime.block_on(runtime.spawn_blocking(|| ()));
    Ok(InterruptibleRuntime(Some(runtime)))
}

/// Starts `count` threads at the same time and ends them.
fn try_to_start(count: usize) -> io::Result<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock();
        let started = (0..count).try_for_each(|_| {
            let waits = || drop(gate.lock());
            thread::Builder::new().spawn_scoped(scope, waits).map(drop)
        });
        drop(closed);
        started
    })
}

fn limit_advice(error: &io::Error) -> String {
    let limits = Process::myself().and_then(|process| process.limits()).ok();
    let set = |value: Option<LimitValue>| match value {
        Some(LimitValue::Value(value)) => Some(value),
        Some(LimitValue::Unlimited) | None => None,
    };
    let users = set(limits.as_ref().map(|limits| limits.max_processes.soft_limit));
    let memory = set(limits.as_ref().map(|limits| limits.max_address_space.soft_limit));
    let is = |value: Option<u64>| value.map_or_else(String::new, |value| format!(" (now {value})"));
    let threads = format!(
        "raise the limit on processes and threads: `ulimit -u`{} for this user, or `pids.max`{} for this cgroup",
        is(users),
        is(pids_max())
    );
    let space = format!(
        "raise the limit on the memory of a process, `ulimit -v`{}",
        is(memory.map(|bytes| bytes / 1024))
    );
    if error.raw_os_error() == Some(EMFILE) {
        let files = set(limits.as_ref().map(|limits| limits.max_open_files.soft_limit));
        return format!(
            "raise the limit on open files of a process, `ulimit -n`{}",
            is(files)
        );
    }
    match (error.kind(), memory) {
        (io::ErrorKind::OutOfMemory, _) => format!("{space}, or free memory"),
        (_, Some(_)) => format!("{space}, or {threads}"),
        (_, None) => threads,
    }
}

/// Returns the smallest `pids.max` of this process's cgroup and the cgroups above it.
fn pids_max() -> Option<u64> {
    let groups = Process::myself().and_then(|process| process.cgroups()).ok()?;
    let read = |folder: &str, path: &Path| {
        let file = Path::new(folder)
            .join(path.strip_prefix("/").ok()?)
            .join("pids.max");
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    groups
        .into_iter()
        .flat_map(|group| {
            let path = Path::new(&group.pathname);
            let folders = path.ancestors();
            folders
                .flat_map(|path| ["/sys/fs/cgroup", "/sys/fs/cgroup/pids"].map(|folder| read(folder, path)))
                .flatten()
                .min()
        })
        .min()
}

/// Runs `work` on each core, on at most `most` threads. If no more threads can be started, the existing ones
/// do all of the work.
pub(crate) fn on_all_cores(max_threads: usize, work: impl Fn() + Sync) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let work = &work;
    thread::scope(|scope| {
        let start = |_: &usize| thread::Builder::new().spawn_scoped(scope, work).is_ok();
        let _started = (1..cores.min(max_threads)).take_while(start).count();
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_tried_are_all_there_at_once_and_end() {
        try_to_start(40).unwrap();
        assert_eq!(runtime().unwrap().block_on(async { 1 }), 1);
    }

    #[test]
    fn the_limits_are_named() {
        let refused = ThreadLimitError::from(io::Error::from_raw_os_error(11)).to_string();
        for part in ["cannot start a thread", "`ulimit -u`", "`pids.max`"] {
            assert!(refused.contains(part), "{refused}");
        }
        let memory = ThreadLimitError::from(io::Error::from_raw_os_error(12)).to_string();
        assert!(memory.contains("`ulimit -v`"), "{memory}");
        let files = ThreadLimitError::from(io::Error::from_raw_os_error(24)).to_string();
        assert!(
            files.contains("`ulimit -n` (now ") && !files.contains("`ulimit -u`"),
            "{files}"
        );
    }
}
