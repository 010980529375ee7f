//! What a start needs besides the launch, and what a query for `--help` needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::config::template::Text;
use crate::engine::docker::host::Whereabouts;
use crate::engine::docker::image::Images;
use crate::engine::docker::unremoved::Orphans;
use crate::engine::error::StartError;
use crate::results::store;

pub(crate) struct Context {
    pub run: RunId,
    /// Number of the start within the launch, from 1.
    pub start: u32,
    /// Indices of the GPUs that the start may use.
    pub devices: Vec<u32>,
    /// Names of these GPUs as the engine sees them, see
    /// [`Machine::device_names`](crate::results::record::machine::Machine::device_names).
    pub device_names: Vec<String>,
    /// CPU set of a container whose recipe sets none, if another launch runs at the same time.
    pub cpus: Option<String>,
    pub redactor: Redactor,
    pub secret: Secrets,
    pub matrix: PathBuf,
    /// The binary whose `__shim` ends processes when `matrix` ends. `None` spawns programs without the shim.
    pub shim: Option<PathBuf>,
    pub path: Option<String>,
    /// Names of the environment variables of `matrix`.
    pub environment: Vec<String>,
    /// Folder of the Hugging Face cache, for `{hf_home}`.
    pub hf_home: Option<PathBuf>,
    /// Folder of virtual environments and start records.
    pub cache: PathBuf,
    pub whereabouts: Whereabouts,
    pub images: Arc<Images>,
    /// Containers of the run that could not be removed.
    pub orphans: Arc<Orphans>,
    /// The folder of the matrix file, for `{dir}` and relative paths.
    pub folder: PathBuf,
    /// The port on which the engine must listen.
    pub port: u16,
}

/// Log files of a start.
pub(crate) struct Logs {
    pub engine: store::Log,
    pub install: store::Log,
}

/// Looks up the value of a secret by its name.
pub(crate) type Secrets = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl Context {
    /// The value of a placeholder; `None` if it has none here.
    fn hole(&self, venv: Option<&Path>, name: &str) -> Option<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        match name {
            "port" => Some(self.port.to_string()),
            "devices" => Some(self.device_list()),
            "matrix" => Some(text(&self.matrix)),
            "dir" => Some(text(&self.folder)),
            "hf_home" => self.hf_home.as_deref().map(text),
            "venv" => venv.map(text),
            _ => None,
        }
    }

    pub(super) fn device_list(&self) -> String {
        self.device_names.join(",")
    }

    /// Fills in the placeholders and secrets of `text`. `place` names its key in error messages.
    pub(super) fn reveal(&self, venv: Option<&Path>, text: &Text, place: &str) -> Result<String, StartError> {
        text.reveal(&|name| self.hole(venv, name), &*self.secret)
            .map_err(|source| StartError::Unfilled {
                place: place.to_owned(),
                text: text.as_str().to_owned(),
                source,
            })
    }
}

/// What is needed to ask an engine for its `--help`.
pub(crate) struct Asking<'a> {
    pub whereabouts: &'a Whereabouts,
    /// Folder of cached answers, keyed by image or program.
    pub cache: &'a Path,
    pub matrix: &'a Path,
    /// The folder of the matrix file, for `{dir}`.
    pub folder: &'a Path,
    pub path: Option<&'a str>,
}
