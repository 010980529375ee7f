//! Judges a nightly run: by screening and confirmation, or at once if the baseline was started beside every
//! cell.

use std::collections::BTreeMap;

use anyhow::Context;

use crate::analysis::compare::baseline_starts::{self, PairedRun};
use crate::analysis::compare::confirmation_budget::{self, Allotment, BudgetLimits};
use crate::analysis::compare::gate_policy::Policy;
use crate::analysis::compare::nightly_gate::screen_result::{NightVerdicts, SuspectedLoss};
use crate::analysis::compare::nightly_gate::{self, confirmation, paired};
use crate::base::ids::CellKey;
use crate::cli::regression::NightlyArgs;
use crate::commands::compare::{run_stats, saved_noise};
use crate::commands::error::CommandError;
use crate::commands::nightly::confirm::NightlyResults;
use crate::commands::output::eprint;
use crate::results::store;

/// The verdicts of a run in which the baseline was started beside every cell.
pub(super) fn judge_paired(args: &NightlyArgs, nightly: &NightlyResults<'_>) -> NightVerdicts {
    let NightlyResults {
        baseline,
        run,
        candidate,
        ..
    } = nightly;
    let noise = saved_noise(&args.run.places.cache(), candidate);
    let side = run_stats(run, nightly.gates);
    let paired = PairedRun {
        baseline,
        plan: &run.plan,
        summaries: &run.summaries,
        side: &side,
    };
    paired::judge_paired(
        &baseline.side,
        candidate,
        noise.as_ref(),
        &Policy::with_bound(args.judging.floor),
        &|pairing| paired.question(pairing),
    )
}

/// The verdicts of a run after screening and confirmation; `None` if interrupted.
pub(super) fn judge_screened(
    args: &NightlyArgs,
    nightly: &NightlyResults<'_>,
) -> Result<Option<NightVerdicts>, CommandError> {
    let NightlyResults {
        baseline,
        run,
        candidate,
        ..
    } = nightly;
    let policy = Policy::with_bound(args.judging.floor);
    let (mut past, doubts) =
        store::nightly::history(&args.run.results, &candidate.matrix).context("cannot read the history")?;
    for doubt in doubts {
        eprint(&format!("warning: {doubt}\n"));
    }
    // A resumed run may be in the history already.
    past.retain(|earlier| earlier.run != run.info.run);
    let noise = saved_noise(&args.run.places.cache(), candidate);
    let screening = nightly_gate::screen(&baseline.side, candidate, &past, noise.as_ref(), &policy);
    let of_suspects = screening
        .suspects
        .iter()
        .map(|suspect| (&suspect.cell, &suspect.baseline));
    let (launches, _) = baseline_starts::baseline_launches(baseline, of_suspects);
    let costs = confirmation_budget::costs(&run.plan, &run.summaries, &launches);
    let granted = screening.allot_fresh_starts(&BudgetLimits {
        max_starts: args.confirm,
        max_seconds: args.budget.map(|budget| budget.duration().as_secs_f64()),
        costs: &costs,
    });
    for suspect in &screening.suspects {
        eprint(&describe_suspect(suspect, granted.get(&suspect.cell)));
    }
    let start_counts: BTreeMap<CellKey, u32> = granted
        .iter()
        .map(|(cell, granted)| (cell.clone(), granted.starts))
        .filter(|(_, starts)| *starts > 0)
        .collect();
    let Some(confirmed) = nightly.confirm(&screening, &start_counts) else {
        return Ok(None);
    };
    let mut verdicts = confirmation::decide_suspects(&screening, &confirmed.fresh, &policy, &granted);
    verdicts.findings.extend(confirmed.failures);
    Ok(Some(verdicts))
}

/// The message about a suspected loss before its confirmation.
fn describe_suspect(suspect: &SuspectedLoss, granted: Option<&Allotment>) -> String {
    let starts = granted.map_or(0, |granted| granted.starts);
    let wanted = suspect.starts;
    let short = granted
        .and_then(|granted| granted.shortfall_reason())
        .filter(|_| starts < wanted);
    let then = match (starts, short) {
        (0, Some(why)) => format!(
            "the loss stays undecided: a decision needs {wanted} fresh starts of the engine, but none will follow, because {why}"
        ),
        (_, Some(why)) => format!(
            "a decision needs {wanted} fresh starts of the engine, but only {starts} will follow, because {why}"
        ),
        (1, None) => "1 fresh start decides".to_owned(),
        (_, None) => format!("{starts} fresh starts decide"),
    };
    format!(
        "suspected loss: {}: {}: {}; {then}\n",
        suspect.cell,
        suspect.metric.label(),
        suspect.reasons
    )
}
