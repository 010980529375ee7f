//! The environment variables and folders that a run depends on. `cli` reads them; the values are passed in, so that tests can set them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::base::secrets::secret_of;
use crate::config::gpus::GpuList;
pub(crate) use crate::engine::Pull as PullPolicy;
use crate::engine::{self, Whereabouts};
use crate::loadgen::dataset::Caches;
use crate::plan::{Launch, Place, Plan};

/// The environment of the process.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// Reads a variable that is set and not empty.
    pub(crate) variable: fn(&str) -> Option<String>,
    /// The names of all variables.
    pub(crate) names: Vec<String>,
    /// The name and version of the tool, as results record them.
    pub(crate) tool: String,
    /// NVIDIA's management library, if another one than the default is named.
    pub(crate) nvml_library: Option<PathBuf>,
    /// The number of GPUs to pretend, or what is wrong with it.
    pub(crate) pretended_gpus: Result<Option<u32>, String>,
    /// The variable that restricts the visible GPUs, and its list; no list means no GPU.
    pub(crate) visible_gpus: Option<(&'static str, Option<GpuList>)>,
    /// The folder of GPU locks, if another one than the default is named.
    pub(crate) locks: Option<PathBuf>,
}

/// The folders of caches.
#[derive(Clone, Debug)]
pub(crate) struct CacheDirs {
    pub(crate) hf_home: Option<PathBuf>,
    /// Python environments, prepared data and records of starts.
    pub(crate) cache: PathBuf,
    /// Prepared prompts; `None` prepares them anew and keeps none.
    pub(crate) prompts: Option<PathBuf>,
}

impl CacheDirs {
    /// Where data sets and tokenizers are looked up.
    pub(crate) fn inputs(&self) -> Caches {
        Caches {
            hf_home: self.hf_home.clone(),
            prompts: self.prompts.clone(),
        }
    }
}

impl Environment {
    /// The value of a variable.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name)
    }

    /// The values of variables whose names are names of secrets.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let secret = |name: &String| Some(secret_of(name, &self.variable(name)?)?.to_owned());
        self.names.iter().filter_map(secret).collect()
    }

    /// The secrets that a plan names, by name, as far as they are set.
    pub(crate) fn secrets_of(&self, plan: &Plan) -> BTreeMap<String, String> {
        let names: BTreeSet<String> = plan.launches.iter().flat_map(|launch| launch.secrets()).collect();
        names
            .into_iter()
            .filter_map(|name| self.variable(&name).map(|value| (name, value)))
            .collect()
    }

    /// The part of the environment that a launch passes to its process, in words; `None` if that is simply all of it.
    pub(crate) fn passed_to(&self, launch: &Launch) -> Option<String> {
        match &launch.place {
            Place::Process(process) => engine::environment_described(launch, process, &self.names),
            _ => None,
        }
    }

    /// The address of the container daemon, from the variables that Docker's own client reads.
    pub(crate) fn docker(&self) -> Whereabouts {
        let home = || Some(PathBuf::from(self.variable("HOME")?).join(".docker"));
        let path = |name: &str| self.variable(name).map(PathBuf::from);
        Whereabouts {
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
