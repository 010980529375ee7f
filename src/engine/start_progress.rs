//! How far a start is.

use std::time::Duration;

/// How far a start is.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// What it does, such as `weights`: the phase that its log told last.
    pub phase: String,
    /// The time since its process was started.
    pub elapsed: Duration,
    /// The last line of its log.
    pub last_line: String,
}

/// Hears how far a start is.
pub(crate) type Tell<'a> = &'a (dyn Fn(Progress) + Sync);
