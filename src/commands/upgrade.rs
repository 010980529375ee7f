//! `matrix upgrade`: starts two builds of an engine in turn, and says whether to upgrade.

use std::path::Path;

use crate::analysis::compare::bisection;
use crate::analysis::compare::extra_starts::{self, StartCounts};
use crate::analysis::metrics::Metric;
use crate::analysis::upgrade::{MayUpgrade, Upgrade};
use crate::cli::command_line;
use crate::cli::upgrade::UpgradeArgs;
use crate::commands::cluster::{self, JobPlan};
use crate::commands::compare::gating_metrics;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::{load_changed, select};
use crate::commands::measure::{RunView, measure, run_request};
use crate::commands::output::{Colors, print};
use crate::commands::required_starts::required_starts;
use crate::commands::terminal;
use crate::commands::upgrade_page::{Sides, judge, write};
use crate::commands::upgrade_runs;
use crate::config::repeats::{HalfWidth, StopRule};
use crate::config::upgrade::{self, UpgradeArms, UpgradeError, UpgradedSetting};
use crate::config::yaml::Diagnostic;
use crate::exit::Exit;
use crate::plan::Plan;
use crate::report::upgrade::UpgradePage;
use crate::results::store::Run;
use crate::runner::job::JobCommand;
use crate::runner::load_matrix::LoadedMatrix;
use crate::runner::session::request::ExtraStarts;

/// Largest number of starts of each side with a budget.
const MAX_STARTS: u32 = 20;

pub(crate) fn execute(args: &UpgradeArgs, colors: Colors) -> Outcome {
    if [&args.from, &args.to].map(|side| side.setting) == [UpgradedSetting::Run; 2] {
        return upgrade_runs::execute(args, colors);
    }
    let prepare = || {
        let (loaded, _) = load(args, colors)?;
        Ok(JobPlan {
            command: JobCommand::Upgrade,
            loaded,
            all_launches: None,
        })
    };
    cluster::execute(&args.job, &args.run, colors, prepare, |run, job_folder| {
        let args = UpgradeArgs {
            run: run.clone(),
            ..args.clone()
        };
        measure_upgrade(&args, job_folder, colors)
    })
}

/// Reads the matrix with the cells of both sides, and plans their starts.
fn load(args: &UpgradeArgs, colors: Colors) -> Result<(LoadedMatrix, UpgradeArms), CommandError> {
    let gates = gating_metrics(&args.judging.gate)?;
    let mut arms = None;
    let mut loaded = load_changed(
        &args.run.matrix,
        args.job.cluster.as_deref(),
        &mut |matrix| {
            let upgrade = upgrade::Upgrade::new(matrix, args.engine.as_deref(), &args.from, &args.to);
            let upgrade = upgrade.map_err(diagnostic)?;
            upgrade.apply(matrix).map_err(diagnostic)?;
            arms = Some(upgrade.arms());
            Ok(())
        },
        colors,
    )?;
    let arms = arms.expect("a matrix that was read was changed");
    if let Some(only) = &args.run.only {
        select(&mut loaded.plan, only)?;
    }
    plan_starts(args, &mut loaded.plan, &arms, &gates)?;
    Ok((loaded, arms))
}

fn diagnostic(error: UpgradeError) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(error.message).with_help(error.help))
}

fn plan_starts(
    args: &UpgradeArgs,
    plan: &mut Plan,
    arms: &UpgradeArms,
    gates: &[Metric],
) -> Result<(), CommandError> {
    plan.plan_upgrade(arms)
        .map_err(|why| CommandError::usage(format!("error: the two sides cannot be compared: {why}\n")))?;
    if let Some((cell, why)) = bisection::too_few_requests(plan, gates) {
        return Err(CommandError::usage(format!(
            "error: nothing could be judged: {why}\n  = help: raise `prompts` of the scenario `{}`\n",
            cell.scenario.name
        )));
    }
    let starts = required_starts("--starts", args.starts, &args.run, plan, gates)?;
    plan.set_starts(starts);
    plan.until = args.budget.and_then(|budget| {
        Some(StopRule {
            half_width: HalfWidth::new(args.judging.floor / 2.0)?,
            most: MAX_STARTS.max(starts),
            stage: starts,
            raised_from: None,
            budget: Some(budget),
        })
    });
    Ok(())
}

/// Measures both sides on this host, which may be a node that executes a job with that folder, and writes the page.
fn measure_upgrade(args: &UpgradeArgs, job_folder: Option<&Path>, colors: Colors) -> Outcome {
    let gates = gating_metrics(&args.judging.gate)?;
    let (loaded, arms) = load(args, colors)?;
    let folder = loaded.folder.clone();
    let mut request = run_request(&args.run, loaded);
    request.extra_starts = ExtraStarts::Chosen(&more_rounds);
    let view = RunView {
        args: &args.run,
        job_folder,
        min_change: args.judging.floor,
        colors,
    };
    let measured = measure(request, view)?;
    if measured.exit == Exit::Interrupted {
        if !args.run.json {
            let resume = command_line::resume_command(measured.run.as_str());
            print(&format!("continue with: {resume}\n"));
        }
        return Ok(Exit::Interrupted);
    }
    let sides = Sides {
        engine: arms.engine,
        setting: arms.setting.name().to_owned(),
        given: arms.given,
        axis: arms.axis.to_owned(),
        values: arms.values,
    };
    let (record, upgrade) = judge(&view, &measured.records, &gates, sides, &folder)?;
    let (page, written) = write(&measured.folder, &record, &upgrade)?;
    if !args.run.json {
        print(&page.terminal(terminal::layout(colors)));
        print(&format!("page: {}\n", written.display()));
    }
    Ok(exit(&page, &upgrade, measured.exit))
}

/// Another start of every launch, as often as the precision needs it and the budget allows it.
fn more_rounds(run: &Run) -> StartCounts {
    let rounds =
        extra_starts::rounds_needed(&run.info, &run.plan, &run.machine, &run.summaries, &run.journal);
    let cells = run.plan.cells.iter().filter(|_| rounds > 0);
    cells.map(|cell| (cell.key.clone(), rounds)).collect()
}

fn exit(page: &UpgradePage, upgrade: &Upgrade, measured: Exit) -> Exit {
    let is_refused = upgrade.speed.rows.iter().any(|row| row.refusal_cause.is_some());
    match page.answer {
        MayUpgrade::No => Exit::Regression,
        MayUpgrade::Undecided if is_refused || measured == Exit::CellFailed => Exit::CellFailed,
        MayUpgrade::Undecided => Exit::NotJudged,
        MayUpgrade::Yes => measured,
    }
}
