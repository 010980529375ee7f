//! Duration of a cell's last complete measurement.

use crate::base::ids::RunId;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LastDuration {
    /// Mean seconds per measurement.
    pub seconds: f64,
    /// Mean seconds from the start command until the engine was ready; absent if no engine was started for
    /// the cell.
    pub launch_seconds: Option<f64>,
    pub run: RunId,
    /// Whether the content hash was equal too; otherwise only the key was.
    pub same: bool,
}
