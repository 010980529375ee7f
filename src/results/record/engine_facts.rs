//! What is known of the engine that answered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is known of the engine that answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineFacts {
    /// The version that the engine reports.
    pub version: Option<String>,
    /// The models that the engine lists.
    pub models: Vec<String>,
    /// Entries of the model list for the requested model, such as `max_model_len`; absent in older runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) served: BTreeMap<String, String>,
    /// Whether the engine reports that it is simulated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) simulated: bool,
    /// Digest of the container's image.
    pub image_digest: Option<String>,
    /// Size of the container's image on disk, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_bytes: Option<u64>,
    /// The live configuration that the engine reports.
    pub(crate) info: Option<serde_json::Value>,
    /// Digest of the tokenizer that made the prompts, if known.
    pub(crate) tokenizer_digest: Option<String>,
    /// The command that started the engine, as `plan` prints it.
    pub command: Option<String>,
    /// The command with port and GPUs of this start, if it differs from `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_command: Option<String>,
    /// GPUs of the launch.
    pub devices: Vec<u32>,
}
