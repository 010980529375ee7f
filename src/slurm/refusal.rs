//! What Slurm's refusals mean, and how to fix them.

use super::SlurmError;

/// Parts of messages, with how to fix them. The first that matches counts.
const HELP: &[(&str, &str)] = &[
    (
        "invalid partition",
        "`partition` of the profile is not a partition of this cluster; `sinfo -o %P` lists the partitions",
    ),
    (
        "Invalid partition",
        "`partition` of the profile is not a partition of this cluster; `sinfo -o %P` lists the partitions",
    ),
    (
        "CPU count per node",
        "no node has as many processors as the job requests; lower `cpus` of the profile",
    ),
    (
        "Memory specification",
        "no node has as much memory as the job requests; lower `memory` of the profile",
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
        "this user may not use `account` of the profile, or not in that partition; `sacctmgr show assoc user=$USER` lists the accounts",
    ),
    (
        "submit limit",
        "a limit on submitted jobs is reached; wait until other jobs have ended",
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
        "Invalid node name",
        "`--nodelist` or `--exclude` in `options` of the profile names no node of this cluster; `sinfo -N` lists them",
    ),
    (
        "dependency problem",
        "`--dependency` in `options` of the profile names no job for which Slurm can wait; remove this option",
    ),
    (
        "other parameter too long",
        "the script of the job is too long for this cluster; shorten `prolog`, for example by moving commands to a file that it sources",
    ),
    (
        "presently disabled",
        "the cluster or the job does not allow this operation",
    ),
    (
        "Access/permission denied",
        "the job or the partition belongs to other users",
    ),
    (
        "More processors requested",
        "the partition has fewer processors than the job requests; lower `cpus` of the profile",
    ),
    (
        "Node count specification",
        "the partition has fewer nodes than the job requests",
    ),
    (
        "unrecognized option",
        "an entry of `options` in the profile is no option of `sbatch` here; `sbatch --help` lists them",
    ),
    (
        "Invalid --",
        "`sbatch` does not accept an option of the profile; correct that option",
    ),
    (
        "Invalid job id",
        "the job has ended, and Slurm no longer knows it",
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
    (
        "QOSMax",
        "a limit of the quality of service is reached; wait until other jobs have ended, or choose another `qos`",
    ),
    (
        "accounting",
        "Slurm keeps no accounting data of jobs on this cluster",
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
    }

    /// What `sbatch` and other commands of Slurm 22.05 print, each with a part of its fix.
    #[test]
    fn every_known_refusal_has_its_fix() {
        const BEGIN: &str = "sbatch: error: Batch job submission failed: ";
        for (message, help) in [
            ("Invalid partition name specified", "sinfo -o %P"),
            (
                "Requested node configuration is not available",
                "sinfo -o '%n %G %c %m'",
            ),
            ("Node count specification invalid", "fewer nodes"),
            ("More processors requested than permitted", "lower `cpus`"),
            (
                "Requested time limit is invalid (missing or exceeds some limit)",
                "`time_limit`",
            ),
            (
                "Invalid account or account/partition combination specified",
                "sacctmgr show assoc",
            ),
            ("Invalid qos specification", "sacctmgr show qos"),
            (
                "Required partition not available (inactive or drain)",
                "takes no jobs",
            ),
            ("Invalid node name specified", "`--nodelist`"),
            ("Invalid feature specification", "sinfo -o %f"),
            ("Requested reservation is invalid", "scontrol show reservation"),
            ("Job dependency problem", "`--dependency`"),
            ("QOSMaxSubmitJobPerUserLimit", "limit of the quality of service"),
            (
                "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
                "submitted jobs",
            ),
            ("Access/permission denied", "belongs to other users"),
            (
                "Pathname of a file, directory or other parameter too long",
                "shorten `prolog`",
            ),
            ("Job script not specified", "see the message above"),
        ] {
            let text = explain("sbatch", &format!("{BEGIN}{message}\n")).to_string();
            assert!(text.contains(message) && text.contains(help), "{text}");
        }
        for (stderr, help) in [
            (
                "sbatch: error: Memory specification can not be satisfied\n",
                "lower `memory`",
            ),
            (
                "sbatch: error: Invalid generic resource (gres) specification\n",
                "sinfo -o %G",
            ),
            (
                "sbatch: error: Invalid --begin specification\n",
                "correct that option",
            ),
            (
                "scancel: error: Kill job error on job id 76: Access/permission denied\n",
                "belongs to other users",
            ),
            (
                "slurm_load_jobs error: Invalid job id specified\n",
                "no longer knows it",
            ),
            (
                "sinfo: error: Munge encode failed: Failed to access\n",
                "`munged` does not run",
            ),
            (
                "slurm_load_partitions: Protocol authentication error\n",
                "key of the cluster",
            ),
            ("fatal: Unable to process configuration file\n", "SLURM_CONF"),
            ("Slurm accounting storage is disabled\n", "keeps no accounting"),
            (
                "scontrol: Requested operation is presently disabled for job 612\n",
                "does not allow",
            ),
        ] {
            let text = explain("sbatch", stderr).to_string();
            assert!(text.contains(help), "{text}");
        }
    }

    #[test]
    fn a_controller_that_is_away_and_an_unknown_job_are_told_apart() {
        assert!(explain("squeue", "Unable to contact slurm controller").is_temporary());
        assert!(explain("squeue", "slurm_load_jobs error: Invalid job id specified").is_unknown_job());
        assert!(
            explain("sbatch", "")
                .to_string()
                .contains("failed without a message")
        );
    }
}
