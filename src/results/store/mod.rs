//! `results/<run>/`: the only code that knows file names.
//!
//! ```text
//! results/<run>/
//!   run.json                     identity of the run; written last when a run begins, so a folder without it is no run
//!   matrix.yaml  recipes/*.yaml  the sources as they were read
//!   plan.json    machine.json    the plan; the host that measured
//!   journal.jsonl                the events, one per line, append-only
//!   matrix.log                   our own log
//!   results.jsonl                a line for each finished measurement, appended as it ends; rewritten when a run
//!                                begins, is resumed or ends
//!   launches/<launch>-s<start>/  engine.log, install.log
//!   cells/<cell>-s<start>-r<repeat>/
//!     requests.jsonl.zst         a line for each request that fell due
//!     requests.partial.jsonl.zst  during the measurement: a line for each ended request, about a second late
//!     telemetry.jsonl.zst        a line for each sample of the host and of the engine's metrics, around the window
//!     engine.log                 the engine's log during the measurement
//!     summary.json               ending and metrics; written last, so that it marks the measurement as finished
//!   lock                         locked while a process writes; contains the process id
//! ```
//!
//! An earlier version that a later measurement, start or plan replaces is renamed to `<name>.old-<n>`, never
//! deleted. Files are written atomically (temporary file in the same folder, fsync, rename, fsync of the
//! folder). The journal is appended to and synced line by line, and an incomplete last line is ignored.
//! Everything passes through the [`Redactor`].
//!
//! [`Store`] writes, [`Run`] reads, [`durations`] searches earlier runs. None of them judges, computes
//! metrics or prints.
//!
//! [`Redactor`]: crate::base::secrets::Redactor

pub(crate) mod atomic;
pub(crate) mod calibration;
pub(crate) mod durations;
mod journal;
mod layout;
mod lock;
mod log;
pub(crate) mod nightly;
mod open_folder;
pub mod partial;
mod reader;
mod redact_json;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::path::{Path, PathBuf};

pub(crate) use atomic::wait_for_writes;
pub(crate) use journal::{Journal, JournalLine};
pub(crate) use lock::writer_pid;
pub(crate) use log::Log;
pub(crate) use nightly::is_own_folder;
pub use reader::Run;
pub(crate) use reader::{RunEntry, latest_run, list_runs, read_plan, read_run_info};
pub(crate) use redact_json::redact;
pub(crate) use writer::{CellArtifacts, RunManifest, Store};

/// Converts a name to a short, unambiguous part of a file name.
pub(crate) fn file_name(name: &str) -> String {
    layout::slug(name, &crate::base::secrets::Redactor::default())
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The run exists already.
    #[error("`{}` exists; a run is never overwritten: continue it with `--resume`, or choose another name", path.display())]
    Exists {
        /// The run's folder.
        path: PathBuf,
    },
    /// The folder holds no run.
    #[error("`{}` is not a run: it has no `run.json`; name a folder of a run below the results folder", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// No run or matrix has this name.
    #[error("no run `{name}` found: it is neither the folder of a run, nor a run or a matrix with runs \
        below `{}`; use `--results` for another results folder{}", root.display(), suggestion(near.as_deref()))]
    UnknownName {
        /// The name that was asked for.
        name: String,
        /// The results folder.
        root: PathBuf,
        /// The nearest name of a run or a matrix.
        near: Option<String>,
    },
    /// Another process writes the run.
    #[error("`{}` is being written by {}; wait for it or stop it", path.display(), describe_owner(*pid))]
    Locked {
        /// The run's folder.
        path: PathBuf,
        /// The process id, if the writer recorded it.
        pid: Option<u32>,
    },
    /// A newer `matrix` wrote the run.
    #[error("`{}` has format {theirs}, but this `matrix` reads formats up to {ours}; use a newer `matrix`", path.display())]
    Newer {
        /// The file with the newer format.
        path: PathBuf,
        /// Format of the file.
        theirs: u32,
        /// Newest format that this `matrix` reads.
        ours: u32,
    },
    /// A file of the run is missing.
    #[error("`{}` is missing; {help}", path.display())]
    Missing {
        /// The missing file.
        path: PathBuf,
        /// How to fix it.
        help: &'static str,
    },
    /// The content of a file is invalid.
    #[error("`{}` is not valid: {why}; restore it from a backup, or remove the run", path.display())]
    Malformed {
        /// The invalid file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The content of a baseline file is invalid.
    #[error("`{}` is not a valid baseline: {why}; name a run or a file written by `matrix baseline set`, or \
        restore that file from a backup", path.display())]
    MalformedBaseline {
        /// The invalid file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A name that is not a plain file name or is reserved by the store.
    #[error(
        "`{name}` cannot be the name of {what}; use letters, digits, `.`, `-` and `_`, and no name that is \
         reserved in the results folder"
    )]
    InvalidName {
        /// The rejected name.
        name: String,
        /// What was to be named.
        what: &'static str,
    },
    /// The run's folder was moved or removed while it was open.
    #[error("the folder of the run, `{}`, was {} during the run", path.display(), describe_move(now.as_deref()))]
    Moved {
        /// The original path.
        path: PathBuf,
        /// The current path; `None` if the folder was removed.
        now: Option<PathBuf>,
    },
    /// An operation of the file system failed.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

fn suggestion(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

fn describe_move(now: Option<&Path>) -> String {
    now.map_or_else(
        || "removed".to_owned(),
        |now| format!("moved to `{}`", now.display()),
    )
}

fn describe_owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// Adds operation and path to an I/O error.
trait IoContext<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| StoreError::Io {
            doing,
            path: path.to_owned(),
            source,
        })
    }
}
