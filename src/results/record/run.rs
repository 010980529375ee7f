//! A run as a whole: what it is, where its parts lie.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::RunId;

/// What a run is: the first thing that is read of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The version of the layout.
    pub format: u32,
    /// The run's name.
    pub run: RunId,
    /// The matrix's name.
    pub matrix: String,
    /// The version of `matrix` that began it, with its revision.
    pub tool: String,
    /// When it began, RFC 3339.
    pub began: String,
    /// Where things are, below the run's folder: for readers that do not know the layout.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}
