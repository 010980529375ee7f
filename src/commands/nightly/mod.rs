//! `matrix nightly`: a run, held against its baseline; suspects are started afresh before anybody is told.

mod confirm;
mod notify;
mod paired;

use std::collections::BTreeMap;

use anyhow::Context;

use crate::analysis::compare::confirmation_budget::{Cost, Granted, Limits};
use crate::analysis::compare::gate_policy::Policy;
use crate::analysis::compare::nightly_gate::{self, Suspected};
use crate::base::clock;
use crate::base::ids::CellKey;
use crate::cli::regression::NightlyArgs;
use crate::commands::baseline;
use crate::commands::compare::{gates, noise_of, of_run};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::load;
use crate::commands::output::{Colors, complain, print};
use crate::commands::rounds::Further;
use crate::commands::run::measure;
use crate::exit::Exit;
use crate::plan::{Plan, arms};
use crate::results::record::FORMAT;
use crate::results::record::cell::{Phase, PhaseTime};
use crate::results::record::cell_stats::{Baseline, Side};
use crate::results::record::night::{Finding, FindingKind, Judged, Night};
use crate::results::store::nightly::Nights;
use crate::results::store::{self, Run, StoreError};
use confirm::Confirmation;

/// Runs a matrix and judges it.
///
/// # Errors
/// As `matrix run`; another night that goes on; a baseline that cannot be read.
pub fn execute(args: &NightlyArgs, colors: Colors) -> Outcome {
    let plan = load(&args.run.matrix, colors)?.plan;
    let gates = gates(&args.judging.gate)?;
    let file = baseline::file(&args.run.matrix, args.baseline.as_deref());
    let kept =
        store::nightly::baseline(&file).map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    notify::reachable(args)?;
    let nights = Nights::take(&args.run.results, &plan.matrix).map_err(overlaps)?;
    notify::writable(args)?;
    let beside = kept.as_ref().filter(|_| plan.paired);
    let change = |plan: &mut Plan| {
        if let Some(baseline) = beside {
            paired::add(plan, baseline);
        }
    };
    let measured = measure(&args.run, colors, &change, &Further::AsAsked, args.judging.floor)?;
    if measured.exit == Exit::Interrupted {
        return Ok(Exit::Interrupted);
    }
    let mut exit = measured.exit;
    let run = Run::read(&measured.folder).context("the night's run cannot be read")?;
    let tonight = chosen(args, of_run(&run, &gates));
    let mut counted = None;
    let mut findings = match kept.as_ref().map(|baseline| chosen_of(args, baseline)) {
        None => {
            complain(&format!(
                "note: there is no baseline `{}`; `matrix baseline set {} {} --reason <text>` makes this run one\n",
                file.display(),
                args.run.matrix.display(),
                measured.folder.display()
            ));
            nightly_gate::failures(&tonight)
        }
        Some(baseline) => {
            let confirmation = Confirmation {
                args,
                colors,
                gates: &gates,
                baseline: &baseline,
                night: &run,
                tonight: &tonight,
            };
            let judged = if plan.paired {
                Some(paired::judge(&confirmation))
            } else {
                screened(&confirmation)?
            };
            let Some((findings, judged)) = judged else {
                return Ok(Exit::Interrupted);
            };
            counted = Some(judged);
            findings
        }
    };
    let is_failure = |finding: &Finding| {
        matches!(
            finding.kind,
            FindingKind::Failed | FindingKind::Missing | FindingKind::Invalid
        )
    };
    if exit == Exit::Done && findings.iter().any(is_failure) {
        exit = Exit::CellFailed;
    }
    // What was not judged comes first: all else is said of the rest.
    let rank = |finding: &Finding| {
        (
            finding.kind != FindingKind::NotJudged,
            finding.kind,
            finding.cell.clone(),
        )
    };
    findings.sort_by_key(rank);
    let night = Night {
        format: FORMAT,
        at: clock::timestamp(),
        run: run.about.run.clone(),
        matrix: plan.matrix.clone(),
        baseline: kept.as_ref().map(|baseline| baseline.side.run.clone()),
        machine: tonight.machine.clone(),
        cells: nightly_gate::kept(&tonight),
        judged: counted,
        findings,
    };
    // First of all: a page can be drawn again.
    let history = nights
        .record(&night)
        .context("the night is measured, and not in the history")?;
    notify::notify(args, &nights, &night);
    notify::publish(args, &night, &measured)?;
    notify::chart(args, &night);
    forget(args, &night);
    if !args.run.json {
        print(&format!("history: {}\n", history.display()));
    }
    let is_worse = night
        .findings
        .iter()
        .any(|finding| finding.kind == FindingKind::Worse);
    // A suspicion that nothing decided is no green night.
    let is_judged = counted.is_none_or(|counted| counted.judged > 0 && counted.undecided == 0);
    Ok(match exit {
        _ if is_worse => Exit::Regression,
        Exit::Done if !is_judged => Exit::NotJudged,
        exit => exit,
    })
}

/// The cells that `--only` chooses, without those that were measured on the baseline's build.
fn chosen(args: &NightlyArgs, mut side: Side) -> Side {
    if let Some(only) = &args.run.only {
        side.cells.retain(|_, cell| only.fits(&cell.axes));
    }
    side.cells.retain(|_, cell| {
        cell.axes
            .get("version")
            .is_none_or(|version| version != arms::BASELINE)
    });
    side
}

fn chosen_of(args: &NightlyArgs, baseline: &Baseline) -> Baseline {
    Baseline {
        side: chosen(args, baseline.side.clone()),
        ..baseline.clone()
    }
}

fn overlaps(error: StoreError) -> CommandError {
    CommandError::unfit(match error {
        StoreError::Locked { pid, .. } => format!(
            "error: another night goes on{}\n  = help: wait until it is over; two at once would measure each other\n",
            pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
        ),
        other => format!("error: {other}\nnothing was started\n"),
    })
}

/// What the night found, after fresh starts of the suspects, and how many metrics were judged; `None` if they were interrupted.
fn screened(confirmation: &Confirmation<'_>) -> Result<Option<(Vec<Finding>, Judged)>, CommandError> {
    let Confirmation {
        args,
        baseline,
        night,
        tonight,
        ..
    } = confirmation;
    let policy = Policy::of_bound(args.judging.floor);
    let (mut past, doubts) =
        store::nightly::history(&args.run.results, &tonight.matrix).context("the history cannot be read")?;
    for doubt in doubts {
        complain(&format!("warning: {doubt}\n"));
    }
    // A run that is resumed may be in the history already, and says nothing of other nights.
    past.retain(|earlier| earlier.run != night.about.run);
    let noise = noise_of(&args.run.places.cache(), tonight);
    let look = nightly_gate::look(&baseline.side, tonight, &past, noise.as_ref(), &policy);
    let of_suspects = look
        .suspects
        .iter()
        .map(|suspect| (&suspect.cell, &suspect.baseline));
    let (both, _) = confirm::baselines(baseline, of_suspects);
    let costs = costs(night, &both);
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
    let Some(started) = confirmation.start(&look, &wanted)? else {
        return Ok(None);
    };
    let (decided, judged) = nightly_gate::decide(&look, &started.fresh, &policy, &granted);
    let mut findings = look.findings;
    findings.extend(decided);
    findings.extend(started.failures);
    Ok(Some((findings, judged)))
}

/// What a fresh start of each cell takes: its launch, and all its measurements on one start; of those whose baseline is started too, twice that.
fn costs<T>(run: &Run, both: &BTreeMap<CellKey, T>) -> BTreeMap<CellKey, Cost> {
    let mut starts: BTreeMap<&CellKey, BTreeMap<u32, (f64, f64)>> = BTreeMap::new();
    for summary in &run.summaries {
        let Some(seconds) = clock::seconds_between(&summary.began, &summary.ended) else {
            continue;
        };
        let launch = |phase: &&PhaseTime| phase.phase == Phase::Launch.name();
        let launched = summary
            .phases
            .iter()
            .find(launch)
            .map_or(0.0, |phase| phase.seconds);
        let start = starts.entry(&summary.cell).or_default();
        let (launch_s, cell_s) = start.entry(summary.start).or_default();
        *launch_s = launched.max(*launch_s);
        *cell_s += seconds;
    }
    let cost = |(cell, starts): (&CellKey, BTreeMap<u32, (f64, f64)>)| {
        let planned = run.plan.cells.iter().find(|planned| planned.key == *cell)?;
        let count = starts.len() as f64;
        let sides = if both.contains_key(cell) { 2.0 } else { 1.0 };
        let mean = |part: fn(&(f64, f64)) -> f64| sides * starts.values().map(part).sum::<f64>() / count;
        let cost = Cost {
            launch: planned.launch.clone(),
            launch_s: mean(|(launch, _)| *launch),
            cell_s: mean(|(_, cell)| *cell),
        };
        Some((cell.clone(), cost))
    };
    starts.into_iter().filter_map(cost).collect()
}

/// What is said of a suspect before its fresh starts.
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

/// Removes old raw data, where that was asked for.
fn forget(args: &NightlyArgs, night: &Night) {
    let Some(keep) = args.keep else { return };
    let baseline = night.baseline.as_ref().map_or("", |run| run.as_str());
    let seconds = keep.duration().as_secs_f64();
    match store::nightly::forget_raw(
        &args.run.results,
        &night.matrix,
        seconds,
        &[baseline, night.run.as_str()],
    ) {
        Ok(0) => {}
        Ok(bytes) => complain(&format!(
            "note: removed {:.2} MB of raw data older than {keep}\n",
            bytes as f64 / 1e6
        )),
        Err(error) => complain(&format!("warning: old raw data stays: {error}\n")),
    }
}
