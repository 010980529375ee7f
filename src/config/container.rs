//! What a container is given of its host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::units::Bytes;
use crate::config::forms::OrderedMap;
use crate::config::template::Template;
use crate::config::yaml::Spanned;

/// Which GPUs a container gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerGpus {
    /// None.
    #[default]
    None,
    /// All of the host's.
    All,
    /// Those that the launch leased, by id.
    Leased,
    /// Those that the launch leased, by their CDI names, such as `nvidia.com/gpu=0`.
    Cdi,
    /// All of the host's, by the CDI name `nvidia.com/gpu=all`.
    CdiAll,
}

impl ContainerGpus {
    /// The CDI names by which a launch with these devices asks for GPUs; none where it asks otherwise, or for none.
    pub fn cdi_names(self, devices: &[String]) -> Vec<String> {
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

/// How a container is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerNetwork {
    /// It shares the host's network; no port mapping.
    #[default]
    Host,
    /// Docker's bridge with the port mapped.
    Bridge,
}

/// A directory of the host in a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// The directory of the host; a relative one is below the folder of the matrix file.
    pub source: Template,
    /// Where the container sees it: an absolute path.
    pub target: Spanned<String>,
    /// Whether the container may not write there.
    #[serde(default)]
    pub read_only: bool,
}

/// What a matrix changes of how an engine runs in a container: what belongs to the host at hand rather than to the engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContainerOverride {
    /// Another container runtime.
    pub runtime: Option<String>,
    /// Other GPUs.
    pub gpus: Option<ContainerGpus>,
    /// Another IPC namespace.
    pub ipc: Option<String>,
    /// Another size of `/dev/shm`.
    pub shm_size: Option<Bytes>,
    /// Resource limits added; one of the same name replaces the recipe's.
    pub ulimits: OrderedMap<i64>,
    /// Whether an init process forwards signals and reaps.
    pub init: Option<bool>,
    /// The CPUs that it may use, such as `0-7,16`.
    pub cpuset: Option<String>,
    /// The most memory that it may have.
    pub memory: Option<Bytes>,
    /// The most memory and swap together; as much as `memory` means no swap.
    pub memory_swap: Option<Bytes>,
    /// Names of hosts added, such as `hub:10.0.0.1`.
    pub extra_hosts: Vec<String>,
    /// Capabilities added, such as `SYS_PTRACE`.
    pub cap_add: Vec<String>,
    /// Security options added, such as `seccomp=unconfined`.
    pub security_opt: Vec<String>,
    /// Groups added, such as `video`.
    pub group_add: Vec<String>,
}
