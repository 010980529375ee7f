//! A run as a whole: its identity and the paths of its files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::RunId;

/// The identity of a run; readers read it first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The version of the files on disk.
    pub(crate) format: u32,
    pub(crate) run: RunId,
    pub matrix: String,
    /// Version and revision of the `matrix` that began the run.
    pub(crate) tool: String,
    /// When the run began, RFC 3339.
    pub(crate) began: String,
    /// Paths of the files, relative to the run's folder, for readers that do not know the layout.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, String>,
}
