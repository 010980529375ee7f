//! Why an engine could not be started.

use crate::config::template::Unfilled;
use crate::engine::docker::refused::Refused;
use crate::engine::program::NoProgram;
use crate::engine::venv::VenvError;
use crate::results::record::cell::{FailureClass, Phase};

/// Why an engine could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// A text has a hole or a secret that nothing fills.
    #[error("`{text}` in {place}: {source}")]
    Unfilled {
        /// Where the text stands.
        place: String,
        /// The text as written.
        text: String,
        source: Unfilled,
    },
    /// The recipe's command is empty.
    #[error(
        "the recipe of engine `{engine}` has an empty command; write the program and its arguments in `command:`"
    )]
    NoCommand { engine: String },
    /// The program is nowhere.
    #[error(transparent)]
    NoProgram(#[from] NoProgram),
    /// The working directory is no directory.
    #[error("the working directory {dir} does not exist; make it, or mend `dir:` of the recipe")]
    NoFolder { dir: String },
    /// Somebody else listens on the port.
    #[error(
        "port {port} is taken by another process; stop it, or take `port:` out: then a free one is chosen"
    )]
    PortTaken { port: u16 },
    /// The URL to attach to cannot be used.
    #[error("the url `{url}` cannot be attached to: {reason}; write it like `http://host:8000`")]
    Url {
        /// The URL as written.
        url: String,
        reason: String,
    },
    /// A header cannot be sent.
    #[error("the header `{name}` cannot be sent: {reason}; mend `headers:` of the recipe")]
    Header { name: String, reason: String },
    /// The container daemon refuses.
    #[error(transparent)]
    Container(Box<Refused>),
    /// The Python environment cannot be had.
    #[error(transparent)]
    Venv(#[from] VenvError),
    /// The system refuses to start the process.
    #[error("`{program}` could not be started: {source}")]
    Spawn {
        program: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The marks by which a process is found again cannot be made.
    #[error("/proc cannot be read, by which `matrix` finds its own processes again: {0}")]
    Proc(#[from] procfs::ProcError),
}

impl StartError {
    /// Where the start failed.
    pub(crate) const fn phase(&self) -> Phase {
        match self {
            Self::Venv(_) => Phase::Install,
            Self::Container(refused) => refused.phase(),
            _ => Phase::Launch,
        }
    }

    /// Whose fault it seems.
    pub(crate) const fn class(&self) -> FailureClass {
        match self {
            Self::Venv(error) => error.class(),
            Self::Container(refused) => refused.class(),
            Self::Spawn { .. } | Self::Proc(_) => FailureClass::Infrastructure,
            _ => FailureClass::Spec,
        }
    }

    /// What was said last before it failed.
    pub(crate) fn tail(&self) -> Vec<String> {
        match self {
            Self::Venv(error) => error.tail().to_vec(),
            _ => Vec::new(),
        }
    }
}
