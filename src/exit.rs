//! The exit codes, documented in the README and in `--help`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for was done.
    Done,
    /// Something got worse; it outranks a failed cell.
    Regression,
    /// Wrong flags or a wrong file; nothing was started.
    Usage,
    /// A cell failed or stayed invalid.
    CellFailed,
    /// Preflight failed: the machine or a server is not ready; nothing was started.
    HostNotReady,
    /// There was something to judge, and nothing of it could be.
    NotJudged,
    /// It was started and cannot go on, as when the disk is full, or its answer cannot be written to stdout; what was measured is saved.
    CannotContinue,
    /// Stopped by a signal; what was measured is saved.
    Interrupted,
    /// The simulated engine ends as a planted fault demands.
    InjectedFault(u8),
}

impl Exit {
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
