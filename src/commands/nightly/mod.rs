//! `matrix nightly`: runs a matrix and compares it with its baseline. Fresh starts confirm suspected losses
//! before a notification is sent.

mod confirm;
mod judge;
mod notify;
mod upgrade;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::analysis::compare::baseline_starts;
use crate::analysis::compare::nightly_gate;
use crate::base::clock;
use crate::base::ids::CellKey;
use crate::cli::regression::NightlyArgs;
use crate::commands::baseline;
use crate::commands::cluster::{self, JobPlan};
use crate::commands::compare::{gating_metrics, run_stats};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::load_to_start;
use crate::commands::measure::{RunView, measure, run_request};
use crate::commands::output::{Colors, eprint, print};
use crate::exit::Exit;
use crate::plan::arms;
use crate::results::record::FORMAT;
use crate::results::record::cell_stats::{Baseline, RunStats};
use crate::results::record::nightly::{Finding, FindingKind, NightlyRun};
use crate::results::store::nightly::NightlyStore;
use crate::results::store::{self, StoreError};
use crate::runner::job::JobCommand;
use confirm::NightlyResults;
use upgrade::Additions;

pub(crate) fn execute(args: &NightlyArgs, colors: Colors) -> Outcome {
    let prepare = || prepare_job(args, colors);
    cluster::execute(&args.job, &args.run, colors, prepare, |run, job_folder| {
        let args = NightlyArgs {
            run: run.clone(),
            ..args.clone()
        };
        run_and_judge(&args, job_folder, colors)
    })
}

/// Checks what a nightly run in a job needs, and finds the launches that it may start.
fn prepare_job(args: &NightlyArgs, colors: Colors) -> Result<JobPlan, CommandError> {
    let plan = JobPlan::load(JobCommand::Nightly, &args.job, &args.run, colors)?;
    gating_metrics(&args.judging.gate)?;
    let (_, baseline) = read_baseline(args)?;
    notify::check_webhook(args)?;
    notify::check_job_webhook()?;
    store::nightly::create_folder(&args.run.results)
        .map_err(|error| CommandError::host_not_ready(format!("error: {error}\n")))?;
    notify::check_outputs(args)?;
    Ok(JobPlan {
        // The baseline may use more GPUs or nodes.
        all_launches: baseline.map(|baseline| {
            let mut all = plan.loaded.plan.clone();
            baseline_starts::add_baseline_starts(&mut all, &baseline);
            all
        }),
        ..plan
    })
}

/// The baseline with the path of its file.
fn read_baseline(args: &NightlyArgs) -> Result<(PathBuf, Option<Baseline>), CommandError> {
    let file = baseline::baseline_path(&args.run.matrix, args.baseline.as_deref());
    let baseline = store::nightly::read_baseline(&file)
        .map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    Ok((file, baseline))
}

/// Runs a matrix on this host, which may be a node that executes a job with that folder, and judges it.
fn run_and_judge(args: &NightlyArgs, job_folder: Option<&Path>, colors: Colors) -> Outcome {
    let matrix = load_to_start(&args.run.matrix, args.job.cluster.as_deref(), colors)?;
    let gates = gating_metrics(&args.judging.gate)?;
    let (file, baseline) = read_baseline(args)?;
    notify::check_webhook(args)?;
    let nights = NightlyStore::open(&args.run.results, &matrix.plan.matrix).map_err(overlap_error)?;
    notify::check_outputs(args)?;
    let (name, is_paired) = (matrix.plan.matrix.clone(), matrix.plan.paired);
    let mut request = run_request(&args.run, matrix);
    if let Some(baseline) = baseline.as_ref().filter(|_| is_paired) {
        baseline_starts::add_baseline_starts(&mut request.matrix.plan, baseline);
    }
    let view = RunView {
        args: &args.run,
        job_folder,
        min_change: args.judging.floor,
        colors,
    };
    let measured = measure(request.clone(), view)?;
    if measured.exit == Exit::Interrupted {
        return Ok(Exit::Interrupted);
    }
    let candidate = select_candidate_cells(args, run_stats(&measured.records, &gates));
    let judgement = match baseline
        .as_ref()
        .map(|baseline| select_baseline_cells(args, baseline))
    {
        None => {
            print_baseline_hint(args, &file, &measured.folder);
            Some((nightly_gate::findings::failure_findings(&candidate), None, None))
        }
        Some(baseline) => {
            let nightly = NightlyResults {
                view,
                request: &request,
                gates: &gates,
                baseline: &baseline,
                run: &measured.records,
                candidate: &candidate,
            };
            let judged = match is_paired {
                true => Some(judge::judge_paired(args, &nightly)),
                false => judge::judge_screened(args, &nightly)?,
            };
            judged.map(|verdicts| {
                let additions = upgrade::additions(&nightly, verdicts.rows, &measured.folder);
                (verdicts.findings, Some(verdicts.judged), Some(additions))
            })
        }
    };
    let Some((mut findings, judged, additions)) = judgement else {
        return Ok(Exit::Interrupted);
    };
    let has_uncompared_answers = additions.as_ref().is_some_and(Additions::has_uncompared_answers);
    let page = additions.and_then(|additions| {
        add_answer_findings(&mut findings, additions.findings);
        additions.page
    });
    let night = NightlyRun {
        format: FORMAT,
        at: clock::timestamp(),
        run: measured.run.clone(),
        matrix: name,
        baseline: baseline.as_ref().map(|baseline| baseline.side.run.clone()),
        machine: candidate.machine.clone(),
        cells: nightly_gate::night_cells(&candidate),
        judged,
        upgrade: page.as_ref().map(|written| written.page.summary.clone()),
        findings: sort_findings(findings),
    };
    // Write the history first, because pages can be created again from it.
    let history = nights
        .record(&night)
        .context("the nightly run is measured, but not saved in the history")?;
    notify::notify(args, &nights, &night);
    notify::publish(args, &night, &measured)?;
    if let Some(written) = page.filter(|_| !args.run.json) {
        let (headline, path) = (&written.page.headline, written.path.display());
        print(&format!("{headline}\npage: {path}\n"));
    }
    notify::write_charts(args, &night);
    remove_raw_data(args, &night);
    if !args.run.json {
        print(&format!("history: {}\n", history.display()));
    }
    Ok(match nightly_exit(&night, measured.exit) {
        Exit::Done if has_uncompared_answers => Exit::NotJudged,
        exit => exit,
    })
}

/// Tells how this run can become the missing baseline.
fn print_baseline_hint(args: &NightlyArgs, file: &Path, run: &Path) {
    eprint(&format!(
        "note: there is no baseline `{}`; make this run the baseline with `matrix baseline set {} {} --reason <text>`\n",
        file.display(),
        args.run.matrix.display(),
        run.display()
    ));
}

/// Adds the cells whose answers are worse than those of the baseline, and those that could not be compared. That of an invalid cell cannot be
/// expected to compare.
fn add_answer_findings(findings: &mut Vec<Finding>, of_answers: Vec<Finding>) {
    let is_invalid = |cell: &Option<CellKey>| {
        let mut known = findings.iter();
        known.any(|known| known.kind == FindingKind::Invalid && known.cell == *cell)
    };
    let is_new = |found: &Finding| found.kind == FindingKind::Worse || !is_invalid(&found.cell);
    let new: Vec<Finding> = of_answers.into_iter().filter(is_new).collect();
    findings.extend(new);
}

/// Sorts findings. Metrics that were not judged come first, because they limit all other findings.
fn sort_findings(mut findings: Vec<Finding>) -> Vec<Finding> {
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
fn nightly_exit(night: &NightlyRun, measured: Exit) -> Exit {
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

/// The cells that `--only` selects. Cells that measured the baseline's build beside the candidate are left out.
fn select_candidate_cells(args: &NightlyArgs, mut side: RunStats) -> RunStats {
    if let Some(only) = &args.run.only {
        side.cells.retain(|_, cell| only.matches(&cell.axes));
    }
    side.cells.retain(|_, cell| {
        cell.axes
            .get("version")
            .is_none_or(|version| version != arms::BASELINE_VERSION)
    });
    side
}

fn select_baseline_cells(args: &NightlyArgs, baseline: &Baseline) -> Baseline {
    Baseline {
        side: select_candidate_cells(args, baseline.side.clone()),
        ..baseline.clone()
    }
}

fn overlap_error(error: StoreError) -> CommandError {
    CommandError::host_not_ready(match error {
        StoreError::Locked { pid, .. } => format!(
            "error: another nightly run is in progress{}\n  = help: wait until it ends; two at once would disturb each other's measurements\n",
            pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
        ),
        other => format!("error: {other}\nnothing was started\n"),
    })
}

/// Removes old raw data, if `--keep` is given.
fn remove_raw_data(args: &NightlyArgs, night: &NightlyRun) {
    let Some(keep) = args.keep else { return };
    let baseline = night.baseline.as_ref().map_or("", |run| run.as_str());
    let seconds = keep.duration().as_secs_f64();
    match store::nightly::remove_raw_data(
        &args.run.results,
        &night.matrix,
        seconds,
        &[baseline, night.run.as_str()],
    ) {
        Ok(0) => {}
        Ok(bytes) => eprint(&format!(
            "note: removed {:.2} MB of raw data older than {keep}\n",
            bytes as f64 / 1e6
        )),
        Err(error) => eprint(&format!("warning: old raw data was not removed: {error}\n")),
    }
}
