//! The jobs of this user that `matrix` has submitted, and what a cluster lacks for one.

use std::path::PathBuf;

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

/// Cancels all jobs of this user that `matrix` has submitted, which their labels tell.
pub(crate) fn cancel_all(runtime: &InterruptibleRuntime) -> Result<Vec<Cancelled>, SlurmError> {
    runtime.block_on(async {
        let mut cancelled = Vec::new();
        for job in slurm::own_jobs().await? {
            let Some(folder) = Job::folder_of(&job.comment) else {
                continue;
            };
            let outcome = slurm::cancel(&job.id).await;
            let job = SubmittedJob {
                folder: folder.to_owned(),
                id: job.id,
                state: job.state,
            };
            cancelled.push((job, outcome));
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
