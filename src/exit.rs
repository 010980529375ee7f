//! The exit codes, documented in the README and in `--help`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// A metric or the reliability got worse; takes precedence over a failed cell.
    Regression,
    /// Wrong flags or a wrong file; nothing was started.
    Usage,
    /// A cell failed or stayed invalid.
    CellFailed,
    /// Preflight failed: the machine or a server is not ready; nothing was started.
    HostNotReady,
    /// Nothing could be judged.
    NotJudged,
    /// The command started but could not continue, for example because the disk is full or stdout cannot be written; finished
    /// measurements are saved.
    CannotContinue,
    /// Stopped by a signal; finished measurements are saved.
    Interrupted,
    /// The simulated engine exits with the status of an injected fault.
    InjectedFault(u8),
}

impl Exit {
    /// The exit of a command that ended with this code, which is none of the simulated engine.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        let all = [
            Self::Done,
            Self::Regression,
            Self::Usage,
            Self::CellFailed,
            Self::HostNotReady,
            Self::NotJudged,
            Self::CannotContinue,
            Self::Interrupted,
        ];
        all.into_iter().find(|exit| exit.code() == code)
    }

    /// The code that the shell sees.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Regression => 1,
            Self::Usage => 2,
            Self::CellFailed => 3,
            Self::HostNotReady => 4,
            Self::NotJudged => 5,
            Self::CannotContinue => 6,
            Self::Interrupted => 130,
            Self::InjectedFault(code) => code,
        }
    }
}
