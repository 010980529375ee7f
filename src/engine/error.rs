use crate::config::template::ExpandError;
use crate::engine::docker::docker_error::DockerError;
use crate::engine::program::ProgramNotFound;
use crate::engine::venv::VenvError;
use crate::results::record::cell::{FailureClass, Phase};

#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// A text has a placeholder or a secret without a value.
    #[error("`{text}` in {location}: {source}")]
    UnfilledText {
        location: String,
        /// As written in the recipe, without secrets.
        text: String,
        source: ExpandError,
    },
    #[error(
        "the recipe of engine `{engine}` has an empty command; write the program and its arguments in `command:`"
    )]
    NoCommand { engine: String },
    #[error(transparent)]
    ProgramNotFound(#[from] ProgramNotFound),
    #[error("the working directory {dir} does not exist; create it, or correct `dir:` of the recipe")]
    MissingFolder { dir: String },
    #[error(
        "port {port} is used by another process; stop it, or remove `port:` so that a free port is chosen"
    )]
    PortTaken { port: u16 },
    #[error("the url `{url}` cannot be used: {reason}; write it as `http://host:8000`")]
    Url {
        /// As written in the matrix, without secrets.
        url: String,
        reason: String,
    },
    #[error("`tls:` of the engine cannot be used: {0}")]
    Tls(String),
    #[error("the header `{name}` cannot be sent: {reason}; correct `headers:` of the recipe")]
    Header { name: String, reason: String },
    #[error(transparent)]
    Container(Box<DockerError>),
    #[error(transparent)]
    Venv(#[from] VenvError),
    #[error("`{program}` could not be started: {source}")]
    Spawn {
        program: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// One process of several cannot be started.
    #[error("the process `{name}`: {source}")]
    Member { name: String, source: Box<StartError> },
    /// Ownership tags need the boot id and start time from `/proc`.
    #[error("`matrix` needs /proc to identify its own processes, but /proc cannot be read: {0}")]
    Proc(#[from] procfs::ProcError),
}

impl StartError {
    pub(crate) const fn phase(&self) -> Phase {
        match self {
            Self::Venv(_) => Phase::Install,
            Self::Container(refused) => refused.phase(),
            Self::Member { source, .. } => source.phase(),
            _ => Phase::Launch,
        }
    }

    pub(crate) const fn class(&self) -> FailureClass {
        match self {
            Self::Venv(error) => error.class(),
            Self::Container(refused) => refused.class(),
            Self::Member { source, .. } => source.class(),
            Self::Spawn { .. } | Self::Proc(_) => FailureClass::Infrastructure,
            _ => FailureClass::Spec,
        }
    }

    /// Last lines of output before the failure.
    pub(crate) fn tail(&self) -> Vec<String> {
        match self {
            Self::Venv(error) => error.tail().to_vec(),
            _ => Vec::new(),
        }
    }
}
