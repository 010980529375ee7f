//! How long a cell took the last time.

use crate::base::ids::RunId;

/// How long a cell took when it was last measured to its end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LastDuration {
    /// Seconds for one measurement; the mean of several.
    pub seconds: f64,
    /// Seconds from the command until the engine was ready; the mean of its starts, absent if no engine was started for it.
    pub launch_seconds: Option<f64>,
    /// The run that measured it.
    pub run: RunId,
    /// Whether the cell was the same; otherwise only its key is.
    pub same: bool,
}
