//! The request of a run.

use std::path::PathBuf;

use crate::analysis::compare::extra_starts::{self, StartCounts};
use crate::config::gpus::GpuList;
use crate::config::select::Selector;
use crate::plan::Plan;
use crate::results::store::Run;
use crate::runner::environment::{CacheDirs, Environment, PullPolicy};
use crate::runner::load_matrix::LoadedMatrix;

/// Everything that decides what a run does.
#[derive(Clone)]
pub(crate) struct RunRequest<'a> {
    /// The matrix; a command may have edited its plan.
    pub(crate) matrix: LoadedMatrix,
    /// Path of the matrix file as given by the user.
    pub(crate) matrix_file: PathBuf,
    /// The folder that contains the run's folder.
    pub(crate) results: PathBuf,
    /// The cells to measure; `None` means all.
    pub(crate) only: Option<Selector>,
    /// The run to resume: `latest`, its name or its folder.
    pub(crate) resume: Option<String>,
    /// Whether a resumed run repeats failed and invalid measurements.
    pub(crate) repeat_failed: bool,
    /// Number of times that an invalid measurement is repeated.
    pub(crate) retry_invalid: u32,
    pub(crate) pull: PullPolicy,
    /// Whether the client is calibrated before the first cell.
    pub(crate) calibrate: bool,
    /// The GPUs from the command line.
    pub(crate) gpus: Option<GpuList>,
    pub(crate) dirs: CacheDirs,
    pub(crate) environment: Environment,
    pub(crate) extra_starts: ExtraStarts<'a>,
}

/// The starts that a run adds to its plan after each batch.
#[derive(Clone, Copy)]
pub(crate) enum ExtraStarts<'a> {
    /// Those that the matrix requests with `target_ci`.
    FromMatrix,
    /// Those that this function chooses from the results; `target_ci` is ignored. An empty choice ends the
    /// run.
    Chosen(&'a dyn Fn(&Run) -> StartCounts),
    /// None; `target_ci` is ignored.
    None,
}

impl ExtraStarts<'_> {
    /// Prepares a plan for extra starts. `earlier` is the plan of the resumed run, whose extra starts are
    /// adopted.
    pub(super) fn prepare(self, plan: &mut Plan, earlier: Option<&Plan>) {
        if !matches!(self, Self::FromMatrix) {
            plan.until = None;
        }
        if let Some(earlier) = earlier.filter(|_| self.may_add(plan)) {
            plan.resume_from(earlier);
        }
    }

    pub(super) fn may_add(self, plan: &Plan) -> bool {
        match self {
            Self::FromMatrix => plan.until.is_some(),
            Self::Chosen(_) => true,
            Self::None => false,
        }
    }

    /// The starts to add, given the results of `run`.
    pub(super) fn choose(self, run: &Run) -> StartCounts {
        match self {
            Self::FromMatrix => extra_starts::starts_needed_by_cell(extra_starts::run_precision(
                &run.info,
                &run.plan,
                &run.machine,
                &run.summaries,
                &run.journal,
            )),
            Self::Chosen(choose) => choose(run),
            Self::None => StartCounts::new(),
        }
    }
}
