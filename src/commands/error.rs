//! Results of subcommands.

use std::io::ErrorKind;

use crate::base::text::causes;
use crate::base::threads::NoThread;
use crate::exit::Exit;
use crate::runner::host_error::HostError;

/// An exit code, or a message with an exit code.
pub(crate) type Outcome = Result<Exit, CommandError>;

/// Why a subcommand failed.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub exit: Exit,
    /// The whole message; several lines for several errors.
    pub message: String,
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
        let message = format!("error: {}\n", causes(error.as_ref()));
        match is_full {
            true => Self::stuck(message),
            false => Self::usage(message),
        }
    }

    /// A run that was started cannot continue.
    pub(crate) fn stuck(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Stuck,
            message: message.into(),
        }
    }

    /// Appends text to the message.
    #[must_use]
    pub(crate) fn beside(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    pub(crate) fn unfit(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Unfit,
            message: message.into(),
        }
    }
}

impl From<NoThread> for CommandError {
    fn from(error: NoThread) -> Self {
        Self::unfit(format!("error: {error}\nnothing was started\n"))
    }
}

impl From<anyhow::Error> for CommandError {
    fn from(error: anyhow::Error) -> Self {
        Self::unfit(format!("error: {}\n", causes(error.as_ref())))
    }
}

impl From<HostError> for CommandError {
    fn from(error: HostError) -> Self {
        Self::unfit(format!("error: {}\n", causes(&error)))
    }
}
