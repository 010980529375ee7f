//! Where and how an engine runs: one variant for each executor. Code outside of the executors asks a [`Place`] by its methods, so that
//! a new executor changes nothing in reports and comparisons.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::base::units::Bytes;
use crate::config::container::{Gpus, Mount, Network};
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

    /// Whether someone else started it.
    pub(crate) const fn is_attached(&self) -> bool {
        matches!(self, Self::Attach(_))
    }

    /// Where the engine came from, in words that follow "engine".
    pub const fn origin(&self) -> &'static str {
        match self {
            Self::Container(_) => "from an image",
            Self::Process(process) if process.venv.is_some() => "from pip",
            Self::Process(_) => "as a process",
            Self::Attach(_) => "that ran already",
            Self::Imported(imported) => match (&imported.image, &imported.package) {
                (Some(_), _) => "from an image",
                (None, Some(_)) => "from pip",
                (None, None) => "of unknown origin",
            },
        }
    }

    /// The image that it runs from.
    pub fn image(&self) -> Option<&str> {
        match self {
            Self::Container(container) => Some(&container.image),
            Self::Imported(imported) => imported.image.as_deref(),
            Self::Process(_) | Self::Attach(_) => None,
        }
    }

    /// The shell line that installs it from pip, where it comes from there.
    pub(crate) fn pip_install(&self) -> Option<String> {
        let (python, packages) = match self {
            Self::Process(process) => {
                let venv = process.venv.as_ref().filter(|venv| !venv.packages.is_empty())?;
                (venv.python.as_str(), venv.packages.join(" "))
            }
            Self::Imported(imported) => ("python3", imported.package.clone()?),
            Self::Container(_) | Self::Attach(_) => return None,
        };
        Some(format!("{python} -m pip install {packages}"))
    }

    /// The command that starts it: of a container what follows the entrypoint. `None` where `matrix` does not start it.
    pub fn command(&self) -> Option<&[Text]> {
        match self {
            Self::Container(container) => Some(&container.command),
            Self::Process(process) => Some(&process.command),
            Self::Attach(_) | Self::Imported(_) => None,
        }
    }

    /// The environment variables that are set for it, in order.
    pub fn env(&self) -> &[(String, Text)] {
        match self {
            Self::Container(container) => &container.env,
            Self::Process(process) => &process.env,
            Self::Attach(_) | Self::Imported(_) => &[],
        }
    }

    /// Every text that may name a secret.
    pub fn texts(&self) -> Vec<&Text> {
        let env = self.env().iter().map(|(_, value)| value);
        let mut texts: Vec<&Text> = self.command().into_iter().flatten().chain(env).collect();
        match self {
            Self::Container(container) => {
                texts.extend(container.entrypoint.iter().flatten());
                texts.extend(container.mounts.iter().map(|mount| &mount.source));
            }
            Self::Process(process) => {
                texts.extend(&process.dir);
                texts.extend(process.venv.iter().filter_map(|venv| venv.path.as_ref()));
            }
            Self::Attach(attach) => texts.push(&attach.url),
            Self::Imported(_) => {}
        }
        texts
    }

    /// How many GPUs it computes on where its launch needs `devices`; `None` where nothing declares it.
    pub fn gpus(&self, devices: u32) -> Option<u32> {
        match self {
            Self::Attach(attach) => attach.gpus.map(NonZeroU32::get),
            Self::Container(_) | Self::Process(_) | Self::Imported(_) => Some(devices),
        }
    }

    /// The kind of GPU that the matrix or an import declares.
    pub(crate) fn declared_gpu(&self) -> Option<&str> {
        match self {
            Self::Attach(attach) => attach.gpu.as_deref(),
            Self::Imported(imported) => imported.gpu.as_deref(),
            Self::Container(_) | Self::Process(_) => None,
        }
    }

    /// The same build whatever its tag means by now: a container by the digest of its image.
    ///
    /// # Errors
    /// Why that build cannot be started.
    pub(crate) fn pinned(mut self, digest: Option<&str>) -> Result<Self, &'static str> {
        match &mut self {
            Self::Container(container) => digest
                .ok_or("the digest of its image is not known")?
                .clone_into(&mut container.image),
            Self::Process(_) => {}
            Self::Attach(_) => return Err("somebody else starts it"),
            Self::Imported(_) => return Err("it was imported"),
        }
        Ok(self)
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
