//! What Slurm's refusals mean, and how to fix them.

use super::SlurmError;

/// Parts of messages, with how to fix them. The first that matches counts.
const HELP: &[(&str, &str)] = &[
    (
        "invalid partition",
        "`partition` of the profile names none of this cluster; `sinfo -o %P` lists them",
    ),
    (
        "Invalid partition",
        "`partition` of the profile names none of this cluster; `sinfo -o %P` lists them",
    ),
    (
        "CPU count per node",
        "no node has so many processors; lower `cpus` of the profile",
    ),
    (
        "Memory specification",
        "no node has so much memory; lower `memory` of the profile",
    ),
    (
        "Invalid generic resource",
        "`gres` of the profile is unknown here; `sinfo -o %G` lists the names of GPUs",
    ),
    (
        "Requested node configuration is not available",
        "no node has what the job requests; compare `gres`, `gpus`, `cpus` and `memory` of the profile with `sinfo -o '%n %G %c %m'`",
    ),
    (
        "Invalid feature",
        "`constraint` of the profile names no feature of this cluster; `sinfo -o %f` lists them",
    ),
    (
        "reservation",
        "`reservation` of the profile is unknown or not for this user; `scontrol show reservation` lists them",
    ),
    (
        "Invalid qos",
        "`qos` of the profile is unknown or not for this user; `sacctmgr show qos` lists them",
    ),
    (
        "Invalid account",
        "`account` of the profile is not one of this user, or not for that partition; `sacctmgr show assoc user=$USER` lists them",
    ),
    (
        "time limit",
        "`time_limit` of the profile exceeds the limit of the partition, which `sinfo -o '%P %l'` shows",
    ),
    (
        "Required partition not available",
        "the partition takes no jobs now; `sinfo` shows its state; choose another `partition`",
    ),
    (
        "Access/permission denied",
        "the job or the partition belongs to others",
    ),
    (
        "More processors requested",
        "the partition has fewer processors; lower `cpus` of the profile",
    ),
    (
        "Node count specification",
        "the partition has fewer nodes than the job requests",
    ),
    (
        "unrecognized option",
        "an entry of `options` in the profile is no option of `sbatch` here; `sbatch --help` lists them",
    ),
    ("Invalid --", "correct that option in the profile"),
    (
        "Invalid job id",
        "the job has ended and the controller has forgotten it",
    ),
    (
        "Munge encode failed",
        "the authentication service `munged` does not run on this host; ask the administrator",
    ),
    (
        "Protocol authentication",
        "this host is not authenticated; `munged` must run with the key of the cluster",
    ),
    (
        "Unable to contact slurm controller",
        "the controller does not respond; `scontrol ping` shows its state; jobs that run continue",
    ),
    (
        "Unable to process configuration file",
        "SLURM_CONF must name the configuration file of the cluster",
    ),
    ("accounting", "the cluster keeps no accounting"),
    (
        "QOSMax",
        "a limit of the quality of service is reached; wait until other jobs have ended, or choose another `qos`",
    ),
    (
        "submit limit",
        "a limit on submitted jobs is reached; wait until other jobs have ended",
    ),
];

/// The error of a command that failed with this message on standard error.
pub(super) fn explain(command: &'static str, stderr: &str) -> SlurmError {
    let lines: Vec<&str> = stderr
        .lines()
        .map(|line| {
            let line = line.trim();
            let line = line.strip_prefix(&format!("{command}: ")).unwrap_or(line);
            line.strip_prefix("error: ").unwrap_or(line)
        })
        .filter(|line| !line.is_empty())
        .collect();
    let message = match lines.is_empty() {
        true => "failed without a message".to_owned(),
        false => lines.join("; "),
    };
    let found = HELP.iter().find(|(part, _)| message.contains(part));
    let help = found.map_or(
        "see the message above, and the documentation of the cluster",
        |(_, help)| help,
    );
    SlurmError::Refused {
        command,
        message,
        help: help.to_owned(),
    }
}

/// Whether the controller does not respond, so that the same command may succeed later.
pub(super) fn is_controller_away(message: &str) -> bool {
    [
        "Unable to contact slurm controller",
        "Socket timed out",
        "Connection refused",
        "Transport endpoint",
    ]
    .iter()
    .any(|part| message.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_quoted_with_their_fix() {
        for (stderr, help) in [
            (
                "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified\n",
                "sinfo -o %P",
            ),
            (
                "sbatch: error: CPU count per node can not be satisfied\nsbatch: error: Batch job submission failed: Requested node configuration is not available\n",
                "lower `cpus`",
            ),
            ("sbatch: unrecognized option '--foo'\n", "`sbatch --help`"),
            (
                "squeue: error: slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
                "scontrol ping",
            ),
        ] {
            let text = explain("sbatch", stderr).to_string();
            assert!(text.contains(help), "{text}");
        }
        assert!(explain("squeue", "Unable to contact slurm controller").is_temporary());
        assert!(explain("squeue", "slurm_load_jobs error: Invalid job id specified").is_unknown_job());
        assert!(
            explain("sbatch", "")
                .to_string()
                .contains("failed without a message")
        );
    }
}
