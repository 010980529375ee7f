//! Judges a nightly run: by screening and confirmation, or at once if the baseline was started beside every
//! cell.

use std::collections::BTreeMap;

use anyhow::Context;

use crate::analysis::compare::baseline_starts::{self, PairedRun};
use crate::analysis::compare::confirmation_budget::{self, Granted, Limits};
use crate::analysis::compare::gate_policy::Policy;
use crate::analysis::compare::nightly_gate::{self, Suspected};
use crate::base::ids::CellKey;
use crate::cli::regression::NightlyArgs;
use crate::commands::compare::{noise_of, of_run};
use crate::commands::error::CommandError;
use crate::commands::nightly::confirm::Nightly;
use crate::commands::output::complain;
use crate::results::record::night::{Finding, Judged};
use crate::results::store;

/// Findings of a run in which the baseline was started beside every cell, with the counts of judged metrics.
pub(super) fn paired(args: &NightlyArgs, nightly: &Nightly<'_>) -> (Vec<Finding>, Judged) {
    let Nightly {
        baseline,
        run,
        tonight,
        ..
    } = nightly;
    let noise = noise_of(&args.run.places.cache(), tonight);
    let side = of_run(run, nightly.gates);
    let paired = PairedRun {
        baseline,
        plan: &run.plan,
        summaries: &run.summaries,
        side: &side,
    };
    nightly_gate::paired(
        &baseline.side,
        tonight,
        noise.as_ref(),
        &Policy::of_bound(args.judging.floor),
        &|pairing| paired.question(pairing),
    )
}

/// Findings of a run after screening and confirmation, with the counts of judged metrics; `None` if
/// interrupted.
pub(super) fn screened(
    args: &NightlyArgs,
    nightly: &Nightly<'_>,
) -> Result<Option<(Vec<Finding>, Judged)>, CommandError> {
    let Nightly {
        baseline,
        run,
        tonight,
        ..
    } = nightly;
    let policy = Policy::of_bound(args.judging.floor);
    let (mut past, doubts) =
        store::nightly::history(&args.run.results, &tonight.matrix).context("the history cannot be read")?;
    for doubt in doubts {
        complain(&format!("warning: {doubt}\n"));
    }
    // A resumed run may be in the history already.
    past.retain(|earlier| earlier.run != run.about.run);
    let noise = noise_of(&args.run.places.cache(), tonight);
    let look = nightly_gate::look(&baseline.side, tonight, &past, noise.as_ref(), &policy);
    let of_suspects = look
        .suspects
        .iter()
        .map(|suspect| (&suspect.cell, &suspect.baseline));
    let (both, _) = baseline_starts::launches(baseline, of_suspects);
    let costs = confirmation_budget::costs(&run.plan, &run.summaries, &both);
    let granted = look.fresh_starts(&Limits {
        most: args.confirm,
        seconds: args.budget.map(|budget| budget.duration().as_secs_f64()),
        costs: &costs,
    });
    for suspect in &look.suspects {
        complain(&suspected(suspect, granted.get(&suspect.cell)));
    }
    let wanted: BTreeMap<CellKey, u32> = granted
        .iter()
        .map(|(cell, granted)| (cell.clone(), granted.starts))
        .filter(|(_, starts)| *starts > 0)
        .collect();
    let Some(confirmed) = nightly.confirm(&look, &wanted) else {
        return Ok(None);
    };
    let (decided, judged) = nightly_gate::decide(&look, &confirmed.fresh, &policy, &granted);
    let mut findings = look.findings;
    findings.extend(decided);
    findings.extend(confirmed.failures);
    Ok(Some((findings, judged)))
}

/// The message about a suspected loss before its confirmation.
fn suspected(suspect: &Suspected, granted: Option<&Granted>) -> String {
    let starts = granted.map_or(0, |granted| granted.starts);
    let wanted = suspect.starts;
    let short = granted
        .and_then(|granted| granted.short())
        .filter(|_| starts < wanted);
    let then = match (starts, short) {
        (0, Some(why)) => format!("it stays undecided: it takes {wanted} fresh starts, and {why}"),
        (_, Some(why)) => format!("{starts} of the {wanted} fresh starts that it takes: {why}"),
        (1, None) => "1 fresh start decides".to_owned(),
        (_, None) => format!("{starts} fresh starts decide"),
    };
    format!(
        "suspect: {}: {}: {}; {then}\n",
        suspect.cell,
        suspect.metric.label(),
        suspect.why
    )
}
