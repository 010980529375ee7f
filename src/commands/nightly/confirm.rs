//! Confirms suspected losses by fresh starts of baseline and candidate, which alternate in a run of their
//! own.

use std::collections::BTreeMap;

use crate::analysis::compare::baseline_starts::{self, PairedRun};
use crate::analysis::compare::nightly_gate::{self, Fresh, Look};
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::commands::compare::of_run;
use crate::commands::error::CommandError;
use crate::commands::measure::{View, measure};
use crate::commands::output::complain;
use crate::exit::Exit;
use crate::plan::Launch;
use crate::results::record::cell_stats::{Baseline, Side};
use crate::results::record::night::Finding;
use crate::results::store::Run;
use crate::runner::session::request::{ExtraStarts, RunRequest};

/// A nightly run with its baseline.
pub(super) struct Nightly<'a> {
    pub(super) view: View<'a>,
    /// The request of the nightly run.
    pub(super) request: &'a RunRequest<'static>,
    pub(super) gates: &'a [Metric],
    pub(super) baseline: &'a Baseline,
    pub(super) run: &'a Run,
    pub(super) tonight: &'a Side,
}

pub(super) struct Confirmed {
    pub(super) fresh: Vec<Fresh>,
    pub(super) failures: Vec<Finding>,
}

impl Confirmed {
    fn nothing(look: &Look) -> Self {
        Self {
            fresh: vec![Fresh::None; look.suspects.len()],
            failures: Vec::new(),
        }
    }
}

impl Nightly<'_> {
    /// Starts suspected cells as often as `wanted`, alternating with their baselines; `None` if interrupted.
    pub(super) fn confirm(&self, look: &Look, wanted: &BTreeMap<CellKey, u32>) -> Option<Confirmed> {
        if wanted.is_empty() {
            return Some(Confirmed::nothing(look));
        }
        let (launches, mut missing) =
            baseline_starts::launches_of_suspects(look, self.baseline, self.tonight);
        let mut measured = self.measure(wanted, &launches);
        if let (Err(error), false) = (&measured, launches.is_empty()) {
            let why = error.message.trim();
            complain(&format!(
                "note: the baseline cannot be started beside the candidate, which is started alone: {why}\n"
            ));
            let why = format!("the baseline cannot be started: {why}");
            missing.extend(launches.into_keys().map(|cell| (cell, why.clone())));
            measured = self.measure(wanted, &BTreeMap::new());
        }
        match measured {
            Ok(run) => Some(self.confirmed(look, wanted, &missing, &run?)),
            // The nightly run itself is complete, and its findings count.
            Err(error) => {
                complain(&format!(
                    "warning: nothing was confirmed: {}\n",
                    error.message.trim()
                ));
                Some(Confirmed::nothing(look))
            }
        }
    }

    /// Runs the starts of suspected cells and of their baseline's launches; `None` if interrupted.
    fn measure(
        &self,
        wanted: &BTreeMap<CellKey, u32>,
        launches: &BTreeMap<CellKey, Launch>,
    ) -> Result<Option<Run>, CommandError> {
        let mut request = RunRequest {
            resume: None,
            only: None,
            extra_starts: ExtraStarts::None,
            ..self.request.clone()
        };
        let plan = self.run.plan.confirmation(wanted, launches);
        request.matrix.plan = baseline_starts::pinned(plan, self.tonight);
        let measured = measure(request, self.view)?;
        Ok((measured.exit != Exit::Interrupted).then_some(measured.records))
    }

    fn confirmed(
        &self,
        look: &Look,
        wanted: &BTreeMap<CellKey, u32>,
        missing: &BTreeMap<CellKey, String>,
        run: &Run,
    ) -> Confirmed {
        let mut side = of_run(run, self.gates);
        let paired = PairedRun {
            baseline: self.baseline,
            plan: &run.plan,
            summaries: &run.summaries,
            side: &side,
        };
        let fresh = look
            .suspects
            .iter()
            .map(|suspect| match wanted.contains_key(&suspect.cell) {
                true => paired.fresh(suspect, missing.get(&suspect.cell)),
                false => Fresh::None,
            })
            .collect();
        side.cells.retain(|key, _| wanted.contains_key(key));
        Confirmed {
            fresh,
            failures: nightly_gate::failures(&side),
        }
    }
}
