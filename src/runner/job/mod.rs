//! Runs a matrix as a job of a cluster: submits the job and shows what it prints. The job runs the same program
//! on its node, which measures and writes the run's folder; this side measures nothing and can be killed at
//! any time.

mod command;
mod folder;
mod follow;
mod notice;
mod start_folder;
pub(crate) mod starts;
mod submitted;

use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};

use crate::base::ids::ContentHash;
use crate::base::threads::InterruptibleRuntime;
use crate::config::cluster::{ClusterProfile, JobPer, JobSize};
use crate::plan::job::{Job, files};
use crate::runner::shutdown::Handler;
use crate::slurm::{self, JobEnd, JobId, JobStatus, OwnJob, SlurmError};
pub(crate) use command::JobCommand;
use folder::JobFolder;
use folder::record_sources;
pub(crate) use folder::{
    ENDED_IN_PROLOG, QuotedError, may_have_ended_in_prolog, record_exit, record_run, recorded_run,
    recorded_sources,
};
use follow::{Follower, POLL_INTERVAL};
pub(crate) use notice::JobNotice;
pub(crate) use start_folder::{is_given_up, part_of};
pub(crate) use submitted::{cancel_all, lacks};

/// Interval between looks at the files of the job.
const FILE_INTERVAL: Duration = Duration::from_millis(500);

/// Largest number of jobs that a command to cancel them names.
const MAX_NAMED_JOBS: usize = 30;

/// A job that runs a matrix by a command.
pub(crate) struct JobRequest<'a> {
    pub(crate) command: JobCommand,
    pub(crate) matrix: &'a str,
    /// A digest of the matrix file and its recipes.
    pub(crate) sources: ContentHash,
    pub(crate) profile: &'a ClusterProfile,
    pub(crate) size: JobSize,
    /// The folder that contains the runs.
    pub(crate) results: &'a Path,
    pub(crate) program: PathBuf,
    pub(crate) current_folder: PathBuf,
    /// The arguments of the program, without `--resume` and `--yes`.
    pub(crate) arguments: Vec<String>,
    /// The run to resume: `latest` or its name.
    pub(crate) resume: Option<String>,
    /// Whether there is such a run. Otherwise a job was submitted for it that did not begin one.
    pub(crate) has_run: bool,
    /// Whether outdated measurements of that run are measured again without asking.
    pub(crate) yes: bool,
    /// The names of all environment variables.
    pub(crate) variables: Vec<String>,
}

/// Why a job is no longer followed.
pub(crate) enum JobOutcome {
    /// The run ended with this exit code.
    Exited(u8),
    /// The job ended before its run did.
    Lost {
        job: JobId,
        end: JobEnd,
        folder: PathBuf,
    },
    /// A signal stopped this side; the job continues.
    Detached {
        job: JobId,
        folder: PathBuf,
        /// Answers the signal until the command has said what becomes of the job.
        handler: Handler,
    },
}

#[derive(Debug, Error)]
pub(crate) enum JobError {
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    #[error("cannot write the files of the job below {}: {source}\n  = help: the results folder must be writable, and shared with the nodes of the cluster", .folder.display())]
    Files { folder: PathBuf, source: std::io::Error },
    #[error("{source}\n  = note: the job may have been submitted in spite of this error; to check, search the output of `squeue --me --format '%A %k'` for the folder of the job, {}", .folder.display())]
    Unconfirmed { source: SlurmError, folder: PathBuf },
    #[error("jobs of this run have not ended, such as the job with the folder {}\n  = help: these jobs were submitted with {form} in the profile; to follow them, use this setting again; to cancel them, run: {cancel}", .folder.display())]
    OtherForm {
        folder: PathBuf,
        form: &'static str,
        cancel: String,
    },
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
}

impl JobRequest<'_> {
    fn job<'a>(&'a self, folder: &'a Path, arguments: &'a [String]) -> Job<'a> {
        Job {
            matrix: self.matrix,
            profile: self.profile,
            size: self.size,
            folder,
            current_folder: &self.current_folder,
            program: &self.program,
            arguments,
        }
    }

    /// The request of a job that measures a part of the plan of this one.
    fn for_part<'a>(&'a self, profile: &'a ClusterProfile, size: JobSize) -> JobRequest<'a> {
        JobRequest {
            profile,
            size,
            program: self.program.clone(),
            current_folder: self.current_folder.clone(),
            arguments: self.arguments.clone(),
            resume: None,
            variables: self.variables.clone(),
            sources: self.sources.clone(),
            ..*self
        }
    }

    /// The arguments of the program inside the job.
    fn job_arguments(&self, folder: &Path) -> Vec<String> {
        let mut arguments = self.arguments.clone();
        arguments.extend(["--job-folder".to_owned(), folder.display().to_string()]);
        if let Some(run) = self.resume.as_ref().filter(|_| self.has_run) {
            arguments.extend(["--resume".to_owned(), run.clone()]);
            arguments.extend(self.yes.then(|| "--yes".to_owned()));
        }
        arguments
    }

    /// The script that would be submitted.
    pub(crate) fn script(&self) -> String {
        let folder = JobFolder::parent(self.results).join(format!("{}-<time>", self.matrix));
        self.job(&folder, &self.job_arguments(&folder)).script()
    }
}

/// Whether a job was submitted to execute this command with this run; `latest` is any run of the matrix.
pub(crate) fn has_job(results: &Path, matrix: &str, command: JobCommand, run: &str) -> bool {
    JobFolder::find(results, matrix, command, run).is_some()
}

/// Whether jobs that each measure a start were submitted for this run.
pub(crate) fn has_start_jobs(results: &Path, matrix: &str, command: JobCommand, run: &str) -> bool {
    !JobFolder::all(results, matrix, command, JobPer::Launch, run).is_empty()
}

/// Submits a job, or finds the one that still executes the run to resume, and follows it to its end.
pub(crate) fn run_job(
    runtime: &InterruptibleRuntime,
    request: &JobRequest<'_>,
    notice: &dyn Fn(JobNotice<'_>),
) -> Result<JobOutcome, JobError> {
    runtime.block_on(async {
        let mut signals = Signals::catch().map_err(JobError::Signals)?;
        refuse_jobs_of_starts(request).await?;
        submit_and_follow(request, notice, &mut signals).await
    })
}

/// Fails if jobs that each measure a start still execute the run to resume.
async fn refuse_jobs_of_starts(request: &JobRequest<'_>) -> Result<(), JobError> {
    let Some(run) = &request.resume else {
        return Ok(());
    };
    let folders = JobFolder::all(
        request.results,
        request.matrix,
        request.command,
        JobPer::Launch,
        run,
    );
    let open: Vec<JobFolder> = folders.iter().flat_map(start_folder::unmerged).collect();
    if open.is_empty() {
        return Ok(());
    }
    let jobs = slurm::own_jobs().await?;
    let executes = |folder: &&JobFolder| jobs.iter().any(|job| job.comment == Job::label(&folder.path));
    match open.iter().find(executes) {
        Some(folder) => Err(JobError::OtherForm {
            folder: folder.path.clone(),
            form: "`job_per: launch`",
            cancel: cancel_command(&submitted_for(&jobs, &open), request.matrix),
        }),
        None => Ok(()),
    }
}

/// The jobs with these folders.
fn submitted_for(jobs: &[OwnJob], folders: &[JobFolder]) -> Vec<JobId> {
    let labels: Vec<String> = folders.iter().map(|folder| Job::label(&folder.path)).collect();
    let own = jobs.iter().filter(|job| labels.contains(&job.comment));
    own.map(|job| job.id.clone()).collect()
}

/// Whether jobs were ever submitted from this folder of results.
pub(crate) fn has_jobs(results: &Path) -> bool {
    JobFolder::parent(results).is_dir()
}

/// This user's jobs of a run that have not ended.
pub(crate) fn jobs_of_run(
    runtime: &InterruptibleRuntime,
    results: &Path,
    run: &str,
) -> Result<Vec<JobId>, SlurmError> {
    runtime.block_on(open_jobs(results, |folder| {
        recorded_run(folder).as_deref() == Some(run)
    }))
}

/// This user's jobs of any run of a matrix that have not ended.
pub(crate) fn jobs_of_matrix(
    runtime: &InterruptibleRuntime,
    results: &Path,
    matrix: &str,
) -> Result<Vec<JobId>, SlurmError> {
    runtime.block_on(open_jobs(results, |folder| folder::is_of_matrix(folder, matrix)))
}

/// This user's jobs that were submitted from this folder of results and have not ended. `is_wanted` is asked of the folder of
/// their submission.
async fn open_jobs(results: &Path, is_wanted: impl Fn(&Path) -> bool) -> Result<Vec<JobId>, SlurmError> {
    let parent = std::fs::canonicalize(JobFolder::parent(results)).ok();
    let is_ours = |job: &OwnJob| {
        let folder = Job::folder_of(&job.comment)?;
        let starts = folder.parent().filter(|parent| parent.ends_with(files::STARTS));
        let submission = starts.map_or(Some(folder), Path::parent)?;
        Some(submission.parent() == parent.as_deref() && is_wanted(submission))
    };
    let jobs = slurm::own_jobs().await?;
    let ours = jobs.into_iter().filter(|job| is_ours(job) == Some(true));
    Ok(ours.map(|job| job.id).collect())
}

/// The command that ends these jobs of a matrix.
pub(crate) fn cancel_command(jobs: &[JobId], matrix: &str) -> String {
    let ids: Vec<&str> = jobs.iter().map(JobId::as_str).collect();
    match ids.len() > MAX_NAMED_JOBS {
        true => format!("scancel --me --name=matrix-{matrix}   (all jobs of this matrix)"),
        false => format!("scancel {}", ids.join(" ")),
    }
}

async fn submit_and_follow(
    request: &JobRequest<'_>,
    notice: &dyn Fn(JobNotice<'_>),
    signals: &mut Signals,
) -> Result<JobOutcome, JobError> {
    let unfinished = find_unfinished(request).await?;
    let shows_earlier = unfinished.is_none();
    // From here on a signal is answered with what becomes of the job.
    let handler = Handler::new();
    let (folder, job) = match unfinished {
        Some((folder, job)) => {
            notice(JobNotice::Note(format!(
                "job {job} still executes this run; the earlier output of the job is in {}",
                folder.path.display()
            )));
            (folder, job)
        }
        None => {
            let folder = submit(request).await?;
            notice(JobNotice::Note(format!(
                "submitted as job {}; its files are in {}",
                folder.1,
                folder.0.path.display()
            )));
            folder
        }
    };
    let follower = Follower::new(&folder, shows_earlier);
    follow(&folder, job, follower, notice, signals, handler).await
}

/// The job that still executes the run to resume.
async fn find_unfinished(request: &JobRequest<'_>) -> Result<Option<(JobFolder, JobId)>, JobError> {
    let Some(run) = &request.resume else {
        return Ok(None);
    };
    let Some(folder) = JobFolder::find(request.results, request.matrix, request.command, run) else {
        return Ok(None);
    };
    // By its label, not by the number in the folder: this side may have been killed before it wrote that down, and a controller that
    // lost its state gives the number to another job.
    let job = slurm::find_job(&Job::label(&folder.path)).await?;
    Ok(job.map(|job| (folder, job)))
}

async fn submit(request: &JobRequest<'_>) -> Result<(JobFolder, JobId), JobError> {
    let unwritable = |source| JobError::Files {
        folder: JobFolder::parent(request.results),
        source,
    };
    let folder = JobFolder::create(request.results, request.matrix, request.command, JobPer::Run)
        .map_err(unwritable)?;
    let id = submit_in(request, &folder).await?;
    Ok((folder, id))
}

/// Submits the job of a folder.
async fn submit_in(request: &JobRequest<'_>, folder: &JobFolder) -> Result<JobId, JobError> {
    let unwritable = |source| JobError::Files {
        folder: folder.path.clone(),
        source,
    };
    let arguments = request.job_arguments(&folder.path);
    let job = request.job(&folder.path, &arguments);
    let options: Vec<String> = job.options().into_iter().map(|(name, _)| name).collect();
    folder
        .write_script(&job.script())
        .and_then(|()| record_sources(&folder.path, &request.sources))
        .map_err(unwritable)?;
    let submitted = slurm::submit(&folder.path.join(files::SCRIPT), &options, &request.variables).await;
    match submitted {
        Ok(id) => {
            folder.note_submission(&id).map_err(unwritable)?;
            Ok(id)
        }
        // The controller may have taken it.
        Err(source) if source.may_have_worked() => match slurm::find_job(&Job::label(&folder.path)).await {
            Ok(Some(id)) => {
                folder.note_submission(&id).map_err(unwritable)?;
                Ok(id)
            }
            _ => Err(JobError::Unconfirmed {
                source,
                folder: folder.path.clone(),
            }),
        },
        Err(error) => {
            // Nothing refers to it.
            folder.discard();
            Err(error.into())
        }
    }
}

/// Shows the state and the output of a job until it ends.
async fn follow(
    folder: &JobFolder,
    job: JobId,
    mut follower: Follower,
    notice: &dyn Fn(JobNotice<'_>),
    signals: &mut Signals,
    handler: Handler,
) -> Result<JobOutcome, JobError> {
    let mut polls = interval_at(Instant::now() + Duration::from_secs(1), POLL_INTERVAL);
    let mut looks = interval(FILE_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = signals.received() => return Ok(detached(job, folder, handler)),
            _ = looks.tick() => {
                follower.show_output(notice);
                if let Some(code) = folder.final_exit() {
                    follower.show_output(notice);
                    return Ok(JobOutcome::Exited(code));
                }
            }
            _ = polls.tick() => {
                let Some(status) = signals.unless_received(slurm::job_status(&job)).await else {
                    return Ok(detached(job, folder, handler));
                };
                match status {
                    Ok(JobStatus::Queued(state)) => follower.show_state(&job, &state, notice),
                    Ok(JobStatus::Ended(end)) => {
                        follower.show_output(notice);
                        return Ok(match folder.exit() {
                            Some(code) => JobOutcome::Exited(code),
                            None => JobOutcome::Lost { job, end, folder: folder.path.clone() },
                        });
                    }
                    Err(error) if error.is_temporary() => follower.show_failure(&error, notice),
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

fn detached(job: JobId, folder: &JobFolder, handler: Handler) -> JobOutcome {
    JobOutcome::Detached {
        job,
        folder: folder.path.clone(),
        handler,
    }
}

/// The signals that end this side.
struct Signals([Signal; 3]);

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Runs a future; `None` if a signal comes first.
    async fn unless_received<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.received() => None,
            done = work => Some(done),
        }
    }

    async fn received(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
