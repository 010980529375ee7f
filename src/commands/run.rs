//! `matrix run`: executes a plan and writes its report.

use std::path::Path;

use crate::analysis::compare::decision::DEFAULT_BOUND;
use crate::cli::{RunArgs, RunCommand, command_line};
use crate::commands::cluster::{self, JobPlan};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::load_to_start;
use crate::commands::measure::{MeasuredRun, RunView, measure, run_request};
use crate::commands::output::{Colors, print};
use crate::exit::Exit;
use crate::runner::job::{self, JobCommand};
use crate::runner::session::outcome::MeasurementCounts;

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

/// Prints the tables of a run that has ended, and what to do next.
pub(super) fn show(measured: &MeasuredRun, args: &RunArgs) {
    if args.json {
        return;
    }
    print(&measured.tables);
    print(&format!("{}\n", describe_counts(measured.measurements)));
    print(&format!("results: {}\n", measured.folder.display()));
    print(&format!(
        "page: {}\n",
        measured.folder.join("report.html").display()
    ));
    let resume = command_line::resume_command(measured.run.as_str());
    if measured.exit == Exit::Interrupted {
        print(&format!("continue with: {resume}\n"));
    } else if let Some(what) = describe_repeatable(measured.measurements) {
        let failed = if args.failed { "" } else { " --failed" };
        print(&format!("measure {what} again: {resume}{failed}\n"));
    }
}

/// The kinds of measurements that can be repeated, in words.
const fn describe_repeatable(counts: MeasurementCounts) -> Option<&'static str> {
    match (counts.failed > 0, counts.invalid > 0) {
        (true, true) => Some("failed and invalid cells"),
        (true, false) => Some("failed cells"),
        (false, true) => Some("invalid cells"),
        (false, false) => None,
    }
}

/// Counts of measurements, in words.
fn describe_counts(counts: MeasurementCounts) -> String {
    let mut text = format!("{} done", counts.done);
    let others = [
        (counts.invalid, "invalid"),
        (counts.failed, "failed"),
        (counts.interrupted, "interrupted"),
        (counts.missing, "not measured"),
    ];
    for (count, word) in others {
        if count > 0 {
            text.push_str(&format!(", {count} {word}"));
        }
    }
    text
}
