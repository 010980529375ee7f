//! The script of a job that runs a matrix on a node of a cluster. Pure.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::base::ids::CellKey;
use crate::base::text::pluralize;
use crate::base::units::HumanDuration;
use crate::config::cluster::{ClusterProfile, JobSize, TimeLimit};
use crate::plan::shell::shell_quote as quote;
use crate::plan::{Launch, Plan};

/// What a job writes when it asks its run to stop because of the time limit.
pub(crate) const TIME_LIMIT_NEAR: &str = "stopping: the time limit of the job is near";

/// Seconds before the time limit at which the run is asked to stop. Slurm may send the signal a minute earlier.
const STOP_BEFORE_LIMIT_S: u32 = 120;

/// How much longer a job may take than earlier runs.
const TIME_LIMIT_FACTOR: f64 = 1.5;
/// What a job may take besides: the prolog, the calibration of the client, an image that is pulled.
const TIME_LIMIT_MARGIN: Duration = Duration::from_secs(15 * 60);
/// The variables that name the folder of temporary files, and of images of container runtimes.
const SCRATCH_VARIABLES: [&str; 6] = [
    "TMPDIR",
    "APPTAINER_CACHEDIR",
    "APPTAINER_TMPDIR",
    "SINGULARITY_CACHEDIR",
    "SINGULARITY_TMPDIR",
    "ENROOT_TEMP_PATH",
];
/// Creates the scratch folder `$0` with a mark in it, or takes one that exists, and writes to it.
const CREATE_SCRATCH: &str = r#"[ -d "$0" ] || { mkdir -p -- "$0" && : >"$0/.created-by-matrix"; } && file=$(mktemp -p "$0") && rm -- "$file""#;
/// Removes the scratch folder `$0` if the job created it. After a requeue that is an earlier start of the job.
const REMOVE_SCRATCH: &str = r#"[ ! -e "$0/.created-by-matrix" ] || rm -rf -- "$0""#;
/// How the labels of jobs begin.
const LABEL: &str = "matrix:";

/// A job that runs a matrix.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) matrix: &'a str,
    pub(crate) profile: &'a ClusterProfile,
    pub(crate) size: JobSize,
    /// The folder of the job's files, on a file system that the nodes share.
    pub(crate) folder: &'a Path,
    /// The folder in which the command was entered.
    pub(crate) current_folder: &'a Path,
    pub(crate) program: &'a Path,
    /// The arguments of the program.
    pub(crate) arguments: &'a [String],
}

/// Names of files in the folder of a job.
pub(crate) mod files {
    pub(crate) const SCRIPT: &str = "job.sh";
    /// The command that the job executes, and its matrix.
    pub(crate) const REQUEST: &str = "request.json";
    pub(crate) const SUBMISSION: &str = "job.json";
    /// A digest of the matrix and its recipes at the submission.
    pub(crate) const SOURCES: &str = "sources";
    /// The name of the job's run.
    pub(crate) const RUN: &str = "run";
    /// The exit code of the run.
    pub(crate) const EXIT: &str = "exit";
    pub(crate) const STDOUT: &str = "stdout";
    pub(crate) const STDERR: &str = "stderr";
    /// The folder of the jobs that each measure one start.
    pub(crate) const STARTS: &str = "starts";
    /// The part of the plan that a job measures.
    pub(crate) const PART: &str = "plan.json";
    /// The folder of the run of a part.
    pub(crate) const RESULTS: &str = "results";
    /// Marks a job whose measurements are merged, or which was given up. It measures nothing any more.
    pub(crate) const MERGED: &str = "merged";
    /// Marks jobs of which no more are submitted.
    pub(crate) const STOPPED: &str = "stopped";
    /// What the scheduler and the batch shell print.
    pub(crate) const BATCH: &str = "batch.log";
}

impl Job<'_> {
    /// The label by which the job is found again: it names the folder of the job.
    pub(crate) fn label(folder: &Path) -> String {
        format!("{LABEL}{}", folder.display())
    }

    /// The folder of the job with that label; `None` if `matrix` did not submit it.
    pub(crate) fn folder_of(label: &str) -> Option<&Path> {
        let folder = Path::new(label.strip_prefix(LABEL)?);
        folder.is_absolute().then_some(folder)
    }

    /// The options of `sbatch`, without leading dashes.
    pub(crate) fn options(&self) -> Vec<(String, Option<String>)> {
        let profile = self.profile;
        let batch = self
            .folder
            .join(files::BATCH)
            .display()
            .to_string()
            .replace('%', "%%");
        let mut options = vec![
            ("job-name".to_owned(), Some(format!("matrix-{}", self.matrix))),
            ("comment".to_owned(), Some(Self::label(self.folder))),
            ("output".to_owned(), Some(batch)),
            ("open-mode".to_owned(), Some("append".to_owned())),
            ("nodes".to_owned(), Some(self.size.nodes.to_string())),
            ("ntasks-per-node".to_owned(), Some("1".to_owned())),
            ("requeue".to_owned(), None),
            ("signal".to_owned(), Some(format!("B:USR1@{STOP_BEFORE_LIMIT_S}"))),
        ];
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                options.push((name.to_owned(), Some(value)));
            }
        };
        let text = |value: &dyn ToString| value.to_string();
        add("partition", profile.partition.as_ref().map(|value| text(value)));
        add("account", profile.account.as_ref().map(|value| text(value)));
        add("qos", profile.qos.as_ref().map(|value| text(value)));
        add("constraint", profile.constraint.as_ref().map(|value| text(value)));
        add(
            "reservation",
            profile.reservation.as_ref().map(|value| text(value)),
        );
        add("cpus-per-task", profile.cpus.as_ref().map(|value| text(value)));
        add("mem", profile.memory.as_ref().map(|value| text(value)));
        add(
            "time",
            profile.time_limit.map(|limit| time_limit(limit.duration())),
        );
        let gres = profile
            .gres
            .as_ref()
            .map_or_else(|| "gpu".to_owned(), |name| text(name));
        add(
            "gres",
            (self.size.gpus > 0).then(|| format!("{gres}:{}", self.size.gpus)),
        );
        if profile.exclusive {
            options.push(("exclusive".to_owned(), None));
        }
        for option in &profile.options {
            let text = option.to_string();
            let value = text.split_once('=').map(|(_, value)| value.to_owned());
            options.push((option.name().to_owned(), value));
        }
        options
    }

    /// The text of the script. It holds no secret: the job inherits the environment of `sbatch`.
    pub(crate) fn script(&self) -> String {
        let mut script = "#!/bin/bash\n".to_owned();
        for (name, value) in self.options() {
            let value = value.map_or_else(String::new, |value| format!("={}", quote(&value)));
            let _ = writeln!(script, "#SBATCH --{name}{value}");
        }
        let path = |path: &Path| quote(&path.to_string_lossy());
        let file = |name: &str| path(&self.folder.join(name));
        script.push_str(
            "\n# An `srun` in the prologue would inherit the `--export` of sbatch.\nunset SLURM_EXPORT_ENV\n",
        );
        let _ = writeln!(script, "rm -f {}", file(files::EXIT));
        let _ = writeln!(
            script,
            "[ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ] || echo \"note: Slurm started this job again, on $SLURM_JOB_NODELIST\" >>{}",
            file(files::STDERR)
        );
        // The time limit may come during the prolog.
        let _ = writeln!(
            script,
            "# Before the time limit Slurm signals this shell alone; scancel sends SIGTERM to all processes.\n\
             run=\n\
             stop() {{ echo '{TIME_LIMIT_NEAR}' >>{}; [ -n \"$run\" ] || exit 130; kill -TERM \"$run\"; }}\n\
             trap stop USR1\n\
             trap '[ -n \"$run\" ] || exit 130' TERM\n",
            file(files::STDERR)
        );
        script.push_str(&self.modules_and_scratch());
        for line in &self.profile.prolog {
            let _ = writeln!(script, "{line}");
        }
        let _ = writeln!(script, "cd {} || exit 4", path(self.current_folder));
        let arguments: Vec<String> = self.arguments.iter().map(|argument| quote(argument)).collect();
        let _ = write!(
            script,
            "\n{} {} >>{} 2>>{} &\nrun=$!\n\
             while kill -0 \"$run\" 2>/dev/null; do wait \"$run\"; done\n\
             exit \"$(cat {} 2>/dev/null || echo 6)\"\n",
            path(self.program),
            arguments.join(" "),
            file(files::STDOUT),
            file(files::STDERR),
            file(files::EXIT),
        );
        script
    }
}

impl Job<'_> {
    /// The lines that load modules and create the scratch folder.
    fn modules_and_scratch(&self) -> String {
        let profile = self.profile;
        if profile.modules.is_empty() && profile.scratch.is_none() {
            return String::new();
        }
        let exit = quote(&self.folder.join(files::EXIT).to_string_lossy());
        let mut lines =
            format!("fail() {{ echo \"error: the node $(hostname) $1\" >&2; echo 4 >{exit}; exit 4; }}\n");
        if !profile.modules.is_empty() {
            lines.push_str(
                "type module >/dev/null 2>&1 || fail 'has no command `module`, which `modules` of the profile of the cluster needs'\n",
            );
        }
        for module in &profile.modules {
            let (name, message) = (
                quote(&module.to_string()),
                quote(&format!("cannot load the module `{module}`")),
            );
            let _ = writeln!(lines, "module load {name} || fail {message}");
        }
        if let Some(scratch) = &profile.scratch {
            let _ = writeln!(lines, "scratch=\"{scratch}\"");
            let everywhere = match self.size.nodes {
                1 => String::new(),
                nodes => format!("srun --nodes={nodes} --ntasks-per-node=1 "),
            };
            let _ = writeln!(
                lines,
                "{everywhere}bash -c {} \"$scratch\" || fail \"cannot create the folder $scratch or write to it; \\`scratch\\` in the profile of the cluster names this folder\"",
                quote(CREATE_SCRATCH)
            );
            for variable in SCRATCH_VARIABLES {
                let _ = writeln!(lines, "export {variable}=\"$scratch\"");
            }
            if scratch.is_of_one_job() {
                let _ = writeln!(lines, "remove={}", quote(REMOVE_SCRATCH));
                // For each task, Slurm creates the folder that TMPDIR names, also on a file system that the nodes share and
                // where another node has just removed it.
                let _ = writeln!(
                    lines,
                    "trap 'unset TMPDIR; {everywhere}bash -c \"$remove\" \"$scratch\"' EXIT"
                );
            }
        }
        lines
    }
}

/// The nodes of a job of this plan.
pub(crate) fn size_of(plan: &Plan, profile: &ClusterProfile) -> JobSize {
    let largest = plan
        .launches
        .iter()
        .map(Launch::gpus_of_a_node)
        .max()
        .unwrap_or(0);
    JobSize {
        nodes: plan.launches.iter().map(Launch::nodes).max().unwrap_or(1),
        gpus: profile.gpus.unwrap_or(largest),
    }
}

/// Why no job with this profile can measure the plan, and what to do; `None` if nothing is known against it.
pub(crate) fn impossible(plan: &Plan, profile: &ClusterProfile) -> Option<String> {
    too_few_gpus(plan, profile).or_else(|| too_short_limit(plan, profile))
}

fn too_few_gpus(plan: &Plan, profile: &ClusterProfile) -> Option<String> {
    let gpus = profile.gpus?;
    let largest = plan
        .launches
        .iter()
        .max_by_key(|launch| launch.gpus_of_a_node())?;
    let needed = largest.gpus_of_a_node();
    (needed > gpus).then(|| {
        format!(
            "the launch `{}` needs {} on each node, but the profile has only `gpus: {gpus}`\n  = help: remove `gpus`, or write at least `gpus: {needed}`",
            largest.id,
            pluralize(needed as usize, "GPU", "GPUs")
        )
    })
}

/// A cell whose requests alone take longer than a job may.
fn too_short_limit(plan: &Plan, profile: &ClusterProfile) -> Option<String> {
    let limit = profile.time_limit?;
    let sent = plan
        .cells
        .iter()
        .filter_map(|cell| Some((cell, cell.scenario.sending_time()?)));
    let (cell, sending) = sent.max_by_key(|(_, sending)| *sending)?;
    let needed = sending + Duration::from_secs(STOP_BEFORE_LIMIT_S.into());
    (needed > limit.duration()).then(|| {
        format!(
            "the cell `{}` sends requests for {}, which is too long: a run stops two to three minutes before `time_limit: {limit}` of the profile\n  = help: write at least `time_limit: {}`, and add time for starts, other cells and answers",
            cell.key,
            HumanDuration::from_secs(sending.as_secs()),
            TimeLimit::at_least(needed + Duration::from_secs(60))
        )
    })
}

/// The time limit of a job whose cells and starts took as long as this in earlier runs: seconds of a measurement of a
/// cell, and of the start before it. `None` if one is unknown, or if the run itself decides how much it measures.
pub(crate) fn time_limit_of(
    plan: &Plan,
    last: impl Fn(&CellKey) -> Option<(f64, Option<f64>)>,
) -> Option<TimeLimit> {
    if plan.until.is_some() {
        return None;
    }
    let mut seconds = 0.0;
    for start in &plan.starts {
        let mut start_s: f64 = 0.0;
        for measurement in &start.cells {
            let (cell_s, launch_s) = last(&measurement.cell)?;
            seconds += cell_s;
            start_s = start_s.max(launch_s.unwrap_or(0.0));
        }
        seconds += start_s;
    }
    let limit = Duration::try_from_secs_f64(seconds * TIME_LIMIT_FACTOR).ok()?;
    Some(TimeLimit::at_least(limit + TIME_LIMIT_MARGIN))
}

/// A time limit as Slurm reads it: `days-hours:minutes:seconds`. Slurm rounds seconds up to a minute.
fn time_limit(limit: Duration) -> String {
    let seconds = limit.as_secs().max(60);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!("{days}-{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(profile: &str, gpus: u32) -> String {
        let profile: ClusterProfile = serde_json::from_str(profile).unwrap();
        let job = Job {
            matrix: "qwen3",
            profile: &profile,
            size: JobSize { nodes: 2, gpus },
            folder: Path::new("/shared/my results/job-1"),
            current_folder: Path::new("/home/a b"),
            program: Path::new("/opt/matrix"),
            arguments: &["run".to_owned(), "m's.yaml".to_owned()],
        };
        job.script()
    }

    #[test]
    fn the_script_has_what_the_profile_says_and_quotes_paths() {
        let text = script(
            r#"{"partition": "gpu", "gres": "gpu:h100", "exclusive": true, "time_limit": "26h 30m", "prolog": ["module load cuda"], "options": ["--mail-type=END"]}"#,
            4,
        );
        for line in [
            "#SBATCH --partition=gpu\n",
            "#SBATCH --gres=gpu:h100:4\n",
            "#SBATCH --exclusive\n",
            "#SBATCH --nodes=2\n",
            "#SBATCH --time=1-02:30:00\n",
            "#SBATCH --mail-type=END\n",
            "#SBATCH --comment='matrix:/shared/my results/job-1'\n",
            "\nmodule load cuda\n",
            "|| echo \"note: Slurm started this job again, on $SLURM_JOB_NODELIST\" >>'/shared/my results/job-1/stderr'\n",
            "\ncd '/home/a b' || exit 4\n",
            r"/opt/matrix run 'm'\''s.yaml' >>'/shared/my results/job-1/stdout'",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!script("{}", 0).contains("gres"));
    }

    #[test]
    fn modules_and_scratch_come_before_the_prolog_and_their_failure_is_the_job_s_exit_code() {
        let text = script(
            r#"{"modules": ["cuda/12.4"], "scratch": "/local/$SLURM_JOB_ID", "prolog": ["module list"]}"#,
            1,
        );
        let order = [
            "type module >/dev/null 2>&1 || fail ",
            "module load cuda/12.4 || fail 'cannot load the module `cuda/12.4`'\n",
            "scratch=\"/local/$SLURM_JOB_ID\"\nsrun --nodes=2 --ntasks-per-node=1 bash -c ",
            "export TMPDIR=\"$scratch\"\nexport APPTAINER_CACHEDIR=\"$scratch\"\n",
            "trap 'unset TMPDIR; srun --nodes=2 --ntasks-per-node=1 bash -c \"$remove\" \"$scratch\"' EXIT\n",
            "module list\n",
        ];
        let places = order.map(|line| {
            text.find(line)
                .unwrap_or_else(|| panic!("{line} is missing in\n{text}"))
        });
        assert!(places.is_sorted(), "{text}");
        assert!(
            text.contains("echo 4 >'/shared/my results/job-1/exit'; exit 4; }\n"),
            "{text}"
        );
        let shared = script(r#"{"scratch": "/local/$USER"}"#, 1);
        assert!(
            shared.contains("export TMPDIR") && !shared.contains("remove="),
            "{shared}"
        );
        assert!(!script("{}", 1).contains("fail"));
    }

    #[test]
    fn a_scratch_folder_is_removed_only_if_the_job_created_it() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        let profile = format!(
            r#"{{"scratch": "{}/new/$SLURM_JOB_ID", "prolog": ["touch \"$TMPDIR/a\""]}}"#,
            folder.display()
        );
        let profile: ClusterProfile = serde_json::from_str(&profile).unwrap();
        let job = Job {
            matrix: "qwen3",
            profile: &profile,
            size: JobSize { nodes: 1, gpus: 0 },
            folder,
            current_folder: folder,
            program: Path::new("true"),
            arguments: &[],
        };
        let run = |id: &str| {
            let mut bash = std::process::Command::new("bash");
            let ran = bash.args(["-c", &job.script()]).env("SLURM_JOB_ID", id).output();
            String::from_utf8(ran.unwrap().stderr).unwrap()
        };
        assert_eq!(run("1"), "");
        assert!(folder.join("new").is_dir() && !folder.join("new/1").exists());
        // Somebody else's.
        std::fs::create_dir(folder.join("new/2")).unwrap();
        assert_eq!(run("2"), "");
        assert!(folder.join("new/2/a").exists());
        // An earlier start of the job was killed.
        std::fs::create_dir(folder.join("new/3")).unwrap();
        std::fs::write(folder.join("new/3/.created-by-matrix"), "").unwrap();
        assert_eq!(run("3"), "");
        assert!(!folder.join("new/3").exists());
        std::fs::write(folder.join("new/4"), "").unwrap();
        let said = run("4");
        assert!(said.contains("cannot create the folder"), "{said}");
        assert_eq!(std::fs::read_to_string(folder.join("exit")).unwrap(), "4\n");
    }

    #[test]
    fn bash_accepts_the_script() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("job.sh");
        let profile = r#"{"modules": ["cuda"], "scratch": "/local/$SLURM_JOB_ID"}"#;
        std::fs::write(&file, script(profile, 1)).unwrap();
        let checked = std::process::Command::new("bash")
            .arg("-n")
            .arg(&file)
            .output()
            .unwrap();
        assert!(
            checked.status.success(),
            "{}",
            String::from_utf8_lossy(&checked.stderr)
        );
    }
}
