//! Nights on which the baseline is started in turn with every cell: no screen is needed, since both saw the same night.

use crate::analysis::compare::arms::{self, Arms};
use crate::analysis::compare::gate_policy::Policy;
use crate::analysis::compare::nightly_gate::{self, Pairing};
use crate::commands::compare::{noise_of, of_run};
use crate::commands::nightly::confirm::{self, Confirmation};
use crate::plan::Plan;
use crate::plan::arms::baseline_of;
use crate::results::record::cell_stats::Baseline;
use crate::results::record::night::{Finding, Judged};

/// Adds the baseline beside every cell whose baseline can be started.
pub(super) fn add(plan: &mut Plan, baseline: &Baseline) {
    let keys: Vec<_> = plan.cells.iter().map(|cell| cell.key.clone()).collect();
    let paired = keys
        .iter()
        .filter_map(|key| Some((key, baseline.side.key_like(key)?)));
    let (launches, _) = confirm::baselines(baseline, paired);
    plan.pair(&launches);
}

/// What the night found.
pub(super) fn judge(confirmation: &Confirmation<'_>) -> (Vec<Finding>, Judged) {
    let Confirmation {
        args,
        gates,
        baseline,
        night,
        tonight,
        ..
    } = confirmation;
    let noise = noise_of(&args.run.places.cache(), tonight);
    let side = of_run(night, gates);
    let question = |pairing: &Pairing<'_>| {
        let cell = night.plan.cells.iter().find(|cell| cell.key == *pairing.cell);
        let twin = cell.and_then(|cell| side.cells.get_key_value(&baseline_of(cell)));
        let twin = twin.ok_or_else(|| "its baseline was not started on this night".to_owned())?;
        let candidate = side
            .cells
            .get_key_value(pairing.cell)
            .ok_or_else(|| "it was not measured".to_owned())?;
        if let Some(why) = baseline.side.cells.get(pairing.baseline).and_then(|kept| {
            let unknown = || confirm::unknown_build(kept, candidate.1);
            confirm::other_build(kept, twin.1).or_else(unknown)
        }) {
            return Err(why);
        }
        let arms = Arms {
            baseline: twin,
            candidate,
        };
        Ok(arms::question(
            &night.plan,
            &night.summaries,
            arms,
            pairing.metric,
            pairing.noise,
        ))
    };
    nightly_gate::paired(
        &baseline.side,
        tonight,
        noise.as_ref(),
        &Policy::of_bound(args.judging.floor),
        &question,
    )
}
