//! What a start needs besides the launch, and what a query for `--help` needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::config::template::Template;
use crate::engine::docker::host::DockerEnv;
use crate::engine::docker::image::Images;
use crate::engine::docker::unremoved::UnremovedContainers;
use crate::engine::error::StartError;
use crate::plan::Ports;
use crate::results::store;

pub(crate) struct StartContext {
    pub(crate) run: RunId,
    /// Number of the start within the launch, from 1.
    pub(crate) start: u32,
    /// Indices of the GPUs that the start may use.
    pub(crate) devices: Vec<u32>,
    /// Names of these GPUs as the engine sees them, see
    /// [`Machine::device_names`](crate::results::record::machine::Machine::device_names).
    pub(crate) device_names: Vec<String>,
    /// CPU set of a container whose recipe sets none, if another launch runs at the same time.
    pub(crate) cpus: Option<String>,
    pub(crate) redactor: Redactor,
    pub(crate) secrets: Secrets,
    pub(crate) matrix_binary: PathBuf,
    /// The binary whose `__shim` ends processes when `matrix` ends. `None` spawns programs without the shim.
    pub(crate) shim_binary: Option<PathBuf>,
    pub(crate) path: Option<String>,
    /// Names of the environment variables of `matrix`.
    pub(crate) variable_names: Vec<String>,
    /// Folder of the Hugging Face cache, for `{hf_home}`.
    pub(crate) hf_home: Option<PathBuf>,
    /// Folder of virtual environments and start records.
    pub(crate) cache_dir: PathBuf,
    pub(crate) docker_env: DockerEnv,
    pub(crate) images: Arc<Images>,
    /// Containers of the run that could not be removed.
    pub(crate) unremoved: Arc<UnremovedContainers>,
    /// The folder of the matrix file, for `{dir}` and relative paths.
    pub(crate) folder: PathBuf,
    /// The port on which the engine must listen.
    pub(crate) port: u16,
    /// Ports of its further processes.
    pub(crate) further_ports: Vec<u16>,
    pub(crate) job_nodes: JobNodes,
}

/// The nodes of the job of a cluster that `matrix` runs in; empty outside of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobNodes {
    /// Their names, this host first.
    pub(crate) names: Vec<String>,
    /// The addresses by which they reach one another, in the same order.
    pub(crate) addresses: Vec<String>,
}

impl JobNodes {
    /// The address of a node by its number; `None` outside of a job and for a node that it does not have.
    pub(crate) fn address(&self, node: u32) -> Option<String> {
        self.addresses.get(node as usize).cloned()
    }
}

/// Log files of a start.
pub(crate) struct Logs {
    pub(crate) engine: store::Log,
    pub(crate) install: store::Log,
}

/// Looks up the value of a secret by its name.
pub(crate) type Secrets = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl StartContext {
    /// The value of a placeholder; `None` if it has none here.
    fn placeholder(&self, venv: Option<&Path>, name: &str) -> Option<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        match name {
            "port" => Some(self.port.to_string()),
            "devices" => Some(self.device_list()),
            "matrix" => Some(text(&self.matrix_binary)),
            "dir" => Some(text(&self.folder)),
            "hf_home" => self.hf_home.as_deref().map(text),
            "venv" => venv.map(text),
            _ => None,
        }
    }

    pub(super) fn device_list(&self) -> String {
        self.device_names.join(",")
    }

    /// The ports of the processes of the engine.
    pub(super) fn ports(&self) -> Ports {
        Ports {
            endpoint: self.port,
            further: self.further_ports.clone(),
        }
    }

    /// Fills in the placeholders and secrets of `text`. `place` names its key in error messages.
    pub(super) fn fill(
        &self,
        venv: Option<&Path>,
        text: &Template,
        location: &str,
    ) -> Result<String, StartError> {
        text.expand(&|name| self.placeholder(venv, name), &*self.secrets)
            .map_err(|source| StartError::UnfilledText {
                location: location.to_owned(),
                text: text.as_str().to_owned(),
                source,
            })
    }
}

/// What is needed to ask an engine for its `--help`.
pub(crate) struct HelpContext<'a> {
    pub(crate) docker_env: &'a DockerEnv,
    /// Folder of cached answers, keyed by image or program.
    pub(crate) cache_dir: &'a Path,
    pub(crate) matrix: &'a Path,
    /// The folder of the matrix file, for `{dir}`.
    pub(crate) folder: &'a Path,
    pub(crate) path: Option<&'a str>,
}
