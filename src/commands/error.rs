//! Results of subcommands.

use std::io::ErrorKind;

use crate::base::text::error_chain;
use crate::base::threads::ThreadLimitError;
use crate::exit::Exit;
use crate::runner::host_error::HostError;

/// An exit code, or a message with an exit code.
pub(crate) type Outcome = Result<Exit, CommandError>;

/// Why a subcommand failed.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) exit: Exit,
    /// The whole message; several lines for several errors.
    pub(crate) message: String,
}

impl CommandError {
    /// Wrong arguments or files.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            message: message.into(),
        }
    }

    /// The output cannot be written.
    pub(crate) fn unwritable(error: anyhow::Error) -> Self {
        let full = [
            ErrorKind::StorageFull,
            ErrorKind::QuotaExceeded,
            ErrorKind::FileTooLarge,
        ];
        let mut broken = error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<std::io::Error>());
        let is_full = broken.any(|error| full.contains(&error.kind()));
        let message = format!("error: {}\n", error_chain(error.as_ref()));
        match is_full {
            true => Self::cannot_continue(message),
            false => Self::usage(message),
        }
    }

    /// A run that was started cannot continue.
    pub(crate) fn cannot_continue(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::CannotContinue,
            message: message.into(),
        }
    }

    /// Appends text to the message.
    #[must_use]
    pub(crate) fn with_text(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    pub(crate) fn host_not_ready(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::HostNotReady,
            message: message.into(),
        }
    }
}

impl From<ThreadLimitError> for CommandError {
    fn from(error: ThreadLimitError) -> Self {
        Self::host_not_ready(format!("error: {error}\nnothing was started\n"))
    }
}

impl From<anyhow::Error> for CommandError {
    fn from(error: anyhow::Error) -> Self {
        Self::host_not_ready(format!("error: {}\n", error_chain(error.as_ref())))
    }
}

impl From<HostError> for CommandError {
    fn from(error: HostError) -> Self {
        Self::host_not_ready(format!("error: {}\n", error_chain(&error)))
    }
}
