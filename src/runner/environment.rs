//! Environment variables and folders that a run depends on. `cli` reads them; they are passed in, so that
//! tests can set them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::base::secrets::secret_part;
use crate::config::gpus::GpuList;
pub(crate) use crate::engine::PullPolicy;
use crate::engine::{self, DockerEnv};
use crate::loadgen::dataset::Caches;
use crate::plan::{Launch, Plan};

#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// Reads a variable; `None` if it is unset or empty.
    pub(crate) variable: fn(&str) -> Option<String>,
    /// Names of all variables.
    pub(crate) names: Vec<String>,
    /// Name and version of the tool, as results record them.
    pub(crate) tool: String,
    /// NVIDIA's management library, if not the default.
    pub(crate) nvml_library: Option<PathBuf>,
    /// Number of simulated GPUs, or the error in that variable.
    pub(crate) pretended_gpus: Result<Option<u32>, String>,
    /// The variable that restricts the visible GPUs, and its list; no list means no GPU.
    pub(crate) visible_gpus: Option<(&'static str, Option<GpuList>)>,
    /// Folder of GPU locks, if not the default.
    pub(crate) lock_folder: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(crate) struct CacheDirs {
    pub(crate) hf_home: Option<PathBuf>,
    /// Folder of Python environments, prepared data and start records.
    pub(crate) cache: PathBuf,
    /// Folder of prepared prompts; `None` prepares them in each run and stores none.
    pub(crate) prompts: Option<PathBuf>,
}

impl CacheDirs {
    /// The Hugging Face home, in which data sets and tokenizers are searched, and the folder of prepared prompts.
    pub(crate) fn input_caches(&self) -> Caches {
        Caches {
            hf_home: self.hf_home.clone(),
            prompts: self.prompts.clone(),
        }
    }
}

impl Environment {
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name)
    }

    /// Values of all variables whose names look like secrets.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let secret = |name: &String| Some(secret_part(name, &self.variable(name)?)?.to_owned());
        self.names.iter().filter_map(secret).collect()
    }

    /// The plan's secrets that are set, by name.
    pub(crate) fn secrets_of(&self, plan: &Plan) -> BTreeMap<String, String> {
        let names: BTreeSet<String> = plan.launches.iter().flat_map(|launch| launch.secrets()).collect();
        names
            .into_iter()
            .filter_map(|name| self.variable(&name).map(|value| (name, value)))
            .collect()
    }

    /// Describes the part of the environment that a launch passes to its process; `None` if it passes
    /// everything.
    pub(crate) fn describe_passed(&self, launch: &Launch) -> Option<String> {
        engine::describe_inherited(launch, &self.names)
    }

    /// Address of the container daemon, from the variables that Docker's client reads.
    pub(crate) fn docker(&self) -> DockerEnv {
        let home = || Some(PathBuf::from(self.variable("HOME")?).join(".docker"));
        let path = |name: &str| self.variable(name).map(PathBuf::from);
        DockerEnv {
            host: self.variable("DOCKER_HOST"),
            context: self.variable("DOCKER_CONTEXT"),
            config: path("DOCKER_CONFIG").or_else(home),
            tls_verify: self.variable("DOCKER_TLS_VERIFY").is_some(),
            tls: self.variable("DOCKER_TLS").is_some(),
            cert_path: path("DOCKER_CERT_PATH"),
            path: self.variable("PATH"),
        }
    }
}
