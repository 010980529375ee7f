//! What Slurm says of a job.

use super::JobId;

/// The format that [`parse_squeue`] reads.
pub(super) const SQUEUE_FORMAT: &str = "%T|%S|%N|%r";

/// Reasons that do not pass by themselves, with what they mean.
const ENDLESS_REASONS: [(&str, &str); 4] = [
    (
        "PartitionNodeLimit",
        "the partition has fewer nodes than the job requests",
    ),
    (
        "PartitionConfig",
        "no node of the partition has what the job requests",
    ),
    (
        "PartitionTimeLimit",
        "the time limit of the job exceeds that of the partition",
    ),
    ("JobHeldUser", "the job is held; `scontrol release` frees it"),
];

/// States of a job that has ended.
const FINAL_STATES: [&str; 8] = [
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
    "DEADLINE",
];

/// A job, as the controller knows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JobStatus {
    Queued(JobState),
    Ended(JobEnd),
}

/// A job that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobState {
    /// The state, such as `PENDING`.
    pub(crate) state: String,
    /// When a pending job is expected to start, as Slurm writes it.
    pub(crate) start: Option<String>,
    pub(crate) nodes: Option<String>,
    /// Why it is pending.
    pub(crate) reason: Option<String>,
}

impl JobState {
    pub(crate) fn is_pending(&self) -> bool {
        self.state == "PENDING"
    }

    /// Why a pending job will not start until someone changes something.
    pub(crate) fn endless_reason(&self) -> Option<&'static str> {
        let reason = self.reason.as_deref()?;
        let known = ENDLESS_REASONS.iter().find(|(name, _)| *name == reason);
        known.map(|(_, meaning)| *meaning)
    }

    /// The state in words, as one line.
    pub(crate) fn describe(&self) -> String {
        let mut text = self.state.to_lowercase();
        if let Some(nodes) = &self.nodes {
            text.push_str(&format!(" on {nodes}"));
        }
        if self.is_pending() {
            if let Some(reason) = &self.reason {
                text.push_str(&format!(" ({reason})"));
            }
            match &self.start {
                Some(start) => text.push_str(&format!("; Slurm expects the job to start at {start}")),
                None => text.push_str("; Slurm does not predict when the job will start"),
            }
        }
        text
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobEnd {
    /// The final state, such as `TIMEOUT`; `None` if neither the controller nor accounting knows the job.
    pub(crate) state: Option<String>,
    /// Exit code and signal, as Slurm writes them: `0:15`.
    pub(crate) exit_code: Option<String>,
}

impl JobEnd {
    pub(crate) const UNKNOWN: Self = Self {
        state: None,
        exit_code: None,
    };

    /// Whether it ended by itself and with an error.
    pub(crate) fn is_failure(&self) -> bool {
        self.state.as_deref() == Some("FAILED")
    }

    /// How it ended, in words.
    pub(crate) fn describe(&self) -> String {
        let Some(state) = &self.state else {
            return "how the job ended is unknown: Slurm no longer knows it, and keeps no accounting data of jobs on this cluster".to_owned();
        };
        let meaning = match state.as_str() {
            "TIMEOUT" => "the job reached its time limit",
            "CANCELLED" => "it was cancelled",
            "NODE_FAIL" => "its node failed",
            "PREEMPTED" => "Slurm ended the job to make room for another job",
            "OUT_OF_MEMORY" => "the job used more memory than it had requested",
            _ => "",
        };
        let meaning = match meaning {
            // The batch shell could not open its files.
            "" if self.exit_code.as_deref() == Some("0:53") => {
                ": the node of the job could not open the output files of the job; the results folder must be on a file system that the nodes share".to_owned()
            }
            "" => String::new(),
            meaning => format!(": {meaning}"),
        };
        match &self.exit_code {
            Some(code) => format!("{state}, exit code {code}{meaning}"),
            None => format!("{state}{meaning}"),
        }
    }
}

fn known(text: &str) -> Option<String> {
    let text = text.trim();
    (!["", "N/A", "(null)", "None", "Unknown"].contains(&text)).then(|| text.to_owned())
}

/// Reads a line of `squeue`.
pub(super) fn parse_squeue(line: &str) -> Option<JobState> {
    let mut fields = line.splitn(4, '|');
    let state = known(fields.next()?)?;
    let [start, nodes, reason] = [fields.next()?, fields.next()?, fields.next()?].map(known);
    (!FINAL_STATES.contains(&state.as_str())).then_some(JobState {
        state,
        start,
        nodes,
        reason,
    })
}

/// Reads a line of `squeue --states=all` with the number before and the comment after the fields of [`SQUEUE_FORMAT`].
pub(super) fn parse_own_job(line: &str) -> Option<(String, (JobId, JobStatus))> {
    let mut fields = line.trim_end().splitn(6, '|');
    let id = JobId::parse(fields.next()?)?;
    let [state, start, nodes, reason] = [fields.next()?, fields.next()?, fields.next()?, fields.next()?];
    let comment = fields.next()?.to_owned();
    let status = match parse_squeue(&[state, start, nodes, reason].join("|")) {
        // A preempted job that is not started again stays in its state.
        Some(queued) if queued.state != "PREEMPTED" => JobStatus::Queued(queued),
        _ => JobStatus::Ended(JobEnd {
            state: known(state),
            exit_code: None,
        }),
    };
    Some((comment, (id, status)))
}

/// Reads `scontrol show job --oneliner`; `None` if it names no state.
pub(super) fn parse_scontrol(text: &str) -> Option<JobEnd> {
    let field = |name: &str| {
        let mut words = text.split_whitespace();
        words.find_map(|word| word.strip_prefix(name)).and_then(known)
    };
    Some(JobEnd {
        state: Some(field("JobState=")?),
        exit_code: field("ExitCode="),
    })
}

/// Reads a line of `sacct -o State,ExitCode`.
pub(super) fn parse_sacct(line: &str) -> Option<JobEnd> {
    let (state, exit_code) = line.split_once('|')?;
    // `CANCELLED by 1000`
    let state = state.split_whitespace().next()?;
    Some(JobEnd {
        state: known(state),
        exit_code: known(exit_code),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_from_each_command() {
        let pending = parse_squeue("PENDING|2026-11-27T10:00:00|(null)|Resources").unwrap();
        assert_eq!(
            pending.describe(),
            "pending (Resources); Slurm expects the job to start at 2026-11-27T10:00:00"
        );
        let held = parse_squeue("PENDING|N/A||PartitionTimeLimit").unwrap();
        assert_eq!(
            held.describe(),
            "pending (PartitionTimeLimit); Slurm does not predict when the job will start"
        );
        assert!(held.endless_reason().unwrap().contains("time limit"));
        assert_eq!(
            parse_squeue("RUNNING|2026-11-27T10:00:00|node[1-2]|None")
                .unwrap()
                .describe(),
            "running on node[1-2]"
        );
        assert_eq!(parse_squeue("CANCELLED|N/A||"), None);
        let (comment, (id, status)) = parse_own_job("7|CANCELLED|N/A||None|matrix:/a|b").unwrap();
        assert_eq!((comment.as_str(), id.as_str()), ("matrix:/a|b", "7"));
        assert!(matches!(status, JobStatus::Ended(end) if end.state.as_deref() == Some("CANCELLED")));
        let (_, (_, status)) = parse_own_job("8|RUNNING|2026-11-27T10:00:00|node2|None|c").unwrap();
        assert!(matches!(status, JobStatus::Queued(queued) if queued.nodes.as_deref() == Some("node2")));
        let end = parse_scontrol(
            "JobId=7 JobName=a b JobState=TIMEOUT Reason=TimeLimit ExitCode=0:15 DerivedExitCode=0:0",
        )
        .unwrap();
        assert_eq!(
            end.describe(),
            "TIMEOUT, exit code 0:15: the job reached its time limit"
        );
        let end = parse_sacct("CANCELLED by 1000|0:9").unwrap();
        assert_eq!(end.state.as_deref(), Some("CANCELLED"));
        assert!(JobEnd::UNKNOWN.describe().contains("no longer knows"));
    }
}
