//! `matrix run`: executes a plan and writes its report.

use std::path::Path;

use crate::analysis::compare::decision::DEFAULT_BOUND;
use crate::cli::{RunArgs, RunCommand};
use crate::commands::cluster::{self, JobPlan};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::load_to_start;
use crate::commands::measure::{RunView, measure, run_request, show};
use crate::commands::output::Colors;
use crate::runner::job::{self, JobCommand};

pub(crate) fn execute(command: &RunCommand, colors: Colors) -> Outcome {
    let prepare = || JobPlan::load(JobCommand::Run, &command.job, &command.run, colors);
    cluster::execute(&command.job, &command.run, colors, prepare, |args, job_folder| {
        run(args, command.job.cluster.as_deref(), job_folder, colors)
    })
}

/// Runs a matrix on this host, which may be a node that executes a job with that folder.
fn run(args: &RunArgs, cluster: Option<&str>, job_folder: Option<&Path>, colors: Colors) -> Outcome {
    let mut loaded = load_to_start(&args.matrix, cluster, colors)?;
    if let Some(folder) = job_folder
        && let Some(part) = job::part_of(folder)
    {
        loaded.plan = part.map_err(|error| {
            CommandError::cannot_continue(format!(
                "error: cannot read the plan in {}: {error}\n",
                folder.display()
            ))
        })?;
    }
    let view = RunView {
        args,
        job_folder,
        min_change: DEFAULT_BOUND,
        colors,
    };
    let measured = measure(run_request(args, loaded), view)?;
    show(&measured, args);
    Ok(measured.exit)
}
