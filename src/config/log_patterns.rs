//! What a line of an engine's log means.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an engine's log says about its state. All patterns are plain parts of a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Signs {
    /// Lines that begin a phase of starting.
    pub phases: Vec<PhasePattern>,
    /// Lines that mean it is dead, though its process may live on.
    #[serde(rename = "fatal", alias = "dead")]
    pub dead: Vec<FatalPattern>,
}

/// A line that begins a phase of starting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhasePattern {
    /// The phase, such as `weights`, `compile` or `graphs`.
    pub phase: String,
    /// A part of the line.
    pub pattern: String,
}

/// A line that means an engine is dead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FatalPattern {
    /// A part of the line.
    pub pattern: String,
    /// What it means, in a few words.
    pub means: String,
    /// What to try.
    pub help: String,
    /// Whether the line alone ends the launch; otherwise it only explains a death.
    #[serde(default)]
    pub fatal: bool,
    /// Whose fault it is.
    #[serde(default)]
    #[serde(rename = "fault", alias = "blame")]
    pub fault: FaultOwner,
}

/// Whose fault the death of an engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultOwner {
    /// The engine's own.
    #[default]
    Engine,
    /// Too little memory or too few devices.
    Capacity,
    /// What the matrix asks for cannot be.
    Spec,
}
