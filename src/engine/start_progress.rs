use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// Latest phase in the engine's log, such as `weights`.
    pub(crate) phase: String,
    /// Time since the process was started.
    pub(crate) elapsed: Duration,
    /// Last line of the engine's log.
    pub(crate) last_line: String,
}

pub(crate) type ProgressFn<'a> = &'a (dyn Fn(Progress) + Sync);
