//! `results/<run>/`: the only code that knows file names.
//!
//! ```text
//! results/<run>/
//!   run.json                     identity of the run; written last when a run begins, so a folder without it is no run
//!   matrix.yaml  recipes/*.yaml  the sources as they were read
//!   plan.json    machine.json    the plan; the host that measured
//!   stored-answers.json          the answers of the stored run with which those of this run are compared, if it has such a reference
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
//! deleted. A measurement is renamed back if the matrix is again what it measured. Files are written atomically (temporary file in the same folder, fsync, rename, fsync of the
//! folder). The journal is appended to and synced line by line, and an incomplete last line is ignored.
//! Everything passes through the [`Redactor`].
//!
//! [`Store`] writes, [`Merger`] adds what other runs measured for it, [`Run`] reads, [`durations`] searches earlier runs. None of them judges, computes
//! metrics or prints.
//!
//! [`Redactor`]: crate::base::secrets::Redactor

pub(crate) mod atomic;
mod backup;
pub(crate) mod calibration;
pub(crate) mod durations;
mod error;
mod files;
mod journal;
mod layout;
mod lock;
mod log;
mod merge;
pub(crate) mod nightly;
mod open_folder;
pub mod partial;
mod reader;
mod redact_json;
mod run_folder;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use atomic::wait_for_writes;
pub(crate) use error::Result;
pub(crate) use error::StoreError;
pub(crate) use journal::{Journal, JournalLine};
pub(crate) use layout::TUNE;
pub(crate) use log::Log;
pub(crate) use merge::{MergedPart, Merger};
pub(crate) use nightly::is_own_folder;
pub use reader::Run;
pub(crate) use redact_json::redact;
pub(crate) use run_folder::{
    RunEntry, count_finished, list_runs, list_unreadable_runs, read_plan, read_run_info, read_stored_answers,
    refuse_damaged_newer_run,
};
pub(crate) use writer::{CellArtifacts, RunManifest, Store};

/// Converts a name to a short, unambiguous part of a file name.
pub(crate) fn file_name(name: &str) -> String {
    layout::slug(name, &crate::base::secrets::Redactor::default())
}
