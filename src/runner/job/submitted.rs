//! The jobs of this user that `matrix` has submitted, and what a cluster lacks for one.

use std::path::PathBuf;

use super::start_folder;
use crate::base::threads::InterruptibleRuntime;
use crate::config::cluster::{ClusterProfile, JobSize};
use crate::plan::job::Job;
use crate::slurm::{self, JobId, JobNeeds, SlurmError};

/// The variable of `sbatch` that names a partition.
const PARTITION_VARIABLE: &str = "SBATCH_PARTITION";

/// A job that has not ended.
pub(crate) struct SubmittedJob {
    pub(crate) id: JobId,
    /// The state, such as `running`.
    pub(crate) state: String,
    pub(crate) folder: PathBuf,
}

/// A job that was cancelled, or why it was not.
pub(crate) type Cancelled = (SubmittedJob, Result<(), SlurmError>);

/// Number of jobs that one command cancels.
const CANCELLED_AT_ONCE: usize = 100;

/// Cancels all jobs of this user that `matrix` has submitted, which their labels tell. A command that still submits jobs for
/// the starts of a run submits no more.
pub(crate) fn cancel_all(runtime: &InterruptibleRuntime) -> Result<Vec<Cancelled>, SlurmError> {
    runtime.block_on(async {
        let mut jobs: Vec<SubmittedJob> = Vec::new();
        for job in slurm::own_jobs().await? {
            if let Some(folder) = Job::folder_of(&job.comment) {
                start_folder::stop_submitting(folder);
                jobs.push(SubmittedJob {
                    folder: folder.to_owned(),
                    id: job.id,
                    state: job.state,
                });
            }
        }
        let mut cancelled = Vec::new();
        while !jobs.is_empty() {
            let rest = jobs.split_off(jobs.len().min(CANCELLED_AT_ONCE));
            let some = std::mem::replace(&mut jobs, rest);
            let ids: Vec<&JobId> = some.iter().map(|job| &job.id).collect();
            if slurm::cancel(&ids).await.is_ok() {
                cancelled.extend(some.into_iter().map(|job| (job, Ok(()))));
                continue;
            }
            // One at a time, to say which cannot be cancelled.
            for job in some {
                let outcome = slurm::cancel(&[&job.id]).await;
                cancelled.push((job, outcome));
            }
        }
        Ok(cancelled)
    })
}

/// What the cluster lacks for a job, with how to fix it. Nothing is submitted.
pub(crate) fn lacks(
    runtime: &InterruptibleRuntime,
    profile: &ClusterProfile,
    size: JobSize,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<String>, SlurmError> {
    let needs = JobNeeds {
        profile,
        size,
        default_partition: variable(PARTITION_VARIABLE),
    };
    runtime.block_on(slurm::lacks(&needs))
}
