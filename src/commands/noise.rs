//! `matrix noise`: measures how much the metrics of this host vary between two arms of the same engine.

use std::path::Path;

use anyhow::Context;

use crate::analysis::compare::decision::DEFAULT_BOUND;
use crate::analysis::compare::extra_starts::StartCounts;
use crate::analysis::compare::machines;
use crate::analysis::compare::noise::{self, NoiseFigures, STARTS_PER_SIDE};
use crate::analysis::metrics::Metric;
use crate::base::clock;
use crate::cli::regression::NoiseArgs;
use crate::commands::cluster::{self, JobPlan};
use crate::commands::compare::{gating_metrics, run_stats};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::load_to_start;
use crate::commands::measure::{RunView, measure, run_request};
use crate::commands::output::{Colors, eprint, print};
use crate::commands::terminal;
use crate::exit::Exit;
use crate::report;
use crate::results::record::cell_stats::{Noise, RunStats};
use crate::results::store::{self, Run};
use crate::runner::job::JobCommand;
use crate::runner::session::request::ExtraStarts;

/// Starts in one round of both arms, A B B A.
const STARTS_PER_ROUND: u32 = 4;

pub(crate) fn execute(args: &NoiseArgs, colors: Colors) -> Outcome {
    let prepare = || prepare_job(args, colors);
    cluster::execute(&args.job, &args.run, colors, prepare, |run, job_folder| {
        let args = NoiseArgs {
            run: run.clone(),
            ..args.clone()
        };
        measure_noise(&args, job_folder, colors)
    })
}

/// Checks what a measurement in a job needs.
fn prepare_job(args: &NoiseArgs, colors: Colors) -> Result<JobPlan, CommandError> {
    gating_metrics(&args.gate)?;
    let of_arm = starts_of_arm(args);
    check_most(args, of_arm)?;
    let mut plan = JobPlan::load(JobCommand::Noise, &args.job, &args.run, colors)?;
    plan.loaded.plan.plan_noise(2 * of_arm);
    Ok(plan)
}

/// Measures noise on this host, which may be a node that executes a job with that folder, and saves it. The `target_ci`
/// of the matrix is ignored.
fn measure_noise(args: &NoiseArgs, job_folder: Option<&Path>, colors: Colors) -> Outcome {
    let gates = gating_metrics(&args.gate)?;
    let of_arm = starts_of_arm(args);
    if of_arm > args.starts {
        eprint(&format!(
            "note: `--starts {}` is raised to {of_arm}: with fewer starts, `--target` is too often reached by chance\n",
            args.starts
        ));
    }
    check_most(args, of_arm)?;
    let choose = |run: &Run| extra_starts(args, run, &gates);
    let mut request = run_request(
        &args.run,
        load_to_start(&args.run.matrix, args.job.cluster.as_deref(), colors)?,
    );
    request.matrix.plan.plan_noise(2 * of_arm);
    request.extra_starts = ExtraStarts::Chosen(&choose);
    let view = RunView {
        args: &args.run,
        job_folder,
        min_change: DEFAULT_BOUND,
        colors,
    };
    let measured = measure(request, view)?;
    if measured.exit == Exit::Interrupted {
        return Ok(Exit::Interrupted);
    }
    let side = run_stats(&measured.records, &gates);
    if let Some(hosts) = machines::several_hosts(&side) {
        return Err(several_hosts_error(&side, &hosts));
    }
    let noise_figures = noise::noise_of_run(&side, &clock::timestamp());
    print_target(args, &measured.records, &noise_figures);
    save(args, &side, noise_figures, colors)?;
    Ok(measured.exit)
}

/// Noise counts only on the host that measured it.
fn several_hosts_error(side: &RunStats, hosts: &str) -> CommandError {
    CommandError {
        exit: Exit::NotJudged,
        message: format!(
            "error: the noise is not saved, because the starts of run `{}` were measured on several hosts, or on a host that was changed: {hosts}\n  = help: the run is kept. Measure the noise again on one host, without `--resume`. On a cluster, use one node, for example with `options: [--nodelist=NODE]` in the profile\n",
            side.run
        ),
    }
}

/// Starts of each launch in one arm.
fn starts_of_arm(args: &NoiseArgs) -> u32 {
    args.starts.max(args.target.map_or(0, |_| STARTS_PER_SIDE as u32))
}

/// Fails if the starts of both arms together are not within `--most`.
fn check_most(args: &NoiseArgs, of_arm: u32) -> Result<(), CommandError> {
    let starts = 2 * of_arm;
    if args.target.is_some() && starts > args.most {
        return Err(CommandError::usage(format!(
            "error: `--starts {of_arm}` means {of_arm} starts of each launch on each of the two sides, {starts} in total, but `--most` allows only {}\n  = help: raise `--most`, or lower `--starts` (at least {STARTS_PER_SIDE})\n",
            args.most
        )));
    }
    Ok(())
}

/// Another round of A B B A for all cells, unless the target or `--most` is reached.
fn extra_starts(args: &NoiseArgs, run: &Run, gates: &[Metric]) -> StartCounts {
    let side = run_stats(run, gates);
    let noise_figures = noise::noise_of_run(&side, &clock::timestamp());
    let remaining = args.most.saturating_sub(starts_of_each_launch(run));
    let is_over = remaining == 0 || machines::several_hosts(&side).is_some();
    if is_over || noise::is_target_reached(args.target, &noise_figures) {
        return StartCounts::new();
    }
    let cells = run.plan.cells.iter();
    cells
        .map(|cell| (cell.key.clone(), remaining.min(STARTS_PER_ROUND)))
        .collect()
}

/// Reports whether the target is reached.
fn print_target(args: &NoiseArgs, run: &Run, noise_figures: &NoiseFigures) {
    match (args.target, noise::largest_visible_change(noise_figures)) {
        (_, None) => eprint("note: the noise is unknown: no cell has three valid starts\n"),
        (None, Some(_)) => {}
        (Some(target), Some((cell, figure, widest))) => {
            let what = match noise::is_target_reached(args.target, noise_figures) {
                true => "the target is reached",
                false => "`--target` is not reached with the starts that `--most` allows",
            };
            eprint(&format!(
                "note: {what}: with {} starts of each launch, a change of {:.2} % or more is detected in every metric. This holds even if the noise is at its upper bound (80 % confidence). `--target` is {:.2} %. The noisiest metric is {figure} of {cell}\n",
                starts_of_each_launch(run),
                widest * 100.0,
                target * 100.0
            ));
        }
    }
}

/// Merges the noise into that saved for this host, and prints it.
fn save(
    args: &NoiseArgs,
    side: &RunStats,
    noise_figures: NoiseFigures,
    colors: Colors,
) -> Result<(), CommandError> {
    let cache = args.run.places.cache();
    let saved = store::nightly::read_noise(&cache)
        .filter(|noise| machines::are_noise_compatible(&noise.machine, &side.machine));
    let mut noise = Noise {
        machine: side.machine.clone(),
        cells: saved.map(|noise| noise.cells).unwrap_or_default(),
    };
    for (cell, figures) in &noise_figures {
        noise
            .cells
            .entry(cell.clone())
            .or_default()
            .extend(figures.clone());
    }
    let path = store::nightly::save_noise(&cache, &noise).context("cannot save the noise")?;
    if args.run.json {
        let text = serde_json::to_string(&noise_figures).context("it is JSON")?;
        print(&format!("{text}\n"));
        return Ok(());
    }
    let rows = noise_figures.iter().flat_map(|(cell, figures)| {
        figures
            .iter()
            .map(move |(figure, varies)| (cell, figure.as_str(), varies, noise::visible_change(varies)))
    });
    let table = report::noise::noise_table(rows);
    print(&report::terminal::draw(&table, terminal::width(), colors.stdout));
    print(&format!("saved in {}\n", path.display()));
    Ok(())
}

/// Number of starts of each launch.
fn starts_of_each_launch(run: &Run) -> u32 {
    run.plan.starts.iter().map(|start| start.start).max().unwrap_or(0)
}
