//! Where and how an engine runs: one variant for each executor. Code outside of the executors asks a [`Place`] by its methods, so that
//! a new executor changes this file, `command.rs` and `engine::executor` only.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::units::Bytes;
use crate::config::engine::Environment;
use crate::config::template::Text;

/// Where and how an engine runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In a container.
    Container(Box<Container>),
    /// As a process of this host.
    Process(Process),
    /// Started by someone else.
    Attach(Attach),
    /// Told by another tool's results; nothing can be started from it.
    Imported(Imported),
}

impl Place {
    /// The executor's name in YAML.
    pub const fn executor(&self) -> &'static str {
        match self {
            Self::Container(_) => "container",
            Self::Process(_) => "process",
            Self::Attach(_) => "attach",
            Self::Imported(_) => "imported",
        }
    }
}

/// A container to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Container {
    /// The image with its tag or digest.
    pub image: String,
    /// The entrypoint, where the image's own is replaced.
    pub entrypoint: Option<Vec<Text>>,
    /// The command, which follows the entrypoint.
    pub command: Vec<Text>,
    /// Environment variables in order.
    pub env: Vec<(String, Text)>,
    /// Directories of the host that it sees.
    pub mounts: Vec<Mount>,
    /// The container runtime, such as `nvidia`.
    pub runtime: Option<String>,
    /// Which GPUs it gets.
    pub gpus: Gpus,
    /// The IPC namespace, such as `host`.
    pub ipc: Option<String>,
    /// How it is reached.
    pub network: Network,
    /// Size of `/dev/shm`; without meaning beside host IPC.
    pub shm_size: Option<Bytes>,
    /// Resource limits: name, soft and hard.
    pub ulimits: Vec<(String, i64)>,
    /// Whether an init process forwards signals and reaps.
    pub init: bool,
    /// Device nodes of the host that it sees.
    pub devices: Vec<String>,
    /// Whether it may do anything to the host.
    pub privileged: bool,
    /// The CPUs that it may use, such as `0-7,16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<String>,
    /// The most memory that it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// The most memory and swap together; as much as `memory` means no swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_swap: Option<Bytes>,
    /// Names of hosts that it knows, such as `hub:10.0.0.1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_hosts: Vec<String>,
    /// Capabilities that it has beside the usual ones, such as `SYS_PTRACE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_add: Vec<String>,
    /// Security options, such as `seccomp=unconfined`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_opt: Vec<String>,
    /// Groups that its processes belong to as well, such as `video`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_add: Vec<String>,
}

/// A directory of the host in a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mount {
    /// The directory of the host.
    pub source: Text,
    /// Where the container sees it.
    pub target: String,
    /// Whether the container may not write there.
    pub read_only: bool,
}

/// Which GPUs a container gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Gpus {
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

impl Gpus {
    /// The CDI names by which a launch with these devices asks for GPUs; none where it asks otherwise, or for none.
    pub fn cdi(self, devices: &[String]) -> Vec<String> {
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
pub enum Network {
    /// It shares the host's network; no port mapping.
    #[default]
    Host,
    /// Docker's bridge with the port mapped.
    Bridge,
}

/// A process to start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Program and arguments.
    pub command: Vec<Text>,
    /// Environment variables set on top of our own, in order.
    pub env: Vec<(String, Text)>,
    /// Which variables of our own environment it gets.
    #[serde(default, skip_serializing_if = "is_inherited")]
    pub environment: Environment,
    /// Working directory; the one of `matrix` where absent.
    pub dir: Option<Text>,
    /// The variable that names the leased devices to it, such as `CUDA_VISIBLE_DEVICES`.
    pub devices_env: Option<String>,
    /// The Python environment it runs in.
    pub venv: Option<Venv>,
}

fn is_inherited(environment: &Environment) -> bool {
    *environment == Environment::Inherited
}

/// A Python environment for one engine version. Its `bin` directory comes first in the process's `PATH`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Venv {
    /// An existing environment; where absent `matrix` keeps one of its own and installs `packages` into it.
    pub path: Option<Text>,
    /// What pip installs, such as `lmdeploy==0.10.0`.
    pub packages: Vec<String>,
    /// The distribution whose installed version must be the one asked for.
    pub distribution: Option<String>,
    /// The version asked for.
    pub version: Option<String>,
    /// The Python to make it with.
    pub python: String,
}

/// An engine that someone else started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attach {
    /// Its base URL, such as `http://host:8000`.
    pub url: Text,
    /// How many GPUs it computes on, as the matrix declares; `None` where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<NonZeroU32>,
    /// Which kind of GPU it computes on, as the matrix declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

/// What another tool's results tell of how an engine was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// The image of the container.
    pub image: Option<String>,
    /// What was installed from pip, such as `lmdeploy==0.10.0`.
    pub package: Option<String>,
    /// Which kind of GPU it computed on, as somebody declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The command, line by line as it was published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}
