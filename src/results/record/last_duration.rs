//! Duration of a cell's last complete measurement.

use crate::base::ids::RunId;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LastDuration {
    /// Mean seconds per measurement.
    pub(crate) seconds: f64,
    /// Mean seconds from the start command until the engine was ready; absent if no engine was started for
    /// the cell.
    pub(crate) launch_seconds: Option<f64>,
    pub(crate) run: RunId,
    /// Whether the content hash was equal too; otherwise only the key was.
    pub(crate) same: bool,
}
