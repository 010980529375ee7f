//! The profile of a cluster: what its scheduler is asked for.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use crate::base::units::HumanDuration;
use crate::config::job_containers::JobContainers;

/// Shortest time limit of a job.
const MIN_TIME_LIMIT: Duration = Duration::from_secs(300);

/// Options of `sbatch` that `matrix` sets itself, without the leading dashes.
const OWN_OPTIONS: [&str; 23] = [
    "array",
    "chdir",
    "clusters",
    "comment",
    "error",
    "export",
    "export-file",
    "gid",
    "hetjob",
    "job-name",
    "no-requeue",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "open-mode",
    "output",
    "parsable",
    "requeue",
    "signal",
    "test-only",
    "uid",
    "wait",
    "wrap",
];

/// The nodes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobSize {
    pub(crate) nodes: u32,
    /// GPUs of each node.
    pub(crate) gpus: u32,
}

/// The profile of a cluster. A file `clusters/<name>.yaml`, read with `--cluster <name>`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClusterProfile {
    /// The scheduler. Only Slurm is supported.
    pub(crate) scheduler: Scheduler,
    /// The partition of jobs; without it the cluster's default.
    pub(crate) partition: Option<JobValue>,
    /// The account that jobs are charged to.
    pub(crate) account: Option<JobValue>,
    /// The quality of service of jobs.
    pub(crate) qos: Option<JobValue>,
    /// Features that nodes must have, such as `h100&ib`.
    pub(crate) constraint: Option<JobValue>,
    /// The reservation that jobs use.
    pub(crate) reservation: Option<JobValue>,
    /// Name of the GPUs as a generic resource, as `sinfo -o %G` shows it without its number, such as `gpu:h100`; default `gpu`.
    pub(crate) gres: Option<GresName>,
    /// Number of GPUs of each node of a job; by default as many as the launch with the most GPUs on a node uses.
    pub(crate) gpus: Option<u32>,
    /// Number of processors of a job.
    pub(crate) cpus: Option<NonZeroU32>,
    /// Memory of a job, such as `64G`.
    pub(crate) memory: Option<JobValue>,
    /// Whether no other job may use the node of a job. Other jobs on a node disturb measurements.
    pub(crate) exclusive: bool,
    /// Time limit of a job. Two minutes before it the run stops and keeps what it has measured. By default half as much again as
    /// all cells took in earlier runs, and 15 minutes; if one was never measured, the cluster's default.
    pub(crate) time_limit: Option<TimeLimit>,
    /// How a job starts engines in containers.
    pub(crate) containers: JobContainers,
    /// Environment modules that a job loads first, such as `cuda/12.4`.
    pub(crate) modules: Vec<ModuleName>,
    /// Folder on a disk of the node that a job creates and uses for temporary files and for images of container runtimes,
    /// such as `/local/$SLURM_JOB_ID`. The job removes it at its end if it created it and its name contains `$SLURM_JOB_ID`.
    pub(crate) scratch: Option<ScratchFolder>,
    /// What one job measures: `run`, the whole run on one node (the default), or `launch`, one start of an engine; such jobs may run
    /// at the same time on several nodes.
    pub(crate) job_per: JobPer,
    /// With `job_per: launch`: the largest number of jobs of a run that are queued or running at once; by default all.
    pub(crate) max_jobs: Option<NonZeroU32>,
    /// Lines of shell that a job runs first, such as `module load cuda`.
    pub(crate) prolog: Vec<ScriptLine>,
    /// Further options of `sbatch`, such as `--mail-type=END`.
    pub(crate) options: Vec<SubmitOption>,
}

/// A scheduler of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scheduler {
    #[default]
    Slurm,
}

/// What one job measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JobPer {
    /// The whole run.
    #[default]
    Run,
    /// One start of a launch.
    Launch,
}

/// A value of an option of `sbatch`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct JobValue(String);

/// The name of a generic resource, without a number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GresName(String);

/// The time limit of a job with its unit, at least five minutes: `30m`, `4h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(with = "String"))]
pub(crate) struct TimeLimit(HumanDuration);

/// A line of shell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ScriptLine(String);

/// The name of an environment module.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ModuleName(String);

/// An absolute path that may contain variables of the job, such as `$SLURM_JOB_ID` and `$USER`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ScratchFolder(String);

/// An option of `sbatch` in its long form, with its value after `=`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SubmitOption(String);

impl JobValue {
    fn parse(text: String) -> Result<Self, String> {
        let is_allowed = |letter: char| letter.is_ascii_graphic() && !"'\"\\`$;".contains(letter);
        match text.is_empty() || !text.chars().all(is_allowed) {
            true => Err(format!(
                "{text:?} cannot be a value of `sbatch`; write letters, digits and punctuation, but no spaces, no quotes, no backquotes, and none of `\\`, `$` and `;`"
            )),
            false => Ok(Self(text)),
        }
    }
}

impl GresName {
    fn parse(text: String) -> Result<Self, String> {
        if let Some((name, number)) = text.rsplit_once(':')
            && number.parse::<u64>().is_ok()
        {
            return Err(format!(
                "{text:?} contains a number of GPUs; write `gres: {name}` and `gpus: {number}`"
            ));
        }
        JobValue::parse(text).map(|value| Self(value.0))
    }
}

impl TimeLimit {
    fn parse(text: String) -> Result<Self, String> {
        let limit: HumanDuration = text.parse().map_err(|_| {
            format!("{text:?} is not a time limit; write it like `30m`, `4h` or `1h 30m`, or as `hours:minutes:seconds` in quotes")
        })?;
        match limit.duration() < MIN_TIME_LIMIT {
            true => Err(format!(
                "the time limit {limit} is too short, because a run stops two to three minutes before its limit; write at least {}m, and more than the longest cell takes",
                MIN_TIME_LIMIT.as_secs() / 60
            )),
            false => Ok(Self(limit)),
        }
    }

    /// A limit of whole minutes that is at least this long.
    pub(crate) fn at_least(duration: Duration) -> Self {
        let minutes = duration.max(MIN_TIME_LIMIT).as_millis().div_ceil(60_000) as u64;
        Self(HumanDuration::from_secs(minutes * 60))
    }

    pub(crate) const fn duration(self) -> Duration {
        self.0.duration()
    }
}

impl ScriptLine {
    fn parse(text: String) -> Result<Self, String> {
        match text.contains(['\n', '\r', '\0']) {
            true => Err("a line of `prolog` contains a line break; write one entry for each line".to_owned()),
            false => Ok(Self(text)),
        }
    }
}

impl ModuleName {
    fn parse(text: String) -> Result<Self, String> {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "/._+-@=:~".contains(letter);
        match text.is_empty() || text.starts_with('-') || !text.chars().all(is_allowed) {
            true => Err(format!(
                "{text:?} is no name of a module; write one entry for each module, such as `cuda/12.4`"
            )),
            false => Ok(Self(text)),
        }
    }
}

impl ScratchFolder {
    fn parse(text: String) -> Result<Self, String> {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "/._+-@${}".contains(letter);
        let is_folder = (text.starts_with('/') || text.starts_with('$')) && text.len() > 1;
        match is_folder && text.chars().all(is_allowed) && !text.split('/').any(|part| part == "..") {
            true => Ok(Self(text)),
            false => Err(format!(
                "{text:?} cannot be used as the folder for temporary files; write an absolute path of letters, digits and `/._+-@`, which may contain variables such as `$SLURM_JOB_ID`"
            )),
        }
    }

    /// Whether each job has a folder of its own.
    pub(crate) fn is_of_one_job(&self) -> bool {
        let last = self
            .0
            .trim_end_matches('/')
            .rsplit('/')
            .next()
            .unwrap_or_default();
        last.contains("$SLURM_JOB_ID") || last.contains("${SLURM_JOB_ID}")
    }
}

impl SubmitOption {
    fn parse(text: String) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("--") else {
            return Err(format!(
                "{text:?} is not a long option of `sbatch`; write it as `--name=value`"
            ));
        };
        let name = rest.split('=').next().unwrap_or(rest);
        // `sbatch` also takes the beginning of a name.
        if !name.is_empty() && "time".starts_with(name) {
            return Err(format!("write `time_limit: 4h` instead of `--{name}`"));
        }
        if let Some(own) = OWN_OPTIONS.iter().find(|own| own.starts_with(name)) {
            return Err(format!(
                "the `sbatch` option `--{own}` is set by `matrix` itself; remove `--{name}` from `options`"
            ));
        }
        JobValue::parse(text).map(|value| Self(value.0))
    }

    /// The name without dashes and value.
    pub(crate) fn name(&self) -> &str {
        let rest = self.0.trim_start_matches('-');
        rest.split('=').next().unwrap_or(rest)
    }
}

macro_rules! from_text {
    ($($name:ident),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(String::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

from_text!(
    JobValue,
    GresName,
    TimeLimit,
    ScriptLine,
    ModuleName,
    ScratchFolder,
    SubmitOption
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::{self, Source};

    fn errors(text: &str) -> String {
        let (_, diagnostics) =
            yaml::read::<ClusterProfile>(&Source::new("c.yaml".to_owned(), text.to_owned()));
        let messages = diagnostics
            .iter()
            .map(|diagnostic| format!("{} {}", diagnostic.message, diagnostic.label));
        messages.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_profile_is_read_and_what_would_change_the_script_is_refused() {
        let text = "partition: gpu\ngres: gpu:h100\nconstraint: h100&ib\ntime_limit: 2h\nprolog: [module load cuda]\noptions: [--mail-type=END]\n";
        let (profile, diagnostics) =
            yaml::read::<ClusterProfile>(&Source::new("c.yaml".to_owned(), text.to_owned()));
        assert!(diagnostics.is_empty(), "{diagnostics:?}");
        let profile = profile.unwrap();
        assert_eq!(profile.gres.unwrap().to_string(), "gpu:h100");
        assert_eq!(profile.options[0].name(), "mail-type");
        for (text, why) in [
            ("partiton: gpu\n", "partiton"),
            ("partition: \"a b\"\n", "cannot be a value of `sbatch`"),
            (
                "partition: \"a\\n#SBATCH --uid=0\"\n",
                "cannot be a value of `sbatch`",
            ),
            ("account: \"\"\n", "cannot be a value of `sbatch`"),
            ("options: [--export=NONE]\n", "is set by `matrix` itself"),
            ("options: [--arr=1-2]\n", "`--array` is set by `matrix` itself"),
            ("options: [--time=2]\n", "write `time_limit: 4h`"),
            ("options: [-t 5]\n", "not a long option"),
            ("prolog: [\"a\\nb\"]\n", "contains a line break"),
            ("time_limit: 30\n", "write it like `30m`, `4h`"),
            ("time_limit: 2m\n", "write at least 5m"),
            ("gres: gpu:h100:2\n", "write `gres: gpu:h100` and `gpus: 2`"),
            ("modules: [\"cuda; id\"]\n", "is no name of a module"),
            ("modules: [-f]\n", "is no name of a module"),
            (
                "scratch: local\n",
                "cannot be used as the folder for temporary files",
            ),
            (
                "scratch: \"/a/../$HOME\"\n",
                "cannot be used as the folder for temporary files",
            ),
            (
                "scratch: \"/a/$(id)\"\n",
                "cannot be used as the folder for temporary files",
            ),
            ("containers: { runtime: lxc }\n", "lxc"),
            (
                "containers: { runtime: podman, options: [tls] }\n",
                "is no option of a container runtime",
            ),
            (
                "containers: { runtime: podman, bind: [local] }\n",
                "is no folder for containers",
            ),
            (
                "containers: { runtime: podman, bind: [\"/a:/b:rw\"] }\n",
                "is no folder for containers",
            ),
            ("scheduler: pbs\n", "pbs"),
            ("cpus: 0\n", "cpus"),
            ("job_per: start\n", "job_per"),
            ("job_per: launch\nmax_jobs: 0\n", "max_jobs"),
        ] {
            let found = errors(text);
            assert!(found.contains(why), "{text}: {found}");
        }
    }
}
