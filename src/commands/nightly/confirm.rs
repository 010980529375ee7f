//! Confirms suspected losses by fresh starts of baseline and candidate, which alternate in a run of their
//! own.

use std::collections::BTreeMap;

use crate::analysis::compare::baseline_starts::{self, PairedRun};
use crate::analysis::compare::nightly_gate::confirmation::FreshStarts;
use crate::analysis::compare::nightly_gate::findings::failure_findings;
use crate::analysis::compare::nightly_gate::screen_result::ScreenResult;
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::commands::compare::run_stats;
use crate::commands::error::CommandError;
use crate::commands::measure::{RunView, measure};
use crate::commands::output::eprint;
use crate::exit::Exit;
use crate::plan::Launch;
use crate::results::record::cell_stats::{Baseline, RunStats};
use crate::results::record::nightly::Finding;
use crate::results::store::Run;
use crate::runner::session::request::{ExtraStarts, RunRequest};

/// A nightly run with its baseline.
pub(super) struct NightlyResults<'a> {
    pub(super) view: RunView<'a>,
    /// The request of the nightly run.
    pub(super) request: &'a RunRequest<'static>,
    pub(super) gates: &'a [Metric],
    pub(super) baseline: &'a Baseline,
    pub(super) run: &'a Run,
    pub(super) candidate: &'a RunStats,
}

pub(super) struct Confirmation {
    pub(super) fresh: Vec<FreshStarts>,
    pub(super) failures: Vec<Finding>,
}

impl Confirmation {
    fn empty(screening: &ScreenResult) -> Self {
        Self {
            fresh: vec![FreshStarts::NotStarted; screening.suspects.len()],
            failures: Vec::new(),
        }
    }
}

impl NightlyResults<'_> {
    /// Starts suspected cells as often as `wanted`, alternating with their baselines; `None` if interrupted.
    pub(super) fn confirm(
        &self,
        screening: &ScreenResult,
        starts: &BTreeMap<CellKey, u32>,
    ) -> Option<Confirmation> {
        if starts.is_empty() {
            return Some(Confirmation::empty(screening));
        }
        let (launches, mut missing) =
            baseline_starts::suspect_launches(screening, self.baseline, self.candidate);
        let mut measured = self.measure(starts, &launches);
        if let (Err(error), false) = (&measured, launches.is_empty()) {
            let why = error.message.trim();
            eprint(&format!(
                "note: cannot start the baseline; only the candidate is started: {why}\n"
            ));
            let why = format!("the baseline cannot be started: {why}");
            missing.extend(launches.into_keys().map(|cell| (cell, why.clone())));
            measured = self.measure(starts, &BTreeMap::new());
        }
        match measured {
            Ok(run) => Some(self.evaluate(screening, starts, &missing, &run?)),
            // The nightly run itself is complete, and its findings count.
            Err(error) => {
                eprint(&format!(
                    "warning: the confirmation of the suspected losses failed, so they stay undecided: {}\n",
                    error.message.trim()
                ));
                Some(Confirmation::empty(screening))
            }
        }
    }

    /// Runs the starts of suspected cells and of their baseline's launches; `None` if interrupted.
    fn measure(
        &self,
        starts: &BTreeMap<CellKey, u32>,
        launches: &BTreeMap<CellKey, Launch>,
    ) -> Result<Option<Run>, CommandError> {
        let mut request = RunRequest {
            resume: None,
            only: None,
            extra_starts: ExtraStarts::None,
            ..self.request.clone()
        };
        let plan = self.run.plan.plan_confirmation(starts, launches);
        request.matrix.plan = baseline_starts::pin_candidates(plan, self.candidate);
        // A job that is started again continues the nightly run, and then confirms anew.
        let view = RunView {
            job_folder: None,
            ..self.view
        };
        let measured = measure(request, view)?;
        Ok((measured.exit != Exit::Interrupted).then_some(measured.records))
    }

    fn evaluate(
        &self,
        screening: &ScreenResult,
        starts: &BTreeMap<CellKey, u32>,
        missing: &BTreeMap<CellKey, String>,
        run: &Run,
    ) -> Confirmation {
        let mut side = run_stats(run, self.gates);
        let paired = PairedRun {
            baseline: self.baseline,
            plan: &run.plan,
            summaries: &run.summaries,
            side: &side,
        };
        let fresh = screening
            .suspects
            .iter()
            .map(|suspect| match starts.contains_key(&suspect.cell) {
                true => paired.fresh_starts(suspect, missing.get(&suspect.cell)),
                false => FreshStarts::NotStarted,
            })
            .collect();
        side.cells.retain(|key, _| starts.contains_key(key));
        Confirmation {
            fresh,
            failures: failure_findings(&side),
        }
    }
}
