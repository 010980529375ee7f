//! `matrix nightly`: runs a matrix and compares it with its baseline. Fresh starts confirm suspected losses
//! before a notification is sent.

mod confirm;
mod judge;
mod notify;

use std::path::Path;

use anyhow::Context;

use crate::analysis::compare::baseline_starts;
use crate::analysis::compare::nightly_gate;
use crate::base::clock;
use crate::cli::regression::NightlyArgs;
use crate::commands::baseline;
use crate::commands::compare::{gates, of_run};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::load;
use crate::commands::measure::{View, measure, request};
use crate::commands::output::{Colors, complain, print};
use crate::exit::Exit;
use crate::plan::arms;
use crate::results::record::FORMAT;
use crate::results::record::cell_stats::{Baseline, Side};
use crate::results::record::night::{Finding, FindingKind, Night};
use crate::results::store::nightly::Nights;
use crate::results::store::{self, StoreError};
use confirm::Nightly;

/// Runs a matrix and judges it.
pub(crate) fn execute(args: &NightlyArgs, colors: Colors) -> Outcome {
    let matrix = load(&args.run.matrix, colors)?;
    let gates = gates(&args.judging.gate)?;
    let file = baseline::file(&args.run.matrix, args.baseline.as_deref());
    let baseline =
        store::nightly::baseline(&file).map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    notify::reachable(args)?;
    let nights = Nights::take(&args.run.results, &matrix.plan.matrix).map_err(overlaps)?;
    notify::writable(args)?;
    let (name, is_paired) = (matrix.plan.matrix.clone(), matrix.plan.paired);
    let mut request = request(&args.run, matrix);
    if let Some(baseline) = baseline.as_ref().filter(|_| is_paired) {
        baseline_starts::pair(&mut request.matrix.plan, baseline);
    }
    let view = View {
        args: &args.run,
        bound: args.judging.floor,
        colors,
    };
    let measured = measure(request.clone(), view)?;
    if measured.exit == Exit::Interrupted {
        return Ok(Exit::Interrupted);
    }
    let tonight = chosen(args, of_run(&measured.records, &gates));
    let judgement = match baseline.as_ref().map(|baseline| chosen_of(args, baseline)) {
        None => {
            without_baseline(args, &file, &measured.folder);
            Some((nightly_gate::failures(&tonight), None))
        }
        Some(baseline) => {
            let nightly = Nightly {
                view,
                request: &request,
                gates: &gates,
                baseline: &baseline,
                run: &measured.records,
                tonight: &tonight,
            };
            let judged = match is_paired {
                true => Some(judge::paired(args, &nightly)),
                false => judge::screened(args, &nightly)?,
            };
            judged.map(|(findings, judged)| (findings, Some(judged)))
        }
    };
    let Some((findings, judged)) = judgement else {
        return Ok(Exit::Interrupted);
    };
    let night = Night {
        format: FORMAT,
        at: clock::timestamp(),
        run: measured.run.clone(),
        matrix: name,
        baseline: baseline.as_ref().map(|baseline| baseline.side.run.clone()),
        machine: tonight.machine.clone(),
        cells: nightly_gate::kept(&tonight),
        judged,
        findings: sorted(findings),
    };
    // Write the history first, because pages can be created again from it.
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
    Ok(exit(&night, measured.exit))
}

/// Tells how this run can become the missing baseline.
fn without_baseline(args: &NightlyArgs, file: &Path, run: &Path) {
    complain(&format!(
        "note: there is no baseline `{}`; `matrix baseline set {} {} --reason <text>` makes this run one\n",
        file.display(),
        args.run.matrix.display(),
        run.display()
    ));
}

/// Sorts findings. Metrics that were not judged come first, because they limit all other findings.
fn sorted(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| {
        (
            finding.kind != FindingKind::NotJudged,
            finding.kind,
            finding.cell.clone(),
        )
    });
    findings
}

/// The exit code of a nightly run; `measured` is that of its measurements.
fn exit(night: &Night, measured: Exit) -> Exit {
    let has = |kinds: &[FindingKind]| night.findings.iter().any(|finding| kinds.contains(&finding.kind));
    // An undecided suspected loss is no success.
    let is_judged = night
        .judged
        .is_none_or(|judged| judged.judged > 0 && judged.undecided == 0);
    let failures = [FindingKind::Failed, FindingKind::Missing, FindingKind::Invalid];
    match measured {
        _ if has(&[FindingKind::Worse]) => Exit::Regression,
        Exit::Done if has(&failures) => Exit::CellFailed,
        Exit::Done if !is_judged => Exit::NotJudged,
        exit => exit,
    }
}

/// The cells that `--only` selects, without those of the baseline's build.
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

/// Removes old raw data, if `--keep` is given.
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
