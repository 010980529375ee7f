//! The commands that a job can execute.

/// A command that runs a matrix, on one host or in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobCommand {
    Run,
    Nightly,
    Noise,
    Bisect,
    Upgrade,
}

impl JobCommand {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Nightly => "nightly",
            Self::Noise => "noise",
            Self::Bisect => "bisect",
            Self::Upgrade => "upgrade",
        }
    }

    /// Whether all that the command measures is in the plan. Confirmations and further starts are decided by results.
    pub(crate) fn measures_the_plan(self) -> bool {
        self == Self::Run
    }
}
