//! Errors of a session.

use std::path::PathBuf;

use thiserror::Error;

use crate::base::ids::{CellKey, RunId};
use crate::base::threads::ThreadLimitError;
use crate::config::yaml::{Diagnostic, Source};
use crate::plan::StoredPairError;
use crate::plan::selection::NothingSelected;
use crate::results::store::StoreError;
use crate::runner::host_error::HostError;
use crate::runner::preflight::UnmetRequirement;
use crate::runner::session::gpus::GpuError;
use crate::runner::session::observer::OutdatedMeasurements;

/// Why a run did not start, or could not continue. Except for [`SessionError::Aborted`], nothing was started.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    #[error("the matrix sets flags that its engines do not support")]
    UnknownFlags {
        diagnostics: Vec<Diagnostic>,
        sources: Vec<Source>,
    },
    #[error(transparent)]
    Selection(#[from] NothingSelected),
    #[error(transparent)]
    Resume(#[from] ResumeError),
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("finished measurements were made with settings that the matrix no longer has")]
    Outdated(OutdatedMeasurements),
    #[error(transparent)]
    Threads(#[from] ThreadLimitError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Gpus(#[from] GpuError),
    #[error("the preflight failed")]
    Preflight {
        findings: Vec<UnmetRequirement>,
        /// Orphans of earlier runs that this run removed.
        removed: Vec<String>,
    },
    /// The results folder cannot be read or written.
    #[error(transparent)]
    Results(StoreError),
    #[error("the run began, but an error ended it")]
    Aborted(Aborted),
}

#[derive(Debug, Error)]
pub(crate) enum ResumeError {
    #[error(
        "this user has no run of `{matrix}` in {} to resume\n  = help: omit `--resume` to start a new run",
        .results.display()
    )]
    NoRun { matrix: String, results: PathBuf },
    #[error(transparent)]
    Store(StoreError),
    // A run with files of two users could not be resumed by either of them.
    #[error(
        "the run `{run}` in {} belongs to another user; if you resume it, that user cannot resume it afterwards\n  = help: resume it as that user, or copy the run into a results folder of your own (`--results`)",
        .results.display()
    )]
    OtherUser { run: RunId, results: PathBuf },
    #[error(
        "the run `{run}` measures noise and can be resumed only by `matrix noise`\n  = help: resume it with `matrix noise {} --resume {run}`, or name a run of `{matrix}`",
        .matrix_file.display()
    )]
    Noise {
        run: RunId,
        matrix: String,
        matrix_file: PathBuf,
    },
    #[error(
        "the run `{run}` is a run of the matrix `{theirs}`, not of `{matrix}`\n  = help: name a run of `{matrix}`, or omit the name to resume its newest run"
    )]
    OtherMatrix {
        run: RunId,
        theirs: String,
        matrix: String,
    },
}

/// Why the answers of a stored run cannot be those with which others are compared.
#[derive(Debug, Error)]
pub(crate) enum ReferenceError {
    #[error("the reference of `quality`: {0}")]
    Store(#[from] StoreError),
    #[error("the stored run `{run}` cannot be the reference of `quality`: {source}")]
    Pair { run: RunId, source: StoredPairError },
    #[error(
        "the stored run `{run}` cannot be the reference of `quality`: `{cell}`: {why}\n  = help: measure the cell again, or select another cell"
    )]
    Answers { run: RunId, cell: CellKey, why: String },
}

#[derive(Debug)]
pub(crate) struct Aborted {
    pub(crate) run: RunId,
    pub(crate) reason: String,
    pub(crate) results: SavedResults,
}

/// State of the results of an aborted run.
#[derive(Debug)]
pub(crate) enum SavedResults {
    /// They are in this folder.
    Saved(PathBuf),
    /// The folder was moved during the run.
    Moved { from: PathBuf, to: PathBuf },
    /// The folder was removed during the run.
    Lost,
    /// Nothing was measured; the run's folder was removed from this results folder.
    Removed { results: PathBuf },
}
