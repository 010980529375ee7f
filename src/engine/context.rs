//! What a start is given, where an engine answers, and how far a start is.

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

/// What a start needs beside the launch.
pub(crate) struct Context {
    /// The run it belongs to.
    pub run: RunId,
    /// Which start of the launch, from 1.
    pub start: u32,
    /// The devices it was given.
    pub devices: Vec<u32>,
    /// What it is told that they are called, as [`Machine::device_names`](crate::results::record::machine::Machine::device_names) has it.
    pub device_names: Vec<String>,
    /// The CPUs that a container without a CPU set of its own is held to, beside a neighbour.
    pub cpus: Option<String>,
    /// Takes secrets out of what is quoted.
    pub redactor: Redactor,
    /// The values of secrets by name.
    pub secret: Secrets,
    /// The `matrix` binary, for `{matrix}`.
    pub matrix: PathBuf,
    /// The binary whose `__shim` ties processes to our life; `None` spawns programs themselves.
    pub shim: Option<PathBuf>,
    /// The `PATH` in which programs are looked up.
    pub path: Option<String>,
    /// The names of the variables of our environment.
    pub environment: Vec<String>,
    /// Where Hugging Face's cache is, for `{hf_home}`.
    pub hf_home: Option<PathBuf>,
    /// Where environments and the records of starts are kept.
    pub cache: PathBuf,
    /// Where the container daemon is.
    pub whereabouts: Whereabouts,
    /// The images of the run.
    pub images: Arc<Images>,
    /// The containers of the run that could not be removed.
    pub orphans: Arc<Orphans>,
    /// The folder of the matrix file, for `{dir}` and relative paths.
    pub folder: PathBuf,
    /// The port that the engine is to listen on.
    pub port: u16,
}

/// Where all that a start says is kept.
pub(crate) struct Logs {
    /// What the engine says.
    pub engine: store::Log,
    /// What its installation says.
    pub install: store::Log,
}

/// Gives the value of a secret.
pub(crate) type Secrets = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl Context {
    /// What fills the holes of the launch's texts.
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

    /// A text with everything filled in; `place` says where it stands.
    pub(super) fn reveal(&self, venv: Option<&Path>, text: &Text, place: &str) -> Result<String, StartError> {
        text.reveal(&|name| self.hole(venv, name), &*self.secret)
            .map_err(|source| StartError::Unfilled {
                place: place.to_owned(),
                text: text.as_str().to_owned(),
                source,
            })
    }
}

/// Where and how engines are asked for their help.
pub(crate) struct Asking<'a> {
    /// Where the container daemon listens, as `DOCKER_HOST` says it.
    pub whereabouts: &'a Whereabouts,
    /// Where answers are kept, by image or program.
    pub cache: &'a Path,
    /// The `matrix` binary, for `{matrix}`.
    pub matrix: &'a Path,
    /// The folder of the matrix file, for `{dir}`.
    pub folder: &'a Path,
    /// The `PATH` in which programs are looked up.
    pub path: Option<&'a str>,
}
