//! The machine that measured.

use serde::{Deserialize, Serialize};

/// What is known of the machine and the tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub host: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Operating system's name.
    pub os: Option<String>,
    /// CPU model.
    pub cpu: Option<String>,
    /// Logical CPUs that we may use.
    pub cpus: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// GPUs by index: name, as far as the host tells without a driver library.
    pub gpus: Vec<String>,
    /// Whether the GPUs are only pretended, to try things out; rows measured on them say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gpus_pretended: bool,
    /// The GPU driver's version.
    pub driver: Option<String>,
    /// The limit of open files after it was raised.
    pub open_files: Option<u64>,
    /// The version of `matrix`, with its revision.
    pub tool: String,
}
