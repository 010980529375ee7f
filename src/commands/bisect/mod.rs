//! `matrix bisect`: finds the first of several versions that is worse.

mod probe;

use std::path::Path;

use crate::analysis::compare::bisection::{self, Bisection};
use crate::analysis::compare::pairwise::Comparison;
use crate::analysis::compare::pairwise::row::Row;
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::metrics::Metric;
use crate::cli::regression::BisectArgs;
use crate::commands::cluster::{self, JobPlan};
use crate::commands::compare::gating_metrics;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::{load_to_start, select};
use crate::commands::output::{Colors, print};
use crate::commands::required_starts::required_starts;
use crate::exit::Exit;
use crate::plan::Plan;
use crate::runner::job::JobCommand;
use probe::{Probe, Step};

pub(crate) fn execute(args: &BisectArgs, colors: Colors) -> Outcome {
    let prepare = || prepare_job(args, colors);
    cluster::execute(&args.job, &args.run, colors, prepare, |run, job_folder| {
        let args = BisectArgs {
            run: run.clone(),
            ..args.clone()
        };
        search_versions(&args, job_folder, colors)
    })
}

/// Checks what a search in a job needs.
fn prepare_job(args: &BisectArgs, colors: Colors) -> Result<JobPlan, CommandError> {
    let plan = JobPlan::load(JobCommand::Bisect, &args.job, &args.run, colors)?;
    check_plan(args, &plan.loaded.plan)?;
    Ok(plan)
}

/// Searches for the first bad version on this host, which may be a node that executes a job with that folder.
fn search_versions(args: &BisectArgs, job_folder: Option<&Path>, colors: Colors) -> Outcome {
    let matrix = load_to_start(&args.run.matrix, args.job.cluster.as_deref(), colors)?;
    let mut plan = matrix.plan.clone();
    if let Some(only) = &args.run.only {
        select(&mut plan, only)?;
    }
    let (versions, gates) = check_plan(args, &plan)?;
    let starts = required_starts("--starts", args.starts, &args.run, &plan, &gates)?;
    search(
        &versions,
        Probe {
            args,
            job_folder,
            colors,
            starts,
            gates,
            matrix,
            began: None,
            hosts: Vec::new(),
        },
    )
}

/// The versions of a plan and the metrics that decide, if a search is possible.
fn check_plan(args: &BisectArgs, plan: &Plan) -> Result<(Vec<String>, Vec<Metric>), CommandError> {
    let versions = bisection::versions(plan);
    if versions.len() < 3 {
        return Err(CommandError::usage(format!(
            "error: a search for the first bad version needs at least three versions, but {} are selected\n  = help: list the versions in order, such as `sglang: {{ version: [v0.5.0, v0.5.1, v0.5.2] }}`; the first version must be good, the last version bad\n",
            versions.len()
        )));
    }
    let gates = gating_metrics(&args.judging.gate)?;
    if let Some((cell, why)) = bisection::too_few_requests(plan, &gates) {
        return Err(CommandError::usage(format!(
            "error: nothing could be judged: {why}\n  = help: raise `prompts` of the scenario `{}`\n",
            cell.scenario.name
        )));
    }
    Ok((versions, gates))
}

/// Measures versions until the first bad one is found.
fn search(versions: &[String], mut probe: Probe<'_>) -> Outcome {
    let mut search = Bisection::between_ends(versions.len());
    let ends = [versions[search.good].as_str(), versions[search.bad].as_str()];
    let Some(Step { compared, .. }) = probe.compare(ends, None)? else {
        return Ok(Exit::Interrupted);
    };
    // Only this loss decides the search, because other metrics may get worse and better again between the
    // versions.
    let Some(loss) = compared.worst_loss() else {
        return Ok(report_no_loss(compared.comparison(), ends));
    };
    while let Some(middle) = search.next() {
        let Some(step) = probe.compare([ends[0], &versions[middle]], Some(&loss))? else {
            return Ok(Exit::Interrupted);
        };
        if let Some(machines) = step.elsewhere {
            print(&format!(
                "{} was measured on another machine than {}, so it was not judged ({machines}). The first bad version is newer than {} and not newer than {}. To find it, start a new search on one machine\n",
                versions[middle], ends[1], versions[search.good], versions[search.bad]
            ));
            return Ok(Exit::NotJudged);
        }
        let Some(is_bad) = step.compared.has_loss(&loss, &compared) else {
            let why = match step.compared.comparison().is_less_reliable() {
                true => "more starts or requests failed with the tested version than with the first version",
                false => "more starts (a higher `--starts`) may give a clear verdict",
            };
            print(&format!(
                "it is unclear whether {} is worse than {} in {}: {why}. The first bad version comes after {}, but not after {}\n",
                versions[middle],
                ends[0],
                loss.label(),
                versions[search.good],
                versions[search.bad]
            ));
            return Ok(Exit::NotJudged);
        };
        search = search.after(middle, is_bad);
    }
    print(&format!(
        "first bad version: {} (last good: {}), judged by {} of {}\n",
        versions[search.bad],
        versions[search.good],
        loss.label(),
        loss.cell
    ));
    Ok(Exit::Regression)
}

/// Reports that there is no loss to search for.
fn report_no_loss(comparison: &Comparison, [good, bad]: [&str; 2]) -> Exit {
    let not_judged = comparison.rows.iter().find(|row| row.verdict().is_none());
    let is_unclear = |row: &Row| row.verdict() == Some(Verdict::Unclear);
    let (message, exit) = match not_judged {
        Some(row) => (
            format!(
                "{bad} could not be compared with {good}, because {} was not judged: {}",
                row.metric.label(),
                row.reason()
            ),
            Exit::NotJudged,
        ),
        None if comparison.rows.iter().any(is_unclear) => (
            format!(
                "it is unclear whether {bad} is worse than {good}; more starts (a higher `--starts`) may give a clear verdict"
            ),
            Exit::NotJudged,
        ),
        None => (
            format!("{bad} is not worse than {good}: there is nothing to search for"),
            Exit::Done,
        ),
    };
    print(&format!("{message}\n"));
    exit
}
