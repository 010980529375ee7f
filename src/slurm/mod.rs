//! Commands of Slurm, with time limits, and errors that say how to fix them.

mod job_state;
mod nodes;
mod refusal;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use thiserror::Error;
use tokio::process::Command;

pub(crate) use job_state::{JobEnd, JobState, JobStatus};
pub(crate) use nodes::JobNeeds;

/// Time limit of a command. Slurm's own commands take up to 18 s if the controller does not respond.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobId(String);

impl JobId {
    /// Reads what `sbatch --parsable` prints: `id` or `id;cluster`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let id = text.trim().split(';').next().unwrap_or_default();
        let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| Self(id.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A command of Slurm that failed.
#[derive(Debug, Error)]
pub(crate) enum SlurmError {
    #[error(
        "`{command}` cannot be started: {reason}\n  = help: run this on a login node of the cluster; Slurm's commands must be in PATH"
    )]
    Missing { command: &'static str, reason: String },
    #[error("`{command}` did not end within {}s\n  = help: `scontrol ping` shows whether the controller responds; SLURM_CONF must name a file that exists", .limit.as_secs())]
    Timeout { command: &'static str, limit: Duration },
    #[error("`{command}`: {message}\n  = help: {help}")]
    Refused {
        command: &'static str,
        message: String,
        help: String,
    },
    #[error("`{command}` printed {text:?}, which does not have the expected form")]
    Unreadable { command: &'static str, text: String },
}

impl SlurmError {
    /// Whether the controller does not respond for now; jobs continue without it.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Refused { message, .. } => refusal::is_controller_away(message),
            _ => false,
        }
    }

    /// Whether the controller may have done what it was asked for, and only its answer was lost.
    pub(crate) fn may_have_worked(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Refused { message, .. } => message.contains("Socket timed out"),
            _ => false,
        }
    }

    /// Whether the controller has no such job, or has forgotten it.
    pub(crate) fn is_unknown_job(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message.contains("Invalid job id"))
    }
}

/// Variables by which users have Slurm's commands show, sort or take other jobs and nodes than those they are asked for.
const SELECTING_VARIABLES: [&str; 42] = [
    "SLURM_BITSTR_LEN",
    "SLURM_CLUSTERS",
    "SLURM_JSON",
    "SLURM_TIME_FORMAT",
    "SLURM_YAML",
    "SQUEUE_ACCOUNT",
    "SQUEUE_ALL",
    "SQUEUE_ARRAY",
    "SQUEUE_FEDERATION",
    "SQUEUE_FORMAT",
    "SQUEUE_FORMAT2",
    "SQUEUE_LICENSES",
    "SQUEUE_LOCAL",
    "SQUEUE_NAMES",
    "SQUEUE_PARTITION",
    "SQUEUE_PRIORITY",
    "SQUEUE_QOS",
    "SQUEUE_SIBLING",
    "SQUEUE_SORT",
    "SQUEUE_STATES",
    "SQUEUE_USERS",
    "SINFO_ALL",
    "SINFO_FEDERATION",
    "SINFO_FORMAT",
    "SINFO_LOCAL",
    "SINFO_PARTITION",
    "SINFO_SORT",
    "SACCT_FEDERATION",
    "SACCT_FORMAT",
    "SACCT_LOCAL",
    "SCANCEL_ACCOUNT",
    "SCANCEL_BATCH",
    "SCANCEL_CTLD",
    "SCANCEL_FULL",
    "SCANCEL_INTERACTIVE",
    "SCANCEL_NAME",
    "SCANCEL_PARTITION",
    "SCANCEL_QOS",
    "SCANCEL_STATE",
    "SCANCEL_USER",
    "SCANCEL_VERBOSE",
    "SCANCEL_WCKEY",
];

/// Variables of `sbatch` that it may see if the script does not set their option.
const PASSED_VARIABLES: [(&str, &str); 6] = [
    ("SBATCH_ACCOUNT", "account"),
    ("SBATCH_CONSTRAINT", "constraint"),
    ("SBATCH_PARTITION", "partition"),
    ("SBATCH_QOS", "qos"),
    ("SBATCH_RESERVATION", "reservation"),
    ("SBATCH_TIMELIMIT", "time"),
];

/// Submits a script with the environment of this process, whose variables are `variables`. `set_options` are options
/// of the script. Variables of `sbatch` would win over them or make an array of the job, so most are not passed.
pub(crate) async fn submit(
    script: &Path,
    set_options: &[String],
    variables: &[String],
) -> Result<JobId, SlurmError> {
    let mut command = Command::new("sbatch");
    command.args(["--parsable", "--export=ALL"]).arg(script);
    // It would place the tasks by a list of hosts.
    command.env_remove("SLURM_HOSTFILE");
    for variable in variables.iter().filter(|name| name.starts_with("SBATCH_")) {
        let passed = PASSED_VARIABLES.iter().find(|(name, _)| name == variable);
        if passed.is_none_or(|(_, option)| set_options.iter().any(|set| set == option)) {
            command.env_remove(variable);
        }
    }
    let printed = output("sbatch", command).await?;
    JobId::parse(&printed).ok_or(SlurmError::Unreadable {
        command: "sbatch",
        text: printed,
    })
}

/// The names of the nodes in a list such as `node[1-2]`.
pub(crate) async fn node_names(list: &str) -> Result<Vec<String>, SlurmError> {
    let mut command = Command::new("scontrol");
    command.args(["show", "hostnames", list]);
    let printed = output("scontrol", command).await?;
    Ok(printed.split_whitespace().map(str::to_owned).collect())
}

/// The addresses by which Slurm reaches nodes, in their order.
pub(crate) async fn node_addresses(nodes: &[String]) -> Result<Vec<String>, SlurmError> {
    let mut command = Command::new("scontrol");
    command.args(["show", "node", "--oneliner", &nodes.join(",")]);
    let printed = output("scontrol", command).await?;
    let address = |node: &String| {
        let line = printed
            .lines()
            .find(|line| field(line, "NodeName=") == Some(node))?;
        field(line, "NodeAddr=").map(str::to_owned)
    };
    let addresses: Option<Vec<String>> = nodes.iter().map(address).collect();
    addresses.ok_or(SlurmError::Unreadable {
        command: "scontrol",
        text: printed.clone(),
    })
}

/// The value of a field in a line of `scontrol show --oneliner`.
fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name))
}

/// The state of a job.
pub(crate) async fn job_status(job: &JobId) -> Result<JobStatus, SlurmError> {
    let mut command = Command::new("squeue");
    command.args([
        "--noheader",
        "--jobs",
        job.as_str(),
        "--format",
        job_state::SQUEUE_FORMAT,
    ]);
    match output("squeue", command).await {
        Ok(text) => match text.lines().find_map(job_state::parse_squeue) {
            Some(state) => Ok(JobStatus::Queued(state)),
            None => job_end(job).await.map(JobStatus::Ended),
        },
        Err(error) if error.is_unknown_job() => job_end(job).await.map(JobStatus::Ended),
        Err(error) => Err(error),
    }
}

/// How a job ended: from the controller while it knows the job, otherwise from accounting, if the cluster has it.
async fn job_end(job: &JobId) -> Result<JobEnd, SlurmError> {
    let mut command = Command::new("scontrol");
    command.args(["show", "job", "--oneliner", job.as_str()]);
    match output("scontrol", command).await {
        Ok(text) => {
            if let Some(end) = job_state::parse_scontrol(&text) {
                return Ok(end);
            }
        }
        Err(error) if error.is_temporary() => return Err(error),
        Err(_) => {}
    }
    let mut command = Command::new("sacct");
    command.args(["-X", "-P", "-n", "-j", job.as_str(), "-o", "State,ExitCode"]);
    // Many clusters have no accounting.
    let text = output("sacct", command).await.unwrap_or_default();
    Ok(text
        .lines()
        .last()
        .and_then(job_state::parse_sacct)
        .unwrap_or(JobEnd::UNKNOWN))
}

/// A job of this user.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnJob {
    pub(crate) id: JobId,
    /// The state, such as `RUNNING`.
    pub(crate) state: String,
    pub(crate) comment: String,
}

/// The jobs of this user that have not ended.
pub(crate) async fn own_jobs() -> Result<Vec<OwnJob>, SlurmError> {
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--me", "--format", "%A|%T|%k"]);
    let text = output("squeue", command).await?;
    let jobs = text.lines().filter_map(|line| {
        let mut fields = line.trim_end().splitn(3, '|');
        Some(OwnJob {
            id: JobId::parse(fields.next()?)?,
            state: fields.next()?.to_lowercase(),
            comment: fields.next()?.to_owned(),
        })
    });
    Ok(jobs.collect())
}

/// The states of all jobs of this user that the controller knows, by the comment of the job: one query for any number of jobs.
/// A job that has ended stays known for some minutes.
pub(crate) async fn own_states() -> Result<BTreeMap<String, (JobId, JobStatus)>, SlurmError> {
    let mut command = Command::new("squeue");
    command.args([
        "--noheader",
        "--me",
        "--states=all",
        "--format",
        "%A|%T|%S|%N|%r|%k",
    ]);
    let text = output("squeue", command).await?;
    Ok(text.lines().filter_map(job_state::parse_own_job).collect())
}

/// How jobs ended that the controller has forgotten, as far as accounting says.
pub(crate) async fn accounted_ends(jobs: &[&JobId]) -> BTreeMap<String, JobEnd> {
    let ids: Vec<&str> = jobs.iter().map(|job| job.as_str()).collect();
    let mut command = Command::new("sacct");
    command.args([
        "-X",
        "-P",
        "-n",
        "-j",
        &ids.join(","),
        "-o",
        "JobID,State,ExitCode",
    ]);
    // Many clusters have no accounting.
    let text = output("sacct", command).await.unwrap_or_default();
    let ends = text.lines().filter_map(|line| {
        let (id, end) = line.split_once('|')?;
        Some((id.to_owned(), job_state::parse_sacct(end)?))
    });
    ends.collect()
}

/// The job of this user with that label in its comment, if it has not ended.
pub(crate) async fn find_job(label: &str) -> Result<Option<JobId>, SlurmError> {
    let jobs = own_jobs().await?;
    Ok(jobs
        .into_iter()
        .find(|job| job.comment == label)
        .map(|job| job.id))
}

/// Ends jobs of this user, which may be many.
pub(crate) async fn cancel(jobs: &[&JobId]) -> Result<(), SlurmError> {
    let mut command = Command::new("scancel");
    command.args(jobs.iter().map(|job| job.as_str()));
    match output("scancel", command).await {
        // It has ended in the meantime.
        Err(error) if error.is_unknown_job() => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// What the cluster lacks for a job, with how to fix it.
pub(crate) async fn lacks(needs: &JobNeeds<'_>) -> Result<Vec<String>, SlurmError> {
    let mut command = Command::new("sinfo");
    command.args(["--noheader", "--Node", "--format", nodes::SINFO_FORMAT]);
    let text = output("sinfo", command).await?;
    let nodes: Vec<nodes::Node> = text.lines().filter_map(nodes::parse_sinfo).collect();
    Ok(nodes::lacks(&nodes, needs))
}

/// Runs a command and returns its standard output.
async fn output(name: &'static str, mut command: Command) -> Result<String, SlurmError> {
    for variable in SELECTING_VARIABLES {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(COMMAND_TIMEOUT, command.output())
        .await
        .map_err(|_| SlurmError::Timeout {
            command: name,
            limit: COMMAND_TIMEOUT,
        })?
        .map_err(|error| SlurmError::Missing {
            command: name,
            reason: error.to_string(),
        })?;
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => Err(refusal::explain(name, &String::from_utf8_lossy(&ended.stderr))),
    }
}
