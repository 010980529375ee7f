//! Runs a matrix on a cluster: reads the profile, submits a job and shows it.

use std::path::Path;

use crate::base::text::{line_start, pluralize};
use crate::base::threads;
use crate::cli::{self, JobArgs, PlanArgs, RunArgs, command_line};
use crate::commands::cluster_profile::profile;
use crate::commands::cluster_request::{
    check_engine_flags, check_possible, has_time_limit, job_error, note_running_jobs, request, show,
};
use crate::commands::cluster_starts;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::{load, load_to_start, print_notes, select};
use crate::commands::measure::run_request;
use crate::commands::output::{Colors, eprint, print};
use crate::commands::session_error::session_error;
use crate::config::cluster::{ClusterProfile, JobPer};
use crate::exit::Exit;
use crate::plan::Plan;
use crate::plan::job::{files, size_of, time_limit_of};
use crate::results::store::durations::last_durations;
use crate::runner::host_error;
use crate::runner::job::{self, JobCommand, JobOutcome, JobRequest, run_job};
use crate::runner::load_matrix::LoadedMatrix;
use crate::runner::session;
use crate::runner::session::error::{ResumeError, SessionError};

/// A command that runs a matrix, as it was checked before a job is submitted.
pub(crate) struct JobPlan {
    pub(crate) command: JobCommand,
    /// The matrix with the cells that the command measures.
    pub(crate) loaded: LoadedMatrix,
    /// All launches that the command may start, if they are more than those of the matrix.
    pub(crate) all_launches: Option<Plan>,
}

impl JobPlan {
    /// Reads the matrix and selects its cells.
    pub(crate) fn load(
        command: JobCommand,
        place: &JobArgs,
        args: &RunArgs,
        colors: Colors,
    ) -> Result<Self, CommandError> {
        let mut loaded = load_to_start(&args.matrix, place.cluster.as_deref(), colors)?;
        if let Some(only) = &args.only {
            select(&mut loaded.plan, only)?;
        }
        Ok(Self {
            command,
            loaded,
            all_launches: None,
        })
    }
}

/// Executes a command that runs a matrix: on this host, which may be a node that executes a job with the given folder, or
/// as a job of a cluster, which repeats the command on its node. `prepare` checks what can be checked without a node.
pub(crate) fn execute(
    place: &JobArgs,
    args: &RunArgs,
    colors: Colors,
    prepare: impl FnOnce() -> Result<JobPlan, CommandError>,
    measure: impl FnOnce(&RunArgs, Option<&Path>) -> Outcome,
) -> Outcome {
    match (&place.cluster, &place.job_folder) {
        (Some(cluster), None) => submit(&prepare()?, args, cluster, colors),
        (None, None) => {
            refuse_running_jobs(args, colors)?;
            measure(args, None)
        }
        (_, Some(folder)) => {
            warn_of_changes(folder, args, colors)?;
            in_job(folder, args, |args| measure(args, Some(folder)))
        }
    }
}

/// Submits a job for a command on a login node, or finds the one to resume, and shows it.
fn submit(plan: &JobPlan, args: &RunArgs, cluster: &str, colors: Colors) -> Outcome {
    let loaded = &plan.loaded;
    let mut profile = profile(cluster, &loaded.folder, colors)?;
    check_possible(plan.all_launches.as_ref().unwrap_or(&loaded.plan), &profile)?;
    if profile.job_per == JobPer::Launch {
        return cluster_starts::submit(plan.command, loaded, args, &profile, colors);
    }
    if plan.command.measures_the_plan() {
        profile = timed(profile, loaded, &args.results);
    }
    if args.resume.is_none() {
        print_notes(loaded);
    }
    check_engine_flags(loaded, args, colors)?;
    let has_run = has_run(args, plan, colors)?;
    let request = JobRequest {
        command: plan.command,
        size: size_of(plan.all_launches.as_ref().unwrap_or(&loaded.plan), &profile),
        resume: args.resume.clone(),
        has_run,
        yes: args.yes,
        ..request(&args.results, loaded, &profile)?
    };
    let runtime = threads::runtime()?;
    if args.resume.is_none() {
        note_running_jobs(&runtime, args, &loaded.plan.matrix);
        // What cannot be asked for now is what the submission says.
        for lack in job::lacks(&runtime, &profile, request.size, cli::env_variable).unwrap_or_default() {
            eprint(&format!("warning: {lack}\n"));
        }
    }
    let outcome = run_job(&runtime, &request, &show).map_err(job_error)?;
    let resume = |folder: &Path| {
        let recorded = job::recorded_run(folder).or_else(|| args.resume.clone());
        command_line::resume_command(recorded.as_deref().unwrap_or("latest"))
    };
    match outcome {
        JobOutcome::Exited(code) => Exit::from_code(code).ok_or_else(|| {
            CommandError::cannot_continue(format!(
                "error: the run ended with the unknown exit code {code}\n"
            ))
        }),
        JobOutcome::Detached { job, folder, handler } => {
            print(&format!(
                "job {job} continues; follow it with: {}\nend it with: scancel {job}\n",
                resume(&folder)
            ));
            drop(handler);
            Ok(Exit::Interrupted)
        }
        JobOutcome::Lost { job, end, folder } => {
            let next = match job::recorded_run(&folder).is_some() || has_run {
                true => format!("finished cells are kept; continue with: {}", resume(&folder)),
                false => format!(
                    "the job ended before it began its run; submit the job again with: {}",
                    command_line::repeat_command()
                ),
            };
            let prolog = match job::may_have_ended_in_prolog(&folder, &profile) {
                true => format!("  = note: {}\n", job::ENDED_IN_PROLOG),
                false => String::new(),
            };
            Err(CommandError::cannot_continue(format!(
                "error: job {job} ended before its run was complete: {}\n{prolog}  = note: the output of the job is in {}; processes of the job may still run on its node, but Slurm no longer watches them\n  = help: {next}\n",
                end.describe(),
                folder.display(),
            )))
        }
    }
}

/// Fails if jobs of the run to resume have not ended: two would measure its cells.
fn refuse_running_jobs(args: &RunArgs, colors: Colors) -> Result<(), CommandError> {
    if args.resume.is_none() || !job::has_jobs(&args.results) {
        return Ok(());
    }
    let request = run_request(args, load_to_start(&args.matrix, None, colors)?);
    // Other errors of the request are reported when it is executed.
    let Ok(Some(run)) = session::resumed_run(&request) else {
        return Ok(());
    };
    // Without a scheduler here, its jobs are unknown.
    let jobs = job::jobs_of_run(&threads::runtime()?, &args.results, run.as_str()).unwrap_or_default();
    if jobs.is_empty() {
        return Ok(());
    }
    let which = match jobs.len() {
        1 => format!("error: a job of the run `{run}` has not ended"),
        count => format!("error: {count} jobs of the run `{run}` have not ended"),
    };
    Err(CommandError::host_not_ready(format!(
        "{which}\n  = help: follow the run with `--cluster NAME`, or cancel it with: {}\n",
        job::cancel_command(&jobs, &request.matrix.plan.matrix)
    )))
}

/// Warns of a matrix or recipe that was changed while the job waited. The part of a plan that a job measures is that of the
/// submission.
fn warn_of_changes(folder: &Path, args: &RunArgs, colors: Colors) -> Result<(), CommandError> {
    if let (Some(submitted), None) = (job::recorded_sources(folder), job::part_of(folder))
        && load(&args.matrix, colors)?.digest().to_string() != submitted
    {
        eprint(
            "warning: the matrix or a recipe was changed after this job was submitted; the job measures their present content\n",
        );
    }
    Ok(())
}

/// A command with `--job-folder DIR` on a node: continues the run of the job if it was started before, and records the
/// exit code.
fn in_job(folder: &Path, args: &RunArgs, run: impl FnOnce(&RunArgs) -> Outcome) -> Outcome {
    let resume = job::recorded_run(folder).or_else(|| args.resume.clone());
    let results = match job::part_of(folder) {
        // The run of a part is none of the results folder.
        Some(_) => folder.join(files::RESULTS),
        None => args.results.clone(),
    };
    let args = RunArgs {
        resume,
        results,
        ..args.clone()
    };
    if job::is_given_up(folder) {
        return Err(CommandError::cannot_continue(
            "error: this job does not measure, because another job may have taken over its part of the run\n"
                .to_owned(),
        ));
    }
    let exit = run(&args).unwrap_or_else(|error| {
        // The other side stops to read once it sees the exit code.
        eprint(&error.message);
        error.exit
    });
    job::record_exit(folder, exit.code()).map_err(|error| {
        CommandError::cannot_continue(format!("error: cannot write to {}: {error}\n", folder.display()))
    })?;
    Ok(exit)
}

/// The jobs that `matrix run --cluster` would submit: their number in words, and the script of the first.
pub(crate) fn script(
    args: &PlanArgs,
    loaded: &LoadedMatrix,
    cluster: &str,
    colors: Colors,
) -> Result<(String, String), CommandError> {
    let profile = profile(cluster, &loaded.folder, colors)?;
    let mut arguments = vec!["run".to_owned(), args.matrix.display().to_string()];
    arguments.extend(["--cluster".to_owned(), cluster.to_owned()]);
    let results = host_error::absolute_folder(&args.results)?;
    if let Some(first) = loaded
        .plan
        .starts
        .first()
        .filter(|_| profile.job_per == JobPer::Launch)
    {
        cluster_starts::check(JobCommand::Run, &loaded.plan)?;
        let jobs = pluralize(loaded.plan.starts.len(), "job", "jobs");
        let number = profile.max_jobs.map_or_else(
            || format!("{jobs}, all submitted at once; script of the first job"),
            |max| {
                format!(
                    "{jobs}, of which at most {max} are queued or running at once; script of the first job"
                )
            },
        );
        let part = loaded.plan.part(first);
        let profile = cluster_starts::timed(&profile, loaded, &args.results)(&part);
        let request = JobRequest {
            arguments,
            size: size_of(&part, &profile),
            ..request(&results, loaded, &profile)?
        };
        return Ok((number, request.script()));
    }
    if let Some(only) = &args.only {
        arguments.extend(["--only".to_owned(), only.to_string()]);
    }
    let profile = timed(profile, loaded, &args.results);
    let request = JobRequest {
        arguments,
        ..request(&results, loaded, &profile)?
    };
    Ok(("the job".to_owned(), request.script()))
}

/// The profile with a time limit: its own, the one that the environment sets, or one that follows from earlier runs.
fn timed(mut profile: ClusterProfile, loaded: &LoadedMatrix, results: &Path) -> ClusterProfile {
    if !has_time_limit(&profile) {
        let plan = &loaded.plan;
        // A job may be submitted even if no earlier run can be read.
        let past = last_durations(results, &plan.matrix, &plan.cells).unwrap_or_default();
        profile.time_limit = time_limit_of(plan, |cell| {
            past.get(cell).map(|last| (last.seconds, last.launch_seconds))
        });
    }
    profile
}

/// `matrix check --cluster NAME`: an error that lists what the cluster lacks.
pub(crate) fn check(loaded: &LoadedMatrix, cluster: &str, colors: Colors) -> Result<(), CommandError> {
    let profile = profile(cluster, &loaded.folder, colors)?;
    check_possible(&loaded.plan, &profile)?;
    if profile.job_per == JobPer::Launch {
        cluster_starts::check(JobCommand::Run, &loaded.plan)?;
    }
    let size = size_of(&loaded.plan, &profile);
    let lacks = job::lacks(&threads::runtime()?, &profile, size, cli::env_variable)
        .map_err(|error| CommandError::host_not_ready(format!("error: {error}\n")))?;
    if let Some(runtime) = process_runtime(loaded) {
        eprint(&format!(
            "note: `{runtime}`, modules and the scratch folder of the nodes are not checked now, but when the job begins\n"
        ));
    }
    if lacks.is_empty() {
        print(&format!(
            "the cluster `{}` has what the job requests ({} with {})\n",
            line_start(cluster),
            pluralize(size.nodes as usize, "node", "nodes"),
            pluralize(size.gpus as usize, "GPU", "GPUs")
        ));
        return Ok(());
    }
    let lines: String = lacks.iter().map(|lack| format!("error: {lack}\n")).collect();
    Err(CommandError::host_not_ready(lines))
}

/// The program that starts containers as processes of the job, if there are any.
fn process_runtime(loaded: &LoadedMatrix) -> Option<&'static str> {
    let launches = loaded.plan.launches.iter();
    let mut commands = launches.filter_map(|launch| launch.place.settings().container_command());
    Some(commands.next()?.runtime().name())
}

/// Cancels this user's jobs, says which, and returns their number and the errors.
pub(crate) fn cancel_jobs() -> Result<(usize, String), CommandError> {
    let jobs = job::cancel_all(&threads::runtime()?)
        .map_err(|error| CommandError::host_not_ready(format!("error: {error}\n")))?;
    let mut errors = String::new();
    for (job, outcome) in &jobs {
        match outcome {
            Ok(()) => print(&format!(
                "cancelled job {} ({}); its files are in {}\n",
                job.id,
                job.state,
                job.folder.display()
            )),
            Err(error) => errors.push_str(&format!("error: cannot cancel job {}: {error}\n", job.id)),
        }
    }
    if jobs.is_empty() {
        print("no job of `matrix` found\n");
    }
    Ok((jobs.len(), errors))
}

/// Whether there is a run to continue. A job may have been cancelled before it began one; without a job too, an error
/// says before the queue that there is no such run.
fn has_run(args: &RunArgs, plan: &JobPlan, colors: Colors) -> Result<bool, CommandError> {
    let JobPlan { command, loaded, .. } = plan;
    let has_job = |run: &str| job::has_job(&args.results, &loaded.plan.matrix, *command, run);
    let Some(run) = &args.resume else {
        return Ok(false);
    };
    match session::resumed_run(&run_request(args, loaded.clone())) {
        Ok(_) => Ok(true),
        // `--failed` and `--yes` need a run.
        Err(SessionError::Resume(ResumeError::NoRun { .. })) if !args.failed && !args.yes && has_job(run) => {
            Ok(false)
        }
        Err(error) => Err(session_error(error, colors)),
    }
}
