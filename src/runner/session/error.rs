//! Errors of a session.

use std::path::PathBuf;

use thiserror::Error;

use crate::base::ids::RunId;
use crate::base::threads::ThreadLimitError;
use crate::config::yaml::{Diagnostic, Source};
use crate::plan::selection::NothingSelected;
use crate::results::store::StoreError;
use crate::runner::host_error::HostError;
use crate::runner::preflight::UnmetRequirement;
use crate::runner::session::gpus::GpuError;
use crate::runner::session::observer::Outdated;

/// Why a run did not start, or could not continue. Except for [`SessionError::Aborted`], nothing was started.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    #[error("engines do not know flags that the matrix sets")]
    UnknownFlags {
        mistakes: Vec<Diagnostic>,
        sources: Vec<Source>,
    },
    #[error(transparent)]
    Selection(#[from] NothingSelected),
    #[error(transparent)]
    Resume(#[from] ResumeError),
    #[error("finished measurements do not fit the matrix")]
    Outdated(Outdated),
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
    #[error("the run was started and cannot continue")]
    Aborted(Aborted),
}

#[derive(Debug, Error)]
pub(crate) enum ResumeError {
    #[error(
        "this user has no run of `{matrix}` in {} to resume\n  = help: leave `--resume` out to begin one",
        .results.display()
    )]
    NoRun { matrix: String, results: PathBuf },
    #[error(transparent)]
    Store(StoreError),
    // A run with files of two users could not be resumed by either of them.
    #[error(
        "the run `{run}` in {} belongs to another user, who could not go on with it after this\n  = help: go on as that user, or copy the run into a results folder of your own (`--results`)",
        .results.display()
    )]
    OtherUser { run: RunId, results: PathBuf },
    #[error(
        "the run `{run}` measures noise, and no other command goes on with it\n  = help: go on with `matrix noise {} --resume {run}`, or name a run of `{matrix}`",
        .matrix_file.display()
    )]
    Noise {
        run: RunId,
        matrix: String,
        matrix_file: PathBuf,
    },
    #[error(
        "the run `{run}` is one of the matrix `{theirs}`, and `{matrix}` is to go on\n  = help: name a run of `{matrix}`, or leave the name out to go on with its newest one"
    )]
    OtherMatrix {
        run: RunId,
        theirs: String,
        matrix: String,
    },
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
