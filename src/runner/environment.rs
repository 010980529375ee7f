//! The environment variables that a run depends on. `cli` reads them; the values are passed in, so that tests can set them.

use std::path::PathBuf;

use crate::base::secrets::secret_of;
pub(crate) use crate::engine::Pull as PullPolicy;
use crate::engine::Whereabouts;

/// The environment of the process.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// Reads a variable that is set and not empty.
    pub(crate) variable: fn(&str) -> Option<String>,
    /// The names of all variables.
    pub(crate) names: Vec<String>,
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
