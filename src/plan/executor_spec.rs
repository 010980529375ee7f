//! The executor of an engine with its settings, one variant for each executor. Code outside the executors
//! calls methods of [`ExecutorSpec`], so that reports and comparisons do not depend on the executor.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::base::units::Bytes;
use crate::config::container::{ContainerGpus, ContainerNetwork, Mount};
use crate::config::engine::ProcessEnvironment;
use crate::config::template::Template;

/// The executor of an engine with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutorSpec {
    /// In a container.
    Container(Box<Container>),
    /// As a process of this host.
    Process(Process),
    /// An attached server.
    Attach(AttachedServer),
    /// Known only from another tool's results; cannot be started.
    Imported(ImportedLaunch),
}

impl ExecutorSpec {
    /// The executor's name in YAML.
    pub const fn executor(&self) -> &'static str {
        match self {
            Self::Container(_) => "container",
            Self::Process(_) => "process",
            Self::Attach(_) => "attach",
            Self::Imported(_) => "imported",
        }
    }

    /// Whether it is an attached server.
    pub(crate) const fn is_attached(&self) -> bool {
        matches!(self, Self::Attach(_))
    }

    /// Origin of the engine, in words that follow "engine".
    pub const fn describe_origin(&self) -> &'static str {
        match self {
            Self::Container(_) => "from an image",
            Self::Process(process) if process.venv.is_some() => "from pip",
            Self::Process(_) => "as a process",
            Self::Attach(_) => "that was already running",
            Self::Imported(imported) => match (&imported.image, &imported.package) {
                (Some(_), _) => "from an image",
                (None, Some(_)) => "from pip",
                (None, None) => "of unknown origin",
            },
        }
    }

    /// The container image.
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

    /// The command that starts it (for a container, the arguments of the entrypoint). `None` if `matrix` does
    /// not start it.
    pub fn command(&self) -> Option<&[Template]> {
        match self {
            Self::Container(container) => Some(&container.command),
            Self::Process(process) => Some(&process.command),
            Self::Attach(_) | Self::Imported(_) => None,
        }
    }

    /// Environment variables to set, in order.
    pub fn env(&self) -> &[(String, Template)] {
        match self {
            Self::Container(container) => &container.env,
            Self::Process(process) => &process.env,
            Self::Attach(_) | Self::Imported(_) => &[],
        }
    }

    /// Every text that may name a secret.
    pub fn templates(&self) -> Vec<&Template> {
        let env = self.env().iter().map(|(_, value)| value);
        let mut texts: Vec<&Template> = self.command().into_iter().flatten().chain(env).collect();
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

    /// Number of GPUs, if its launch needs `devices`; `None` if unknown.
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

    /// Returns the measured build itself: a container by its image's digest, because its tag may have moved.
    ///
    /// # Errors
    /// Why that build cannot be started.
    pub(crate) fn pin(mut self, digest: Option<&str>) -> Result<Self, &'static str> {
        match &mut self {
            Self::Container(container) => digest
                .ok_or("the digest of its image is unknown")?
                .clone_into(&mut container.image),
            Self::Process(_) => {}
            Self::Attach(_) => return Err("it is an attached server, which `matrix` does not start"),
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
    /// The entrypoint, if it replaces the image's own.
    pub entrypoint: Option<Vec<Template>>,
    /// The arguments of the entrypoint.
    pub command: Vec<Template>,
    /// Environment variables, in order.
    pub env: Vec<(String, Template)>,
    /// Mounted folders of the host.
    pub mounts: Vec<Mount>,
    /// The container runtime, such as `nvidia`.
    pub runtime: Option<String>,
    /// GPUs of the container.
    pub gpus: ContainerGpus,
    /// The IPC namespace, such as `host`.
    pub ipc: Option<String>,
    /// The network mode.
    pub network: ContainerNetwork,
    /// Size of `/dev/shm`; without effect with host IPC.
    pub shm_size: Option<Bytes>,
    /// Resource limits: name and value.
    pub ulimits: Vec<(String, i64)>,
    /// Whether an init process forwards signals and reaps children.
    pub init: bool,
    /// Device nodes of the host.
    pub devices: Vec<String>,
    /// Whether the container is privileged.
    pub privileged: bool,
    /// CPUs that it may use, such as `0-7,16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<String>,
    /// Memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Limit of memory and swap together; equal to `memory` means no swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_swap: Option<Bytes>,
    /// Additional host names, such as `hub:10.0.0.1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_hosts: Vec<String>,
    /// Additional capabilities, such as `SYS_PTRACE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_add: Vec<String>,
    /// Security options, such as `seccomp=unconfined`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_opt: Vec<String>,
    /// Additional groups of its processes, such as `video`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_add: Vec<String>,
}

/// A process to start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Program and arguments.
    pub command: Vec<Template>,
    /// Environment variables on top of the inherited ones, in order.
    pub env: Vec<(String, Template)>,
    /// Variables that the process inherits.
    #[serde(default, skip_serializing_if = "is_inherited")]
    pub environment: ProcessEnvironment,
    /// Working folder; that of `matrix` if absent.
    pub dir: Option<Template>,
    /// The variable that tells the process its leased GPUs, such as `CUDA_VISIBLE_DEVICES`.
    pub devices_env: Option<String>,
    /// The Python environment.
    pub venv: Option<Venv>,
}

fn is_inherited(environment: &ProcessEnvironment) -> bool {
    *environment == ProcessEnvironment::Inherited
}

/// A Python environment for one engine version. Its `bin` folder comes first in the process's `PATH`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Venv {
    /// An existing environment; if absent, `matrix` creates its own and installs `packages` into it.
    pub path: Option<Template>,
    /// Packages for pip, such as `lmdeploy==0.10.0`.
    pub packages: Vec<String>,
    /// The distribution whose installed version must be `version`.
    pub distribution: Option<String>,
    /// The required version.
    pub version: Option<String>,
    /// The Python interpreter that creates the environment.
    pub python: String,
}

/// An attached server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttachedServer {
    /// Its base URL, such as `http://host:8000`.
    pub url: Template,
    /// Number of GPUs as declared in the matrix; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<NonZeroU32>,
    /// GPU model as declared in the matrix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

/// How an imported engine was started, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedLaunch {
    /// The container image.
    pub image: Option<String>,
    /// The package from pip, such as `lmdeploy==0.10.0`.
    pub package: Option<String>,
    /// GPU model as declared by the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The published command, line by line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}
