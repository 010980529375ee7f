//! `matrix run --cluster` with `job_per: launch`: a job for each start of an engine.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;

use crate::analysis::compare::decision::DEFAULT_BOUND;
use crate::base::text::{line_start, pluralize};
use crate::base::threads;
use crate::cli::{self, RunArgs, command_line};
use crate::commands::cluster_request;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::measure::{MeasuredRun, SessionConsole, no_report_message, run_exit, run_request, show};
use crate::commands::output::{Colors, eprint, print, with_signal_message};
use crate::commands::report;
use crate::commands::session_error::session_error;
use crate::config::cluster::ClusterProfile;
use crate::exit::Exit;
use crate::plan::Plan;
use crate::plan::job::{size_of, time_limit_of};
use crate::results::store::durations::last_durations;
use crate::results::store::{MergedPart, Run};
use crate::runner::job::starts::{StartJobs, StartsError, StartsOutcome, run_starts};
use crate::runner::job::{self, JobCommand, JobRequest, QuotedError};
use crate::runner::load_matrix::LoadedMatrix;
use crate::runner::session::planned::PlannedRun;

/// Fails if results decide what the command measures.
pub(crate) fn check(command: JobCommand, plan: &Plan) -> Result<(), CommandError> {
    let what = match command {
        JobCommand::Run if plan.until.is_some() => {
            "`repeats: { target_ci }` of the matrix adds starts that depend on the results of earlier starts"
                .to_owned()
        }
        JobCommand::Run => return Ok(()),
        other => format!(
            "`matrix {}` chooses starts that depend on the results of earlier starts",
            other.name()
        ),
    };
    Err(CommandError::usage(format!(
        "error: {what}, but `job_per: launch` of the profile plans all jobs beforehand\n  = help: set `job_per: run`, which uses one job for everything{}\n",
        match command {
            JobCommand::Run => ", or remove `target_ci`",
            _ => "",
        }
    )))
}

/// Submits the jobs of a run, or follows those of the run to resume, and ends as the run does.
pub(crate) fn submit(
    command: JobCommand,
    loaded: &LoadedMatrix,
    args: &RunArgs,
    profile: &ClusterProfile,
    colors: Colors,
) -> Outcome {
    check(command, &loaded.plan)?;
    cluster_request::check_engine_flags(loaded, args, colors)?;
    // The whole matrix, of which `--only` selects cells.
    let whole = crate::commands::matrix_file::load(&args.matrix, colors)?;
    let runtime = threads::runtime()?;
    let request = JobRequest {
        arguments: command_line::arguments_of_part(),
        ..cluster_request::request(&args.results, loaded, profile)?
    };
    if args.resume.is_none() {
        cluster_request::note_running_jobs(&runtime, args, &loaded.plan.matrix);
        for lack in job::lacks(
            &runtime,
            profile,
            size_of(&loaded.plan, profile),
            cli::env_variable,
        )
        .unwrap_or_default()
        {
            eprint(&format!("warning: {lack}\n"));
        }
    }
    let failed = |error| session_error(error, colors);
    let console = SessionConsole { yes: args.yes };
    let planned = PlannedRun::open(run_request(args, whole), &console).map_err(failed)?;
    let abort = |error: anyhow::Error| failed(planned.abort_error(error.as_ref()));
    if args.resume.is_some() {
        // The lines of measurements that are merged are appended.
        Run::read(planned.store().folder())
            .map_err(anyhow::Error::from)
            .and_then(|run| report::write_results(&run, planned.store(), |_| true))
            .map_err(abort)?;
    }
    let outcome = run_starts(
        &runtime,
        &StartJobs {
            request: &request,
            run: &planned,
            profile_of: &timed(profile, loaded, &args.results),
            notice: &cluster_request::show,
            on_merge: &|merged| show_merged(&planned, merged, args),
        },
    );
    let resume = command_line::resume_command(planned.store().run().as_str());
    let ended = match outcome {
        Ok(StartsOutcome::Ended {
            unstopped,
            lost,
            not_ready,
        }) => EndedJobs {
            unstopped,
            lost,
            not_ready,
        },
        Ok(StartsOutcome::Detached {
            jobs,
            waiting,
            cancel,
            handler,
        }) => {
            print(&detached(jobs, waiting, &resume, &cancel));
            drop(handler);
            return Ok(Exit::Interrupted);
        }
        Err(StartsError::Job(error)) => {
            return Err(match discard_empty(&planned, args) {
                true => cluster_request::job_error(error),
                false => CommandError::cannot_continue(format!(
                    "error: {error}\n  = note: jobs that were submitted continue, and what was measured is kept\n  = help: continue with: {resume}\n"
                )),
            });
        }
        Err(StartsError::Session(error)) => return Err(failed(error)),
        Err(StartsError::Store(error)) => return Err(failed(planned.abort_error(&error))),
    };
    finish(&planned, &ended, &resume, args, colors)
}

/// What became of the jobs of a run.
struct EndedJobs {
    /// Jobs that could not stop their engine.
    unstopped: usize,
    /// Jobs that did not measure all of their cells, and why.
    lost: Vec<String>,
    /// Why no job could begin to measure, if that is what became of all.
    not_ready: Option<QuotedError>,
}

/// Writes and prints the report, and names what was not measured.
fn finish(planned: &PlannedRun, ended: &EndedJobs, resume: &str, args: &RunArgs, colors: Colors) -> Outcome {
    let failed = |error| session_error(error, colors);
    let measured = with_signal_message(no_report_message(planned.store().folder()), || {
        let outcome = planned.finish(ended.unstopped).map_err(failed)?;
        let cache = args.places.cache();
        let (records, tables) =
            report::write_documents(planned.store(), args.only.as_ref(), &cache, DEFAULT_BOUND, colors)
                .context("the measurements are saved, but the report cannot be written")
                .map_err(|error| failed(planned.abort_error(error.as_ref())))?;
        let exit = run_exit(&outcome);
        Ok::<_, CommandError>(MeasuredRun {
            run: outcome.run,
            folder: outcome.folder,
            records,
            tables,
            measurements: outcome.measurements,
            exit,
        })
    })?;
    show(&measured, args);
    let open = planned.remaining().map_err(failed)?;
    let counts = measured.measurements;
    if counts.missing + counts.interrupted == 0 {
        return Ok(measured.exit);
    }
    if let Some(cause) = &ended.not_ready
        && counts.done + counts.invalid + counts.failed + counts.interrupted == 0
    {
        return Err(CommandError::host_not_ready(format!(
            "error: nothing was measured, because no job could begin to measure: {}{}\n  = help: correct this, then continue with: {resume}\n",
            cause.text, cause.notes
        )));
    }
    let cells: usize = open.iter().map(|start| start.cells.len()).sum();
    let mut message = format!(
        "error: {} not measured\n",
        pluralize(cells, "cell is", "cells are")
    );
    for measurement in open.iter().flat_map(|start| &start.cells) {
        message.push_str(&format!(
            "  {} (start {}, repeat {})\n",
            line_start(measurement.cell.as_str()),
            measurement.start,
            measurement.repeat
        ));
    }
    for reason in &ended.lost {
        message.push_str(&format!(
            "  = note: {}\n",
            reason.lines().next().unwrap_or_default()
        ));
    }
    message.push_str(&format!(
        "  = help: finished cells are kept; continue with: {resume}\n"
    ));
    Err(CommandError::cannot_continue(message))
}

/// Removes the folder of a new run for which no job was submitted. Returns whether it did.
fn discard_empty(planned: &PlannedRun, args: &RunArgs) -> bool {
    let (results, matrix) = (&args.results, &planned.plan().matrix);
    let run = planned.store().run();
    let is_empty =
        args.resume.is_none() && !job::has_start_jobs(results, matrix, JobCommand::Run, run.as_str());
    if is_empty {
        planned.store().discard();
    }
    is_empty
}

fn detached(jobs: usize, waiting: usize, resume: &str, cancel: &str) -> String {
    let mut text = format!(
        "{}; follow the run with: {resume}\n",
        pluralize(jobs, "job continues", "jobs continue")
    );
    if jobs > 0 {
        text.push_str(&format!("end it with: {cancel}\n"));
    }
    if waiting > 0 {
        text.push_str(&match waiting {
            1 => "1 start of an engine has no job yet; `--resume` submits its job\n".to_owned(),
            count => format!("{count} starts of engines have no jobs yet; `--resume` submits their jobs\n"),
        });
    }
    text
}

/// Appends merged measurements to `results.jsonl`, and shows events with `--json`.
fn show_merged(planned: &PlannedRun, merged: &MergedPart, args: &RunArgs) {
    for summary in &merged.summaries {
        let measurement = summary.measurement();
        if let Err(error) = report::append_result(planned.whole_plan(), planned.store(), &measurement) {
            tracing::error!("results.jsonl: {error:#}");
        }
    }
    if args.json {
        for event in &merged.events {
            print(&format!(
                "{}\n",
                serde_json::to_string(event).expect("events are JSON")
            ));
        }
    }
}

/// The profile of the job that measures a part of the plan, with a time limit that follows from earlier runs.
pub(crate) fn timed(
    profile: &ClusterProfile,
    loaded: &LoadedMatrix,
    results: &Path,
) -> impl Fn(&Plan) -> ClusterProfile {
    let plan = &loaded.plan;
    let past = match cluster_request::has_time_limit(profile) {
        true => BTreeMap::new(),
        false => last_durations(results, &plan.matrix, &plan.cells).unwrap_or_default(),
    };
    let profile = profile.clone();
    move |part| ClusterProfile {
        time_limit: profile.time_limit.or_else(|| {
            time_limit_of(part, |cell| {
                past.get(cell).map(|last| (last.seconds, last.launch_seconds))
            })
        }),
        ..profile.clone()
    }
}
