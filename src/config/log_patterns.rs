//! What a line of an engine's log means.

use serde::{Deserialize, Serialize};

/// Patterns of an engine's log. Each pattern is plain text that a line must contain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogPatterns {
    /// Lines that begin a phase of the start.
    pub(crate) phases: Vec<PhasePattern>,
    /// Lines that report a fatal error, even if the process keeps running.
    #[serde(rename = "fatal", alias = "dead")]
    pub(crate) dead: Vec<FatalPattern>,
    /// Texts after which a line has the configuration that the engine starts with, as `name=value` pairs separated by commas.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) configuration: Vec<String>,
}

/// A log line that begins a phase of the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct PhasePattern {
    /// Name of the phase, such as `weights`, `compile` or `graphs`.
    pub(crate) phase: String,
    /// Text that the line contains.
    pub(crate) pattern: String,
}

/// A log line that reports a fatal error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct FatalPattern {
    /// Text that the line contains.
    pub(crate) pattern: String,
    /// Meaning of the line, in a few words.
    pub(crate) means: String,
    /// How to fix the error.
    pub(crate) help: String,
    /// Whether the line alone ends the launch; default `false`: it only explains the engine's exit.
    #[serde(default)]
    pub(crate) fatal: bool,
    /// What caused the error; default `engine`.
    #[serde(default)]
    #[serde(rename = "fault", alias = "blame")]
    pub(crate) fault: FaultOwner,
}

/// Cause of an engine failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultOwner {
    /// A fault of the engine itself.
    #[default]
    Engine,
    /// Not enough memory or devices.
    Capacity,
    /// The matrix requests something impossible.
    Spec,
}
