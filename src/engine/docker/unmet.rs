//! Something that a daemon or an attached server lacks for the launches of a run.

use crate::engine::docker::docker_error::DockerError;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unmet {
    /// What is missing, and which launch needs it.
    pub(crate) problem: String,
    pub(crate) help: String,
}

impl From<&DockerError> for Unmet {
    fn from(docker_error: &DockerError) -> Self {
        Self {
            problem: format!("{}: {}", docker_error.problem(), docker_error.message.trim()),
            help: docker_error.diagnosis.help.clone(),
        }
    }
}
