//! What commands that submit jobs share: the request of a job, its checks and its messages.

use std::path::Path;

use crate::base::text;
use crate::base::threads::InterruptibleRuntime;
use crate::cli::{self, RunArgs, command_line};
use crate::commands::diagnostics::diagnostics_error;
use crate::commands::environment::environment;
use crate::commands::error::CommandError;
use crate::commands::output::{Colors, eprint, print};
use crate::config::cluster::ClusterProfile;
use crate::plan::Plan;
use crate::plan::job::{impossible, size_of};
use crate::runner::check_flags;
use crate::runner::host_error;
use crate::runner::job::{self, JobCommand, JobError, JobNotice, JobRequest};
use crate::runner::load_matrix::LoadedMatrix;

/// The variable of `sbatch` that sets the time limit.
const TIME_LIMIT_VARIABLE: &str = "SBATCH_TIMELIMIT";

/// Whether the profile or the environment sets a time limit.
pub(crate) fn has_time_limit(profile: &ClusterProfile) -> bool {
    profile.time_limit.is_some() || cli::env_variable(TIME_LIMIT_VARIABLE).is_some()
}

/// The request of a job that repeats this command on a node.
pub(crate) fn request<'a>(
    results: &'a Path,
    loaded: &'a LoadedMatrix,
    profile: &'a ClusterProfile,
) -> Result<JobRequest<'a>, CommandError> {
    let folder = host_error::absolute_folder(results)?;
    if folder.to_string_lossy().contains('\\') {
        return Err(CommandError::usage(format!(
            "error: the folder of the results, `{}`, has a backslash in its path, and Slurm cannot write the output of a job to such a folder\n  = help: choose another folder with `--results`\n",
            folder.display()
        )));
    }
    let current_folder = host_error::absolute_folder(Path::new("."))?;
    for (what, path) in [
        ("the folder of the results", &folder),
        ("the working folder", &current_folder),
    ] {
        let is_hidden = |letter: char| text::is_control(letter) || text::is_invisible(letter);
        if path.to_str().is_none_or(|path| path.contains(is_hidden)) {
            return Err(CommandError::usage(format!(
                "error: the script of a job cannot contain the path of {what}, {:?}: this path has a line break, another invisible character, or bytes that are not UTF-8\n  = help: rename that folder, or choose another one\n",
                path.to_string_lossy()
            )));
        }
    }
    Ok(JobRequest {
        sources: loaded.digest(),
        command: JobCommand::Run,
        matrix: &loaded.plan.matrix,
        profile,
        size: size_of(&loaded.plan, profile),
        results,
        program: host_error::own_program()?,
        current_folder,
        arguments: command_line::arguments_without_resume(),
        resume: None,
        has_run: false,
        yes: false,
        variables: environment().names,
    })
}

/// Shows what a job writes, and what is said of it.
pub(crate) fn show(notice: JobNotice<'_>) {
    match notice {
        JobNotice::Note(text) => eprint(&format!("note: {text}\n")),
        JobNotice::Warning(text) => eprint(&format!("warning: {text}\n")),
        JobNotice::Stderr(text) => eprint(text),
        JobNotice::Stdout(text) => print(text),
    }
}

/// Fails if no job with this profile can measure the plan.
pub(crate) fn check_possible(plan: &Plan, profile: &ClusterProfile) -> Result<(), CommandError> {
    match impossible(plan, profile) {
        Some(why) => Err(CommandError::usage(format!("error: {why}\n"))),
        None => Ok(()),
    }
}

/// Says that jobs of an earlier run of the matrix have not ended, which the user may have meant to follow.
pub(crate) fn note_running_jobs(runtime: &InterruptibleRuntime, args: &RunArgs, matrix: &str) {
    let jobs = match job::has_jobs(&args.results) {
        true => job::jobs_of_matrix(runtime, &args.results, matrix).unwrap_or_default(),
        false => Vec::new(),
    };
    if let [first, ..] = &jobs[..] {
        eprint(&match jobs.len() {
            1 => format!(
                "note: job {first} of an earlier run of this matrix has not ended; to follow that run, use `--resume`\n"
            ),
            count => format!(
                "note: {count} jobs of an earlier run of this matrix, such as {first}, have not ended; to follow that run, use `--resume`\n"
            ),
        });
    }
}

/// Checks flags before an allocation is asked for, as far as this host has the programs.
pub(crate) fn check_engine_flags(
    loaded: &LoadedMatrix,
    args: &RunArgs,
    colors: Colors,
) -> Result<(), CommandError> {
    let checked = check_flags::check(loaded, &environment(), &args.places.cache())?;
    for note in &checked.notes {
        eprint(&format!("note: {note}\n"));
    }
    match checked.unknown.is_empty() {
        true => Ok(()),
        false => Err(diagnostics_error(
            &checked.unknown,
            &loaded.sources,
            colors.stderr,
        )),
    }
}

/// The error of a job that could not be submitted or followed.
pub(crate) fn job_error(error: JobError) -> CommandError {
    let message = format!("error: {error}\n");
    match error {
        JobError::Unconfirmed { .. } => CommandError::cannot_continue(message),
        _ => CommandError::host_not_ready(message),
    }
}
