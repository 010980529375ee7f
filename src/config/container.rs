//! What a container is given of its host.

use serde::{Deserialize, Serialize};

use crate::base::units::Bytes;
use crate::config::forms::OrderedMap;
use crate::config::template::Template;
use crate::config::yaml::Spanned;

/// GPUs that a container can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ContainerGpus {
    /// The container gets no GPUs.
    #[default]
    None,
    /// All GPUs of the host.
    All,
    /// The GPUs that the launch leased, by id.
    Leased,
    /// The GPUs that the launch leased, by their CDI names, such as `nvidia.com/gpu=0`.
    Cdi,
    /// All GPUs of the host, by the CDI name `nvidia.com/gpu=all`.
    CdiAll,
}

impl ContainerGpus {
    /// The CDI names by which a launch with these devices asks for GPUs; none where it asks otherwise, or for none.
    pub(crate) fn cdi_names(self, devices: &[String]) -> Vec<String> {
        match self {
            Self::Cdi => devices
                .iter()
                .map(|device| format!("nvidia.com/gpu={device}"))
                .collect(),
            Self::CdiAll => vec!["nvidia.com/gpu=all".to_owned()],
            Self::None | Self::All | Self::Leased => Vec::new(),
        }
    }
}

/// Network of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ContainerNetwork {
    /// The host's network, without port mapping.
    #[default]
    Host,
    /// Docker's bridge, with the port mapped.
    Bridge,
}

/// A directory of the host that is mounted into a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, schemars(transform = with_short_form))]
pub(crate) struct Mount {
    /// Directory of the host; a relative path is below the folder of the matrix file.
    pub(crate) source: Template,
    /// Absolute path in the container.
    pub(crate) target: Spanned<String>,
    /// Whether the container cannot write to it; default `false`.
    #[serde(default)]
    pub(crate) read_only: bool,
}

/// A mount may also be a text: the reader of YAML makes a map of it.
#[cfg(test)]
fn with_short_form(schema: &mut schemars::Schema) {
    let long = std::mem::take(schema);
    *schema = schemars::json_schema!({
        "anyOf": [{ "type": "string", "pattern": "^[^:]+:/[^:]*(:r[ow])?$" }, long]
    });
}

/// Changes of a matrix to the container of an engine, for settings that depend on the host rather than on the
/// engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ContainerOverride {
    /// Replaces the container runtime.
    pub(crate) runtime: Option<String>,
    /// Replaces the GPUs that the container can use.
    pub(crate) gpus: Option<ContainerGpus>,
    /// Replaces the IPC namespace.
    pub(crate) ipc: Option<String>,
    /// Replaces the size of `/dev/shm`.
    pub(crate) shm_size: Option<Bytes>,
    /// Resource limits added; a limit of the same name replaces the recipe's.
    pub(crate) ulimits: OrderedMap<i64>,
    /// Replaces `init`: whether an init process in the container forwards signals and reaps ended processes.
    pub(crate) init: Option<bool>,
    /// Replaces the CPUs that the container may use, such as `0-7,16`.
    pub(crate) cpuset: Option<String>,
    /// Replaces the memory limit.
    pub(crate) memory: Option<Bytes>,
    /// Replaces the limit of memory and swap together; the same value as `memory` disables swap.
    pub(crate) memory_swap: Option<Bytes>,
    /// Host names added to `/etc/hosts`, such as `hub:10.0.0.1`.
    pub(crate) extra_hosts: Vec<String>,
    /// Linux capabilities added, such as `SYS_PTRACE`.
    pub(crate) cap_add: Vec<String>,
    /// Security options added, such as `seccomp=unconfined`.
    pub(crate) security_opt: Vec<String>,
    /// Supplementary groups added, such as `video`.
    pub(crate) group_add: Vec<String>,
}

impl ContainerOverride {
    /// Whether it sets this key of a recipe.
    pub(crate) fn sets(&self, key: &str) -> bool {
        match key {
            "runtime" => self.runtime.is_some(),
            "gpus" => self.gpus.is_some(),
            "ipc" => self.ipc.is_some(),
            "shm_size" => self.shm_size.is_some(),
            "ulimits" => self.ulimits.iter().next().is_some(),
            "init" => self.init.is_some(),
            "cpuset" => self.cpuset.is_some(),
            "memory" => self.memory.is_some(),
            "memory_swap" => self.memory_swap.is_some(),
            "extra_hosts" => !self.extra_hosts.is_empty(),
            "cap_add" => !self.cap_add.is_empty(),
            "security_opt" => !self.security_opt.is_empty(),
            "group_add" => !self.group_add.is_empty(),
            _ => false,
        }
    }
}

/// What is wrong with a list of CPUs; `None` if a daemon takes it.
pub(crate) fn cpuset_error(cpuset: &str) -> Option<String> {
    let cpu = |text: &str| text.trim().parse::<u32>().ok();
    cpuset.split(',').find_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (cpu(first), cpu(last)) {
            (Some(first), Some(last)) if first > last => {
                Some(format!("the range `{}` runs backwards", part.trim()))
            }
            (Some(_), Some(_)) => None,
            _ => Some(format!("`{}` is neither a CPU nor a range of CPUs", part.trim())),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_numbers_and_ranges_upwards() {
        for sound in ["0", "0-7,16", "3-3", "0, 2-4"] {
            assert_eq!(cpuset_error(sound), None, "{sound}");
        }
        for (wrong, why) in [
            ("9-2", "the range `9-2` runs backwards"),
            ("0,9-2", "the range `9-2` runs backwards"),
            ("", "`` is neither a CPU nor a range of CPUs"),
            ("0,", "`` is neither a CPU nor a range of CPUs"),
            ("all", "`all` is neither a CPU nor a range of CPUs"),
            ("-1", "`-1` is neither a CPU nor a range of CPUs"),
        ] {
            assert_eq!(cpuset_error(wrong).as_deref(), Some(why));
        }
    }
}
